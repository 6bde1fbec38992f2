"""Which pattern a key belongs to, and whether two patterns can render the same key.

*Classification* is built for scans: millions of keys on one core. The text before the first `:`, after a
prefix that all patterns share, is fixed in nearly every pattern, so it selects a few candidates, which are
tried as one regular expression: each alternative ends with an empty group, and the number of the last group
that matched says which it was. The answer is exact: a key belongs to a keyspace only if that keyspace could
have rendered it. The expression accepts any `%` and any text inside a field; only a key that holds a `%`, or
fields with declared types, is parsed in full, to refuse what is never rendered.

*Overlap* is exact too, with a shared key as evidence. A pattern is a sequence of steps: a literal step takes
one given character, a field takes one or more of its raw characters. `shared_key` walks two such sequences
side by side over all pairs of positions: the product of two small automata. Percent-encoding may be left out
of the walk: no literal holds `%`, and where both patterns are inside a field the letter `a` is raw in both,
so if any key is shared, one without `%` is.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ephemera.keyspace._template import Template

T = TypeVar("T")

_ANY = "a"  # raw in every field of every pattern
_Position = tuple[int, bool]  # the next step; whether the field there already has a character
_Steps = list[str | frozenset[str]]  # a literal character, or the characters a field cannot hold raw


class _Candidates(Generic[T]):
    """Patterns that a key may belong to, as one expression."""

    __slots__ = ("match", "owners")

    def __init__(self, owners: list[tuple[Template, T]]) -> None:
        self.owners = owners
        alternatives = "|".join(f"{template.regex}()" for template, _ in owners)
        self.match: Callable[[str], re.Match[str] | None] = re.compile(alternatives or "(?!)").fullmatch


class Classifier(Generic[T]):
    """Maps a key's bytes to what its pattern was registered with."""

    def __init__(self, owners: Iterable[tuple[Template, T]]) -> None:
        every = list(owners)
        # A prefix that all patterns share distinguishes nothing, so heads begin after it.
        self._start = len(_shared_prefix([template.literals[0] for template, _ in every]))
        by_head: dict[str | None, list[tuple[Template, T]]] = {}
        for template, owner in every:
            by_head.setdefault(_head(template, self._start), []).append((template, owner))
        headless = by_head.pop(None, [])
        self._headless = _Candidates(headless)
        self._by_head = {head: _Candidates([*known, *headless]) for head, known in by_head.items()}

    def __call__(self, key: bytes) -> T | None:
        """The owner of a key, or None when no pattern could have rendered it."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return None
        candidates = self._by_head.get(text[self._start :].partition(":")[0], self._headless)
        found = candidates.match(text)
        if found is None or found.lastindex is None:
            return None
        template, owner = candidates.owners[found.lastindex - 1]
        is_exact = "%" not in text and not template.types
        return owner if is_exact or template.parse(text) is not None else None


def _shared_prefix(literals: list[str]) -> str:
    """What all texts begin with, up to a ':'."""
    if not literals:
        return ""
    first, last = min(literals), max(literals)  # what these two share, all share
    differs = next(
        (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
    )
    return first[: first.rfind(":", 0, differs) + 1]


def _head(template: Template, start: int) -> str | None:
    """The text from `start` to the next ':', when it is the same in all keys of the pattern."""
    head, colon, _ = template.literals[0][start:].partition(":")
    return head if colon or not template.fields else None


def shared_key(one: Template, other: Template) -> str | None:
    """A key that both could render, or None when there is none."""
    left, right = _steps(one), _steps(other)
    start = ((0, False), (0, False))
    reached: dict[tuple[_Position, _Position], str] = {start: ""}
    queue = deque([start])
    while queue:
        pair = queue.popleft()
        key = reached[pair]
        if _ends(left, pair[0]) and _ends(right, pair[1]):
            return key
        for character, here in _next_steps(left, pair[0]):
            for also, there in _next_steps(right, pair[1]):
                common = _common_character(character, also)
                if common is not None and (here, there) not in reached:
                    reached[here, there] = key + common
                    queue.append((here, there))
    return None


def _steps(template: Template) -> _Steps:
    steps: _Steps = [*template.literals[0]]
    for literal in template.literals[1:]:
        steps.append(frozenset(":{}" + literal[:1]))
        steps.extend(literal)
    return steps


def _next_steps(steps: _Steps, position: _Position) -> Iterator[tuple[str | frozenset[str], _Position]]:
    """The possible next steps and where each leads: a field continues, or the literal after it begins."""
    at, started = position
    if at == len(steps):
        return
    step = steps[at]
    if isinstance(step, str):
        yield step, (at + 1, False)
        return
    yield step, (at, True)
    if started and at + 1 < len(steps):
        yield steps[at + 1], (at + 2, False)  # a field is always followed by a literal


def _ends(steps: _Steps, position: _Position) -> bool:
    at, started = position
    return at == len(steps) or (started and at + 1 == len(steps))


def _common_character(one: str | frozenset[str], other: str | frozenset[str]) -> str | None:
    """A character that both sides accept: literals must be equal, a field refuses its end characters."""
    if isinstance(one, frozenset):
        if isinstance(other, frozenset):
            return _ANY
        one, other = other, one
    if isinstance(other, frozenset):
        return None if one in other else one
    return one if one == other else None
