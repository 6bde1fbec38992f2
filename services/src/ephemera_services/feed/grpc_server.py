"""`Aggregator` over gRPC: the same service as HTTP's, with the same rules for what is sent.

Statuses: INVALID_ARGUMENT says which field is wrong, NOT_FOUND a user who is unknown, UNAVAILABLE that the
database cannot be asked. What nobody expected is INTERNAL, says nothing, and is logged.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc
from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ephemera.errors import ConnectionFailed
from ephemera_services.feed.forms import ChannelId, InsightForm, PlanName, UserId
from ephemera_services.feed.messages import SERVICE, message, methods
from ephemera_services.feed.service import Aggregator

logger = logging.getLogger(__name__)

_MOST_BYTES = 64 * 1024  # of a request, as over HTTP
_GRACE = 10.0  # seconds for calls under way when it ends
_AWAY = (OperationalError, InterfaceError, PoolTimeout, ConnectionFailed)


class _UserForm(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: UserId


class _SubscriptionForm(_UserForm):
    channel_id: ChannelId
    plan: PlanName | None = None


class _Unknown(Exception):
    """No such user."""


class Methods:
    """The methods by their names: each takes a request and gives what its answer has."""

    def __init__(self, service: Aggregator) -> None:
        self._service = service

    async def PublishInsight(self, request: Any) -> dict[str, Any]:  # noqa: N802 - the names of the protocol
        """An insight of a channel."""
        form = InsightForm(channel_id=request.channel_id, text=request.text)
        insight = await self._service.publish(form.channel_id, form.text)
        return {**insight._asdict(), "ts": datetime.fromtimestamp(insight.ts / 1000, UTC)}

    async def Subscribe(self, request: Any) -> dict[str, Any]:  # noqa: N802
        """Subscribe a user."""
        form = _SubscriptionForm(
            user_id=request.user_id,
            channel_id=request.channel_id,
            plan=request.plan if request.HasField("plan") else None,
        )
        return {"subscribed": await self._service.subscribe(form.user_id, form.channel_id, form.plan)}

    async def Unsubscribe(self, request: Any) -> dict[str, Any]:  # noqa: N802
        """End a subscription."""
        form = _SubscriptionForm(user_id=request.user_id, channel_id=request.channel_id)
        return {"unsubscribed": await self._service.unsubscribe(form.user_id, form.channel_id)}

    async def Touch(self, request: Any) -> dict[str, Any]:  # noqa: N802
        """The user is there."""
        await self._service.touch(_UserForm(user_id=request.user_id).user_id)
        return {}

    async def GetFeed(self, request: Any) -> dict[str, Any]:  # noqa: N802
        """A user's feed."""
        feed = await self._service.feed(_UserForm(user_id=request.user_id).user_id)
        if feed is None:
            raise _Unknown(request.user_id)
        item = message("Item")
        items = [
            item(**{name: getattr(each, name) for name in each.__struct_fields__}) for each in feed.items
        ]
        return {**{name: getattr(feed, name) for name in feed.__struct_fields__}, "items": items}

    async def GetStatus(self, request: Any) -> dict[str, Any]:  # noqa: N802
        """How a user is."""
        status = await self._service.status(_UserForm(user_id=request.user_id).user_id)
        if status is None:
            raise _Unknown(request.user_id)
        return vars(status)


@asynccontextmanager
async def serving_grpc(service: Aggregator, address: str) -> AsyncIterator[None]:
    """A gRPC server for the length of a block."""
    server = grpc.aio.server(
        options=[("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.so_reuseport", 0)]
    )
    served = Methods(service)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _answering(getattr(served, name), answer),
            request_deserializer=request.FromString,
            response_serializer=answer.SerializeToString,
        )
        for name, (request, answer) in methods().items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(address)
    await server.start()
    logger.info("gRPC is served", extra={"address": address})
    try:
        yield
    finally:
        await server.stop(_GRACE)


def _answering(method: Callable[[Any], Awaitable[dict[str, Any]]], answer: Any) -> Any:
    """A method as gRPC calls it, with what it raises as a status."""

    async def answering(request: Any, context: Any) -> Any:
        try:
            return answer(**await method(request))
        except ValidationError as wrong:
            said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in wrong.errors())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, said)
        except _Unknown as unknown:
            said = f"there is no user {str(unknown)!r}; a first subscription makes one"
            await context.abort(grpc.StatusCode.NOT_FOUND, said)
        except _AWAY:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the database cannot be asked; try again")
        except Exception:
            logger.exception("unexpected")
            await context.abort(grpc.StatusCode.INTERNAL, "something went wrong here, and was logged")

    return answering
