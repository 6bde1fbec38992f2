"""What an answer depends on besides its prompt, and the id that prompt and scope have together.

Two prompts may share an answer only where all of this is the same. So none of it may be left out: `Scope` has
no defaults, a scope of one's own adds to it and may not have any either, and all of it goes into the id of an
entry and into the digest that a neighbour must have.
"""

from __future__ import annotations

import hashlib
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose answer it is, by what it was made, and from what; subclass it to add to that."""

    organization: str
    provider: str
    model: str
    language: str
    documents: frozenset[str]
    """Ids of what the answer is made from; whoever changes one calls `end_source`."""


S = TypeVar("S", bound=Scope)


class Identity(NamedTuple):
    """The id of a prompt in a scope, which names its entry and its vector; and a digest of the scope."""

    id: str
    scope: str


class Identities(Generic[S]):
    """Makes ids; 128 bits of SHA-256 over unambiguous JSON."""

    def __init__(self, pattern: str, scope_type: type[S]) -> None:
        if not issubclass(scope_type, Scope):
            raise InvalidDeclaration(pattern, f"{scope_type!r} is no scope", "subclass Scope")
        optional = [field.name for field in msgspec.structs.fields(scope_type) if not field.required]
        if optional:
            raise InvalidDeclaration(
                pattern,
                f"{scope_type.__name__}.{optional[0]} has a default, so it may be forgotten",
                "a scope's fields must all be given, each time",
            )
        self._pattern = pattern
        self._type = scope_type

    def checked(self, scope: S) -> S:
        """The scope, each field of its declared type; `InvalidValue` otherwise."""
        if not isinstance(scope, self._type):
            raise InvalidValue(self._pattern, f"answers of a {self._type.__name__}", type(scope).__name__)
        try:
            return msgspec.convert(msgspec.to_builtins(scope), self._type)
        except msgspec.ValidationError as problem:
            raise InvalidValue(self._pattern, f"answers of a {self._type.__name__}", str(problem)) from None

    def of(self, prompt: str, scope: S) -> Identity:
        """What a prompt in a checked scope is stored under."""
        wanted = msgspec.json.encode(scope, order="deterministic")
        whole = msgspec.json.encode([prompt, msgspec.Raw(wanted)])
        return Identity(_digest(whole), _digest(wanted))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
