"""An embedded server ends with its owner, however the owner ends, and not before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from pwd import getpwnam
from typing import Any

import pytest

from ephemera.embedded import Postgres, Valkey, postgres, valkey
from ephemera.errors import EmbeddedError
from tests.embedded.owners import Owner, alive, eventually, family, python_for_any_user

STARTS = {
    "valkey": "servers = [valkey()]",
    "postgres": "servers = [postgres()]",
    "cluster": "servers = cluster().nodes",
}
FORK = """
if os.fork() == 0:
    report(survivor=os.getpid())
    time.sleep(60)
    os._exit(0)
"""


def processes_of(facts: dict[str, Any]) -> list[int]:
    """Return the ids of all processes of the reported servers."""
    return [pid for supervisor in facts["supervisors"] for pid in family(supervisor)]


def assert_none_left(processes: list[int], folders: list[str]) -> None:
    """Wait until the processes have ended and the folders are removed."""
    assert eventually(lambda: not any(map(alive, processes)))
    assert eventually(lambda: not any(Path(folder).exists() for folder in folders))


def test_a_killed_owner_leaves_nothing() -> None:
    """SIGKILL of the owner ends its servers and removes their folders."""
    with Owner(f"{STARTS['valkey']}\nreport_servers(*servers)\nsignal.pause()") as owner:
        facts = owner.next_report()
        processes = processes_of(facts)
        assert len(processes) == 2
        owner.kill()
        assert_none_left(processes, facts["folders"])


@pytest.mark.parametrize("kind", STARTS)
def test_a_child_that_outlives_the_owner_keeps_no_server_alive(kind: str) -> None:
    """A forked child holds the owner's pipes, and still the servers end with the owner."""
    with Owner(f"{STARTS[kind]}\nreport_servers(*servers)\n{FORK}\nsignal.pause()") as owner:
        facts = owner.next_report()
        survivor = owner.next_report()["survivor"]
        processes = processes_of(facts)
        owner.kill()
        assert_none_left(processes, facts["folders"])
        assert alive(survivor)
        os.kill(survivor, signal.SIGKILL)


def test_an_owner_that_just_exits_leaves_nothing() -> None:
    """An owner may exit without calling stop()."""
    with Owner(f"{STARTS['valkey']}\nreport_servers(*servers)\nsys.stdin.readline()") as owner:
        facts = owner.next_report()
        processes = processes_of(facts)
        assert owner.process.stdin is not None
        owner.process.stdin.close()
        assert owner.process.wait() == 0
        assert_none_left(processes, facts["folders"])


def test_stop_works_while_a_forked_child_lives() -> None:
    """stop() does not depend on pipes that a forked child still holds."""
    script = f"server = valkey()\nreport_servers(server)\n{FORK}\nserver.stop()\nreport(stopped=1)\n"
    with Owner(script) as owner:
        facts = owner.next_report()
        reports = [owner.next_report(), owner.next_report()]
        survivor = next(one["survivor"] for one in reports if "survivor" in one)
        assert not any(Path(folder).exists() for folder in facts["folders"])
        assert alive(survivor)
        os.kill(survivor, signal.SIGKILL)


@pytest.mark.parametrize("start", [valkey, postgres])
def test_a_killed_supervisor_ends_its_server(start: Callable[[], Valkey | Postgres]) -> None:
    """SIGKILL of the supervisor ends the server and its children, and stop() removes the folder."""
    with start() as server:
        processes = family(server.supervisor_pid)
        os.kill(server.supervisor_pid, signal.SIGKILL)
        assert eventually(lambda: not any(map(alive, processes)))
    assert not server.log.parent.exists()


def test_a_server_lost_with_its_supervisor_can_be_restarted() -> None:
    """The next command says what happened, and restart() starts an empty server on the same port."""
    with valkey() as server:
        os.kill(server.supervisor_pid, signal.SIGKILL)
        with pytest.raises(EmbeddedError, match=r"restart\(\)"):
            server.pause()
        server.restart()
        assert server.ask("PING") == "PONG"


def test_a_supervisor_asked_to_end_stops_its_server() -> None:
    """SIGTERM of the supervisor, as at a machine's shutdown, ends the server in good order."""
    with valkey() as server:
        processes, folder = family(server.supervisor_pid), server.log.parent
        os.kill(server.supervisor_pid, signal.SIGTERM)
        assert_none_left(processes, [str(folder)])


def test_the_server_outlives_the_thread_that_started_it() -> None:
    """A server started by a thread keeps running when that thread has ended."""
    started: list[Valkey] = []
    thread = threading.Thread(target=lambda: started.append(valkey()))
    thread.start()
    thread.join()
    with started[0] as server:
        assert server.ask("PING") == "PONG"
        assert server.ask("PING") == "PONG"


def test_a_forked_child_cannot_control_the_server() -> None:
    """A child that leaves the `with` block, or calls kill(), leaves its parent's server alone."""
    script = """
from ephemera.errors import EmbeddedError
with valkey() as server:
    if os.fork() == 0:
        try:
            server.kill()
        except EmbeddedError as refusal:
            report(refusal=str(refusal))
        server.stop()
        os._exit(0)
    os.wait()
    report(answer=server.ask("PING"))
"""
    with Owner(script) as owner:
        assert "forks" in owner.next_report()["refusal"]
        assert owner.next_report()["answer"] == "PONG"


def test_control_c_leaves_the_server_to_its_owner() -> None:
    """After SIGINT to its process group the owner can still use the server, then stop it."""
    script = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
with valkey() as server:
    try:
        report_servers(server)
        signal.pause()
    except KeyboardInterrupt:
        report(answer=server.ask("PING"))
"""
    with Owner(script) as owner:
        facts = owner.next_report()
        processes = processes_of(facts)
        os.killpg(owner.process.pid, signal.SIGINT)
        assert owner.next_report()["answer"] == "PONG"
        assert_none_left(processes, facts["folders"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user; these all ran as one")
@pytest.mark.parametrize("kind", ["valkey", "postgres"])
def test_an_ordinary_user_can_run_it(kind: str) -> None:
    """Without root, the server runs as its owner's user, answers, and ends with its owner."""
    python = python_for_any_user()
    if python is None:
        pytest.skip("no Python of this version that an ordinary user can run")
    user = getpwnam("daemon").pw_uid
    with Owner(f"{STARTS[kind]}\nreport_servers(*servers)\nsignal.pause()", python, user) as owner:
        facts = owner.next_report()
        processes = processes_of(facts)
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in processes} == {user}
        owner.kill()
        assert_none_left(processes, facts["folders"])
