"""Thumbnails: tasks share a provider that allows ten calls a second, and draw a picture one at a time.

The worker and the page that orders thumbnails share this file and a store.
"""

import os
from datetime import timedelta
from typing import Any

from celery import Celery
from flask import Flask, abort
from msgspec import Struct, to_builtins

from ephemera import Catalogue, Locks, RateLimits, fixed, sliding_window, sync

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1")


class Thumbnail(Struct):
    state: str
    attempts: int = 0
    process: int = 0


catalogue = Catalogue("thumbnails")
THUMBNAIL = catalogue.value(
    "thumbnail:{name}", Thumbnail, lifetime=fixed(hours=1), purpose="A picture's state"
)
DRAWING = Locks(catalogue, "drawing:{name}", lease=timedelta(seconds=10), purpose="One task draws a picture")
PROVIDER = sliding_window("provider", 10, per=timedelta(seconds=1), when_down="closed")
LIMITS = RateLimits(catalogue, "limits", PROVIDER)

# One store for all threads of a process; after Celery's fork each process opens a connection of its own.
store = sync.connect(URL, catalogue, required=False)
celery = Celery("thumbnails", broker=os.environ.get("BROKER_URL", URL))
app = Flask(__name__)


@celery.task(bind=True, max_retries=None)  # type: ignore[untyped-decorator]  # Celery has no types
def draw(task: Any, name: str) -> None:
    decision = store[LIMITS].check(PROVIDER.on("all workers"))
    if not decision.allowed:
        raise task.retry(countdown=decision.retry_after or 1)
    thumbnails = store[THUMBNAIL]
    with store[DRAWING].hold(name=name, timeout=30):
        before = thumbnails.get(name=name) or Thumbnail("new")
        thumbnails.put(Thumbnail("drawing", before.attempts), name=name)
        call_provider(name)
        thumbnails.put(Thumbnail("done", before.attempts + 1, os.getpid()), name=name)


def call_provider(name: str) -> None:
    """What takes long: here you draw."""


@app.post("/thumbnails/<name>")
def order(name: str) -> tuple[str, int]:
    draw.delay(name)
    return "ordered", 202


@app.get("/thumbnails/<name>")
def show(name: str) -> dict[str, Any]:
    found = store[THUMBNAIL].get(name=name) or abort(404)
    return {"name": name, **to_builtins(found)}
