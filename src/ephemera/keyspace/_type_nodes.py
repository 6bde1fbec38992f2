"""What a declared type consists of: whether its values can be stored, and what JSON would change in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from ephemera.keyspace._value_types import check_pydantic, is_adapted, is_model, storable, to_builtins

_IMMUTABLE = (
    inspect.NoneType, inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.StrType,
    inspect.BytesType, inspect.DateTimeType, inspect.TimeType, inspect.DateType, inspect.TimeDeltaType,
    inspect.UUIDType, inspect.DecimalType, inspect.EnumType, inspect.LiteralType, inspect.FrozenSetType,
    inspect.TupleType, inspect.VarTupleType, inspect.NamedTupleType, inspect.UnionType, inspect.Metadata,
)  # fmt: skip
_UNREADABLE = (inspect.CustomType, inspect.RawType, inspect.ExtType)


def check_readable(value_type: Any) -> None:
    """TypeError when msgspec cannot decode values of a type by that type alone."""
    for node in type_nodes(value_type):
        cls: Any = getattr(node, "cls", None)
        if is_model(cls):
            check_pydantic()
        elif isinstance(node, inspect.DataclassType) and hasattr(cls, "__pydantic_validator__"):
            raise TypeError(
                f"{cls.__name__} is a pydantic dataclass, whose validators would not run: use BaseModel"
            )
        elif isinstance(node, _UNREADABLE) and not is_adapted(cls):
            raise TypeError(f"msgspec cannot decode {cls or node!r} by its type alone")


def type_nodes(value_type: Any) -> Iterator[inspect.Type]:
    """A type and all types inside it, each class once."""
    seen: set[Any] = set()
    waiting: list[Any] = [inspect.type_info(value_type)]
    while waiting:
        node = waiting.pop()
        cls = getattr(node, "cls", None)
        if cls is not None and cls in seen:
            continue
        seen.add(cls)
        if isinstance(node, inspect.Type):
            yield node
        for name in node.__struct_fields__:
            part = getattr(node, name)
            parts = part if isinstance(part, tuple) else (part,)
            waiting += [each for each in parts if isinstance(each, (inspect.Type, inspect.Field))]


def mutable_part(value_type: Any) -> str | None:
    """The name of a part of a type whose values can be changed in place; None when there is none."""
    for node in type_nodes(storable(value_type)):
        if not isinstance(node, _IMMUTABLE) and not _is_frozen(getattr(node, "cls", None)):
            return getattr(
                getattr(node, "cls", None), "__name__", type(node).__name__.removesuffix("Type").lower()
            )
    return None


def _is_frozen(cls: Any) -> bool:
    """Whether a class refuses assignments; its fields are looked at by themselves."""
    if is_model(cls):
        types = [field.annotation for field in cls.model_fields.values()]
        return bool(cls.model_config.get("frozen")) and all(mutable_part(each) is None for each in types)
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        return cls.__struct_config__.frozen
    if dataclasses.is_dataclass(cls):
        parameters: Any = getattr(cls, "__dataclass_params__", None)
        return bool(parameters.frozen)
    return getattr(getattr(cls, "__setattr__", None), "__name__", "") == "_frozen_setattrs"  # of attrs


def may_hide_infinity(value_type: Any) -> bool:
    """Whether JSON could change a value unnoticed: infinity becomes `null`, which is None where that fits."""
    for node in type_nodes(value_type):
        choices = node.types if isinstance(node, inspect.UnionType) else (node,)
        kinds = set(map(type, choices))
        if kinds & {inspect.AnyType, inspect.CustomType} or {inspect.FloatType, inspect.NoneType} <= kinds:
            return True
    return False


def refuse_infinity(value: object) -> None:
    """ValueError when a value has an infinite float, or a NaN, anywhere in it."""
    waiting: list[Any] = [to_builtins(value)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, (list, tuple)):
            waiting += each
        elif isinstance(each, float) and each - each != 0:
            raise ValueError("JSON has no infinity and no NaN")
