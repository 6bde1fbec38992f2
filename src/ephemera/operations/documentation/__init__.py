"""Documentation of a catalogue: the key tables that design documents otherwise contain by hand.

What the keys are (pattern, kind, lifetime, role, purpose), what they are worth (what they save, what
invalidates them early, what happens when they are lost), and the fields of each record. As Markdown for
people, as JSON for programs; the command line shows the same tables. Empty columns are left out.
"""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType, new_class
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin
from uuid import UUID

import msgspec

from ephemera.keyspace import (
    Catalogue,
    Key,
    KeyPattern,
    Keyspace,
    RecordCodec,
    Template,
    declared_type,
    is_record,
    record_fields,
)

__all__ = [
    "FieldDoc",
    "KeyspaceDoc",
    "Table",
    "as_json",
    "as_markdown",
    "describe",
    "format_type",
    "tables",
    "typed_pattern",
]

_KEY_TYPES = {each.__name__: each for each in (str, bytes, int, bool, UUID, date, datetime)}


class FieldDoc(msgspec.Struct, frozen=True):
    """One field of a record."""

    name: str
    type: str
    default: str | None = None


class KeyspaceDoc(msgspec.Struct, frozen=True):
    """The documentation of one keyspace."""

    pattern: str
    kind: str
    holds: str
    lifetime: str
    role: str
    purpose: str
    saves: str
    invalidated_by: tuple[str, ...]
    if_lost: str
    owner: str
    sensitive: bool
    outlives: str | None
    max_length: int | None
    hash_tag: str | None
    fields: tuple[FieldDoc, ...]
    lifetime_ms: int | None = None  # None: no fixed one
    key_types: dict[str, str | list[str]] = {}
    """The declared types of the pattern's fields: their names, or the texts of an Enum's members."""


class Table(NamedTuple):
    """A title and rows; each row maps columns to text."""

    title: str
    rows: list[dict[str, str]]


def describe(catalogue: Catalogue) -> list[KeyspaceDoc]:
    """Document each keyspace of a catalogue, in the order of declaration."""
    return [_keyspace_doc(keyspace) for keyspace in catalogue]


def tables(catalogue: Catalogue) -> list[Table]:
    """The documentation as tables, without empty tables and columns."""
    docs = describe(catalogue)
    found = [
        Table(f"Keys of {catalogue.name}", [_key_row(doc) for doc in docs]),
        Table("What they are worth", [_worth_row(doc) for doc in docs if any(_worth_row(doc).values())]),
        *(
            Table(f"{doc.holds}, in {doc.pattern}", [_field_row(field) for field in doc.fields])
            for doc in docs
            if doc.fields
        ),
    ]
    return [Table(table.title, _without_empty_columns(table.rows)) for table in found if table.rows]


