"""What the wire knows about commands: may it share a connection, may it be retried, where is its key.

Tables answer these questions, so that the hot path asks with one set lookup:

- PLAIN commands share the multiplexed connection and have their first key at position 1: nearly all traffic.
- READS may be sent again when a connection was lost before their reply: they change nothing.
- REFUSED commands change the state of the connection they run on, which all callers share.
- A blocking command would hold up every command behind it, so it gets a connection of its own.

A command that is in no table is sent as it is: new server commands need no new client.
"""

from __future__ import annotations

from typing import TypeAlias

from ephemera.errors import UnsupportedCommand

Arg: TypeAlias = str | bytes | int | float | memoryview
"""One argument of a command, as it goes over the wire."""

_KEYED_READS = frozenset(
    [
        "BITCOUNT",
        "BITFIELD_RO",
        "BITPOS",
        "DUMP",
        "EXISTS",
        "EXPIRETIME",
        "GEODIST",
        "GEOHASH",
        "GEOPOS",
        "GEORADIUSBYMEMBER_RO",
        "GEORADIUS_RO",
        "GEOSEARCH",
        "GET",
        "GETBIT",
        "GETRANGE",
        "HEXISTS",
        "HEXPIRETIME",
        "HGET",
        "HGETALL",
        "HKEYS",
        "HLEN",
        "HMGET",
        "HPEXPIRETIME",
        "HPTTL",
        "HRANDFIELD",
        "HSCAN",
        "HSTRLEN",
        "HTTL",
        "HVALS",
        "LCS",
        "LINDEX",
        "LLEN",
        "LPOS",
        "LRANGE",
        "MGET",
        "PEXPIRETIME",
        "PFCOUNT",
        "PTTL",
        "SCARD",
        "SDIFF",
        "SINTER",
        "SISMEMBER",
        "SMEMBERS",
        "SMISMEMBER",
        "SORT_RO",
        "SRANDMEMBER",
        "SSCAN",
        "STRLEN",
        "SUBSTR",
        "SUNION",
        "TTL",
        "TYPE",
        "XLEN",
        "XPENDING",
        "XRANGE",
        "XREVRANGE",
        "ZCARD",
        "ZCOUNT",
        "ZLEXCOUNT",
        "ZMSCORE",
        "ZRANDMEMBER",
        "ZRANGE",
        "ZRANGEBYLEX",
        "ZRANGEBYSCORE",
        "ZRANK",
        "ZREVRANGE",
        "ZREVRANGEBYLEX",
        "ZREVRANGEBYSCORE",
        "ZREVRANK",
        "ZSCAN",
        "ZSCORE",
    ]
)
_KEYED_WRITES = frozenset(
    [
        "APPEND",
        "BITFIELD",
        "COPY",
        "DECR",
        "DECRBY",
        "DEL",
        "DELIFEQ",
        "EXPIRE",
        "EXPIREAT",
        "GEOADD",
        "GEORADIUS",
        "GEORADIUSBYMEMBER",
        "GEOSEARCHSTORE",
        "GETDEL",
        "GETEX",
        "GETSET",
        "HDEL",
        "HEXPIRE",
        "HEXPIREAT",
        "HGETDEL",
        "HGETEX",
        "HINCRBY",
        "HINCRBYFLOAT",
        "HMSET",
        "HPERSIST",
        "HPEXPIRE",
        "HPEXPIREAT",
        "HSET",
        "HSETEX",
        "HSETNX",
        "INCR",
        "INCRBY",
        "INCRBYFLOAT",
        "LINSERT",
        "LMOVE",
        "LPOP",
        "LPUSH",
        "LPUSHX",
        "LREM",
        "LSET",
        "LTRIM",
        "MOVE",
        "MSET",
        "MSETNX",
        "PERSIST",
        "PEXPIRE",
        "PEXPIREAT",
        "PFADD",
        "PFMERGE",
        "PSETEX",
        "RENAME",
        "RENAMENX",
        "RESTORE",
        "RPOP",
        "RPOPLPUSH",
        "RPUSH",
        "RPUSHX",
        "SADD",
        "SDIFFSTORE",
        "SET",
        "SETBIT",
        "SETEX",
        "SETNX",
        "SETRANGE",
        "SINTERSTORE",
        "SMOVE",
        "SORT",
        "SPOP",
        "SPUBLISH",
        "SREM",
        "SUNIONSTORE",
        "TOUCH",
        "UNLINK",
        "XACK",
        "XADD",
        "XAUTOCLAIM",
        "XCLAIM",
        "XDEL",
        "XSETID",
        "XTRIM",
        "ZADD",
        "ZDIFFSTORE",
        "ZINCRBY",
        "ZINTERSTORE",
        "ZPOPMAX",
        "ZPOPMIN",
        "ZRANGESTORE",
        "ZREM",
        "ZREMRANGEBYLEX",
        "ZREMRANGEBYRANK",
        "ZREMRANGEBYSCORE",
        "ZUNIONSTORE",
    ]
)
PLAIN = _KEYED_READS | _KEYED_WRITES
READS = _KEYED_READS | frozenset(
    [
        "DBSIZE",
        "ECHO",
        "EVALSHA_RO",
        "EVAL_RO",
        "FCALL_RO",
        "INFO",
        "KEYS",
        "MEMORY",
        "OBJECT",
        "PING",
        "SCAN",
        "SINTERCARD",
        "TIME",
        "XINFO",
        "XREAD",
        "ZDIFF",
        "ZINTER",
        "ZINTERCARD",
        "ZUNION",
    ]
)

