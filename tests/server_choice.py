"""Which server the suite runs on: `pytest --server=valkey|redis|cluster`, and a record of what that gave.

- `valkey`, the default: the embedded Valkey.
- `redis`: every embedded server that stands alone is Debian's Redis 7, as in processes that tests start.
- `cluster`: in place of the shared `server`, or the server of a service, tests get a cluster of three masters
  with a replica each. Tests that start a server of their own for what only one server has
  (a crash, a limit of memory, a socket) keep it.

What cannot run says why: `@pytest.mark.standalone("why not on a cluster")`, `@pytest.mark.valkey("why not on
Redis 7")`, or the reason that `ClusterAsServer` gives when a test asks it for something that only one server
has. `--record` writes what came out to docs/proof/servers.md.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import msgspec
import pytest

from ephemera.embedded import BINARY_VARIABLE, Cluster, Valkey
from ephemera.wire import first_key, key_slot
from tests.wire.debian_redis import BINARY

PAGE = Path("docs/proof/servers.md")
_TITLES = {
    "valkey": "Embedded Valkey",
    "redis": "Debian's Redis 7",
    "cluster": "A cluster of three masters with a replica each",
}
_COMMANDS = {"valkey": "make test ARGS=--record", "redis": "make test-redis", "cluster": "make test-cluster"}
_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed")
_EVERYWHERE = {"FLUSHALL", "FLUSHDB", "SCRIPT"}
_BECAUSE = {
    "port": "it connects to one server by its port",
    "address": "it connects to one server by its address",
    "pid": "it watches the process of one server",
    "kill": "it kills the one server; tests/chaos/test_cluster_failover.py kills masters of a cluster",
    "pause": "it freezes the one server; tests/chaos/test_cluster_failover.py does so on a cluster",
    "resume": "it freezes the one server; tests/chaos/test_cluster_failover.py does so on a cluster",
    "restart": "it restarts the one server; tests/chaos/test_cluster_failover.py kills masters of a cluster",
    "stop": "it stops the one server; tests/chaos/test_cluster_failover.py kills masters of a cluster",
}

STANDING_IN: set[str] = set()
"""URLs of clusters in the place of a server, for those who need to know."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("ephemera")
    group.addoption("--server", choices=list(_TITLES), default="valkey", help="the server to run on")
    group.addoption("--record", action="store_true", help=f"write what came out to {PAGE}")


def configure(config: pytest.Config) -> None:
    """Declare the markers, and choose the binary that every process runs."""
    config.addinivalue_line("markers", "standalone(reason): cannot run on a cluster, and why")
    config.addinivalue_line("markers", "valkey(reason): cannot run on Redis 7, and why")
    if config.getoption("--server") == "redis":
        if not BINARY.exists():
            raise pytest.UsageError(f"--server=redis needs {BINARY}: apt-get install redis-server")
        os.environ[BINARY_VARIABLE] = str(BINARY)


