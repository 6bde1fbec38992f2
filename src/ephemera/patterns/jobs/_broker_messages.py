"""Celery's messages as untrusted input: what is not a message of ours is dropped, and logged.

kombu and Celery trust their broker: a list item that is not JSON, or a header of another type, ends the
worker with an "unrecoverable error". Here each message is checked before Celery sees it, and rebuilt from the
fields that we write. Nothing is lost by dropping one: jobs are in SQL, and the reaper sends the messages of
those that have none.
"""

from __future__ import annotations

import logging
from base64 import b64decode
from functools import cache
from queue import Empty
from typing import Annotated, Any, Literal

import kombu
import msgspec
from celery.app.amqp import AMQP

_log = logging.getLogger("ephemera.jobs")


class _Headers(msgspec.Struct):
    task: str
    id: str
    root_id: str
    shadow: str
    timelimit: Annotated[list[float | None], msgspec.Meta(min_length=2, max_length=2)]
    argsrepr: str
    kwargsrepr: str
    origin: str
    lang: str = "py"
    parent_id: None = None
    group: None = None
    eta: None = None
    expires: None = None
    retries: int = 0
    ignore_result: bool = True
    redelivered: bool = False


class _DeliveryInfo(msgspec.Struct):
    exchange: str
    routing_key: str
    redelivered: bool = False


class _Properties(msgspec.Struct):
    correlation_id: str
    delivery_info: _DeliveryInfo
    delivery_tag: str
    body_encoding: Literal["base64"]
    reply_to: str = ""
    delivery_mode: int = 2
    priority: int = 0


class _Message(
    msgspec.Struct, rename={"content_type": "content-type", "content_encoding": "content-encoding"}
):
    body: str
    headers: _Headers
    properties: _Properties
    content_type: Literal["application/json"]
    content_encoding: str


_Arguments = tuple[tuple[str], dict[str, None], dict[str, None]]
"""The body: a job's id, and none of Celery's callbacks."""


class ForeignMessage(Exception):
    """A message that is not ours, and why."""


def checked(raw: object) -> dict[str, Any]:
    """The message with the fields that we write and no others; `ForeignMessage` if it is not ours."""
    try:
        message = msgspec.convert(raw, _Message)
        msgspec.json.decode(b64decode(message.body, validate=True), type=_Arguments)
    except ValueError as problem:
        raise ForeignMessage(str(problem)) from None
    found: dict[str, Any] = msgspec.to_builtins(message)
    return found


@cache
def checking_transport(base: Any) -> Any:
    """A transport of kombu's that delivers only messages of ours."""

    class CheckingChannel(base.Channel):
        def _brpop_read(self, **options: Any) -> Any:
            try:
                return super()._brpop_read(**options)
            except (ValueError, RecursionError) as problem:  # of the JSON decoder
                _log.error("a message that is not JSON was dropped: %s", type(problem).__name__)
                raise Empty from None

    class CheckingTransport(base):
        Channel = CheckingChannel

        def _deliver(self, message: Any, queue: Any) -> None:
            try:
                ours = checked(message)
            except ForeignMessage as problem:
                _log.error("a message of the queue %r that is not ours was dropped: %s", queue, problem)
            else:
                super()._deliver(ours, queue)

    return CheckingTransport


class _Connection(kombu.Connection):
    def get_transport_cls(self) -> Any:
        return checking_transport(super().get_transport_cls())


class CheckingAMQP(AMQP):
    """Celery's messaging over connections that check what they read."""

    Connection = _Connection
