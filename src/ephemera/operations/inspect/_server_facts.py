"""What a server says of itself (INFO), as far as it concerns the keys on it.

Only INFO is asked: it needs no more rights than reading does, where CONFIG is often forbidden or renamed.
"""

from __future__ import annotations

import msgspec

from ephemera.wire import NodeClient, as_text


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One server at one moment; sizes in bytes."""

    name: str
    software: str
    version: str
    run_id: str
    replica: bool
    keys: int  # in the database that is looked at
    other_databases: dict[str, int]  # databases that are not looked at, and how many keys they hold
    used_memory: int
    resident_memory: int
    fragmentation: float  # resident / used
    max_memory: int  # 0: no limit
    policy: str
    evicted: int  # keys, since the server started
    append_only: bool
    snapshots_fail: bool
    append_fails: bool

    @property
    def evicts(self) -> bool:
        """Whether keys vanish when memory is short; without a limit it never is."""
        return self.max_memory > 0 and self.policy != "noeviction"


async def ask(node: NodeClient) -> ServerFacts:
    """The facts of a server, in one trip."""
    return facts_of(node, await info(node))


async def info(node: NodeClient) -> dict[str, str]:
    """All that a server says of itself, by name."""
    return {
        name: value
        for line in as_text(await node.call("INFO")).splitlines()
        for name, colon, value in [line.partition(":")]
        if colon
    }


def facts_of(node: NodeClient, said: dict[str, str]) -> ServerFacts:
    """The facts among what a server said."""
    database = f"db{node.endpoint.target.database}"
    keys = {name: _keys(value) for name, value in said.items() if name.startswith("db") and "keys=" in value}
    return ServerFacts(
        name=str(node.endpoint),
        software=said.get("server_name", "redis"),
        version=said.get("valkey_version") or said["redis_version"],
        run_id=said["run_id"],
        replica=said.get("role") != "master",
        keys=keys.pop(database, 0),
        other_databases=keys,
        used_memory=int(said.get("used_memory", 0)),
        resident_memory=int(said.get("used_memory_rss", 0)),
        fragmentation=float(said.get("mem_fragmentation_ratio", 0)),
        max_memory=int(said.get("maxmemory", 0)),
        policy=said.get("maxmemory_policy", "noeviction"),
        evicted=int(said.get("evicted_keys", 0)),
        append_only=said.get("aof_enabled") == "1",
        snapshots_fail=said.get("rdb_last_bgsave_status", "ok") != "ok",
        append_fails=said.get("aof_enabled") == "1" and said.get("aof_last_write_status", "ok") != "ok",
    )


def _keys(value: str) -> int:
    """The count in `keys=12,expires=3,avg_ttl=0`."""
    counts = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
    return int(counts["keys"])
