"""The tables that people write by hand in design documents, made from the catalogue instead.

What the keys are (pattern, kind, lifetime, role, purpose), what they are worth (what they spare, what ends
them before their time, what happens when they are lost), and the fields of each record. As Markdown for a
document, as JSON for a machine; the command line shows the same tables. Columns that nothing fills are left
out.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from ephemera.keyspace import Catalogue, Keyspace, RecordCodec, declared_type


class Field(msgspec.Struct, frozen=True):
    """One field of a record."""

    name: str
    type: str
    default: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """What is documented of one space."""

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
    fields: tuple[Field, ...]


class Table(NamedTuple):
    """A title and rows, each column to text."""

    title: str
    rows: list[dict[str, str]]


def describe(catalogue: Catalogue) -> list[Entry]:
    """What a catalogue declares, one entry a space, in the order of their declaration."""
    return [_entry(space) for space in catalogue]


def tables(catalogue: Catalogue) -> list[Table]:
    """The documentation, without the tables and columns that would be empty."""
    entries = describe(catalogue)
    found = [
        Table(f"Keys of {catalogue.name}", [_nature(entry) for entry in entries]),
        Table("What they are worth", [_worth(entry) for entry in entries if any(_worth(entry).values())]),
        *(
            Table(f"{entry.holds}, in {entry.pattern}", [_field_row(field) for field in entry.fields])
            for entry in entries
            if entry.fields
        ),
    ]
    return [Table(table.title, _filled(table.rows)) for table in found if table.rows]


def as_json(catalogue: Catalogue) -> str:
    """The entries, indented."""
    document = {"catalogue": catalogue.name, "spaces": describe(catalogue)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def as_markdown(catalogue: Catalogue) -> str:
    """The tables of a catalogue as a page."""
    parts = [f"# Catalogue {catalogue.name}"]
    for table in tables(catalogue):
        parts += [f"## {table.title}", _markdown(table.rows)]
    return "\n\n".join(parts) + "\n"


def _entry(space: Keyspace[Any]) -> Entry:
    held = _held_type(space)
    return Entry(
        pattern=space.pattern,
        kind=space.kind,
        holds=type_text(held) if held is not None else "",
        lifetime=str(space.lifetime),
        role=space.role,
        purpose=space.purpose,
        saves=space.saves,
        invalidated_by=space.invalidated_by,
        if_lost=space.if_lost,
        owner=space.owner,
        sensitive=space.sensitive,
        outlives=space.lifetime.outlives,
        max_length=space.max_length,
        hash_tag=space.template.hash_tag,
        fields=_fields(held),
    )


def _held_type(space: Keyspace[Any]) -> Any:
    codec = space.codec
    if isinstance(codec, RecordCodec):
        return declared_type(codec.struct)
    return codec.value_type if codec is not None else None


def _fields(held: Any) -> tuple[Field, ...]:
    if not (isinstance(held, type) and issubclass(held, msgspec.Struct)):
        return ()
    return tuple(
        Field(each.encode_name, type_text(each.type), _default(each)) for each in msgspec.structs.fields(held)
    )


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    if field.default is not msgspec.NODEFAULT:
        return repr(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return f"{getattr(field.default_factory, '__name__', 'made')}()"
    return None


def _nature(entry: Entry) -> dict[str, str]:
    kind = entry.kind.replace("_", " ")
    notes = [
        f"{kind} of {entry.holds}" if entry.holds else kind,
        *([f"at most {entry.max_length}"] if entry.max_length else []),
        *([f"slot by {entry.hash_tag}"] if entry.hash_tag else []),
        *(["sensitive"] if entry.sensitive else []),
    ]
    return {
        "key": entry.pattern,
        "kind": ", ".join(notes),
        "lifetime": entry.lifetime + (f", outlives {entry.outlives}" if entry.outlives else ""),
        "role": entry.role,
        "purpose": entry.purpose,
        "written by": entry.owner,
    }


def _worth(entry: Entry) -> dict[str, str]:
    told = {"saves": entry.saves, "invalidated by": ", ".join(entry.invalidated_by), "if lost": entry.if_lost}
    return {"key": entry.pattern, **told} if any(told.values()) else {}


def _field_row(field: Field) -> dict[str, str]:
    return {"field": field.name, "type": field.type, "default": field.default or ""}


def _filled(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows without the columns that are empty throughout."""
    columns = [column for column in rows[0] if any(row[column] for row in rows)]
    return [{column: row[column] for column in columns} for row in rows]


def _markdown(rows: list[dict[str, str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [[_markdown_cell(column, text) for column, text in row.items()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(column: str, text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return f"`{text}`" if column in ("key", "field", "type") else text


def type_text(held: Any) -> str:
    """A type as a person writes it, without the modules' names."""
    origin, inner = get_origin(held), get_args(held)
    if held is NoneType:
        return "None"
    if held is Ellipsis:
        return "..."
    if origin is Annotated:
        return type_text(inner[0])
    if origin in (Union, UnionType):
        return " | ".join(map(type_text, inner))
    if origin is Literal:
        return " | ".join(map(repr, inner))
    name = getattr(origin or held, "__name__", str(held))
    return f"{name}[{', '.join(map(type_text, inner))}]" if inner else name
