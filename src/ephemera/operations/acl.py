"""Access rules: a server user that can do what a catalogue's service does, and nothing else.

- Keys and channels: the patterns of the catalogue, fields as `*`. A glob may reach further than its pattern
  (`session:*` also covers `session:1:x`), never less far.
- Commands: of the types that the catalogue declares, those that stay within the keys they are given; the ones
  of every key's life; running scripts; and what a connection needs to open, to stay open and to follow a
  cluster. A command inside a script needs the same permission as outside, so this covers the accessors and
  the patterns alike.
- Not among them: whatever looks at or changes the server or keys at large (KEYS, SCAN, FLUSHALL, CONFIG), and
  PERSIST, which takes a lifetime away. `ephemera audit` wants a user of its own.

Only commands of Redis 7.0 are named, because a server refuses rules with a command that it does not know.
`tests/operations` runs every operation of every accessor under such a user, on Valkey, Redis and a cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ephemera.errors import InvalidValue
from ephemera.keyspace.identity import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ephemera.keyspace import Catalogue, Role, Space

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

_USER = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class AccessRules:
    """One user's permissions."""

    user: str
    keys: tuple[str, ...]
    channels: tuple[str, ...]
    commands: tuple[str, ...]
    password_sha256: str | None = None

    def words(self) -> list[str]:
        """The rules as ACL SETUSER takes them after the name; they start from nothing."""
        return [
            "reset",
            "on",
            *(f"#{digest}" for digest in (self.password_sha256,) if digest),
            *(f"~{key}" for key in self.keys),
            *(f"&{channel}" for channel in self.channels),
            "-@all",
            *(f"+{command}" for command in self.commands),
        ]

    def line(self) -> str:
        """The rules as one line of an ACL file."""
        return " ".join(["user", self.user, *self.words()])


def access_rules(
    catalogue: Catalogue, user: str, *, role: Role | None = None, password_sha256: str | None = None
) -> AccessRules:
    """What a catalogue's service needs; with a `role`, on the server that carries this role alone."""
    if not _USER.fullmatch(user):
        raise InvalidValue("user", "printable ASCII without spaces", repr(user))
    spaces = [space for space in catalogue if role in (None, space.role)]
    kept = [space for space in spaces if space.kind != "channel"]
    heard = [space for space in spaces if space.kind == "channel"]
    return AccessRules(
        user,
        keys=_globs([*kept, MARK]),
        channels=_globs(heard),
        commands=_commands({space.redis_type for space in spaces}, kept),
        password_sha256=password_sha256,
    )


def _globs(spaces: Iterable[Space[Any]]) -> tuple[str, ...]:
    # Declared literals hold no character that a glob gives a meaning, so there is nothing to escape.
    return tuple(sorted({space.template.glob for space in spaces}))


def _commands(types: Iterable[str], kept: list[Space[Any]]) -> tuple[str, ...]:
    groups = [CONNECTION, IDENTITY, SCRIPTS, *(BY_TYPE[each] for each in types), *([ANY_KEY] if kept else [])]
    return tuple(sorted({command for group in groups for command in group.split()}))
