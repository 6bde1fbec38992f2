"""Patterns and keys: `session:{user_id}:{sid}` renders keys, and every rendered key can be parsed.

A pattern alternates literals and fields. It starts with a literal, so that a key's first characters tell
which patterns it may belong to. A literal after a field starts with punctuation (usually `:`, or `.` as in
`chapter:{book}.{chapter}`). That character is percent-encoded inside the field's values (`_field_values`),
so a field ends where it first appears: parsing is unambiguous, a value can never reach into the next field,
and two different sets of values never render the same key.

`hash_tag="job_id"` puts braces round one field. A cluster hashes only what is inside them, so all keys with
the same job_id, of all patterns with that hash tag, share a slot, and one script may use them together.
Tagged values are encoded alike in every pattern, because the character after them is always `}`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from ephemera.errors import InvalidDeclaration, InvalidField, KeyTooLong, WrongFields
from ephemera.keyspace._field_types import FieldType, FieldValue, parse_field, typed_text
from ephemera.keyspace._field_values import FieldCodec, special_characters

Fields = Mapping[str, FieldValue]
"""The fields of one key, by name."""

MAX_KEY_LENGTH = 1024
"""The longest key allowed, in bytes, unless its declaration says otherwise."""

_FIELD = re.compile(r"\{([^{}]*)\}")
_LITERAL = re.compile(r"[!-~]*")  # printable ASCII, without the characters below
_NOT_LITERAL = frozenset("{}*?[]\\%")
_HUGE = 10**100  # Python refuses to format numbers of thousands of digits
_RESERVED = frozenset((*keyword.kwlist, "lifetime", "until"))


class KeyPattern(str):
    """A pattern with the types of its fields, as a typed `Key` declares them."""

    __slots__ = ("types",)

    types: Mapping[str, FieldType]

    def __new__(cls, pattern: str, types: Mapping[str, FieldType]) -> KeyPattern:
        made = super().__new__(cls, pattern)
        made.types = types
        return made


def unnamed_field(template: Template, method: str) -> WrongFields:
    """The error for a field that was given without its name, which shows the call to write."""
    named = ", ".join(f"{name}=..." for name in template.fields)
    given = f"a value without its name: write {method}({named})" if named else "a value"
    return WrongFields(template.pattern, template.fields, (given,))


def with_prefix(prefix: str, pattern: str) -> str:
    """A pattern with a literal before it, and the same types."""
    if not prefix:
        return pattern
    full = f"{prefix}{pattern}"
    return KeyPattern(full, pattern.types) if isinstance(pattern, KeyPattern) else full


class Template:
    """One pattern: `render(fields) -> key` and `parse(key) -> fields | None`."""

    __slots__ = (
        "_field_codecs",
        "_format",
        "_match",
        "_pieces",
        "_select",
        "_short",
        "_special",
        "fields",
        "hash_tag",
        "literals",
        "max_key_length",
        "one_field",
        "pattern",
        "regex",
        "render",
        "types",
    )  # fmt: skip

    def __init__(
        self, pattern: str, *, hash_tag: str | None = None, max_key_length: int = MAX_KEY_LENGTH
    ) -> None:
        if not isinstance(pattern, str):
            raise InvalidDeclaration(repr(pattern), "a pattern is a string", "write it as 'session:{id}'")
        self.pattern = pattern
        self.hash_tag = hash_tag
        self.max_key_length = max_key_length
        self.types: Mapping[str, FieldType] = pattern.types if isinstance(pattern, KeyPattern) else {}
        """The declared types of fields; a field without one accepts every type, and is parsed as text."""
        self.literals, self.fields = _split(pattern, hash_tag)
        self._field_codecs = tuple(map(FieldCodec, _end_characters(self.literals)))
        self.regex = self._regex("{}+")
        self._match = re.compile(self._regex("({}+)")).fullmatch
        self._format = "%s".join(self.literals)
        self._pieces = [piece for literal in self.literals for piece in (literal, "")][:-1]  # gaps for fields
        # One search over all values together finds what any field would encode.
        self._special = re.compile(special_characters("".join(_end_characters(self.literals)))).search
        self._short = max_key_length // 4  # a character has at most four bytes
        self.render: Callable[[Fields], str] = self._renderer()
        self.one_field = self._of_one_field()
        """For a pattern with one field: its name, the literals around it, and the length of the longest
        alphanumeric value that certainly fits."""

    @property
    def glob(self) -> str:
        """The glob that matches at least all keys of this pattern, for SCAN and ACL rules."""
        return "*".join(self.literals)

    def parse(self, key: bytes | str) -> dict[str, Any] | None:
        """The fields of a key, or None when this template could not have rendered it.

        A field with a declared type has a value of that type, and any other is text.
        """
        fields = self._split_key(key)
        if fields is None or not self.types:
            return fields
        try:
            return {name: parse_field(text, self.types[name]) for name, text in fields.items()}
        except ValueError:
            return None

    def parse_text(self, key: bytes | str) -> dict[str, str] | None:
        """The fields of a key as text, whatever their types; None as for `parse`."""
        fields = self._split_key(key)
        return fields if not self.types or self.parse(key) is not None else None

    def _split_key(self, key: bytes | str) -> dict[str, str] | None:
        if isinstance(key, bytes):
            try:
                key = key.decode()
            except UnicodeDecodeError:
                return None
        found = self._match(key)
        if found is None:
            return None
        fields = {}
        for name, codec, written in zip(self.fields, self._field_codecs, found.groups(), strict=True):
            value = codec.decode(written)
            if value is None:
                return None
            fields[name] = value
        return fields

    def _regex(self, field: str) -> str:
        """The regular expression of this pattern's keys; `field` is the form of a field in it."""
        rest = zip(self._field_codecs, self.literals[1:], strict=True)
        return re.escape(self.literals[0]) + "".join(
            field.format(writing.characters) + re.escape(literal) for writing, literal in rest
        )

    def _renderer(self) -> Callable[[Fields], str]:
        """The fastest renderer for this number of fields; `render` is on every hot path."""
        if not self.fields:
            return self._render_constant
        if any(each.type is not str for each in self.types.values()):
            return self._render_any
        if len(self.fields) == 1:
            return self._one_field_renderer()
        self._select = itemgetter(*self.fields)
        return self._render_several

    def _of_one_field(self) -> tuple[str, str, str, int] | None:
        if len(self.fields) != 1 or self.render == self._render_any:
            return None
        before, after = self.literals
        return self.fields[0], before, after, self._short - len(before) - len(after)

    def _render_constant(self, fields: Fields) -> str:
        if fields:
            raise WrongFields(self.pattern, (), tuple(fields))
        return self._format

    def _one_field_renderer(self) -> Callable[[Fields], str]:
        (name,), (before, after) = self.fields, self.literals
        special, short, render_any = self._special, self._short, self._render_any
        is_typed = bool(self.types)

        def render(fields: Fields) -> str:
            value = fields.get(name)
            if type(value) is not str:
                is_number = type(value) is int and not is_typed and -_HUGE < value < _HUGE
                value = str(value) if is_number else ""
            # Letters and digits are never encoded, and most ids hold nothing else.
            if (value.isalnum() or (value and not special(value))) and len(fields) == 1:
                key = before + value + after
                if len(key) <= short:
                    return key
            return render_any(fields)

        return render

    def _render_several(self, fields: Fields) -> str:
        try:
            values: tuple[str, ...] = self._select(fields)
            if len(fields) == len(values) and all(values) and not self._special("".join(values)):
                pieces = self._pieces.copy()
                pieces[1::2] = values
                key = "".join(pieces)  # not `%`, which would call `__str__` of a str enum
                if len(key) <= self._short:
                    return key
        except (KeyError, TypeError):  # a field is missing, or is bytes or a number
            pass
        return self._render_any(fields)

    def _render_any(self, fields: Fields) -> str:
        """The key with any fields: other types, values to encode, and values to refuse."""
        if fields.keys() != set(self.fields):
            raise WrongFields(self.pattern, self.fields, tuple(fields))
        values = [fields[name] for name in self.fields]
        written = tuple(map(self._encode_one, self.fields, self._field_codecs, values))
        key = self._format % written
        length = len(key.encode())
        if length > self.max_key_length:
            longest = max(zip(map(len, written), self.fields, strict=True))[1]
            raise KeyTooLong(self.pattern, longest, length, self.max_key_length)
        return key

    def _encode_one(self, name: str, codec: FieldCodec, value: FieldValue) -> str:
        try:
            return codec.encode(typed_text(value, self.types[name]) if name in self.types else value)
        except (TypeError, ValueError) as problem:
            raise InvalidField(self.pattern, name, str(problem)) from None

    def __repr__(self) -> str:
        return f"Template({self.pattern!r}" + (f", hash_tag={self.hash_tag!r})" if self.hash_tag else ")")


