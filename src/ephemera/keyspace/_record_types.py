"""Records: types with named fields, which a hash or a stream holds field by field.

A record is a msgspec Struct, a pydantic model, a dataclass, an attrs class or a TypedDict. A Struct's field
is stored under its encoded name (`rename=`), any other record's under its own.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import inspect

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace._scalars import DECODE_ERRORS, json_codec
from ephemera.keyspace._value_types import assignable, assigned, is_model, storable

_ADVICE = "use a msgspec.Struct, a pydantic model, a dataclass, an attrs class or a TypedDict"


class RecordField(NamedTuple):
    """One field of a record."""

    name: str
    stored_name: str
    type: Any
    required: bool
    """Whether it has no default."""


def is_record(value_type: Any) -> bool:
    """Whether a type has named fields."""
    if getattr(value_type, "__pydantic_root_model__", False):
        return False
    return is_typeddict(value_type) or is_record_class(value_type)


def is_record_class(value_type: Any) -> bool:
    """Whether a type is a class with named fields, so that `isinstance` recognizes its values."""
    if not isinstance(value_type, type):
        return False
    if issubclass(value_type, msgspec.Struct) or is_model(value_type):
        return True
    return dataclasses.is_dataclass(value_type) or hasattr(value_type, "__attrs_attrs__")


def record_class(record: Any) -> type[Any]:
    """The class by which `isinstance` recognizes the values of a record: dict, for a TypedDict."""
    found: type[Any] = dict if is_typeddict(record) else record
    return found


def record_fields(pattern: str, record: Any) -> tuple[RecordField, ...]:
    """The fields of a record, in order; `InvalidDeclaration` for a type without named fields."""
    if not is_record(record):
        shown = record.__name__ if isinstance(record, type) else str(record)
        raise InvalidDeclaration(pattern, f"{shown} has no named fields", _ADVICE)
    if is_model(record):
        return tuple(
            RecordField(name, name, each.annotation, each.is_required())
            for name, each in record.model_fields.items()
        )
    if issubclass(record, msgspec.Struct):
        return tuple(
            RecordField(each.name, each.encode_name, each.type, each.required)
            for each in msgspec.structs.fields(record)
        )
    try:
        node: Any = inspect.type_info(record)
    except TypeError as problem:
        raise InvalidDeclaration(pattern, f"{record.__name__} cannot be stored: {problem}", _ADVICE) from None
    required = {each.name: each.required for each in node.fields}
    types = get_type_hints(record, include_extras=True)
    return tuple(
        RecordField(name, name, _without_qualifier(each), required[name])
        for name, each in types.items()
        if name in required
    )


def field_value(record: Any, name: str) -> Any:
    """One field of a record."""
    return record[name] if isinstance(record, dict) else getattr(record, name)


def replaced(record: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of a record with some fields changed."""
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **changes)
    if isinstance(record, dict):
        return {**record, **changes}
    if is_model(type(record)):
        return record.model_copy(update=changes)
    copied = copy.copy(record)
    for name, value in changes.items():
        object.__setattr__(copied, name, value)  # a frozen one, too: no other code has the copy
    return copied


class RecordChanges:
    """Checks changes of some fields of a record."""

    def __init__(self, pattern: str, record: Any) -> None:
        self._pattern = pattern
        self._record = record
        fields = record_fields(pattern, record)
        self.stored_names = {each.name: each.stored_name for each in fields}
        self._model = assignable(record) if is_model(record) else None
        self._codecs = (
            {} if is_model(record) else {each.name: json_codec(storable(each.type)) for each in fields}
        )

        attributes = getattr(record, "__attrs_attrs__", ())
        self._validated = {each.name: each for each in attributes if each.validator is not None}

    def checked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The changes, ready to encode; `InvalidValue` when one is not a field, or could not be read back."""
        if not changes or changes.keys() - self.stored_names.keys():
            fields = f"{self._record.__name__} with the fields {', '.join(self.stored_names)}"
            raise InvalidValue(self._pattern, fields, ", ".join(changes) or "no field")
        return {name: self._converted(name, value) for name, value in changes.items()}

    def _converted(self, name: str, value: Any) -> Any:
        try:
            if self._model is not None:
                return assigned(self._model, name, value)
            return self._read_back(name, value)
        except (*DECODE_ERRORS, AttributeError):  # AttributeError: a validator that needs the other fields
            expected = f"{self._record.__name__} whose {name!r} can be read back as it is declared"
            raise InvalidValue(self._pattern, expected, type(value).__name__) from None

    def _read_back(self, name: str, value: Any) -> Any:
        encode, decode = self._codecs[name]
        converted = decode(encode(value))
        if name in self._validated:
            self._validated[name].validator(None, self._validated[name], converted)
        return converted


def _without_qualifier(annotation: Any) -> Any:
    """The type of a TypedDict's item."""
    while get_origin(annotation) in (Required, NotRequired):
        annotation = get_args(annotation)[0]
    return annotation
