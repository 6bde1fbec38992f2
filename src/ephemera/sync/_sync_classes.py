"""The synchronous form of an async class: made at its first use, and the same for all stores.

Each public method of the async class becomes one that runs it on the loop and waits. Their results are plain
values, or objects of async classes (a consumer, a listener, a reservation), which get their synchronous form
too. Signatures and docstrings are those of the async methods; `tools.sync_api` writes them, transformed,
into `_bound.pyi` for type checkers and editors.
"""

from __future__ import annotations

import inspect
import re
from asyncio import _get_running_loop
from collections.abc import Callable
from contextlib import _AsyncGeneratorContextManager
from functools import cache, update_wrapper, wraps
from types import FunctionType, TracebackType
from typing import Any, Self

from ephemera.blocking import Block, BlockingStore, Callback
from ephemera.keyspace import Accessor, ChannelAccessor, ValueAccessor, blocking_get

Method = Callable[..., Any]

_AWAITED = ("Awaitable", "Coroutine")
_ASYNC_ONLY = ("AsyncConnection", "Coroutine")
"""Types that synchronous code does not have: a method that requires one has no synchronous form."""


class SyncObject:
    """An object on the loop, for synchronous code."""

    def __init__(self, store: BlockingStore, locate: Callable[[], Any]) -> None:
        """Take a function that finds the async object; it runs on the loop, of the current process."""
        self._store = store
        self._locate = locate
        self._block: Block | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for synchronous code>"


class SyncAccessor(SyncObject):
    """An accessor, whose operations the calling thread runs itself."""

    def __init__(self, store: BlockingStore, accessor: Any) -> None:
        super().__init__(store, lambda: accessor)
        self._accessor = accessor
        if isinstance(accessor, ValueAccessor):
            get = blocking_get(accessor, store.exchange_for(accessor.keyspace.role))
            vars(self)["get"] = update_wrapper(get, vars(type(self))["get"])


