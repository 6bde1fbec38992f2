"""OpenTelemetry spans of the commands and scripts that a store sends.

    async with connect(url, catalogue) as store:
        trace(store)                                  # first of all, before anything is bound to the store

Each command and each script is a span of kind client, under whatever span is current, named by the command or
script and the declared pattern of its key: `GET profile:{user_id}`, `locks_acquire lock:{name}`. Attributes
follow OpenTelemetry's conventions for databases. They contain no keys, ids or values: a span says what was
done to which keyspace, never for whom. Each command of a batch is a span.

A store that is not traced uses its clients directly, so tracing costs nothing while it is off. Commands of
subscriptions and of the synchronous store have no spans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import MissingExtra
from ephemera.keyspace import Store
from ephemera.wire import Arg, as_text

if TYPE_CHECKING:  # an optional package
    from opentelemetry.trace import TracerProvider

_SYSTEM = "redis"
_MOST_KEYS = 10_000  # keys whose pattern is remembered


def trace(store: Store, provider: TracerProvider | None = None) -> None:
    """Make a span of each command and script that the store sends from now on.

    `provider` is the process's own unless given.
    """
    try:
        from opentelemetry import trace as api
    except ModuleNotFoundError as missing:
        raise MissingExtra("tracing needs opentelemetry-api", "tracing", "opentelemetry") from missing
    store.observe(_SpanObserver(store, api, api.get_tracer("ephemera", tracer_provider=provider)))


class _SpanObserver:
    """Makes a span of every command and script (see `ephemera.wire.Observer`)."""

    def __init__(self, store: Store, api: Any, tracer: Any) -> None:
        self._catalogues = store.catalogues
        self._api = api
        self._tracer = tracer
        self._patterns: BoundedCache[bytes, str] = BoundedCache(_MOST_KEYS)

    def start(self, name: str, key: Arg | None) -> Callable[[BaseException | None], None]:
        """Start a span; the result ends it."""
        pattern = self._pattern_of(key)
        attributes = {"db.system.name": _SYSTEM, "db.operation.name": name}
        if pattern:
            attributes["db.collection.name"] = pattern
        title = f"{name} {pattern}" if pattern else name
        span = self._tracer.start_span(title, kind=self._api.SpanKind.CLIENT, attributes=attributes)

        def end(error: BaseException | None) -> None:
            if error is not None:
                # Only the type of an error is recorded, since its text may contain a key.
                span.set_attribute("error.type", as_text(getattr(error, "code", "") or type(error).__name__))
                span.set_status(self._api.Status(self._api.StatusCode.ERROR))
            span.end()

        return end

    def _pattern_of(self, key: Arg | None) -> str:
        """The declared pattern of a key; empty when nothing declares it."""
        if not isinstance(key, str | bytes):
            return ""
        name = key.encode() if isinstance(key, str) else key
        known = self._patterns.get(name)
        if known is None:
            keyspaces = (catalogue.classify(name) for catalogue in self._catalogues)
            known = self._patterns[name] = next((each.pattern for each in keyspaces if each), "")
        return known
