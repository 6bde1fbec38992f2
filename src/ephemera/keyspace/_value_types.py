"""The types that values may have, and the one place where they are adapted to msgspec.

msgspec reads and writes Structs, dataclasses, attrs classes, TypedDicts, builtin types and collections of
them. Pydantic models are adapted by two hooks. A model is written as the JSON-compatible form that pydantic
itself reads back, by field name, whatever its aliases are. It is read by pydantic's validator in JSON mode,
after msgspec has parsed the data: validators and strict models work as they do with a request's body. A model
that forbids unknown fields ignores them here, since they are those of a newer version that runs beside this
one. What only pydantic can distinguish, such as a union of models, is validated by pydantic as a whole.

Nothing here imports pydantic: a service whose types are models has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, get_args

import msgspec

_PYDANTIC = (2, 12)  # the first with `extra=` for a single validation


def is_model(value_type: Any) -> bool:
    """Whether a type is a pydantic model."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and isinstance(value_type, type) and issubclass(value_type, base)


def check_pydantic() -> None:
    """TypeError when pydantic is too old to read models by field name, and without unknown fields."""
    version = str(sys.modules["pydantic"].VERSION)
    if tuple(map(int, version.split(".")[:2])) < _PYDANTIC:
        raise TypeError(f"pydantic {version} is too old: pip install 'ephemera-data[pydantic]'")


def storable(value_type: Any) -> Any:
    """The type to give to msgspec for a declared one: the same, unless only pydantic can decode it.

    TypeError when neither can, such as a union of a model and a Struct.
    """
    if isinstance(value_type, type) or not any(map(is_model, _parts(value_type))):
        return value_type
    try:
        msgspec.json.Decoder(value_type, dec_hook=decode_hook)
    except TypeError:
        return _validated_by_pydantic(value_type)
    return value_type


def is_adapted(value_type: Any) -> bool:
    """Whether msgspec decodes a class of its own by `decode_hook`: a pydantic model, or a union of them."""
    return is_model(value_type) or isinstance(value_type, _Adapted)


def encode_hook(value: Any) -> Any:
    """The form of a pydantic model that msgspec can encode; TypeError for anything else."""
    if not is_model(type(value)):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return value.model_dump(mode="json", round_trip=True, by_alias=False, warnings="error")


def decode_hook(value_type: Any, data: Any) -> Any:
    """The pydantic model of decoded data; ValueError, without the data, when they do not fit."""
    if isinstance(value_type, _Adapted):
        if is_model(type(data)):
            return data
        return _validate(value_type.validator, data)
    if isinstance(data, value_type):
        return data
    if not is_model(value_type):
        raise TypeError(f"Expected `{value_type.__name__}`, got `{type(data).__name__}`")
    return _validate(value_type.__pydantic_validator__, data)


encode_json: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=encode_hook).encode
"""A value of any storable type as JSON."""


def json_decoder(value_type: Any) -> Callable[[bytes | str], Any]:
    """The decoder of JSON to a type that `storable` returned."""
    return msgspec.json.Decoder(value_type, dec_hook=decode_hook).decode


def to_builtins(value: Any, builtin_types: tuple[type, ...] = ()) -> Any:
    """A value as dicts, lists and scalars that JSON can hold, except for `builtin_types`."""
    return msgspec.to_builtins(value, str_keys=True, builtin_types=builtin_types, enc_hook=encode_hook)


def convert(data: Any, value_type: Any, *, strict: bool = True) -> Any:
    """JSON-compatible data as a type that `storable` returned; `ValidationError` if it does not fit.

    Without `strict`, text is converted to numbers, as for the fields of a hash.
    """
    return msgspec.convert(data, value_type, strict=strict, str_keys=True, dec_hook=decode_hook)


def assignable(model: Any) -> Any:
    """A model for `assigned`: the same, or if it is frozen a subclass with the same fields that is not."""
    if not model.model_config.get("frozen"):
        return model
    return type(model)(
        model.__name__, (model,), {"model_config": {"frozen": False}, "__module__": model.__module__}
    )


def assigned(model: Any, name: str, value: object) -> Any:
    """The JSON-compatible form of one field of a model; an error when the field does not accept it.

    The validators of the field run. Those of the whole model cannot, without the other fields: what they
    raise for lack of them refuses the change, and the model is then written as a whole.
    """
    partial = model.model_construct()
    model.__pydantic_validator__.validate_assignment(partial, name, value)
    dumped = partial.model_dump(
        mode="json", round_trip=True, by_alias=False, warnings="error", include={name}
    )
    return dumped[name]


class _Adapted(type):
    """The class that stands for what pydantic validates as a whole; any result is an instance of it."""

    validator: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def _validated_by_pydantic(value_type: Any) -> Any:
    pydantic = sys.modules["pydantic"]
    try:
        adapter = pydantic.TypeAdapter(value_type)
    except pydantic.PydanticUserError as problem:
        raise TypeError(str(problem).splitlines()[0]) from None
    return _Adapted("Models", (), {"validator": adapter.validator})


def _validate(validator: Any, data: Any) -> Any:
    text = msgspec.json.encode(data)
    try:
        return validator.validate_json(text, by_alias=False, by_name=True)
    except ValueError as problem:
        errors = getattr(problem, "errors", None)
        if errors is None:
            raise
        if not any(each["type"] == "extra_forbidden" for each in errors()):
            raise ValueError(_reasons(errors)) from None
    try:
        return validator.validate_json(text, by_alias=False, by_name=True, extra="ignore")
    except ValueError as problem:
        raise ValueError(_reasons(getattr(problem, "errors", list))) from None


def _reasons(errors: Callable[..., list[Any]]) -> str:
    """What pydantic found wrong, without the values, which may be secrets."""
    found = errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the whole'}: {each['msg']}" for each in found)


def _parts(value_type: Any) -> Iterator[Any]:
    """A type and all its arguments, such as the members of a union."""
    yield value_type
    for each in get_args(value_type):
        yield from _parts(each)
