"""`Aggregator` over gRPC: the same service as over HTTP, with the same validation.

*Statuses.* UNAUTHENTICATED without a token (`access`), INVALID_ARGUMENT names the invalid field, NOT_FOUND
means an unknown user, insight or item, FAILED_PRECONDITION a cursor of another version or a version that is
not stored, UNAVAILABLE that a database is down or refuses. Any other exception is INTERNAL without details,
and is logged.

*Messages.* The classes are built from `aggregator.binpb`, the compiled descriptor of `aggregator.proto`.
Generated code would be tied to one version of protobuf. After a change of the file:

    cd services/src/ephemera_services/feed
    python -m grpc_tools.protoc -I . --descriptor_set_out=aggregator.binpb aggregator.proto
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated, Any

import grpc
from google.protobuf import timestamp_pb2  # noqa: F401
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ephemera.errors import ConnectionFailed, ServerError
from ephemera_services.feed.access import TokenInterceptor
from ephemera_services.feed.forms import (
    BULK_BYTES,
    ChannelId,
    Cursor,
    InsightForm,
    InsightsForm,
    Number,
    PlanName,
    UserId,
)
from ephemera_services.feed.reader import StaleCursor, StaleVersion
from ephemera_services.feed.service import PAGE, Aggregator
from ephemera_services.runtime import BearerTokens

logger = logging.getLogger(__name__)

_MAX_BYTES = BULK_BYTES  # of a request, as over HTTP
_MAX_CALLS = 1000  # at once; others get RESOURCE_EXHAUSTED
_GRACE = 10.0  # seconds for calls in progress at shutdown
_MAX_IDLE = 300.0  # seconds for which a connection may have no call
_MAX_AGE = 3600.0  # seconds of a connection; clients open another one, maybe to another process
_UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeout, ConnectionFailed, ServerError)


class _UserForm(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: UserId


class _SubscriptionForm(_UserForm):
    channel_id: ChannelId
    plan: PlanName | None = None


class _PageForm(_UserForm):
    limit: Annotated[int, Field(ge=1, le=100)] = PAGE
    cursor: Cursor | None = None


class _ItemForm(_UserForm):
    item_id: int
    version: Number | None = None


class _Unknown(Exception):
    """No such user, insight or item."""


_NO_ITEM = "the user's feed of this version has no such item"


def _unknown_user(user_id: str) -> _Unknown:
    return _Unknown(f"there is no user {user_id!r}; subscribe them to a channel first")


def _given(request: Any, *names: str) -> dict[str, Any]:
    """Return the optional fields of a message that are set."""
    return {name: getattr(request, name) for name in names if request.HasField(name)}


def _item_form(request: Any) -> _ItemForm:
    return _ItemForm(user_id=request.user_id, item_id=request.item_id, **_given(request, "version"))


def _insight_form(request: Any) -> InsightForm:
    fields = _given(request, "source", "url", "language")
    if request.HasField("published_at"):
        fields["published_at"] = _to_datetime(request.published_at)
    return InsightForm(channel_id=request.channel_id, text=request.text, **fields)


def _to_datetime(timestamp: Any) -> datetime | None:
    """Convert a timestamp; one that is out of range is refused by the form like any wrong time."""
    try:
        return datetime.fromtimestamp(timestamp.seconds + timestamp.nanos / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


class Methods:
    """The methods by name: each takes a request and returns the fields of its response."""

    def __init__(self, service: Aggregator) -> None:
        self._service = service

    async def PublishInsight(self, request: Any) -> dict[str, Any]:
        """Publish an insight."""
        [published] = await self._service.insights.publish([_insight_form(request).to_insight()])
        return published._asdict()

    async def PublishInsights(self, request: Any) -> dict[str, Any]:
        """Publish insights in one transaction."""
        form = InsightsForm(insights=[_insight_form(each) for each in request.insights])
        published = await self._service.insights.publish([each.to_insight() for each in form.insights])
        response = message("PublishInsightResponse")
        return {"insights": [response(**each._asdict()) for each in published]}

    async def GetInsight(self, request: Any) -> dict[str, Any]:
        """An insight as it was published."""
        found = await self._service.insights.get([request.insight_id])
        if not found:
            raise _Unknown("there is no such insight")
        return found[request.insight_id]._asdict()

    async def GetItemInsights(self, request: Any) -> dict[str, Any]:
        """The insights of an item."""
        form = _item_form(request)
        found = await self._service.item_insights(form.user_id, form.item_id, form.version)
        if found is None:
            raise _Unknown(_NO_ITEM)
        insight = message("Insight")
        return {
            "insights": [
                insight(**each.insight._asdict(), duplicate_ids=each.duplicate_ids) for each in found
            ]
        }

    async def MarkRead(self, request: Any) -> dict[str, Any]:
        """Mark an item as read or unread."""
        form, read = _item_form(request), not request.unread
        if not await self._service.mark(form.user_id, form.item_id, read=read, version=form.version):
            raise _Unknown(_NO_ITEM)
        return {}

    async def Subscribe(self, request: Any) -> dict[str, Any]:
        """Subscribe a user."""
        form = _SubscriptionForm(
            user_id=request.user_id,
            channel_id=request.channel_id,
            plan=request.plan if request.HasField("plan") else None,
        )
        return {"subscribed": await self._service.subscribe(form.user_id, form.channel_id, form.plan)}

    async def Unsubscribe(self, request: Any) -> dict[str, Any]:
        """End a subscription."""
        form = _SubscriptionForm(user_id=request.user_id, channel_id=request.channel_id)
        return {"unsubscribed": await self._service.unsubscribe(form.user_id, form.channel_id)}

    async def Touch(self, request: Any) -> dict[str, Any]:
        """Mark the user as active."""
        await self._service.touch(_UserForm(user_id=request.user_id).user_id)
        return {}

    async def GetFeed(self, request: Any) -> dict[str, Any]:
        """A user's feed."""
        form = _PageForm(user_id=request.user_id, **_given(request, "limit", "cursor"))
        feed = await self._service.feed(form.user_id, form.limit, form.cursor)
        if feed is None:
            raise _unknown_user(request.user_id)
        item = message("Item")
        items = [
            item(**{name: getattr(each, name) for name in each.__struct_fields__}) for each in feed.items
        ]
        return {**{name: getattr(feed, name) for name in feed.__struct_fields__}, "items": items}

    async def GetStatus(self, request: Any) -> dict[str, Any]:
        """A user's state."""
        status = await self._service.status(_UserForm(user_id=request.user_id).user_id)
        if status is None:
            raise _unknown_user(request.user_id)
        return vars(status)


