"""Replies and errors as redis-py gives them to its callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis._parsers import BaseParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ephemera.errors import ConnectionFailed, EphemeraError, ServerError

Decode = Callable[[Any], Any]

_STALLED = "no answer for"  # how the wire words it when the server was silent for `socket_timeout`


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
