"""WebSockets and gRPC of the services, as calls of `Traffic`."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import grpc
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from ephemera_services.feed.grpc_server import methods
from tests.fuzz.traffic import Call, Headers, Ids
from tests.services.feed_users import Remote
from tests.services.services import Served

_LISTEN_FOR = 0.5  # seconds
_PATHS = {"slides": ("/notifications", "/jobs/{job_id}/ws"), "league": ("/ws/admin",)}
_INTERNAL_ERROR = 1011
"""The code with which a WebSocket is closed by an exception."""
_STATUSES = {
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


def websocket_calls(service: str, served: Served) -> list[Call]:
    """One call for all WebSockets of a service; none if it has none."""
    paths = _PATHS.get(service)
    if paths is None:
        return []

    def websocket(random: Random, ids: Ids, headers: Headers) -> tuple[int, str]:
        path = random.choice(paths).replace("{job_id}", random.choice(ids("job_id")))
        return _listen(served.url.replace("http", "ws", 1) + path, headers)

    return [websocket]


def _listen(url: str, headers: Headers) -> tuple[int, str]:
    """Read what comes within a moment; the handshake's status, or 500 if an exception closed it."""
    ends = time.monotonic() + _LISTEN_FOR
    try:
        with connect(url, additional_headers=headers, open_timeout=30, proxy=None) as socket:
            while (left := ends - time.monotonic()) > 0:
                socket.recv(timeout=left)
    except TimeoutError:
        pass
    except InvalidStatus as refused:
        return refused.response.status_code, "the handshake was refused"
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd is not None else _INTERNAL_ERROR
        return 500 if code == _INTERNAL_ERROR else 101, str(closed)
    return 101, ""


def grpc_calls(address: str) -> list[Call]:
    """One call for all methods of feed."""

    def remote_call(random: Random, ids: Ids, _: Headers) -> tuple[int, str]:
        method = random.choice(sorted(methods()))
        request = methods()[method][0]
        fields: dict[str, Any] = {
            each.name: random.choice(ids(each.name))
            for each in request.DESCRIPTOR.fields
            if each.name in ("user_id", "channel_id", "text")
        }
        try:
            with grpc.insecure_channel(address) as channel:
                Remote(channel).call(method, **fields)
        except grpc.RpcError as refused:
            return _STATUSES.get(refused.code(), 400), str(refused)
        return 200, ""

    return [remote_call]
