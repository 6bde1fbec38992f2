"""Which commands of redis-py may share one connection, and how arguments, replies and errors are converted.

A command that waits, or that changes the connection it runs on, gets a connection of redis-py's own pool:
sharing it would hold up or change every other caller. So does a command that interrupts another one: a server
reads nothing from a connection whose script it is running, so SCRIPT KILL behind it would never arrive.
AUTH is sent on the shared connection: a server that has just got a password accepts it nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis._parsers import BaseParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ephemera.errors import ConnectionFailed, EphemeraError, ServerError
from ephemera.wire import pack_command

_WAIT = {
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "WAIT",
    "WAITAOF",
}
_TRANSACT = {"DISCARD", "EXEC", "MULTI", "UNWATCH", "WATCH"}
_SUBSCRIBE = {"PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE"}
_CHANGE = {"ASKING", "CLIENT", "HELLO", "HIMPORT", "QUIT", "READONLY", "READWRITE", "RESET", "SELECT"}
_STREAM = {"DEBUG", "MONITOR", "PSYNC", "REPLCONF", "SHUTDOWN", "SYNC"}
_OWN_CONNECTION = frozenset(_WAIT | _TRANSACT | _SUBSCRIBE | _CHANGE | _STREAM)
_OWN_CONNECTION_WITH = {
    "FUNCTION": frozenset(("KILL",)),
    "SCRIPT": frozenset(("DEBUG", "KILL")),
}
CHANGES_CONNECTION = frozenset(("READONLY", "READWRITE", "SELECT"))
"""After one of these, a client that is used by one task expects the effect in its next commands."""
NESTS_ERRORS = frozenset(("EVAL", "EVALSHA", "EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO"))
"""A script may return an error as part of its reply."""
_MOST_NAMES = 1000

one_word: set[str] = set()
"""Names that were seen to be of commands that may share a connection, and to be one word: the hot path."""

_PACKABLE = frozenset((str, bytes, int, float))

Words = tuple[Any, ...]
Pack = Callable[[Words], bytes]

Decode = Callable[[Any], Any]

_STALLED = "no answer for"  # how the wire words it when the server was silent for `socket_timeout`


def shared_words(args: Words) -> Words | None:
    """The words of a command that may share a connection, or None if it needs one of its own."""
    name = args[0]
    text = name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
    words = text.upper().split()
    if not words or words[0] in _OWN_CONNECTION:
        return None
    if words[0] in _OWN_CONNECTION_WITH and _second_word(words, args) in _OWN_CONNECTION_WITH[words[0]]:
        return None
    if words[0] in ("XREAD", "XREADGROUP"):
        return None if _waits(args) else args
    if len(words) > 1:
        return (*text.encode().split(), *args[1:])
    if words[0] not in _OWN_CONNECTION_WITH and len(one_word) < _MOST_NAMES and name == words[0]:
        one_word.add(name)
    return args


def _second_word(words: list[str], args: Words) -> str:
    second = words[1] if len(words) > 1 else args[1] if len(args) > 1 else ""
    return (second.decode("ascii", "replace") if isinstance(second, bytes) else str(second)).upper()


def _waits(args: Words) -> bool:
    """Whether a read of streams may block; a group, consumer or stream called `block` costs a connection."""
    return any(isinstance(arg, (str, bytes)) and arg.upper() in ("BLOCK", b"BLOCK") for arg in args[1:])


def packer(encoder: Any) -> Pack:
    """Packs commands as redis-py does with this encoder, with hiredis where the outcome is the same."""
    is_utf8 = encoder.encoding.lower().replace("_", "-") in ("utf-8", "utf8")

    def pack(words: Words) -> bytes:
        if is_utf8 and _PACKABLE.issuperset(map(type, words)):
            try:
                return pack_command(words)
            except UnicodeEncodeError:
                pass  # the encoder knows what to do with lone surrogates
        name, *arguments = words  # the name of a command is ASCII, whatever the encoding
        name = name.encode() if isinstance(name, str) else name
        return pack_command((name, *(bytes(encoder.encode(each)) for each in arguments)))

    return pack


def decoder(encoder: Any) -> Decode | None:
    """Decodes replies as `decode_responses` asks; None when they stay bytes."""
    if not encoder.decode_responses:
        return None
    encoding, errors = encoder.encoding, encoder.encoding_errors

    def decode(reply: Any) -> Any:
        if type(reply) is bytes:
            return reply.decode(encoding, errors)
        if type(reply) is list:
            return [decode(item) for item in reply]
        if type(reply) is dict:
            return {decode(name): decode(value) for name, value in reply.items()}
        return reply

    return decode


def redis_error(error: EphemeraError) -> RedisError:
    """The error of redis-py's that means the same."""
    if isinstance(error, ServerError):
        refusal: RedisError = BaseParser.parse_error(error.message)
        return refusal
    if isinstance(error, ConnectionFailed) and error.problem.startswith(_STALLED):
        return RedisTimeoutError(f"Timeout reading from {error.address}: {error.problem}")
    return RedisConnectionError(f"Connection lost: {error}")


def with_redis_errors(reply: Any) -> Any:
    """A reply whose nested error replies are errors of redis-py's."""
    if isinstance(reply, ServerError):
        return redis_error(reply)
    return [with_redis_errors(item) for item in reply] if type(reply) is list else reply
