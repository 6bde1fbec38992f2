"""A shop: users sign in, read products, and fill a cart.

Its database is a dictionary; yours is SQL.
"""

import os
from dataclasses import asdict, dataclass
from datetime import timedelta

from flask import Flask, abort, request, session

from ephemera import Catalogue, sliding
from ephemera.adapters.flask import Ephemera


@dataclass
class Product:
    name: str
    price: int


PRODUCTS = {"tea": Product("tea", 4), "cup": Product("cup", 9)}

app = Flask(__name__)
app.config.update(SESSION_COOKIE_SAMESITE="Lax")  # and SESSION_COOKIE_SECURE=True behind TLS
eph = Ephemera(
    os.environ.get("REDIS_URL", "redis://127.0.0.1"),
    Catalogue("shop"),
    session_lifetime=sliding(hours=24),
)
eph.init_app(app)


def signed_in() -> str:
    user: str | None = session.get("user_id")
    return user or abort(401)


@app.post("/login")
@eph.limit("5/minute", by="address")
def login() -> str:
    # Check a password first, of course. The cart of the visitor stays; the token of the session changes.
    session["user_id"] = request.form["user"]
    return f"Welcome, {session['user_id']}"


@app.post("/logout-everywhere")
def logout_everywhere() -> dict[str, int]:
    return {"ended": eph.end_sessions(signed_in())}


@app.get("/products/<name>")
@eph.page("product:{name}", fresh=timedelta(minutes=5), stale=timedelta(hours=1))
def product(name: str) -> dict[str, str | int]:
    return asdict(PRODUCTS.get(name) or abort(404))


@app.put("/products/<name>/price")
def set_price(name: str) -> dict[str, bool]:
    signed_in()
    PRODUCTS[name].price = int(request.form["price"])  # commit first, then remove the page and the price
    price.delete(name)
    return {"removed": product.delete(name)}


@eph.cached("price:{name}", fresh=timedelta(minutes=5))
def price(name: str) -> int:
    """The price of a product."""
    return PRODUCTS[name].price


@app.post("/cart/<name>")
@eph.limit("60/minute", by="user")
def add(name: str) -> dict[str, int]:
    cart = session.setdefault("cart", [])
    cart.append(name if name in PRODUCTS else abort(404))
    return {"items": len(cart), "total": sum(price(each) for each in cart)}
