"""A Flask application with sessions, limits and caches, and its test client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from flask import Flask, abort, flash, get_flashed_messages, request, session, url_for
from flask.testing import FlaskClient

from ephemera import Catalogue, sliding
from ephemera.adapters.flask import Ephemera, FlaskSession

MINUTE = timedelta(minutes=1)


class Shop:
    """The application and what its views have done."""

    def __init__(self, url: str, **options: Any) -> None:
        self.eph = Ephemera(url, Catalogue("flask_shop"), session_lifetime=sliding(hours=1), **options)
        self.app = Flask("shop")
        self.app.config["TESTING"] = True
        self.eph.init_app(self.app)
        self.loads = count(1)
        self.prices = {"tea": 4}
        self.on_login: Callable[[str], object] = lambda user: None
        _add_session_views(self)
        _add_session_changes(self)
        _add_limited_views(self)
        _add_cached_views(self)

    def client(self) -> FlaskClient:
        """A browser of its own."""
        return self.app.test_client()


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Shop]:
    """A shop whose store is closed at the end."""
    shop = Shop(url, **options)
    try:
        yield shop
    finally:
        shop.eph.close()


def _add_session_views(shop: Shop) -> None:
    app = shop.app

    @app.get("/open")
    def anybody() -> str:
        return "open"

    @app.get("/me")
    def me() -> dict[str, Any]:
        return {"user": session.get("user_id"), "cart": session.get("cart", [])}

    @app.post("/cart/<item>")
    def put(item: str) -> str:
        session.setdefault("cart", []).append(item)  # a change inside a value
        return "put"

    @app.post("/login/<user>")
    def login(user: str) -> str:
        if isinstance(session, FlaskSession) and request.args.get("announced"):
            session.begin_sign_in(user)
        shop.on_login(user)
        session["user_id"] = user
        session.permanent = bool(request.args.get("permanent"))
        return "welcome"

    @app.post("/logout")
    def logout() -> str:
        session.clear()
        return "bye"


def _add_session_changes(shop: Shop) -> None:
    app, eph = shop.app, shop.eph

    @app.post("/password")
    def change_password() -> dict[str, int]:
        return {"ended": eph.end_sessions(session["user_id"], keep_current=True)}

    @app.post("/rotate")
    def rotate() -> str:
        assert isinstance(session, FlaskSession)
        session.rotate()
        return "rotated"

    @app.post("/end/<user>")
    def end(user: str) -> dict[str, int]:
        return {"ended": eph.end_sessions(user)}

    @app.get("/late")
    def late() -> str:
        session["late"] = True
        eph.end_sessions(session["user_id"])
        return "late"

    @app.post("/flash")
    def flashing() -> str:
        flash("saved", "info")
        return ""

    @app.get("/flashes")
    def flashes() -> list[Any]:
        return [list(each) for each in get_flashed_messages(with_categories=True)]

    @app.post("/unusable")
    def unusable() -> str:
        session["when"] = MINUTE
        return ""


def _add_limited_views(shop: Shop) -> None:
    app, eph = shop.app, shop.eph

    @app.get("/by-address")
    @eph.limit("2/hour")
    def by_address() -> str:
        return "ok"

    @app.get("/by-user")
    @eph.limit("1/hour", by="user")
    def by_user() -> str:
        return "ok"

    @app.get("/by-header")
    @eph.limit("1/hour", by="header:X-Api-Key")
    def by_header() -> str:
        return "ok"

    @app.get("/by-function")
    @eph.limit("1/hour", by=lambda request: request.args.get("plan"))
    def by_function() -> str:
        return abort(404)

    @app.get("/closed")
    @eph.limit("9/hour", when_down="closed")
    def closed() -> str:
        return "ok"


def _add_cached_views(shop: Shop) -> None:
    app, eph = shop.app, shop.eph

    @eph.cached("price:{name}", fresh=MINUTE, missing=MINUTE)
    def price(name: str) -> int | None:
        """The price of a product."""
        next(shop.loads)
        return shop.prices.get(name)

    shop.price = price  # type: ignore[attr-defined]

    @app.get("/prices/<name>")
    def show_price(name: str) -> dict[str, Any]:
        return {"price": price(name)}

    @app.route("/products/<name>", methods=["GET", "POST"])
    @eph.page("product:{name}", fresh=MINUTE, stale=MINUTE)
    def product(name: str) -> str | tuple[str, int]:
        if name not in shop.prices:
            abort(404)
        if name == "teapot":
            return "I am a teapot", 418
        if request.method == "GET":
            seen = [session.get("user_id"), request.args.get("q"), request.headers.get("x-secret")]
            assert seen == [None, None, None]
        return f"{name}: {shop.prices[name]} ({next(shop.loads)}) at {url_for('product', name=name)}"

    shop.product = product  # type: ignore[attr-defined]