# Commands of unknown cost go to a second connection, so that fast ones neither wait behind their replies nor
# fail with them. While one of those that may keep the whole server busy runs, silence is expected.
MAY_HOLD_THE_SERVER = frozenset(
    [
        "DEBUG",
        "EVAL",
        "EVALSHA",
        "EVALSHA_RO",
        "EVAL_RO",
        "FCALL",
        "FCALL_RO",
        "FLUSHALL",
        "FLUSHDB",
        "FUNCTION",
        "KEYS",
        "MIGRATE",
        "SAVE",
    ]
)
SLOW = MAY_HOLD_THE_SERVER | frozenset(("SCAN",))

_SCRIPT = "use a script instead: store.run(script, keys, args) is atomic and takes one round trip"
_URL = "the URL sets the connection's user and database; open another store"
_OWN_CONNECTION = "it changes a connection that all callers share"
REFUSED = {
    **dict.fromkeys(("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"), _SCRIPT),
    **dict.fromkeys(("AUTH", "HELLO", "SELECT", "RESET", "QUIT"), _URL),
    **dict.fromkeys(
        ("SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"),
        "use store.subscribe(...), which has a connection of its own",
    ),
    **dict.fromkeys(("MONITOR", "SYNC", "PSYNC", "REPLCONF", "ASKING"), _OWN_CONNECTION),
    **dict.fromkeys(("READONLY", "READWRITE"), "reads from replicas are set in the URL"),
    **dict.fromkeys(
        ("WAIT", "WAITAOF"),
        "it waits for the writes of one connection, which here are those of all callers",
    ),
}
_REFUSED_SUBCOMMANDS = {
    "CLIENT": frozenset(
        [
            "CACHING",
            "CAPA",
            "IMPORT-SOURCE",
            "NO-EVICT",
            "NO-TOUCH",
            "PAUSE",
            "REPLY",
            "SETNAME",
            "TRACKING",
        ]
    ),
    "DEBUG": frozenset(("PROTOCOL",)),  # makes the server send replies that no command has
    "SCRIPT": frozenset(("DEBUG",)),  # turns the connection into a session of the Lua debugger
}

# Commands whose last or first argument is their time limit in seconds.
_BLOCKS_LAST = frozenset(("BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZPOPMAX", "BZPOPMIN"))
_BLOCKS_FIRST = frozenset(("BLMPOP", "BZMPOP"))

_VALUES_OF_STREAM_OPTION = {"GROUP": 2, "COUNT": 1, "BLOCK": 1, "CLAIM": 1}

# Where the first key is, for commands that are not PLAIN; NUMKEYS: a count stands before the keys.
_KEY_AT = {
    **dict.fromkeys(_BLOCKS_LAST, 1),
    **dict.fromkeys(("BITOP", "OBJECT", "MEMORY", "XINFO", "XGROUP"), 2),
    "MIGRATE": 3,
}
_NUMKEYS_AT = {
    **dict.fromkeys(("EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"), 2),
    **dict.fromkeys(("LMPOP", "ZMPOP", "SINTERCARD", "ZDIFF", "ZINTER", "ZINTERCARD", "ZUNION", "MSETEX"), 1),
    **dict.fromkeys(_BLOCKS_FIRST, 2),
}
_TWO_KEYS = frozenset(
    [
        "RENAME",
        "RENAMENX",
        "COPY",
        "LMOVE",
        "SMOVE",
        "RPOPLPUSH",
        "BLMOVE",
        "BRPOPLPUSH",
        "LCS",
        "GEOSEARCHSTORE",
        "ZRANGESTORE",
    ]
)
# Commands without keys to which any node of a cluster gives the same reply.
KEYLESS_ON_ANY_NODE = frozenset(("PING", "ECHO", "TIME", "PUBLISH", "COMMAND", "LOLWUT", "CLUSTER"))


def is_multiplexed(args: tuple[Arg, ...]) -> bool:
    """Whether a command has a key at position 1 and may share the connection, as `client.send` requires."""
    return len(args) > 1 and args[0] in PLAIN


