"""A short fingerprint of a type's shape: equal shapes get equal fingerprints, in every process and version.

It covers everything that a stored value depends on: the encoded names of fields, their types and constraints,
which are required, the values of enums and literals, the tags of unions. It leaves out the rest: class names,
docstrings, the order of fields in an object, and defaults (except for a Struct that omits defaults when it is
encoded, where they are part of the stored value).
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec
from msgspec import inspect

FINGERPRINT_LENGTH = 6
"""Characters of a fingerprint: 36 bits, in the URL-safe base64 alphabet."""


def fingerprint(value_type: Any) -> bytes:
    """The fingerprint of a type; TypeError when msgspec cannot encode and decode that type."""
    digest = hashlib.sha256(_shape(inspect.type_info(value_type), []).encode()).digest()
    return base64.urlsafe_b64encode(digest)[:FINGERPRINT_LENGTH]


def _shape(node: Any, outer: list[type]) -> str:
    """A type as text; `outer` are the classes being described, so that recursion ends."""
    match node:
        case inspect.Metadata():
            return _shape(node.type, outer)
        case inspect.CustomType() | inspect.RawType() | inspect.ExtType():
            raise TypeError(f"msgspec cannot decode {getattr(node, 'cls', node)!r} by its type alone")
        case inspect.UnionType():
            return "|".join(sorted(_shape(choice, outer) for choice in node.types))
        case inspect.EnumType():
            return f"enum{sorted(repr(member.value) for member in node.cls)}"
        case inspect.LiteralType():
            return f"literal{sorted(map(repr, node.values))}"
        case (
            inspect.StructType()
            | inspect.DataclassType()
            | inspect.TypedDictType()
            | inspect.NamedTupleType()
        ):
            return _shape_of_fields(node, outer)
    parts = ((name, getattr(node, name)) for name in node.__struct_fields__)
    shown = [f"{name}={_part(part, outer)}" for name, part in parts if part is not None]
    return f"{type(node).__name__}({','.join(shown)})"


def _part(part: Any, outer: list[type]) -> str:
    if isinstance(part, inspect.Type):
        return _shape(part, outer)
    if isinstance(part, tuple):
        return f"({','.join(_part(item, outer) for item in part)})"
    return repr(part)


def _shape_of_fields(node: Any, outer: list[type]) -> str:
    if node.cls in outer:
        return f"#{outer.index(node.cls)}"
    inner = [*outer, node.cls]
    config = getattr(node.cls, "__struct_config__", None)
    fields = [
        f"{field.encode_name}{'' if field.required else '?'}:{_shape(field.type, inner)}"
        + (_default(field) if config and config.omit_defaults else "")
        for field in node.fields
    ]
    by_position = isinstance(node, inspect.NamedTupleType) or getattr(node, "array_like", False)
    tag = f"{node.tag_field}={node.tag!r}" if getattr(node, "tag_field", None) else ""
    return f"{'array' if by_position else 'object'}[{tag}]{fields if by_position else sorted(fields)}"


def _default(field: inspect.Field) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"={getattr(field.default_factory, '__qualname__', '')}()"
    return "" if field.required else f"={msgspec.json.encode(field.default).decode()}"
