"""OpenTelemetry spans of what a store sends: optional, and free for who has none.

    async with connect(url, catalogue) as store:
        trace(store)                                  # first of all, before anything is bound to the store

Each command and each script is a span of kind client, under whatever span is current, named by the command or
script and the declared pattern of its key: `GET profile:{user_id}`, `locks_acquire lock:{name}`. Attributes
follow OpenTelemetry's conventions for databases. Keys, ids and values are in none of them: a span tells what
was done to which space, never to whom. Of a batch each command is a span.

`trace` puts a function around each way in which this store's clients send. Without it they are what they
were, so the cost is nothing at all. Commands of subscriptions and of the blocking store have no spans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ephemera.keyspace import Store
from ephemera.wire import (
    Arg,
    ReplyHandler,
    Script,
    ScriptPrefix,
    as_text,
    command_name,
    first_key,
    unpack_command,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

    Send = Callable[..., Awaitable[Any]]
    Describe = Callable[..., tuple[str, Arg | None]]
    """The command's or script's name, and its first key, of what is sent."""

_SYSTEM = "redis"
_MOST_NAMES = 10_000  # keys whose pattern is remembered


def trace(store: Store, provider: TracerProvider | None = None) -> None:
    """Make a span of each command and script that the store sends from now on.

    `provider` is the process's own unless given.
    """
    try:
        from opentelemetry import trace as api
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "tracing needs opentelemetry-api: pip install 'ephemera-data[tracing]'", name="opentelemetry"
        ) from missing
    tracer = api.get_tracer("ephemera", tracer_provider=provider)
    patterns = _Patterns(store)

    def begin(operation: str, key: Arg | None) -> Span:
        pattern = patterns.of(key)
        attributes = {"db.system.name": _SYSTEM, "db.operation.name": operation}
        if pattern:
            attributes["db.collection.name"] = pattern
        name = f"{operation} {pattern}" if pattern else operation
        return tracer.start_span(name, kind=api.SpanKind.CLIENT, attributes=attributes)

    def around(describe: Describe) -> Callable[[Send], Send]:
        def wrap(send: Send) -> Send:
            def traced(*args: Any, **named: Any) -> Awaitable[Any]:
                return _under(begin(*describe(*args, **named)), lambda: send(*args, **named))

            return traced

        return wrap

    def around_settling(send: Callable[..., None]) -> Callable[..., None]:
        def traced(reply: ReplyHandler, beginning: ScriptPrefix, arguments: Sequence[bytes]) -> None:
            span = begin(beginning.script.name, beginning.key)
            try:
                send(_Spanned(span, reply), beginning, arguments)
            except BaseException as problem:
                _end(span, problem)
                raise

        return traced

    store.observe(
        call=around(_of_call),
        run=around(_of_run),
        run_for=around_settling,
        run_prepared=around(lambda prepared: (prepared.script.name, prepared.key)),
        read_packed=around(_of_read),
    )


def _of_call(*args: Arg) -> tuple[str, Arg | None]:
    name = command_name(args) if args else ""
    return name, first_key(name, args)


def _of_run(script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> tuple[str, Arg | None]:  # noqa: ARG001 - as it is sent
    return script.name, keys[0] if keys else None


def _of_read(packed: bytes) -> tuple[str, Arg | None]:
    name, key = unpack_command(packed)
    return as_text(name), key


class _Patterns:
    """The declared patterns of keys; those of frequent ones are remembered."""

    def __init__(self, store: Store) -> None:
        self._catalogues = store.catalogues
        self._known: dict[bytes, str] = {}

    def of(self, key: Arg | None) -> str:
        """The pattern of a key, empty when nothing declares it."""
        if not isinstance(key, str | bytes):
            return ""
        name = key.encode() if isinstance(key, str) else key
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            spaces = (catalogue.classify(name) for catalogue in self._catalogues)
            known = self._known[name] = next((space.pattern for space in spaces if space), "")
        return known


class _Spanned:
    """A reply whose span ends after it was settled (see `connection.Reply`).

    It is settled in the context of who sent it, so that what it sends in turn belongs to the same caller.
    """

    __slots__ = ("_context", "_reply", "_span")

    def __init__(self, span: Span, reply: ReplyHandler) -> None:
        self._span = span
        self._reply = reply
        self._context = copy_context()

    def done(self) -> bool:
        return self._reply.done()

    def set_result(self, result: Any, /) -> None:
        self._context.run(self._reply.set_result, result)
        self._end(None)

    def set_exception(self, exception: BaseException, /) -> None:
        self._context.run(self._reply.set_exception, exception)
        self._end(exception)

    def _end(self, problem: BaseException | None) -> None:
        try:
            _end(self._span, problem)
        except Exception as error:  # an exporter's mistake, which must cost nobody a reply
            report = {"message": "the end of a span failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)


def _under(span: Span, send: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
    """Send, and end the span with the reply; the caller gets the very future that it would get without."""
    try:
        reply = send()
    except BaseException as problem:
        _end(span, problem)
        raise
    if isinstance(reply, asyncio.Future):
        reply.add_done_callback(lambda done: _end(span, _problem(done)))
        return reply
    return _awaited(span, reply)


async def _awaited(span: Span, reply: Awaitable[Any]) -> Any:
    try:
        answer = await reply
    except BaseException as problem:
        _end(span, problem)
        raise
    _end(span, None)
    return answer


def _problem(done: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError() if done.cancelled() else done.exception()


def _end(span: Span, problem: BaseException | None) -> None:
    """End a span; of an error its type is told, since its text may name a key."""
    if problem is not None:
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute("error.type", as_text(getattr(problem, "code", "") or type(problem).__name__))
        span.set_status(Status(StatusCode.ERROR))
    span.end()