def _end_characters(literals: tuple[str, ...]) -> list[str]:
    """The character that ends each field: the first of the literal after it, if any."""
    return [literal[:1] for literal in literals[1:]]


def last_field(pattern: str) -> str | None:
    """The field that ends last, if any."""
    return pattern.rpartition("}")[0].rpartition("{")[2] or None


def _split(pattern: str, hash_tag: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The literals around the fields (one more than there are fields), and the fields' names."""
    literals, fields = _FIELD.split(pattern)[::2], _FIELD.split(pattern)[1::2]
    _check_literals(pattern, literals)
    _check_fields(pattern, fields)
    if hash_tag is not None:
        if hash_tag not in fields:
            raise InvalidDeclaration(
                pattern,
                f"the hash tag {hash_tag!r} is not one of its fields",
                f"hash_tag takes the name of a field: {', '.join(fields) or 'this pattern has none'}",
            )
        position = fields.index(hash_tag)
        literals[position] += "{"
        literals[position + 1] = "}" + literals[position + 1]
    return tuple(literals), tuple(fields)


def _check_literals(pattern: str, literals: list[str]) -> None:
    if not literals[0]:
        raise InvalidDeclaration(
            pattern, "it does not start with a literal", "start it with a name, as in 'session:{id}'"
        )
    for literal in literals:
        if not _LITERAL.fullmatch(literal) or _NOT_LITERAL.intersection(literal):
            raise InvalidDeclaration(
                pattern,
                f"the literal {literal!r} holds a character with a meaning in keys, globs or hash tags",
                "use printable ASCII without spaces and without { } * ? [ ] \\ %",
            )
    for literal in literals[1:-1]:
        if not literal:
            raise InvalidDeclaration(
                pattern, "two fields follow each other", "put ':' between them, or make them one field"
            )
    for literal in literals[1:]:
        if literal[:1].isalnum():
            raise InvalidDeclaration(
                pattern,
                f"the literal {literal!r} follows a field with a letter or digit",
                "put a punctuation character after the field, such as ':'",
            )


def _check_fields(pattern: str, fields: list[str]) -> None:
    for name in fields:
        if not (name.isascii() and name.isidentifier()) or name in _RESERVED:
            raise InvalidDeclaration(
                pattern,
                f"{name!r} cannot be the name of a field",
                "fields are given as keyword arguments: use an ASCII identifier that is not a keyword, "
                "nor 'until' or 'lifetime', which say when a value expires",
            )
        if fields.count(name) > 1:
            raise InvalidDeclaration(
                pattern, f"the field {name!r} appears twice", "give each field its own name"
            )