@asynccontextmanager
async def serve_grpc(service: Aggregator, address: str, tokens: BearerTokens | None) -> AsyncIterator[None]:
    """Serve gRPC within a block, to clients with a token if there are tokens."""
    server = grpc.aio.server(
        interceptors=[] if tokens is None else [TokenInterceptor(tokens)],
        maximum_concurrent_rpcs=_MAX_CALLS,
        options=[
            ("grpc.max_receive_message_length", _MAX_BYTES),
            ("grpc.max_connection_idle_ms", int(_MAX_IDLE * 1000)),
            ("grpc.max_connection_age_ms", int(_MAX_AGE * 1000)),
            ("grpc.max_connection_age_grace_ms", int(_GRACE * 1000)),
            ("grpc.so_reuseport", 0),
        ],
    )
    service_methods = Methods(service)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _handler(getattr(service_methods, name), response),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
        for name, (request, response) in methods().items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(address)
    await server.start()
    logger.info("serving gRPC", extra={"address": address})
    try:
        yield
    finally:
        await server.stop(_GRACE)


def _handler(method: Callable[[Any], Awaitable[dict[str, Any]]], response: Any) -> Any:
    """Wrap a method for gRPC, with its exceptions as statuses."""

    async def handle(request: Any, context: Any) -> Any:
        try:
            return response(**await method(request))
        except ValidationError as wrong:
            details = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in wrong.errors()
            )
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, details)
        except _Unknown as unknown:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(unknown))
        except StaleCursor:
            details = "the cursor is not of the feed's current version; read its first page"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, details)
        except StaleVersion:
            details = "this version of the feed is not stored; read the feed again"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, details)
        except _UNAVAILABLE:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "a database is unavailable; try again")
        except Exception:
            logger.exception("uncaught exception")
            await context.abort(grpc.StatusCode.INTERNAL, "something went wrong, and was logged")

    return handle


# Also registers what our file imports in the descriptor pool.

PACKAGE = "ephemera.feed.v1"
SERVICE = f"{PACKAGE}.Aggregator"

_compiled = files(__package__).joinpath("aggregator.binpb").read_bytes()
for _file in FileDescriptorSet.FromString(_compiled).file:
    Default().AddSerializedFile(_file.SerializeToString())


def message(name: str) -> Any:
    """Return the class of a message, as in `message("GetFeedRequest")`."""
    return GetMessageClass(Default().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def methods() -> dict[str, tuple[Any, Any]]:
    """Return the request and response classes of each method."""
    found = Default().FindServiceByName(SERVICE).methods
    return {each.name: (message(each.input_type.name), message(each.output_type.name)) for each in found}
