"""Trap C6: a header that any client can forge is not an address."""

from __future__ import annotations

from ephemera.embedded import Valkey
from ephemera.keyspace import connect
from ephemera.web import ClientAddress, LimitMiddleware, Receive, Scope, Send
from tests.patterns.limit_fixtures import CATALOGUE, LIMITS, WINDOW
from tests.web.limited_app import get
from tests.web.test_limits import an_address


async def _found(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that responds with 200."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"found"})


def _first_of_the_header(scope: Scope) -> str:
    """The leftmost entry of X-Forwarded-For, as naive services read it."""
    forwarded = dict(scope["headers"]).get(b"x-forwarded-for", b"")
    return forwarded.decode().split(",")[0].strip() or str(scope["client"][0])


async def test_c6_a_forged_header_does_not_change_the_client(server: Valkey) -> None:
    """A client that forges X-Forwarded-For is never limited the naive way, but is by ours."""
    proxy, attacker = "10.1.1.1", an_address()
    trusting = ClientAddress(trusted=["10.0.0.0/8"])
    async with connect(server.url, CATALOGUE) as store:
        ways = {
            "naive": lambda scope: [WINDOW.on(_first_of_the_header(scope))],
            "ours": lambda scope: [WINDOW.on(trusting.network(scope))],
        }
        for peer in (attacker, proxy):
            statuses = {}
            for name, claims in ways.items():
                app = LimitMiddleware(_found, lambda _: store[LIMITS], claims)
                hops_of = [(an_address(), attacker) if peer == proxy else (an_address(),) for _ in range(10)]
                statuses[name] = [
                    (
                        await get(app, "/", peer, headers=[(b"x-forwarded-for", ", ".join(hops).encode())])
                    ).status
                    for hops in hops_of
                ]
            assert statuses["naive"] == [200] * 10
            assert statuses["ours"] == ([200] * 5 + [429] * 5 if peer == attacker else [429] * 10)