def as_json(catalogue: Catalogue) -> str:
    """The documentation as indented JSON."""
    document = {"catalogue": catalogue.name, "keyspaces": describe(catalogue)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def as_markdown(catalogue: Catalogue) -> str:
    """The documentation as a Markdown page."""
    parts = [f"# Catalogue {catalogue.name}"]
    for table in tables(catalogue):
        parts += [f"## {table.title}", _markdown(table.rows)]
    return "\n\n".join(parts) + "\n"


def typed_pattern(doc: KeyspaceDoc) -> str:
    """The pattern with the types of its fields, which renders and parses the keys that were declared."""
    if not doc.key_types:
        return doc.pattern
    annotations = {name: _key_type(name, declared) for name, declared in doc.key_types.items()}
    body = {"__annotations__": annotations}
    key: type[Key] = new_class(
        "Documented", (Key,), {"pattern": doc.pattern}, lambda space: space.update(body)
    )
    return key.pattern


def _key_type(name: str, declared: str | list[str]) -> type[Any]:
    if isinstance(declared, list):
        return cast("type[Enum]", Enum(name, {text: text for text in declared}))
    return _KEY_TYPES[declared]


def _key_types(keyspace: Keyspace[Any]) -> dict[str, str | list[str]]:
    return {name: _type_doc(each) for name, each in keyspace.template.types.items()}


def _type_doc(declared: Any) -> str | list[str]:
    if not issubclass(declared.type, Enum):
        return str(declared.type.__name__)
    template = Template(KeyPattern("key:{member}", {"member": declared}))
    keys = [template.render({"member": member}) for member in declared.type]
    return [(template.parse_text(key) or {})["member"] for key in keys]


def _keyspace_doc(keyspace: Keyspace[Any]) -> KeyspaceDoc:
    held = _held_type(keyspace)
    return KeyspaceDoc(
        pattern=str(keyspace.pattern),  # one of a typed key is a subclass, which JSON refuses
        kind=keyspace.kind,
        holds=format_type(held) if held is not None else "",
        lifetime=str(keyspace.lifetime),
        role=keyspace.role,
        purpose=keyspace.purpose,
        saves=keyspace.saves,
        invalidated_by=keyspace.invalidated_by,
        if_lost=keyspace.if_lost,
        owner=keyspace.owner,
        sensitive=keyspace.sensitive,
        outlives=keyspace.lifetime.outlives,
        max_length=keyspace.max_length,
        hash_tag=keyspace.template.hash_tag,
        fields=_fields(held),
        lifetime_ms=keyspace.lifetime.milliseconds,
        key_types=_key_types(keyspace),
    )


def _held_type(keyspace: Keyspace[Any]) -> Any:
    codec = keyspace.codec
    if isinstance(codec, RecordCodec):
        return declared_type(codec.record)
    return codec.value_type if codec is not None else None


def _fields(held: Any) -> tuple[FieldDoc, ...]:
    if not is_record(held):
        return ()
    if not issubclass(held, msgspec.Struct):
        return tuple(
            FieldDoc(each.name, format_type(each.type), None if each.required else "...")
            for each in record_fields("", held)
        )
    return tuple(
        FieldDoc(each.encode_name, format_type(each.type), _default(each))
        for each in msgspec.structs.fields(held)
    )


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    if field.default is not msgspec.NODEFAULT:
        return repr(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return f"{getattr(field.default_factory, '__name__', 'factory')}()"
    return None


def _key_row(doc: KeyspaceDoc) -> dict[str, str]:
    kind = doc.kind.replace("_", " ")
    notes = [
        f"{kind} of {doc.holds}" if doc.holds else kind,
        *([f"at most {doc.max_length}"] if doc.max_length else []),
        *([f"slot by {doc.hash_tag}"] if doc.hash_tag else []),
        *(["sensitive"] if doc.sensitive else []),
    ]
    return {
        "key": doc.pattern,
        "kind": ", ".join(notes),
        "lifetime": doc.lifetime + (f", outlives {doc.outlives}" if doc.outlives else ""),
        "role": doc.role,
        "purpose": doc.purpose,
        "written by": doc.owner,
    }


def _worth_row(doc: KeyspaceDoc) -> dict[str, str]:
    worth = {"saves": doc.saves, "invalidated by": ", ".join(doc.invalidated_by), "if lost": doc.if_lost}
    return {"key": doc.pattern, **worth} if any(worth.values()) else {}


def _field_row(field: FieldDoc) -> dict[str, str]:
    return {"field": field.name, "type": field.type, "default": field.default or ""}


def _without_empty_columns(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows without empty columns."""
    columns = [column for column in rows[0] if any(row[column] for row in rows)]
    return [{column: row[column] for column in columns} for row in rows]


def _markdown(rows: list[dict[str, str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [[_markdown_cell(column, text) for column, text in row.items()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(column: str, text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return f"`{text}`" if column in ("key", "field", "type") else text


def format_type(held: Any) -> str:
    """A type as written in source code, without module names."""
    origin, inner = get_origin(held), get_args(held)
    if held is NoneType:
        return "None"
    if held is Ellipsis:
        return "..."
    if origin is Annotated:
        return format_type(inner[0])
    if origin in (Union, UnionType):
        return " | ".join(map(format_type, inner))
    if origin is Literal:
        return " | ".join(map(repr, inner))
    name = getattr(origin or held, "__name__", str(held))
    return f"{name}[{', '.join(map(format_type, inner))}]" if inner else name
