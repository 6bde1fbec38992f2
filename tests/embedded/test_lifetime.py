"""An embedded server ends with its owner, however that ends, and with nothing less."""

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
from tests.embedded.owners import Owner, alive, eventually, family, python_for_everybody

STARTS = {
    "valkey": "servers = [valkey()]",
    "postgres": "servers = [postgres()]",
    "cluster": "servers = cluster().nodes",
}
FORK = """
if os.fork() == 0:
    tell(survivor=os.getpid())
    time.sleep(60)
    os._exit(0)
"""


def everything_of(facts: dict[str, Any]) -> list[int]:
    """Return the ids of all processes that belong to the servers told of."""
    return [pid for supervisor in facts["supervisors"] for pid in family(supervisor)]


def assert_all_gone(processes: list[int], folders: list[str]) -> None:
    """Wait for the end of the processes and of the folders."""
    assert eventually(lambda: not any(map(alive, processes)))
    assert eventually(lambda: not any(Path(folder).exists() for folder in folders))


def test_a_killed_owner_leaves_nothing() -> None:
    """SIGKILL of the owner ends its servers and removes their folders."""
    with Owner(f"{STARTS['valkey']}\ntell_servers(*servers)\nsignal.pause()") as owner:
        facts = owner.hears()
        processes = everything_of(facts)
        assert len(processes) == 2
        owner.kill()
        assert_all_gone(processes, facts["folders"])


@pytest.mark.parametrize("kind", STARTS)
def test_a_child_that_outlives_the_owner_keeps_nothing_alive(kind: str) -> None:
    """A forked child holds the owner's pipes, and still the servers end with the owner."""
    with Owner(f"{STARTS[kind]}\ntell_servers(*servers)\n{FORK}\nsignal.pause()") as owner:
        facts = owner.hears()
        survivor = owner.hears()["survivor"]
        processes = everything_of(facts)
        owner.kill()
        assert_all_gone(processes, facts["folders"])
        assert alive(survivor)
        os.kill(survivor, signal.SIGKILL)


def test_an_owner_that_just_exits_leaves_nothing() -> None:
    """An owner that never calls stop() need not."""
    with Owner(f"{STARTS['valkey']}\ntell_servers(*servers)\nsys.stdin.readline()") as owner:
        facts = owner.hears()
        processes = everything_of(facts)
        assert owner.process.stdin is not None
        owner.process.stdin.close()
        assert owner.process.wait() == 0
        assert_all_gone(processes, facts["folders"])


def test_stop_works_while_a_forked_child_lives() -> None:
    """stop() does not depend on pipes that a forked child still holds."""
    script = f"server = valkey()\ntell_servers(server)\n{FORK}\nserver.stop()\ntell(stopped=1)\n"
    with Owner(script) as owner:
        facts = owner.hears()
        told = [owner.hears(), owner.hears()]
        survivor = next(one["survivor"] for one in told if "survivor" in one)
        assert not any(Path(folder).exists() for folder in facts["folders"])
        assert alive(survivor)
        os.kill(survivor, signal.SIGKILL)


@pytest.mark.parametrize("start", [valkey, postgres])
def test_a_killed_supervisor_takes_its_server_along(start: Callable[[], Valkey | Postgres]) -> None:
    """SIGKILL of the supervisor ends the server and its children, and stop() removes the folder."""
    with start() as server:
        processes = family(server.supervisor_pid)
        os.kill(server.supervisor_pid, signal.SIGKILL)
        assert eventually(lambda: not any(map(alive, processes)))
    assert not server.log.parent.exists()


def test_a_server_lost_with_its_supervisor_can_be_restarted() -> None:
    """The next command says what happened, and restart() begins anew on the same port."""
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
        assert_all_gone(processes, [str(folder)])


def test_the_end_of_the_starting_thread_is_not_the_end() -> None:
    """A server started by a thread lives on when that thread has ended."""
    started: list[Valkey] = []
    thread = threading.Thread(target=lambda: started.append(valkey()))
    thread.start()
    thread.join()
    with started[0] as server:
        assert server.ask("PING") == "PONG"
        assert server.ask("PING") == "PONG"


def test_a_forked_child_neither_stops_nor_commands() -> None:
    """A child that leaves the `with` block, or calls kill(), leaves its parent's server alone."""
    script = """
from ephemera.errors import EmbeddedError
with valkey() as server:
    if os.fork() == 0:
        try:
            server.kill()
        except EmbeddedError as refusal:
            tell(refusal=str(refusal))
        server.stop()
        os._exit(0)
    os.wait()
    tell(answer=server.ask("PING"))
"""
    with Owner(script) as owner:
        assert "forks" in owner.hears()["refusal"]
        assert owner.hears()["answer"] == "PONG"


def test_control_c_leaves_the_server_to_its_owner() -> None:
    """SIGINT to the owner's process group lets the owner still use the server, then stop it."""
    script = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
with valkey() as server:
    try:
        tell_servers(server)
        signal.pause()
    except KeyboardInterrupt:
        tell(answer=server.ask("PING"))
"""
    with Owner(script) as owner:
        facts = owner.hears()
        processes = everything_of(facts)
        os.killpg(owner.process.pid, signal.SIGINT)
        assert owner.hears()["answer"] == "PONG"
        assert_all_gone(processes, facts["folders"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user; these all ran as one")
@pytest.mark.parametrize("kind", ["valkey", "postgres"])
def test_an_ordinary_user_can_run_it(kind: str) -> None:
    """Without root, the server starts as oneself, answers, and ends with its owner."""
    python = python_for_everybody()
    if python is None:
        pytest.skip("no Python of this version that an ordinary user can run")
    user = getpwnam("daemon").pw_uid
    with Owner(f"{STARTS[kind]}\ntell_servers(*servers)\nsignal.pause()", python, user) as owner:
        facts = owner.hears()
        processes = everything_of(facts)
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in processes} == {user}
        owner.kill()
        assert_all_gone(processes, facts["folders"])
