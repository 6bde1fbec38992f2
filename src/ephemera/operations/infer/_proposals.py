"""From what was seen of some keys to a declaration of them: kind, type, lifetime, role.

A proposal reads what is there: types are the plain ones (`str`, `int`, `bytes`), because a Struct of ours
would not recognize what another program has written. Lifetimes are the longest life seen, rounded up to one
that people choose.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ephemera.keyspace import MAX_KEY_LENGTH
from ephemera.operations.infer._content_types import Sniffed
from ephemera.operations.infer._pattern_writer import Shape
from ephemera.operations.inspect._formatting import shown_keys, shown_life, shown_size
from ephemera.operations.inspect._probe import Probe

_CHOSEN = {
    "seconds": (1, (1, 2, 5, 10, 15, 30)),
    "minutes": (60, (1, 2, 5, 10, 15, 30)),
    "hours": (3600, (1, 2, 3, 6, 12)),
    "days": (86_400, (1, 2, 3, 7, 14, 30, 60, 90, 180, 365)),
}
_COUNTS = re.compile(r"count|rate|limit|hits|views|seq|total|num|quota|usage|attempt", re.IGNORECASE)
_KINDS = {"hash": "mapping", "set": "set", "zset": "sorted_set", "list": "list", "stream": "stream"}
_MOST_NAMES = 12


@dataclass(frozen=True)
class Declaration:
    """A proposed space; `notes` are for people who read the proposal."""

    pattern: str
    kind: str
    value_type: str | None  # as it is written in Python; None for kinds that have none
    lifetime: str  # as it is written in Python
    keys: int
    sampled: int
    role: str = "cache"
    hash_tag: str | None = None
    max_key_length: int | None = None
    sensitive: bool = False
    fields: list[str] = field(default_factory=list)  # of a stream's entries
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def propose(shape: Shape, count: int, probes: Sequence[Probe]) -> Declaration:
    """A declaration of the keys of one shape."""
    kinds = Counter(probe.type for probe in probes)
    main = kinds.most_common(1)[0][0] if kinds else ""
    sniffed: list[Sniffed] = [p.content for p in probes if p.type == main and p.content is not None]
    kind, value_type = _kind(main, shape.pattern, sniffed)
    secret = shape.secret or any(each.secret for each in sniffed)
    lifetime = _lifetime([probe.ttl for probe in probes])
    waits = kind in ("list", "stream") and lifetime.startswith("permanent")
    names = dict.fromkeys(name for each in sniffed for name in each.names)
    return Declaration(
        pattern=shape.pattern,
        kind=kind,
        value_type=value_type,
        lifetime=lifetime,
        keys=count,
        sampled=len(probes),
        role="queue" if waits else "cache",
        hash_tag=shape.hash_tag,
        max_key_length=_room(shape.longest),
        sensitive=secret,
        fields=list(names) if kind == "stream" else [],
        examples=[] if secret else shown_keys(shape.examples),
        notes=[*_seen(probes, kinds), *_contents(sniffed, list(names), secret=secret)],
    )


def _kind(main: str, pattern: str, sniffed: Sequence[Sniffed]) -> tuple[str, str | None]:
    """The kind, and the type of its values."""
    forms = {form for each in sniffed for form in each.forms} - {"envelope"}
    if main == "string":
        if forms == {"one"} and not _COUNTS.search(pattern):
            return "flag", None
        if forms == {"one", "zero"} and not _COUNTS.search(pattern):
            return "value", "bool"
        if forms and forms <= {"one", "zero", "whole"}:
            return "counter", None
        return "value", _type(forms)
    if main == "stream":
        return "stream", None
    types = _type(forms)
    if main in ("set", "zset") and types == "float":
        types = "str"
    return _KINDS.get(main, "value"), types


def _type(forms: set[str]) -> str:
    if not forms or "bytes" in forms:
        return "bytes"
    if forms <= {"one", "zero", "whole"}:
        return "int"
    return "float" if forms <= {"one", "zero", "whole", "decimal"} else "str"


def _lifetime(lives: Sequence[int]) -> str:
    """The lifetime in Python, of the lives that were seen in milliseconds."""
    longest = max(lives, default=-1)
    if longest < 0:
        return 'permanent(reason="seen without a TTL")'
    seconds = longest / 1000
    for unit, (size, amounts) in _CHOSEN.items():
        for amount in amounts:
            if seconds <= amount * size:
                return f"fixed({unit}={amount})"
    return f"fixed(days={math.ceil(seconds / 86_400)})"


def _room(longest: int) -> int | None:
    """A limit of key lengths, where the usual one is too low: the next power of two."""
    return 1 << (longest - 1).bit_length() if longest > MAX_KEY_LENGTH else None


def _seen(probes: Sequence[Probe], kinds: Counter[str]) -> Iterator[str]:
    if not probes:
        yield "they were gone before they could be looked at: kind and lifetime are guesses"
        return
    if len(kinds) > 1:
        yield f"of several types: {', '.join(f'{n} {name}' for name, n in kinds.most_common())}"
    elif next(iter(kinds)) not in ("string", *_KINDS):
        yield f"of type {next(iter(kinds))}, which no kind of space holds: reads through it will fail"
    sizes = [probe.size for probe in probes if probe.size is not None]
    if sizes:
        largest = f", the largest {shown_size(max(sizes))}" if len(sizes) > 1 else ""
        yield f"{shown_size(sum(sizes) / len(sizes))} each{largest}"
    ending = [probe.ttl for probe in probes if probe.ttl >= 0]
    if ending:
        endless = len(probes) - len(ending)
        without = f"; {endless} of {len(probes)} had no TTL" if endless else ""
        yield f"up to {shown_life(max(ending))} left to live{without}"


def _contents(sniffed: Sequence[Sniffed], names: list[str], *, secret: bool) -> Iterator[str]:
    forms = {form for each in sniffed for form in each.forms}
    if "envelope" in forms:
        yield "written by Ephemera itself: declare the type it was written with to read it"
    if "object" in forms:
        yield "holds JSON objects"
    if 0 < len(names) <= _MOST_NAMES:
        yield f"fields: {', '.join(ascii(name)[1:-1] for name in names)}"
    elif names:
        yield "its field names vary, or are many"
    if secret:
        yield "by its names it holds secrets: keys and values are not shown"
        return
    examples = list(dict.fromkeys(each.example for each in sniffed if each.example))[:2]
    if examples:
        yield f"holds for example {', '.join(map(ascii, examples))}"
