"""Propose a declaration for the keys of one shape from a sample: kind, value type, lifetime, role.

Value types are plain (`str`, `int`, `bytes`), because a Struct codec would not decode what another program
wrote. The lifetime is the longest TTL seen, rounded up to a usual one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ephemera.keyspace import MAX_KEY_LENGTH
from ephemera.operations.formatting import format_duration, format_keys, format_size
from ephemera.operations.infer._content_types import ContentType
from ephemera.operations.libraries import Identified, SeenKey, identify_shape
from ephemera.operations.survey import SampledKey, Shape, is_word, looks_random, looks_secret

_USUAL_LIFETIMES = {
    "seconds": (1, (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    "minutes": (60, (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    "hours": (3600, (1, 2, 3, 4, 6, 8, 12)),
    "days": (86_400, (1, 2, 3, 5, 7, 10, 14, 21, 30, 31, 60, 90, 180, 365)),
}
_COUNTS = re.compile(r"count|rate|limit|hits|views|seq|total|num|quota|usage|attempt", re.IGNORECASE)
_KINDS = {"hash": "mapping", "set": "set", "zset": "sorted_set", "list": "list", "stream": "stream"}
_MAX_NAMES = 12
_OUTLIVES = "TODO: what reads it"


@dataclass(frozen=True)
class ProposedKeyspace:
    """A proposed keyspace; `notes` are for people who read the proposal."""

    pattern: str
    kind: str
    value_type: str | None  # Python source; None for kinds without a value type
    lifetime: str  # Python source
    keys: int
    sampled: int
    role: str = "cache"
    hash_tag: str | None = None
    max_key_length: int | None = None
    sensitive: bool = False
    fields: list[str] = field(default_factory=list)  # of a stream's entries
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    library: str | None = None  # that writes them
    purpose: str = ""


def identify_writer(keys: Sequence[SampledKey]) -> Identified | None:
    """The library that wrote these keys."""
    return identify_shape(SeenKey(key.key, key.type, _signs(key)) for key in keys)


def _signs(key: SampledKey) -> frozenset[str]:
    return key.content.signs if isinstance(key.content, ContentType) else frozenset()


def propose(shape: Shape, keys: Sequence[SampledKey], writer: Identified | None) -> ProposedKeyspace:
    """Propose a keyspace for the keys of one shape; `writer` is the library that writes them, if known."""
    kinds = Counter(key.type for key in keys)
    main = kinds.most_common(1)[0][0] if kinds else ""
    contents: list[ContentType] = [
        key.content for key in keys if key.type == main and key.content is not None
    ]
    kind, value_type = _kind(main, shape.pattern, contents)
    secret = (
        shape.secret
        or any(each.secret for each in contents)
        or any(map(_has_secret_name, keys))
        or (writer is not None and writer.keys.sensitive)
    )
    lifetime = _lifetime([key.ttl for key in keys])
    is_queue = kind in ("list", "stream") and lifetime.startswith("permanent")
    role = writer.keys.role if writer else "queue" if is_queue else "cache"
    names = dict.fromkeys(name for each in contents for name in each.names)
    return ProposedKeyspace(
        pattern=shape.pattern,
        kind=kind,
        value_type=value_type,
        lifetime=_outliving(lifetime) if role == "queue" else lifetime,
        keys=shape.count,
        sampled=len(keys),
        role=role,
        hash_tag=shape.hash_tag,
        max_key_length=_key_length_limit(shape.longest),
        sensitive=secret,
        fields=[name for name in names if not looks_random(name)] if kind == "stream" else [],
        examples=[] if secret else format_keys(shape.examples),
        notes=[*_sample_notes(keys, kinds), *_content_notes(contents, list(names), secret=secret)],
        library=writer.library.name if writer else None,
        purpose=f"{writer.library.name}: {writer.keys.purpose}" if writer else "",
    )


def _has_secret_name(key: SampledKey) -> bool:
    """Whether this key alone looks like a secret: a session among the pages that share its pattern."""
    text = key.key.decode("utf-8", "replace")
    return looks_secret(text, *text.split(":"))


def _is_field_name(name: str) -> bool:
    """Whether a programmer chose this name: `title`, `line_2`; others may be ids."""
    return is_word(re.sub(r"(?<=[a-z])_?\d{1,2}$", "", name))


def _kind(main: str, pattern: str, contents: Sequence[ContentType]) -> tuple[str, str | None]:
    """The kind, and its value type."""
    types = {each for content in contents for each in content.types} - {"envelope"}
    if main == "string":
        if types == {"one"} and not _COUNTS.search(pattern):
            return "flag", None
        if types == {"one", "zero"} and not _COUNTS.search(pattern):
            return "value", "bool"
        if types and types <= {"one", "zero", "whole"}:
            return "counter", None
        return "value", _value_type(types)
    if main == "stream":
        return "stream", None
    value_type = _value_type(types)
    if main in ("set", "zset") and value_type == "float":
        value_type = "str"
    return _KINDS.get(main, "value"), value_type


def _value_type(types: set[str]) -> str:
    if not types or "bytes" in types:
        return "bytes"
    if types <= {"one", "zero", "whole"}:
        return "int"
    return "float" if types <= {"one", "zero", "whole", "decimal"} else "str"


def _lifetime(ttls: Sequence[int]) -> str:
    """The lifetime in Python source, given the TTLs seen in milliseconds."""
    longest = max(ttls, default=-1)
    if longest < 0:
        return 'permanent(reason="seen without a TTL")'
    seconds = longest / 1000
    for unit, (size, amounts) in _USUAL_LIFETIMES.items():
        for amount in amounts:
            if seconds <= amount * size:
                return f"fixed({unit}={amount})"
    return f"fixed(days={math.ceil(seconds / 86_400)})"


def _outliving(lifetime: str) -> str:
    """The same for a queue, which must say what its keys outlive."""
    return lifetime.replace(")", f', outlives="{_OUTLIVES}")') if lifetime.startswith("fixed") else lifetime


def _key_length_limit(longest: int) -> int | None:
    """The key length limit, where the default is too low: the next power of two."""
    return 1 << (longest - 1).bit_length() if longest > MAX_KEY_LENGTH else None


def _sample_notes(keys: Sequence[SampledKey], kinds: Counter[str]) -> Iterator[str]:
    if not keys:
        yield "they were gone before they could be inspected: kind and lifetime are guesses"
        return
    if len(kinds) > 1:
        yield f"of several types: {', '.join(f'{n} {name}' for name, n in kinds.most_common())}"
    elif next(iter(kinds)) not in ("string", *_KINDS):
        yield f"of type {next(iter(kinds))}, which no kind of keyspace holds: reads through it will fail"
    sizes = [key.size for key in keys if key.size is not None]
    if sizes:
        largest = f", the largest {format_size(max(sizes))}" if len(sizes) > 1 else ""
        yield f"{format_size(sum(sizes) / len(sizes))} each{largest}"
    with_ttl = [key.ttl for key in keys if key.ttl >= 0]
    if with_ttl:
        without_ttl = len(keys) - len(with_ttl)
        without = f"; {without_ttl} of {len(keys)} had no TTL" if without_ttl else ""
        yield f"up to {format_duration(max(with_ttl))} of TTL left{without}"


def _content_notes(contents: Sequence[ContentType], names: list[str], *, secret: bool) -> Iterator[str]:
    types = {each for content in contents for each in content.types}
    if "envelope" in types:
        yield "written by Ephemera: declare the type it was written with to read it"
    if "object" in types:
        yield "holds JSON objects"
    if 0 < len(names) <= _MAX_NAMES and all(map(_is_field_name, names)):
        yield f"fields: {', '.join(ascii(name)[1:-1] for name in names)}"
    elif names:
        yield "many or varying field names"
    if secret:
        yield "it may hold secrets: keys and values are not shown"
        return
    examples = list(dict.fromkeys(each.example for each in contents if each.example))[:2]
    if examples:
        yield f"holds for example {', '.join(map(ascii, examples))}"
