"""A shop: users sign in, read products, and watch their orders being packed.

Its database is two dictionaries; yours is SQL.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated
from uuid import uuid4

from fastapi import BackgroundTasks, Depends, HTTPException, Request
from msgspec import Struct

from ephemera import Catalogue, Progress, Sessions, Store, sliding
from ephemera.patterns.progress import Snapshot
from ephemera.web.fastapi import Cookie, Ephemera, ProgressResponse, RequestSession


class Session(Struct):
    user_id: str


class Packed(Struct, tag="packed"):
    item: str


class Sent(Struct, tag="sent"):
    parcels: int


@dataclass
class Product:
    name: str
    price: int


@dataclass
class Order:
    user_id: str
    items: list[str]
    sent: bool = False


PRODUCTS = {"tea": Product("tea", 4), "cup": Product("cup", 9)}
ORDERS: dict[str, Order] = {}

catalogue = Catalogue("shop")
SESSIONS = Sessions(catalogue, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24))
PACKING: Progress[Packed | Sent] = Progress(
    catalogue, "packing:{order_id}", Packed | Sent, wake="packing:wake", terminal=Sent
)
COOKIE = Cookie("session", secure=False)  # plain HTTP on your own machine; leave it out behind TLS
eph = Ephemera(os.environ.get("REDIS_URL", "redis://127.0.0.1"), catalogue, sessions=SESSIONS, cookie=COOKIE)
app = eph.app(title="Shop")
Me = Annotated[Session, Depends(eph.signed_in)]
TheStore = Annotated[Store, Depends(eph.store)]
Handle = Annotated[RequestSession[Session], Depends(eph.session)]


@app.post("/login", status_code=204)
@eph.limit("5/minute", by="address")
async def login(user: str, session: Handle) -> None:
    await session.start(Session(user))  # check a password first, of course


@app.get("/products/{name}")
@eph.page("product:{name}", fresh=timedelta(minutes=5), stale=timedelta(hours=1))
async def product(name: str) -> Product | None:
    return PRODUCTS.get(name)


@app.put("/products/{name}/price", status_code=204)
async def set_price(name: str, price: int, _: Me) -> None:
    if name not in PRODUCTS:
        raise HTTPException(404)
    PRODUCTS[name].price = price  # commit first, then replace the page
    await product.bump(name)


@app.post("/orders", status_code=202)
@eph.limit("20/hour", by="user")
async def order(items: list[str], me: Me, store: TheStore, tasks: BackgroundTasks) -> str:
    order_id = uuid4().hex
    ORDERS[order_id] = Order(me.user_id, items)
    tasks.add_task(pack, store, order_id)  # a real shop uses a job, which survives a restart
    return order_id


async def pack(store: Store, order_id: str) -> None:
    for item in ORDERS[order_id].items:
        await store[PACKING].append(Packed(item), order_id=order_id)
    ORDERS[order_id].sent = True
    await store[PACKING].append(Sent(parcels=1), order_id=order_id)


@app.get("/orders/{order_id}/events", response_class=ProgressResponse)
async def events(order_id: str, me: Me, session: Handle, request: Request) -> ProgressResponse:
    found = ORDERS.get(order_id)
    if found is None or found.user_id != me.user_id:
        raise HTTPException(404)
    return eph.progress(
        request, PACKING, snapshot=order_snapshot, allowed=session.is_valid, order_id=order_id
    )


async def order_snapshot(order_id: str) -> Snapshot:
    return Snapshot(ORDERS[order_id], ended=ORDERS[order_id].sent)
