"""A WSGI application with one store, and Celery tasks with another; both are imported before workers fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from celery import Celery

from ephemera import sync
from tests.sync.shop import CATALOGUE, COUNTER, LOCKS, PROFILES, Account

store = sync.connect(os.environ["EPHEMERA_URL"], CATALOGUE)
store.call("PING")  # connected in the parent: a child must not use its connections
counter = store[COUNTER]

app = Celery("shop", broker=os.environ["EPHEMERA_URL"], broker_connection_retry_on_startup=True)
app.conf.worker_hijack_root_logger = False


def load(user_id: str) -> Account:
    """A loader that finds its caller's thread."""
    return Account(user_id, threading.current_thread().name)


def work() -> str:
    """Count under a lock, and read through a cache: the count, and whether the loader ran here."""
    with store[LOCKS].hold(name="served", timeout=60):
        counted = counter.get(name="served")
        counter.add(name="served")
    name = f"{os.getpid()}-{counted}"
    loaded = store[PROFILES].get_or_load(load, user_id=name)
    return f"{counted} {loaded == Account(name, threading.current_thread().name)}"


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer every request with what `work` did."""
    body = work().encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


@app.task(name="work")  # type: ignore[untyped-decorator]
def task() -> None:
    """The same in a worker of Celery's."""
    store.call("RPUSH", "results", f"{os.getpid()} {work()}")
