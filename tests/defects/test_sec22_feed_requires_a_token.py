"""SEC22: feed had no authentication at all, over HTTP and over gRPC."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.feed import Settings, create_app
from ephemera_services.feed.grpc_server import SERVICE, methods
from ephemera_services.runtime import InvalidSettings, Secret
from tests.services.feed_users import BEARER, TOKEN, Caller, Remote, feeding

NEXT = "the-next-token-of-feed"
WRONG = (None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"{BEARER}x", BEARER[:-1])


@pytest.fixture(scope="module")
def caller(server: Valkey, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A running service with two tokens, as while one replaces the other; outside development."""
    places = {"EPHEMERA_URL": server.url, "EPHEMERA_DATABASE_URL": postgres.database("sec22")}
    tokens = {"EPHEMERA_FEED_TOKENS": f"{TOKEN}, {NEXT}", "EPHEMERA_DEVELOPMENT": "false"}
    with feeding(tmp_path_factory.mktemp("logs"), places, **tokens) as running:
        yield running


def test_sec22_http_requires_a_token(caller: Caller) -> None:
    """Every route of feed is 401 without a token or with a wrong one; health is open."""
    paths = create_app(Settings(development=True)).openapi()["paths"]  # it is not served outside development
    routes = [
        (method.upper(), path.format(user_id="ann", channel_id="space", insight_id=1, item_id=1))
        for path, operations in paths.items()
        if path.startswith("/feed/")
        for method in operations
    ]
    assert len(routes) >= 14
    del caller.http.headers["authorization"]
    try:
        for authorization in WRONG:
            headers = {} if authorization is None else {"authorization": authorization}
            for method, path in routes:
                answer = caller.http.request(method, path, headers=headers)
                assert (answer.status_code, answer.json()["status"]) == (401, 401), (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
        assert caller.http.get("/healthz").status_code == 200
        for token in (TOKEN, NEXT):
            headers = {"authorization": f"Bearer {token}"}
            assert caller.http.get("/feed/planner", headers=headers).status_code == 200
    finally:
        caller.http.headers["authorization"] = BEARER


def test_sec22_grpc_requires_a_token(caller: Caller) -> None:
    """Every method, even an unknown one, is UNAUTHENTICATED without a token or with a wrong one."""
    with grpc.insecure_channel(caller.grpc_address) as channel:
        for authorization in WRONG:
            for method in methods():
                code, _ = Remote(channel, authorization).refused(method)
                assert code == "UNAUTHENTICATED", (method, authorization)
        with pytest.raises(grpc.RpcError) as unknown:
            channel.unary_unary(f"/{SERVICE}/Nothing")(b"", timeout=10)
        assert unknown.value.code().name == "UNAUTHENTICATED"
        for token in (TOKEN, NEXT):
            remote = Remote(channel, f"Bearer {token}")
            assert remote.call("Subscribe", user_id="ann", channel_id="space") is not None
            assert remote.call("GetStatus", user_id="ann").user_id == "ann"


def test_sec22_it_does_not_start_without_a_token() -> None:
    """Outside development a token is required, and a short one refused; development is for loopback."""
    with pytest.raises(InvalidSettings, match="EPHEMERA_FEED_TOKENS must be set"):
        create_app(Settings())
    for tokens in ("short", f"{TOKEN},", f"{TOKEN},short"):
        with pytest.raises(InvalidSettings, match="EPHEMERA_FEED_TOKENS: it has") as refused:
            create_app(Settings(tokens=Secret(tokens)))
        assert TOKEN not in str(refused.value)
    with pytest.raises(InvalidSettings, match="EPHEMERA_FEED_GRPC_ADDRESS"):
        create_app(Settings(development=True, grpc_address="0.0.0.0:50051"))
    create_app(Settings(development=True))