class _Enterable:
    """What `async with` can enter, `with` can."""

    def __enter__(self: Any) -> Any:
        target = self._locate()
        self._block = Block(self._store, target)
        value = self._block.enter()
        return self if value is target else sync_form(self._store, value)

    def __exit__(
        self: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(self._block.leave(error))


class _Iterable:
    """What `async for` can iterate over, `for` can."""

    def __iter__(self) -> Self:
        return self

    def __next__(self: Any) -> Any:
        try:
            return self._store.wait(_next(self._locate()))
        except StopAsyncIteration:
            raise StopIteration from None


@cache
def sync_class(kind: Any) -> type[SyncObject]:
    """The synchronous form of an async class."""
    ours = [base for base in kind.__bases__ if base.__module__.startswith("ephemera.")]
    bases: list[Any] = [sync_class(base) for base in ours] or [
        SyncAccessor if kind in _ACCESSORS else SyncObject
    ]
    bases += [form for name, form in _PROTOCOLS.items() if name in vars(kind)]
    members = {name: _member(kind, name) for name, value in vars(kind).items() if is_public(name, value)}
    members |= {"__doc__": synchronous(kind.__doc__), "__module__": "ephemera.sync"}
    return type(kind.__name__, tuple(bases), {**members, "__getattr__": _get_attribute})


_ACCESSORS = (Accessor, ChannelAccessor)
_PROTOCOLS = {"__aenter__": _Enterable, "__aiter__": _Iterable}


def make_on_loop(store: BlockingStore, make: Callable[[], Any]) -> Any:
    """The synchronous form of an object that is made on the loop."""
    return sync_form(store, store.wait(_made(make)))


def sync_form(store: BlockingStore, value: Any) -> Any:
    """The synchronous form of an object of an async class; any other value as it is."""
    kind: Any = type(value)
    return value if not is_async_class(kind) else sync_class(kind)(store, lambda: value)


@cache
def is_async_class(kind: Any) -> bool:
    """Whether a class of ours has methods to await, or is for `async with` or `async for`."""
    if kind is _AsyncGeneratorContextManager:
        return True
    return kind.__module__.startswith("ephemera.") and any(
        inspect.iscoroutinefunction(value)
        for base in kind.__mro__
        for name, value in vars(base).items()
        if not name.startswith("_") or name in ("__aenter__", "__anext__")
    )


def is_public(name: str, value: object) -> bool:
    """Whether a member of an async class is in its synchronous form."""
    if name.startswith("_"):
        return False
    return not isinstance(value, FunctionType) or not required_types(value, _ASYNC_ONLY)


def required_types(method: Method, names: tuple[str, ...]) -> bool:
    """Whether a method has a parameter of one of these types that must be given."""
    return any(
        parameter.default is parameter.empty and any(name in str(parameter.annotation) for name in names)
        for parameter in inspect.signature(method).parameters.values()
        if "Callable" not in str(parameter.annotation)
    )


def callback_parameters(method: Method) -> list[str]:
    """The parameters that take a function whose result is awaited."""
    names = vars(inspect.unwrap(method)).get("__globals__") or inspect.unwrap(method).__globals__
    return [
        parameter.name
        for parameter in inspect.signature(method).parameters.values()
        if _is_callback(str(parameter.annotation), names)
    ]


def _is_callback(annotation: str, names: dict[str, Any]) -> bool:
    words = re.findall(r"\w+", annotation)
    return any(
        text in str(names.get(word, word)) for word in words for text in _AWAITED if word[0].isupper()
    ) and not any(word in _ASYNC_ONLY for word in words)


def _member(kind: type, name: str) -> Any:
    value = method_of(kind, name)
    if not inspect.isfunction(value):
        return _attribute(name, value.__doc__)
    return _operation(name, value) if issubclass(kind, _ACCESSORS) else _method(name, value)


def method_of(kind: type, name: str) -> Any:
    """A member of a class; for a slot that holds a faster variant of a method, that method."""
    value = vars(kind)[name]
    variant = vars(kind).get(f"_{name}")
    return variant if inspect.ismemberdescriptor(value) and inspect.isfunction(variant) else value


def _operation(name: str, method: Method) -> Method:
    """An operation of an accessor."""

    @wraps(method)
    def blocking(self: SyncAccessor, /, *args: Any, **kwargs: Any) -> Any:
        store = self._store
        if _get_running_loop() is not None or store.ended_blocks:
            store.check_thread()
        return store.complete(getattr(self._accessor, name)(*args, **kwargs))

    @wraps(method)
    def plain(self: SyncAccessor, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._accessor, name)(*args, **kwargs)

    return blocking if inspect.iscoroutinefunction(method) else plain


def _method(name: str, method: Method) -> Method:
    callbacks = callback_parameters(method)
    signature = inspect.signature(method)

    @wraps(method)
    def blocking(self: SyncObject, /, *args: Any, **kwargs: Any) -> Any:
        store, given = self._store, []
        if callbacks:
            bound = signature.bind(self, *args, **kwargs)
            given = _replace_callbacks(store, bound, callbacks)
            args, kwargs = bound.args[1:], bound.kwargs
        result = store.wait(_called(self._locate, name, args, kwargs), callbacks=given)
        return sync_form(store, result)

    blocking.__doc__ = synchronous(method.__doc__)
    return blocking


def _replace_callbacks(
    store: BlockingStore, bound: inspect.BoundArguments, names: list[str]
) -> list[Callback]:
    """Put coroutine functions in the place of plain ones."""
    given = []
    for name in names:
        function = bound.arguments.get(name)
        if callable(function) and not inspect.iscoroutinefunction(function):
            given.append(Callback(store.running(), function))
            bound.arguments[name] = given[-1].awaitable
    return given


def _attribute(name: str, doc: str | None) -> property:
    return property(lambda self: _get_attribute(self, name), doc=doc)


def _get_attribute(self: SyncObject, name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if isinstance(self, SyncAccessor):
        return getattr(self._accessor, name)
    value = self._store.wait(_made(lambda: getattr(self._locate(), name)))
    if inspect.ismethod(value):
        raise AttributeError(
            f"{type(self).__name__}.{name} takes what only async code has, an async connection"
        )
    return sync_form(self._store, value)


def synchronous(doc: str | None) -> str | None:
    """A docstring with the statements of synchronous code."""
    if doc is None:
        return None
    doc = doc.replace("an `async", "a `async").replace("async with", "with").replace("async for", "for")
    return doc.replace("await ", "")


async def _made(make: Callable[[], Any]) -> Any:
    return make()


async def _next(iterator: Any) -> Any:
    return await anext(iterator)


async def _called(locate: Callable[[], Any], name: str, args: Any, kwargs: Any) -> Any:
    result = getattr(locate(), name)(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result
