"""Which space does a key belong to? Built for scans: millions of names, one core.

The text before the first `:` is fixed in nearly every pattern, so it chooses a handful of candidates, which
are tried as one regular expression: each alternative ends with an empty group, and the number of the last
group that matched says which it was. Patterns of one catalogue never overlap, so at most one answers.

The answer is exact: a key belongs to a space only if that space could have rendered it. The expression
takes any `%` inside a field; only a key that holds one is parsed in full, to refuse what is not canonically
encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ephemera.keyspace._template import Template

T = TypeVar("T")


class _Candidates(Generic[T]):
    """Patterns that a key may be of, as one expression."""

    __slots__ = ("match", "owners")

    def __init__(self, owners: list[tuple[Template, T]]) -> None:
        self.owners = owners
        alternatives = "|".join(f"{template.regex}()" for template, _ in owners)
        self.match: Callable[[str], re.Match[str] | None] = re.compile(alternatives or "(?!)").fullmatch


class Classifier(Generic[T]):
    """Maps a key's bytes to what its pattern was registered with."""

    def __init__(self, owners: Iterable[tuple[Template, T]]) -> None:
        by_head: dict[str | None, list[tuple[Template, T]]] = {}
        for template, owner in owners:
            by_head.setdefault(_head(template), []).append((template, owner))
        headless = by_head.pop(None, [])
        self._headless = _Candidates(headless)
        self._by_head = {head: _Candidates([*known, *headless]) for head, known in by_head.items()}

    def __call__(self, key: bytes) -> T | None:
        """The owner of a key, or None when no pattern could have rendered it."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return None
        candidates = self._by_head.get(text.partition(":")[0], self._headless)
        found = candidates.match(text)
        if found is None or found.lastindex is None:
            return None
        template, owner = candidates.owners[found.lastindex - 1]
        return owner if "%" not in text or template.parse(text) is not None else None


def _head(template: Template) -> str | None:
    """The text before the first ':', when it is the same in all keys of the pattern."""
    head, colon, _ = template.literals[0].partition(":")
    return head if colon or not template.fields else None
