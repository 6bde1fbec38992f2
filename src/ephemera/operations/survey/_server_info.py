"""The parts of a server's INFO reply that matter to the keys on it.

Only INFO is used: it needs no more permissions than reading does, while CONFIG is often forbidden or renamed.
"""

from __future__ import annotations

import msgspec

from ephemera.wire import NodeClient, as_text


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One server at one moment; sizes in bytes."""

    name: str
    software: str
    version: str
    run_id: str
    replica: bool
    keys: int  # in the selected database
    other_databases: dict[str, int]  # keys in each database that is not selected
    used_memory: int
    resident_memory: int
    fragmentation: float  # resident / used
    max_memory: int  # 0: no limit
    policy: str
    evicted: int  # keys, since the server started
    append_only: bool
    snapshots_fail: bool
    append_fails: bool
    unsaved_changes: int = 0  # since the last snapshot

    @property
    def evicts(self) -> bool:
        """Whether the server evicts keys when memory is short; without a limit it never is."""
        return self.max_memory > 0 and self.policy != "noeviction"


async def read_server_info(node: NodeClient) -> ServerInfo:
    """Read a server's INFO in one round trip."""
    return parse_server_info(node, await read_info(node))


async def read_info(node: NodeClient) -> dict[str, str]:
    """Read every line of INFO, by name."""
    return {
        name: value
        for line in as_text(await node.call("INFO")).splitlines()
        for name, colon, value in [line.partition(":")]
        if colon
    }


def parse_server_info(node: NodeClient, info: dict[str, str]) -> ServerInfo:
    """Pick the relevant lines of an INFO reply."""
    database = f"db{node.endpoint.target.database}"
    keys = {name: _keys(value) for name, value in info.items() if name.startswith("db") and "keys=" in value}
    return ServerInfo(
        name=str(node.endpoint),
        software=info.get("server_name", "redis"),
        version=info.get("valkey_version") or info["redis_version"],
        run_id=info["run_id"],
        replica=info.get("role") != "master",
        keys=keys.pop(database, 0),
        other_databases=keys,
        used_memory=int(info.get("used_memory", 0)),
        resident_memory=int(info.get("used_memory_rss", 0)),
        fragmentation=float(info.get("mem_fragmentation_ratio", 0)),
        max_memory=int(info.get("maxmemory", 0)),
        policy=info.get("maxmemory_policy", "noeviction"),
        evicted=int(info.get("evicted_keys", 0)),
        append_only=info.get("aof_enabled") == "1",
        snapshots_fail=info.get("rdb_last_bgsave_status", "ok") != "ok",
        unsaved_changes=int(info.get("rdb_changes_since_last_save", 0)),
        append_fails=info.get("aof_enabled") == "1" and info.get("aof_last_write_status", "ok") != "ok",
    )


def _keys(value: str) -> int:
    """The count in `keys=12,expires=3,avg_ttl=0`."""
    counts = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
    return int(counts["keys"])
