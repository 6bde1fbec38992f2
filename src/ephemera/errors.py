"""Every error Ephemera raises; each carries its facts as fields and says what to do next.

Two of them decide how a caller may react when the server is away, so they are kept apart:
`Unavailable` means the command was certainly not executed, `OutcomeUnknown` means it was sent and nobody
can tell. Both are `ConnectionFailed`, which is what a pattern catches to fall back.
"""

from __future__ import annotations

__all__ = [
    "CannotConnect",
    "CommandRefused",
    "ConnectionFailed",
    "CrossSlot",
    "EmbeddedError",
    "EphemeraError",
    "InvalidUrl",
    "LoopMisuse",
    "OutcomeUnknown",
    "ServerError",
    "StoreClosed",
    "Unavailable",
]


class EphemeraError(Exception):
    """The base of every error that Ephemera raises."""


class InvalidUrl(EphemeraError, ValueError):
    """A server URL that cannot be understood; the message never repeats its password."""


class CommandRefused(EphemeraError, ValueError):
    """A command that cannot share a connection with others, and what to use instead."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"{command} is refused: {reason}")
        self.command = command
        self.reason = reason


class StoreClosed(EphemeraError):
    """The store was closed before this call."""


class LoopMisuse(EphemeraError, RuntimeError):
    """A blocking call made on an event loop's own thread, which would stop that loop."""


class EmbeddedError(EphemeraError, RuntimeError):
    """An embedded server that did not start, with the end of its own log."""


class ConnectionFailed(EphemeraError):
    """The server could not be asked, or did not answer; see `Unavailable` and `OutcomeUnknown`."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"{address}: {problem}")
        self.address = address
        self.problem = problem


class Unavailable(ConnectionFailed):
    """The server is not connected: the command was not executed."""


class OutcomeUnknown(ConnectionFailed):
    """The connection was lost before the reply: the command may or may not have been executed."""


class CannotConnect(Unavailable):
    """A connection that could not be opened, and what to do about it."""

    def __init__(self, address: str, problem: str, advice: str) -> None:
        super().__init__(address, f"cannot connect: {problem}. {advice}")
        self.problem = problem
        self.advice = advice


class ServerError(EphemeraError):
    """An error reply of the server: `code` is its first word, `command` and `key` what it answered."""

    def __init__(self, message: str, command: str | None = None, key: str | None = None) -> None:
        self.message = message
        self.code = message.partition(" ")[0]
        self.command = command
        self.key = key
        super().__init__(message)

    def __str__(self) -> str:
        asked = " ".join(part for part in (self.command, self.key and repr(self.key)) if part)
        return f"{asked}: {self.message}" if asked else self.message


class CrossSlot(ServerError):
    """Keys of one command that live in different cluster slots."""
