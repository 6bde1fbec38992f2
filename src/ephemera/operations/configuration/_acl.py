"""Access rules: a server user with the permissions its purposes need, and no others.

A user has one or more purposes:

- `service`: run a catalogue's service. Keys and channels are the catalogue's patterns with fields as `*`; a
  glob may match more than its pattern (`user:*` also matches `user:1:x`), never less. The ids of sessions
  have one length, so the glob of their keys has it, too, and excludes the keys `session:{user_id}:{id}` of
  another service on the same server. Commands are those of the declared types that stay within the keys they
  are given; the generic key commands; running scripts; and what a connection needs to open, stay open and
  follow a cluster. A command inside a script needs the same permission as outside, so this covers the
  accessors and the patterns alike. With jobs, Celery's worker uses the queue's server, too.
- `metrics`: INFO, for the server figures in a service's `/metrics`. No keys.
- `monitoring`: what `ephemera audit`, `doctor`, `locks list` and `events groups`, `pending`, `dead` need, and
  no command that writes: names, types, TTLs and sizes of every key, contents of the catalogue's keys only.
- `tracking`: CLIENT TRACKING, which notifies local caches of changes. No server limits it to a user's own
  keys before Redis 8.10: with BCAST the user follows the names of all keys that change on the server. So it
  is a purpose of its own, for a server that no other service uses. Queue servers have no caches, so their
  users do not get it.

Not included: commands that read or change the whole server (KEYS, FLUSHALL, CONFIG), and PERSIST, which
removes a TTL; a service does not get SCAN, which lists the names of all keys.

Only commands of Redis 7.0 are named, because a server refuses rules with an unknown command.
`tests/operations` runs every operation of every accessor as such a user, on Valkey, Redis and a cluster,
`tests/security` every built-in service.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ephemera.errors import InvalidValue
from ephemera.keyspace import SERVER_IDENTITY, Catalogue, Keyspace, Role
from ephemera.operations._optional_types import is_instance

PURPOSES = ("service", "metrics", "monitoring", "tracking")
"""What a user may be for."""

BY_TYPE = {
    "string": "append decr decrby get getdel getex getrange incr incrby incrbyfloat mget set setrange strlen",
    "hash": "hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hrandfield hscan hset hsetnx "
    "hstrlen hvals",
    "set": "sadd scard sismember smembers smismember smove spop srandmember srem sscan",
    "zset": "bzpopmax bzpopmin zadd zcard zcount zincrby zlexcount zmscore zpopmax zpopmin zrandmember "
    "zrange zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrank zscan zscore",
    "list": "blmove blpop brpop lindex linsert llen lmove lpop lpos lpush lpushx lrange lrem lset ltrim rpop "
    "rpush rpushx",
    "stream": "xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending xrange xread xreadgroup xrevrange "
    "xtrim",
    "channel": "psubscribe publish punsubscribe spublish ssubscribe subscribe sunsubscribe unsubscribe",
}
"""The commands on keys of each type, by the name that TYPE returns."""

ANY_KEY = (
    "del exists expire expireat expiretime pexpire pexpireat pexpiretime pttl rename renamenx touch ttl "
    "type unlink"
)
SCRIPTS = "eval evalsha time"  # EVAL loads an unknown script; TIME is the clock of every script
CONNECTION = "asking cluster|slots hello ping readonly select"
IDENTITY = "dbsize get module|list set"  # what the identity check reads, and how it restores a mark
CELERY = "discard exec multi script|load unwatch watch"  # kombu's transactions, and redis-py's lock
METRICS = "info"
TRACKING = "client|tracking"
SERVER_READS = "info scan slowlog|len time"
METADATA = "memory|usage pttl type"  # that monitoring may read of every key
CONTENTS = (
    "get hgetall hlen hrandfield llen lrange mget scard srandmember xinfo|groups xlen xpending xrange "
    "xrevrange zcard zrandmember"
)  # that monitoring reads of a catalogue's keys

_USER = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class AccessRules:
    """One user's permissions."""

    user: str
    keys: tuple[str, ...]
    channels: tuple[str, ...]
    commands: tuple[str, ...]
    readable: tuple[str, ...] = ()
    """Keys that the user may read, but not write."""
    on_any_key: tuple[str, ...] = ()
    """Commands that the user may run on all keys."""
    password_sha256: str | None = None

    def rules(self) -> list[str]:
        """The arguments of ACL SETUSER after the name; they reset the user first."""
        return [
            "reset",
            "on",
            *(f"#{digest}" for digest in (self.password_sha256,) if digest),
            *(f"~{key}" for key in self.keys),
            *(f"%R~{key}" for key in self.readable),
            *(f"&{channel}" for channel in self.channels),
            "-@all",
            *(f"+{command}" for command in self.commands),
            *([f"(~* -@all {' '.join(f'+{each}' for each in self.on_any_key)})"] if self.on_any_key else []),
        ]

    def line(self) -> str:
        """The user as one line of an ACL file."""
        return " ".join(["user", self.user, *self.rules()])


