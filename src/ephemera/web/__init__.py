"""Web integration in pure ASGI, for any framework: sessions, limits, cached resources, streams, endpoints.

`ephemera.web.fastapi` has everything that a FastAPI service needs. Here, only `ProgressResponse`,
`progress_websocket` and `fanout_websocket` need Starlette, `MetricsEndpoint` the extra `metrics`, and
`uvicorn_limits` uvicorn; they are loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ephemera.errors import InvalidCookie
from ephemera.web._asgi import ASGIApp, Header, Message, Problem, Receive, Scope, Send, unavailable
from ephemera.web._client_address import ClientAddress
from ephemera.web._cookies import Cookie
from ephemera.web._decorator_order import check_order, replacing
from ephemera.web._function_caches import check_cache_options, declare_cache, key_fields
from ephemera.web._gc_tuning import tune_gc
from ephemera.web._hardening_middleware import LOOPBACK_HOSTS, HardeningMiddleware, security_headers
from ephemera.web._limit_declarations import LimitSubject, check_rate, declare_limit, limits_of
from ephemera.web._limits import LimitMiddleware, check_request, limit_headers, limit_refusal
from ephemera.web._sessions import RequestSession, SessionMiddleware

if TYPE_CHECKING:
    from ephemera.web._endpoints import HealthEndpoint, MetricsEndpoint, PrewarmEndpoint
    from ephemera.web._http_cache import ResourceApp, store_from_state
    from ephemera.web._starlette import (
        EVENT_RESPONSES,
        ProgressResponse,
        fanout_websocket,
        progress_websocket,
    )
    from ephemera.web._streams import (
        Allowed,
        end_streams,
        last_event_id,
        send_fanout_websocket,
        send_progress_sse,
        send_progress_websocket,
    )
    from ephemera.web._uvicorn_limits import uvicorn_limits

_LAZY = {
    "HealthEndpoint": "_endpoints",
    "MetricsEndpoint": "_endpoints",
    "PrewarmEndpoint": "_endpoints",
    "ResourceApp": "_http_cache",
    "store_from_state": "_http_cache",
    "EVENT_RESPONSES": "_starlette",
    "ProgressResponse": "_starlette",
    "fanout_websocket": "_starlette",
    "progress_websocket": "_starlette",
    "Allowed": "_streams",
    "end_streams": "_streams",
    "last_event_id": "_streams",
    "send_fanout_websocket": "_streams",
    "send_progress_sse": "_streams",
    "send_progress_websocket": "_streams",
    "uvicorn_limits": "_uvicorn_limits",
}

__all__ = [
    "EVENT_RESPONSES",
    "LOOPBACK_HOSTS",
    "ASGIApp",
    "Allowed",
    "ClientAddress",
    "Cookie",
    "HardeningMiddleware",
    "Header",
    "HealthEndpoint",
    "InvalidCookie",
    "LimitMiddleware",
    "LimitSubject",
    "Message",
    "MetricsEndpoint",
    "PrewarmEndpoint",
    "Problem",
    "ProgressResponse",
    "Receive",
    "RequestSession",
    "ResourceApp",
    "Scope",
    "Send",
    "SessionMiddleware",
    "check_cache_options",
    "check_order",
    "check_rate",
    "check_request",
    "declare_cache",
    "declare_limit",
    "end_streams",
    "fanout_websocket",
    "key_fields",
    "last_event_id",
    "limit_headers",
    "limit_refusal",
    "limits_of",
    "progress_websocket",
    "replacing",
    "security_headers",
    "send_fanout_websocket",
    "send_progress_sse",
    "send_progress_websocket",
    "store_from_state",
    "tune_gc",
    "unavailable",
    "uvicorn_limits",
]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value
