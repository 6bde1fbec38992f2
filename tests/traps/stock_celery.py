"""Stock Celery, for the traps of jobs: `celery -A tests.traps.stock_celery worker`.

The task records each run in a list and then takes some seconds. The environment sets the visibility timeout:
Celery's default of an hour, or a short one that would detect a dead worker soon.
"""

from __future__ import annotations

import os
import time

from celery import Celery
from redis import Redis

URL = os.environ.get("STOCK_URL", "redis://127.0.0.1:6379/0")

app = Celery("stock", broker=URL)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={
        "visibility_timeout": float(os.environ.get("STOCK_VISIBILITY", "3600")),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
)


@app.task(name="stock.long")  # type: ignore[untyped-decorator]
def long(job_id: str, seconds: float) -> None:
    """A healthy job that takes long."""
    with Redis.from_url(URL) as client:
        client.rpush(f"runs:{job_id}", os.getpid())
    time.sleep(seconds)
