"""Can two patterns render the same key? An exact answer, with such a key as evidence.

A pattern is read as a row of steps: a literal step takes one given character, a field takes one or more
characters out of its raw ones. `shared_key` walks two rows side by side, one character at a time, over all
pairs of places it can reach: the product of two small automata.

Percent-encoding may be left out of the walk without losing exactness: no literal holds `%`, and where both
patterns are inside a field the letter `a` is raw in both. So if any key is shared, one without `%` is, in
which every field holds its value as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ephemera.keyspace._template import Template

_ANY = "a"  # raw in every field of every pattern
_Place = tuple[int, bool]  # the step to take next; whether the field there has a character already
_Steps = list[str | frozenset[str]]  # a literal character, or the marks a field cannot hold raw


def shared_key(one: Template, other: Template) -> str | None:
    """A key that both could render, or None when there is none."""
    left, right = _steps(one), _steps(other)
    start = ((0, False), (0, False))
    reached: dict[tuple[_Place, _Place], str] = {start: ""}
    queue = deque([start])
    while queue:
        pair = queue.popleft()
        key = reached[pair]
        if _ends(left, pair[0]) and _ends(right, pair[1]):
            return key
        for character, here in _moves(left, pair[0]):
            for also, there in _moves(right, pair[1]):
                taken = _both(character, also)
                if taken is not None and (here, there) not in reached:
                    reached[here, there] = key + taken
                    queue.append((here, there))
    return None


def _steps(template: Template) -> _Steps:
    steps: _Steps = [*template.literals[0]]
    for literal in template.literals[1:]:
        steps.append(frozenset(":{}" + literal[:1]))
        steps.extend(literal)
    return steps


def _moves(steps: _Steps, place: _Place) -> Iterator[tuple[str | frozenset[str], _Place]]:
    """What may be taken next, and where that leads: a begun field goes on, or gives way to what follows."""
    at, begun = place
    if at == len(steps):
        return
    step = steps[at]
    if isinstance(step, str):
        yield step, (at + 1, False)
        return
    yield step, (at, True)
    if begun and at + 1 < len(steps):
        yield steps[at + 1], (at + 2, False)  # after a field stands a literal, always


def _ends(steps: _Steps, place: _Place) -> bool:
    at, begun = place
    return at == len(steps) or (begun and at + 1 == len(steps))


def _both(one: str | frozenset[str], other: str | frozenset[str]) -> str | None:
    """A character that both sides take: literals must agree, a field refuses its marks."""
    if isinstance(one, frozenset):
        if isinstance(other, frozenset):
            return _ANY
        one, other = other, one
    if isinstance(other, frozenset):
        return None if one in other else one
    return one if one == other else None
