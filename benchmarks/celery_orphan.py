"""How long Celery as it comes leaves the task of a killed worker alone: python -m benchmarks.celery_orphan.

Two workers of one process, late acknowledgement, and a visibility timeout of 8 s, everything else by
default. The worker that runs the task is killed with all its processes; the seconds until the other begins
it are printed. It takes a minute and a half, so it is no row: `benchmarks/jobs.py` has the figure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

from celery import Celery
from redis import Redis

from ephemera import embedded

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379")
_GIVEN_UP = 300  # seconds

app: Any = Celery("orphan", broker=f"{URL}/0")
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": 8},
)


def run() -> None:
    """Note who runs it, and when; then take long."""
    with Redis.from_url(URL) as client:
        client.rpush("runs", f"{os.getpgid(0)} {time.time()}")
    time.sleep(_GIVEN_UP)


task = app.task(name="orphan.run")(run)


def measured(url: str) -> float:
    """Seconds from the kill to the second run."""
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.celery_orphan", "-q", "worker", "-c", "1"]
    environment = {**os.environ, "BENCH_URL": url, "PYTHONWARNINGS": "ignore"}
    workers = [
        subprocess.Popen([*command, "-n", name], env=environment, start_new_session=True)
        for name in ("one@%h", "two@%h")
    ]
    try:
        send = "from benchmarks.celery_orphan import task; task.delay()"
        subprocess.run([sys.executable, "-W", "ignore", "-c", send], env=environment, check=True)
        with Redis.from_url(url) as client:
            group = _run(client, 0)[0]
            os.killpg(group, signal.SIGKILL)
            killed = time.time()
            return _run(client, 1)[1] - killed
    finally:
        for worker in workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def _run(client: Any, number: int) -> tuple[int, float]:
    """The process group and the moment of a run, when there is one."""
    until = time.time() + _GIVEN_UP
    while time.time() < until:
        found = client.lindex("runs", number)
        if isinstance(found, bytes):
            group, moment = found.split()
            return int(group), float(moment)
        time.sleep(0.05)
    raise TimeoutError(f"not run within {_GIVEN_UP} s")


if __name__ == "__main__":
    with embedded.valkey() as server:
        print(f"{measured(server.url):.1f} s")