def skip_what_cannot_run(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, with the reason, what is marked as not for the chosen server."""
    marker = {"cluster": "standalone", "redis": "valkey"}.get(config.getoption("--server"))
    for item in items:
        if marker == "standalone" and _also_on_a_cluster(item):
            item.add_marker(pytest.mark.skip(reason="its run on the shared server is on the same cluster"))
        mark = item.get_closest_marker(marker) if marker else None
        if mark is not None:
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


def _also_on_a_cluster(item: pytest.Item) -> bool:
    """Whether it is the run on a cluster of a test that runs on several servers."""
    parameters = getattr(item, "callspec", None)
    return parameters is not None and "cluster" in parameters.params.values()


class ClusterAsServer:
    """A cluster in the place of one server: `url`, and `ask` for what each key's node, or all, can answer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = cluster.url
        STANDING_IN.add(self.url)

    def ask(self, *words: str | int) -> Any:
        """The reply of the node that has the command's key, of all masters, or a skip that says why not."""
        name = str(words[0]).upper()
        masters = self.cluster.nodes[:3]
        if name in _EVERYWHERE or words[:2] == ("CONFIG", "SET"):
            return next(iter([node.ask(*words) for node in masters]))
        if name == "KEYS":
            return [key for node in masters for key in _list(node.ask(*words))]
        if name == "DBSIZE":
            return sum(int(str(node.ask("DBSIZE"))) for node in masters)
        key = first_key(name, words)
        if key is None:
            pytest.skip(f"it asks one server for what is its own: {name}")
        return self._node_of(str(key)).ask(*words)

    def _node_of(self, key: str) -> Valkey:
        masters = self.cluster.nodes[:3]
        return masters[key_slot(key) * len(masters) // 16384]

    def __getattr__(self, name: str) -> NoReturn:
        if name in _BECAUSE:
            pytest.skip(_BECAUSE[name])
        raise AttributeError(name)


def _list(reply: object) -> list[str]:
    return reply if isinstance(reply, list) else []


def record(config: pytest.Config, stats: dict[str, list[Any]]) -> None:
    """Write what came out of the folders that were run, and leave what the page has of others."""
    if not config.getoption("--record"):
        return
    files = {Path(each) for each in config.args if not Path(each).is_dir()}
    if files not in (set(), set(Path("tests").glob("test_*.py"))) or config.getoption("-k"):
        raise pytest.UsageError(
            "--record takes whole folders, as in: pytest --record tests/wire; of tests/test_*.py all together"
        )
    known = _known()
    known.setdefault(config.getoption("--server"), {}).update(_by_folder(stats))
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join([_HEAD, *(_part(name, known[name]) for name in _TITLES if name in known), ""]))


_HEAD = """\
# The suite on every server

The test suite on each server that Ephemera works with; every part is written by its command. Many tests
run on several servers in each of these: those of the patterns, for example, on Valkey, on Redis 7 and on a
cluster, whatever the suite's own server is."""
_MEMORY = re.compile(r"<!-- (\w+) (\{.*\}) -->")
Outcomes: TypeAlias = dict[str, Any]
"""Of a folder: the day, the counts by outcome, and the reasons of those that were skipped."""


def _known() -> dict[str, dict[str, Outcomes]]:
    """What the page remembers of earlier runs."""
    text = PAGE.read_text() if PAGE.exists() else ""
    return {server: msgspec.json.decode(counts) for server, counts in _MEMORY.findall(text)}


def _by_folder(stats: dict[str, list[Any]]) -> dict[str, Outcomes]:
    folders: dict[str, Outcomes] = {}
    for outcome in _OUTCOMES:
        for report in stats.get(outcome, ()):
            parts = report.nodeid.partition("::")[0].split("/")
            name = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
            folder = folders.setdefault(
                name, {"day": f"{datetime.now(UTC):%Y-%m-%d}", "counts": {}, "skipped": {}}
            )
            folder["counts"][outcome] = folder["counts"].get(outcome, 0) + 1
            if outcome == "skipped":
                reason = _reason(report)
                folder["skipped"][reason] = folder["skipped"].get(reason, 0) + 1
    return folders


def _part(server: str, folders: dict[str, Outcomes]) -> str:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for folder in folders.values():
        counts.update(folder["counts"])
        reasons.update(folder["skipped"])
    text = ", ".join(f"{counts[kind]:,} {kind}" for kind in _OUTCOMES if counts[kind] or kind == "passed")
    lines = [f"\n## {_TITLES[server]}", "", f"`{_COMMANDS[server]}`: {text}.", ""]
    lines += ["| folder | passed | skipped | failed | on |", "|---|---|---|---|---|"]
    for name, folder in sorted(folders.items()):
        got = folder["counts"]
        failed = got.get("failed", 0) + got.get("error", 0)
        lines.append(
            f"| {name} | {got.get('passed', 0)} | {got.get('skipped', 0)} | {failed} | {folder['day']} |"
        )
    if reasons:
        lines += ["", "| skipped | why |", "|---|---|"]
        lines += [f"| {count} | {reason} |" for reason, count in sorted(reasons.items(), key=_most_first)]
    return "\n".join([*lines, "", f"<!-- {server} {msgspec.json.encode(folders).decode()} -->"])


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def _reason(report: Any) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"\s+", " ", str(text).removeprefix("Skipped: ")).replace("|", "\\|").replace("--", "- -")