def access_rules(
    catalogue: Catalogue,
    user: str,
    *,
    role: Role | None = None,
    purposes: Collection[str] = ("service",),
    password_sha256: str | None = None,
) -> AccessRules:
    """The permissions these purposes need; with `role`, on the server that carries only this role."""
    if not _USER.fullmatch(user):
        raise InvalidValue("user", "printable ASCII without keyspaces", repr(user))
    if not purposes or not set(purposes) <= set(PURPOSES):
        raise InvalidValue("purposes", f"some of {', '.join(PURPOSES)}", repr(list(purposes)))
    keyspaces = [keyspace for keyspace in catalogue if role in (None, keyspace.role)]
    with_keys = [keyspace for keyspace in keyspaces if keyspace.kind != "channel"]
    groups = [CONNECTION]
    keys: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    if "service" in purposes:
        keys = _key_globs(catalogue, with_keys)
        channels = _globs(each.template.glob for each in keyspaces if each.kind == "channel")
        groups += _service_commands(catalogue, keyspaces, with_keys, role)
    if "metrics" in purposes:
        groups.append(METRICS)
    if "tracking" in purposes and role != "queue":
        groups.append(TRACKING)
    if "monitoring" in purposes:
        readable = tuple(glob for glob in _key_globs(catalogue, with_keys) if glob not in keys)
        groups += [SERVER_READS, CONTENTS]
    return AccessRules(
        user,
        keys=keys,
        channels=channels,
        commands=_merge(groups),
        readable=readable,
        on_any_key=_merge([METADATA]) if "monitoring" in purposes else (),
        password_sha256=password_sha256,
    )


def has_local_caches(catalogue: Catalogue) -> bool:
    """Whether a cache of the catalogue keeps entries in the process, which tracking saves a round trip."""
    return any(
        is_instance(pattern, "ephemera.patterns.cache", "Cache") and getattr(pattern, "local", None)
        for pattern in catalogue.patterns
    )


def _service_commands(
    catalogue: Catalogue, keyspaces: list[Keyspace[Any]], with_keys: list[Keyspace[Any]], role: Role | None
) -> list[str]:
    groups = [IDENTITY, SCRIPTS, *(BY_TYPE[each] for each in {keyspace.redis_type for keyspace in keyspaces})]
    if with_keys:
        groups.append(ANY_KEY)
    if role != "cache" and any(
        is_instance(pattern, "ephemera.patterns.jobs", "Jobs") for pattern in catalogue.patterns
    ):
        groups.append(CELERY)
    return groups


def _key_globs(catalogue: Catalogue, keyspaces: Iterable[Keyspace[Any]]) -> tuple[str, ...]:
    """The globs of these keyspaces, and of the server's mark."""
    patterns: Iterable[Any] = catalogue.patterns
    sessions = {
        pattern.keyspace: pattern.keys.glob
        for pattern in patterns
        if is_instance(pattern, "ephemera.patterns.sessions", "Sessions")
    }
    return _globs(sessions.get(each, each.template.glob) for each in [*keyspaces, SERVER_IDENTITY])


def _globs(globs: Iterable[str]) -> tuple[str, ...]:
    # Declared literals contain no glob characters, so there is nothing to escape.
    return tuple(sorted(set(globs)))


def _merge(groups: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({word for group in groups for word in group.split()}))
