"""The declaration of a library: its keys, its hazards, and where to begin when you replace it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from ephemera.keyspace import Role

_WILDCARDS = {"*": ".+", "#": "[0-9]+"}


@dataclass(frozen=True, slots=True)
class KeySignature:
    """Keys of one sort that a library writes."""

    names: str
    """Globs, separated by spaces: `*` is any text, `#` a number; everything else is literal."""
    types: str
    """The Redis types they have, separated by spaces."""
    role: Role
    purpose: str
    sensitive: bool = False
    weak: bool = False
    """Whether other programs use such names, so that they prove nothing alone."""
    fields: frozenset[str] = frozenset()
    """Fields that the JSON in them has, where other programs use such names."""
    content: str = ""
    """For the same, a regular expression that the value, or a member of it, must match."""
    uniform: bool = False
    """Whether the names of all keys of a shape must fit, and the content of at least two."""

    @property
    def needs_content(self) -> bool:
        """Whether the name proves nothing without the content."""
        return bool(self.fields or self.content)

    def fits(self, signs: Collection[str]) -> bool:
        """Whether these signs (`signs_of`) prove what the name alone does not."""
        return self.fields <= set(signs) and (not self.content or self.content in signs)

    @property
    def expression(self) -> str:
        """A regular expression for the whole name."""
        return "|".join(
            "".join(_WILDCARDS.get(sign, re.escape(sign)) for sign in glob) for glob in self.names.split()
        )


@dataclass(frozen=True, slots=True)
class Library:
    """A library: the keys it writes, what goes wrong with it, and what replaces it."""

    name: str
    keys: tuple[KeySignature, ...]
    hazards: tuple[str, ...] = ()
    """Sentences, each a thing to know or to set."""
    first: str = ""
    """What to change first when you move to Ephemera."""
    page: str = ""
    """The page that explains it, relative to `docs/`."""
