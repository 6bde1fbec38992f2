"""Configuration of a server for a role: a cache may lose data, a queue must not.

Each setting comes with its reason, and the text is a complete file for valkey-server or redis-server 7. The
server listens on loopback only; before you open it to a network, add a password or an ACL file.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from ephemera.errors import InvalidValue
from ephemera.keyspace import Role

DEFAULT_MEMORY = "256mb"
"""The `maxmemory` of a configuration, unless given."""
_MIN_MEMORY = 1_000_000
"""Bytes; with less, a server has no memory for its own connections."""
_MEMORY = re.compile(r"0*[1-9][0-9]*(b|kb?|mb?|gb?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the file, and its reason."""

    name: str
    value: str
    reason: str


_CACHE = (
    Setting(
        "maxmemory-policy",
        "allkeys-lru",
        "When memory is full, the least recently used keys are evicted, whatever their TTL: any key of a "
        "cache may vanish. A volatile-* policy would keep keys without a TTL, and refuse every write once "
        "those fill the memory; it is useful only where cache and queue share a server.",
    ),
    Setting(
        "save",
        '""',
        "No snapshots. What a restart loses is loaded again from its source, and a fork that writes the "
        "memory to disk costs latency and up to twice the memory.",
    ),
    Setting("appendonly", "no", "No log of writes, for the same reason."),
    Setting(
        "lazyfree-lazy-eviction",
        "yes",
        "Evicted values are freed by another thread, so that one large value does not block other clients.",
    ),
)
_QUEUE = (
    Setting(
        "maxmemory-policy",
        "noeviction",
        "When memory is full, writes fail with an error. Unflushed counters, queues and streams are never "
        "dropped to make room.",
    ),
    Setting("appendonly", "yes", "Every write goes to a log, which a restart replays."),
    Setting(
        "appendfsync",
        "everysec",
        "The log reaches the disk every second: a power failure costs at most about one second of writes. "
        "`always` would lose nothing, but cost most of the throughput.",
    ),
    Setting(
        "save",
        "900 1",
        "A snapshot every 15 minutes if anything changed: a second copy, should the log be damaged.",
    ),
    Setting(
        "stop-writes-on-bgsave-error",
        "yes",
        "If snapshots fail (a full disk), writes are refused rather than kept in memory alone.",
    ),
)
_LISTENING = (
    Setting(
        "bind",
        "127.0.0.1 -::1",
        "Loopback only; the minus lets the server start without IPv6. To serve other machines, put the "
        "address of the private network here.",
    ),
    Setting(
        "protected-mode",
        "yes",
        "Even when bound to a network, remote clients are refused while there is no password or ACL file.",
    ),
)


def server_settings(role: Role, memory: str = DEFAULT_MEMORY) -> tuple[Setting, ...]:
    """The settings of a role; `memory` in the server's notation: 256mb, 1gb, or bytes."""
    if not _MEMORY.fullmatch(memory) or _bytes(memory) < _MIN_MEMORY:
        raise InvalidValue("maxmemory", "an amount of at least 1mb, such as 256mb or 1gb", repr(memory))
    limit = Setting(
        "maxmemory",
        memory,
        "Memory for keys and values. Leave room on the machine for buffers, and for what a fork copies.",
    )
    return (*_LISTENING, limit, *(_CACHE if role == "cache" else _QUEUE))


def server_config(role: Role, memory: str = DEFAULT_MEMORY) -> str:
    """The configuration file, with a comment above each setting."""
    title = f"# A server of role {role}, written by: ephemera server-config --role {role} --memory {memory}"
    settings = server_settings(role, memory)
    return (
        "\n\n".join([title, *(f"{_comment(each.reason)}\n{each.name} {each.value}" for each in settings)])
        + "\n"
    )


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in textwrap.wrap(text, 100))


def _bytes(memory: str) -> int:
    """An amount in bytes, read as the server does: `k` is 1000, `kb` is 1024, and so on."""
    number = memory.rstrip("bkmgBKMG")
    unit = memory[len(number) :].lower()
    base = 1024 if unit.endswith("b") else 1000
    size: int = base ** "bkmg".index(unit[0] if unit else "b")
    return int(number) * size