def command_name(args: tuple[Arg, ...]) -> str:
    """The command's name in upper case."""
    if not args:
        raise UnsupportedCommand("an empty command", "give its name and arguments: call('GET', key)")
    name = args[0]
    if isinstance(name, str):
        return name.upper()
    if isinstance(name, (bytes, memoryview)):
        return bytes(name).decode("ascii", "replace").upper()
    raise UnsupportedCommand(repr(name), "a command's name is text")


def refuse_stateful(name: str, args: tuple[Arg, ...]) -> None:
    """Raise `UnsupportedCommand` for a command that would change the shared connection."""
    reason = REFUSED.get(name)
    subcommand = _keyword(args[1]) if len(args) > 1 else ""
    if reason is None and subcommand in _REFUSED_SUBCOMMANDS.get(name, ()):
        name, reason = f"{name} {subcommand}", _OWN_CONNECTION
        if subcommand == "TRACKING":
            reason = "use store.track(listener), which survives a reconnection"
    if reason is not None:
        raise UnsupportedCommand(name, reason)


def blocking_seconds(name: str, args: tuple[Arg, ...]) -> float | None:
    """How long a blocking command may wait (0: no limit), or None when it does not block."""
    if name in _BLOCKS_LAST:
        return _seconds(name, args[-1])
    if name in _BLOCKS_FIRST and len(args) > 1:
        return _seconds(name, args[1])
    if name in ("XREAD", "XREADGROUP"):
        return _block_option(name, args)
    return None


def _block_option(name: str, args: tuple[Arg, ...]) -> float | None:
    at = _stream_options(args).get("BLOCK")
    return None if at is None else _seconds(name, args[at]) / 1000


def _stream_options(args: tuple[Arg, ...]) -> dict[str, int]:
    """Where the values of the options of XREAD and XREADGROUP are, the first key for STREAMS.

    Options are read in order with what belongs to them: a group or a consumer may be called `block`, too.
    """
    found: dict[str, int] = {}
    position = 1
    while position + 1 < len(args) and "STREAMS" not in found:
        keyword = _keyword(args[position])
        found.setdefault(keyword, position + 1)
        position += _VALUES_OF_STREAM_OPTION.get(keyword, 0) + 1
    return found


def first_key(name: str, args: tuple[Arg, ...]) -> Arg | None:
    """The key that decides the cluster slot, or None for a command without keys."""
    position: int | None = 1 if name in PLAIN else _KEY_AT.get(name)
    if name in ("XREAD", "XREADGROUP"):
        position = _stream_options(args).get("STREAMS")
    elif name in _NUMKEYS_AT:
        position = _NUMKEYS_AT[name] + 1 if _number_of_keys(name, args) > 0 else None
    return args[position] if position is not None and position < len(args) else None


def all_keys(name: str, args: tuple[Arg, ...]) -> list[Arg]:
    """The keys of a multi-key command, as far as an error message can name them."""
    if name in _NUMKEYS_AT:
        at, count = _NUMKEYS_AT[name] + 1, _number_of_keys(name, args)
        return list(args[at : at + 2 * count : 2] if name == "MSETEX" else args[at : at + count])
    if name in ("ZDIFFSTORE", "ZINTERSTORE", "ZUNIONSTORE"):
        return [args[1], *args[3 : 3 + _count(args, 2)]]
    if name in ("MSET", "MSETNX"):
        return list(args[1::2])
    if name in _TWO_KEYS:
        return list(args[1:3])
    if name in ("BLPOP", "BRPOP", "BZPOPMIN", "BZPOPMAX"):
        return list(args[1:-1])
    if name == "BITOP":
        return list(args[2:])
    if name in ("XREAD", "XREADGROUP"):
        streams = _stream_options(args).get("STREAMS", len(args))
        return list(args[streams : streams + (len(args) - streams) // 2])
    return list(args[1:])


def _number_of_keys(name: str, args: tuple[Arg, ...]) -> int:
    return _count(args, _NUMKEYS_AT[name])


def _count(args: tuple[Arg, ...], at: int) -> int:
    """A number among the arguments; 0 when it is not a number, which the server will refuse."""
    text = as_text(args[at]) if len(args) > at else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def as_text(arg: Arg) -> str:
    """An argument or a reply as text, for messages and for parsing."""
    if isinstance(arg, (bytes, memoryview)):
        return bytes(arg).decode("utf-8", "backslashreplace")
    return str(arg)


def _keyword(arg: Arg) -> str:
    return as_text(arg).upper() if isinstance(arg, (str, bytes, memoryview)) and len(arg) <= 16 else ""


def _seconds(name: str, arg: Arg) -> float:
    try:
        seconds = float(as_text(arg))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UnsupportedCommand(name, f"its time limit must be a number >= 0, not {as_text(arg)!r}")
    return seconds
