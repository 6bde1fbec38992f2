"""A cache written beside the function whose results it keeps: its keys are the function's parameters.

No framework is named here; `ephemera.web.fastapi` and the adapters of other frameworks share it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, FieldValue
from ephemera.patterns.cache import Cache, LocalCache

DOCUMENTED = "ephemera_key_fields"
"""A parameter of cached functions that is for a framework's documentation alone, and no field."""

_NO_TIME = timedelta(0)


def check_cache_options(
    cache: Cache[Any] | str,
    fresh: timedelta | None,
    *options: object,
) -> None:
    """Refuse a pattern without `fresh`, and a declared cache with options."""
    declared_again = isinstance(cache, Cache) and (fresh is not None or any(options))
    if declared_again or (isinstance(cache, str) and fresh is None):
        problem = "a pattern needs fresh=, and a declared Cache has its options already"
        raise InvalidDeclaration(str(cache), problem, "give a pattern with options, or a Cache alone")


def declare_cache(
    catalogue: Catalogue,
    cache: Cache[Any] | str,
    function: Callable[..., Any],
    *,
    value_type: Any = None,
    fresh: timedelta | None = None,
    stale: timedelta = _NO_TIME,
    missing: timedelta = _NO_TIME,
    local: LocalCache | None = None,
    sensitive: bool = False,
) -> Cache[Any]:
    """Declare the cache of a function's results, whose key has a field for each parameter.

    Args:
        catalogue: Where its keys are declared.
        cache: The pattern of the keys, such as `"profile:{user_id}"`, or a `Cache` that is declared.
        function: The function; the first line of its docstring is the purpose of the cache.
        value_type: The type of the cached values: by default, what the function returns.
        fresh: How long a result is fresh.
        stale: How long it is kept after that.
        missing: How long to remember that the result is None.
        local: Keep results in this process, too.
        sensitive: Whether results are personal or secret.

    """
    if isinstance(cache, str):
        cache = Cache(
            catalogue,
            cache,
            value_type or result_type(cache, function),
            fresh=fresh or _NO_TIME,
            stale=stale,
            missing=missing,
            local=local,
            sensitive=sensitive,
            purpose=purpose_of(function),
        )
    check_parameters(cache.keyspace.pattern, function, cache.keyspace.template.fields)
    return cache


def key_fields(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """A function that returns the arguments of a call by name: the fields of its key."""
    signature = own_signature(function)
    names = tuple(signature.parameters)
    by_position = all(each.kind < inspect.Parameter.VAR_POSITIONAL for each in signature.parameters.values())

    def fields_of(*args: Any, **kwargs: Any) -> dict[str, Any]:
        if by_position and len(args) == len(names) and not kwargs:  # the usual call; `bind` takes 2 µs more
            return dict(zip(names, args, strict=True))
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    return fields_of


def check_parameters(pattern: str, function: Callable[..., Any], fields: tuple[str, ...]) -> None:
    """Refuse a function whose parameters are not the fields of the key, or of types that no key can hold."""
    parameters = own_signature(function).parameters
    if {*parameters} != {*fields}:
        raise InvalidDeclaration(
            pattern,
            f"its fields are {', '.join(fields) or 'none'}, and {_name(function)} takes "
            f"{', '.join(parameters) or 'nothing'}",
            "name a field for each parameter, and no other; a Cache of your own takes any loader",
        )
    for name, parameter in parameters.items():
        if not _can_be_field(parameter):
            raise InvalidDeclaration(
                pattern,
                f"no key can hold the parameter {str(parameter)!r} of {_name(function)}",
                f"make {name} str, bytes, int, bool, UUID, date, datetime or an Enum, and not None, such as "
                "lat: str or q: str = ''; a Cache of your own takes any loader",
            )


def _can_be_field(parameter: inspect.Parameter) -> bool:
    """Whether a key has a place for all values of a parameter, as far as its annotation says."""
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return False
    return parameter.default is not None and _is_field_type(parameter.annotation)


def _is_field_type(annotation: Any) -> bool:
    """Whether a key can hold the values of a type, or for one that is not known."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_field_type(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return all(map(_is_field_type, get_args(annotation)))
    if origin is Literal:
        return all(isinstance(each, get_args(FieldValue)) for each in get_args(annotation))
    annotation = getattr(annotation, "__supertype__", annotation)  # of a NewType
    if annotation in (inspect.Parameter.empty, Any) or isinstance(annotation, (str, TypeVar)):
        return True  # text cannot be evaluated yet
    return isinstance(annotation, type) and origin is None and issubclass(annotation, get_args(FieldValue))


def result_type(pattern: str, function: Callable[..., Any]) -> Any:
    """The type of a function's results, without None: what the cache stores."""
    returned = evaluated_signature(function).return_annotation
    if isinstance(returned, str) or returned is inspect.Signature.empty:
        problem = f"the return type of {_name(function)} is {'missing' if callable(returned) else 'unknown'}"
        raise InvalidDeclaration(pattern, problem, "annotate it with the type of the cached values")
    if get_origin(returned) in (Union, UnionType):
        return reduce(or_, (each for each in get_args(returned) if each is not NoneType))
    return returned


def purpose_of(function: Callable[..., Any]) -> str:
    """What a cache is for, by the function's docstring or name."""
    described = inspect.getdoc(function) or f"Results of {_name(function)}"
    return described.partition("\n")[0].rstrip(".")


def evaluated_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function, with the annotations that can already be evaluated."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        return inspect.signature(function)


def own_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature without what `DOCUMENTED` names: that of a function which may be cached already."""
    signature = evaluated_signature(function)
    own = [each for name, each in signature.parameters.items() if name != DOCUMENTED]
    return signature.replace(parameters=own)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))
