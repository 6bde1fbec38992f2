"""SEC12: feed kept gRPC connections without calls, and connections of any age."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from ephemera.embedded import free_ports
from ephemera_services.feed import grpc_server
from ephemera_services.feed.grpc_server import serve_grpc


@pytest.mark.parametrize("limit", ["_MAX_IDLE", "_MAX_AGE"])
async def test_sec12_feed_closes_idle_and_old_connections(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends a connection without calls, and an old one, within its limit."""
    monkeypatch.setattr(grpc_server, limit, 0.3)
    address: str = f"127.0.0.1:{free_ports(1)[0]}"
    service: Any = None  # no call reaches it
    async with serve_grpc(service, address, None), grpc.aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        assert channel.get_state() is grpc.ChannelConnectivity.IDLE
