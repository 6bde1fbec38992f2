"""Access rules: a server user that can do what it is for, and nothing else.

What a user is for, its purposes, of which one user may have several:

- `service`: what a catalogue's service does. Keys and channels are the patterns of the catalogue, fields as
  `*`; a glob may reach further than its pattern (`session:*` also covers `session:1:x`), never less far.
  Commands are, of the types that the catalogue declares, those that stay within the keys they are given; the
  ones of every key's life; running scripts; and what a connection needs to open, to stay open and to follow a
  cluster. A command inside a script needs the same permission as outside, so this covers the accessors and
  the patterns alike. Where there are jobs, Celery's worker is a user of the queue's server, too.
- `metrics`: INFO, for the figures of servers in a service's `/metrics`. No key.
- `monitoring`: what `ephemera audit`, `doctor`, `locks list` and `events groups`, `pending`, `dead` ask, and
  no command that writes: names, types, lives and sizes of every key, contents of the catalogue's keys alone.

Not among them: whatever looks at or changes the server or keys at large (KEYS, FLUSHALL, CONFIG), and
PERSIST, which takes a lifetime away; a service is not given SCAN, which tells the names of everybody's keys.

Only commands of Redis 7.0 are named, because a server refuses rules with a command that it does not know.
`tests/operations` runs every operation of every accessor under such a user, on Valkey, Redis and a cluster,
`tests/security` every built-in service.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ephemera.errors import InvalidValue
from ephemera.keyspace import SERVER_IDENTITY, Catalogue, Keyspace, Role
from ephemera.operations.metrics._client_counts import is_of

PURPOSES = ("service", "metrics", "monitoring")

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
"""By what the server's TYPE says: the commands on such keys."""

ANY_KEY = (
    "del exists expire expireat expiretime pexpire pexpireat pexpiretime pttl rename renamenx touch ttl "
    "type unlink"
)
SCRIPTS = (
    "eval evalsha time"  # EVAL teaches a server a script that it does not know; TIME is every script's clock
)
CONNECTION = "asking client|tracking cluster|slots hello ping readonly select"
IDENTITY = "dbsize get module|list set"  # what the identity guard asks, and how it puts a mark back
CELERY = "discard exec multi script|load unwatch watch"  # kombu's transactions, and redis-py's lock
METRICS = "info"
LOOKING = "info scan slowlog|len time"  # at a server
OF_ANY_KEY = "memory|usage pttl type"  # that monitoring may see of every key
CONTENTS = (
    "get hgetall hlen hrandfield llen lrange mget scard srandmember xinfo|groups xlen xpending xrange "
    "xrevrange zcard zrandmember"
)  # what monitoring reads of a catalogue's keys

_USER = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class AccessRules:
    """One user's permissions."""

    user: str
    keys: tuple[str, ...]
    channels: tuple[str, ...]
    commands: tuple[str, ...]
    readable: tuple[str, ...] = ()
    """Keys that it may read, but not write."""
    of_any_key: tuple[str, ...] = ()
    """Commands that it may use on all keys."""
    password_sha256: str | None = None

    def words(self) -> list[str]:
        """The rules as ACL SETUSER takes them after the name; they start from nothing."""
        return [
            "reset",
            "on",
            *(f"#{digest}" for digest in (self.password_sha256,) if digest),
            *(f"~{key}" for key in self.keys),
            *(f"%R~{key}" for key in self.readable),
            *(f"&{channel}" for channel in self.channels),
            "-@all",
            *(f"+{command}" for command in self.commands),
            *([f"(~* -@all {' '.join(f'+{each}' for each in self.of_any_key)})"] if self.of_any_key else []),
        ]

    def line(self) -> str:
        """The rules as one line of an ACL file."""
        return " ".join(["user", self.user, *self.words()])


def access_rules(
    catalogue: Catalogue,
    user: str,
    *,
    role: Role | None = None,
    purposes: Collection[str] = ("service",),
    password_sha256: str | None = None,
) -> AccessRules:
    """What a user with these purposes needs; with a `role`, on the server that carries this role alone."""
    if not _USER.fullmatch(user):
        raise InvalidValue("user", "printable ASCII without spaces", repr(user))
    if not purposes or not set(purposes) <= set(PURPOSES):
        raise InvalidValue("purposes", f"some of {', '.join(PURPOSES)}", repr(list(purposes)))
    spaces = [space for space in catalogue if role in (None, space.role)]
    kept = [space for space in spaces if space.kind != "channel"]
    groups = [CONNECTION]
    keys: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    if "service" in purposes:
        keys = _globs([*kept, SERVER_IDENTITY])
        channels = _globs(space for space in spaces if space.kind == "channel")
        groups += _of_service(catalogue, spaces, kept, role)
    if "metrics" in purposes:
        groups.append(METRICS)
    if "monitoring" in purposes:
        readable = tuple(glob for glob in _globs([*kept, SERVER_IDENTITY]) if glob not in keys)
        groups += [LOOKING, CONTENTS]
    return AccessRules(
        user,
        keys=keys,
        channels=channels,
        commands=_words(groups),
        readable=readable,
        of_any_key=_words([OF_ANY_KEY]) if "monitoring" in purposes else (),
        password_sha256=password_sha256,
    )


def _of_service(
    catalogue: Catalogue, spaces: list[Keyspace[Any]], kept: list[Keyspace[Any]], role: Role | None
) -> list[str]:
    groups = [IDENTITY, SCRIPTS, *(BY_TYPE[each] for each in {space.redis_type for space in spaces})]
    if kept:
        groups.append(ANY_KEY)
    if role != "cache" and any(
        is_of(pattern, "ephemera.patterns.jobs", "Jobs") for pattern in catalogue.patterns
    ):
        groups.append(CELERY)
    return groups


def _globs(spaces: Iterable[Keyspace[Any]]) -> tuple[str, ...]:
    # Declared literals hold no character that a glob gives a meaning, so there is nothing to escape.
    return tuple(sorted({space.template.glob for space in spaces}))


def _words(groups: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({word for group in groups for word in group.split()}))
