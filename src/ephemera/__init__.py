"""Ephemera: the expendable data layer of a Python service, on Redis 7+ or Valkey.

Declare every key once in a `Catalogue`, open a `Store` with `connect`, and use what is declared through typed
accessors and patterns. Losing any of the data is safe.

Everything that a service declares or catches can be imported from here. Patterns are loaded when they are
first used, so `import ephemera` costs no more than the core.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ephemera import errors
from ephemera.errors import *
from ephemera.keyspace import (
    Catalogue,
    Key,
    Keyspace,
    Store,
    connect,
    fixed,
    permanent,
    sliding,
    until,
    windowed,
)
from ephemera.wire import Credentials, Message, Script, deadline

if TYPE_CHECKING:
    from ephemera.patterns.cache import Cache, Freshness, Loading, LocalCache, Storage
    from ephemera.patterns.embedders import Lexical, MiniLM, OpenAICompatible
    from ephemera.patterns.entitlements import Entitlements
    from ephemera.patterns.events import DeliveryPolicy, Events
    from ephemera.patterns.fanout import Fanout
    from ephemera.patterns.http_cache import HttpCache, Representation
    from ephemera.patterns.jobs import Job, Jobs
    from ephemera.patterns.locks import Locks, ReadWriteLocks, Semaphores
    from ephemera.patterns.planner import (
        Plan,
        Planner,
        PlannerRetention,
        PlannerTables,
        PlannerTiming,
        TickLimits,
    )
    from ephemera.patterns.preferences import Preferences
    from ephemera.patterns.progress import Progress
    from ephemera.patterns.rate_limits import (
        LocalShare,
        RateLimits,
        Rule,
        fixed_window,
        local_share,
        sliding_window,
        token_bucket,
    )
    from ephemera.patterns.revocation import Revocation, TokenKind
    from ephemera.patterns.semantic_cache import (
        MatchPolicy,
        ModelCalls,
        Qdrant,
        Scope,
        SemanticBackend,
        SemanticCache,
    )
    from ephemera.patterns.sessions import Sessions
    from ephemera.patterns.tokens import KeyRing, Tokens
    from ephemera.patterns.usage import Calendar, Usage, UsageTable
    from ephemera.patterns.windows import Windows
    from ephemera.patterns.write_behind import (
        CounterTable,
        DeferredCounters,
        DeferredRecords,
        Flusher,
        RecordTable,
        SinkTables,
    )

_PATTERNS = {
    "cache": (
        "Cache",
        "Freshness",
        "Loading",
        "LocalCache",
        "Storage",
    ),
    "embedders": (
        "Lexical",
        "MiniLM",
        "OpenAICompatible",
    ),
    "entitlements": ("Entitlements",),
    "events": (
        "DeliveryPolicy",
        "Events",
    ),
    "fanout": ("Fanout",),
    "http_cache": (
        "HttpCache",
        "Representation",
    ),
    "jobs": (
        "Job",
        "Jobs",
    ),
    "locks": (
        "Locks",
        "ReadWriteLocks",
        "Semaphores",
    ),
    "planner": (
        "Plan",
        "Planner",
        "PlannerRetention",
        "PlannerTables",
        "PlannerTiming",
        "TickLimits",
    ),
    "preferences": ("Preferences",),
    "progress": ("Progress",),
    "rate_limits": (
        "LocalShare",
        "RateLimits",
        "Rule",
        "fixed_window",
        "local_share",
        "sliding_window",
        "token_bucket",
    ),
    "revocation": (
        "Revocation",
        "TokenKind",
    ),
    "semantic_cache": (
        "MatchPolicy",
        "ModelCalls",
        "Qdrant",
        "Scope",
        "SemanticBackend",
        "SemanticCache",
    ),
    "sessions": ("Sessions",),
    "tokens": (
        "KeyRing",
        "Tokens",
    ),
    "usage": (
        "Calendar",
        "Usage",
        "UsageTable",
    ),
    "windows": ("Windows",),
    "write_behind": (
        "CounterTable",
        "DeferredCounters",
        "DeferredRecords",
        "Flusher",
        "RecordTable",
        "SinkTables",
    ),
}
"""The names of each pattern that can be imported from here; a test compares it with the imports above."""

_PATTERN_OF = {name: pattern for pattern, names in _PATTERNS.items() for name in names}

__all__ = [
    "Catalogue",
    "Credentials",
    "Key",
    "Keyspace",
    "Message",
    "Script",
    "Store",
    "connect",
    "deadline",
    "fixed",
    "permanent",
    "sliding",
    "until",
    "windowed",
]
__all__ += errors.__all__
__all__ += [
    "Cache",
    "Calendar",
    "CounterTable",
    "DeferredCounters",
    "DeferredRecords",
    "DeliveryPolicy",
    "Entitlements",
    "Events",
    "Fanout",
    "Flusher",
    "Freshness",
    "HttpCache",
    "Job",
    "Jobs",
    "KeyRing",
    "Lexical",
    "Loading",
    "LocalCache",
    "LocalShare",
    "Locks",
    "MatchPolicy",
    "MiniLM",
    "ModelCalls",
    "OpenAICompatible",
    "Plan",
    "Planner",
    "PlannerRetention",
    "PlannerTables",
    "PlannerTiming",
    "Preferences",
    "Progress",
    "Qdrant",
    "RateLimits",
    "ReadWriteLocks",
    "RecordTable",
    "Representation",
    "Revocation",
    "Rule",
    "Scope",
    "SemanticBackend",
    "SemanticCache",
    "Semaphores",
    "Sessions",
    "SinkTables",
    "Storage",
    "TickLimits",
    "TokenKind",
    "Tokens",
    "Usage",
    "UsageTable",
    "Windows",
    "fixed_window",
    "local_share",
    "sliding_window",
    "token_bucket",
]


def __getattr__(name: str) -> Any:
    """Load the pattern that a name belongs to, once."""
    try:
        pattern = _PATTERN_OF[name]
    except KeyError:
        raise AttributeError(f"module 'ephemera' has no attribute {name!r}") from None
    value = getattr(import_module(f"ephemera.patterns.{pattern}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
