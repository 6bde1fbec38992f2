"""A worker with Celery delivery: Celery, set up to carry the messages of jobs, and its child processes.

*The message* holds a job's id and the longest time that its attempt may take. It is Celery's task message
(protocol 2) in the envelope of kombu's Redis transport (`_delivery`). Each priority has a list of its own. A
message that kombu restores from a list above the usual one goes to the head of that one.

*The application.* Jobs are acknowledged after their attempt, and a worker takes no more of them than it has
processes. Results, events, remote control, gossip and mingle are off: SQL holds that information, and each of
them would leave keys on the server. kombu's bookkeeping keys have names of their own, because a sweep after
8 s would restore the long tasks of any other Celery application on the same server.

*Visibility.* kombu scores each delivered message by its delivery time and restores those that are older than
the visibility timeout. Nothing renews that score, so a job longer than the timeout would be delivered again
while it runs, and a timeout long enough for every job would make a dead worker's jobs wait as long. Here the
worker's parent process, which no job can block, renews the scores of all its messages every two seconds. So a
timeout of 8 s works for jobs of any length. A message that was acknowledged in the meantime stays deleted.

*Children.* A child runs one job at a time. Its main thread is Celery's; the job runs on the child's event
loop, in a thread that `ephemera.blocking` owns. The loop keeps running between jobs, so connections stay
healthy and any child can be the reaper. Children are forked before they connect to anything, and die with
their parent.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from time import time
from typing import Any, NamedTuple
from urllib.parse import quote

from celery import Celery, bootsteps, signals
from celery.worker import state
from kombu import Exchange, Queue

from ephemera import blocking
from ephemera.errors import InvalidUrl
from ephemera.keyspace import Role, Store
from ephemera.patterns.jobs._attempt import AttemptEngines, AttemptRunner
from ephemera.patterns.jobs._broker_messages import CheckingAMQP
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._delivery import (
    NO_CLUSTER,
    PRIORITY_LEVELS,
    PRIORITY_SEPARATOR,
    TASK,
    CeleryDelivery,
)
from ephemera.patterns.jobs._reaper import run_reaper, send_missing_messages
from ephemera.patterns.jobs._runtime import JobBackend
from ephemera.patterns.jobs._worker import (
    WorkerSettings,
    attempt_runner,
    control_engine,
    die_with_parent,
    worker_name,
    worker_token,
)
from ephemera.sql import sql_engine
from ephemera.wire import Client, Credentials, Target, parse_url

VISIBILITY = 8
"""Seconds after which the messages of a worker that no longer renews them are restored."""
SWEEP = 2
"""Seconds between two sweeps for messages to restore."""
RENEWAL = 2.0
"""Seconds between two renewals of a worker's messages."""
_CONTROL_POOL = 2  # connections that the job of a process cannot use up

_log = logging.getLogger("ephemera.jobs")


def celery_app(jobs: Jobs, url: str, queues: Sequence[str], run: Callable[[str], str]) -> Celery:
    """A Celery application whose only task calls `run` with a job's id."""
    broker = broker_for(url)
    app = Celery(f"ephemera-{jobs.name}", broker=broker.url, amqp=CheckingAMQP, set_as_current=False)
    app.conf.update(
        broker_use_ssl=broker.tls,
        broker_transport_options={
            **broker.transport,
            "visibility_timeout": VISIBILITY,
            "unacked_restore_interval": SWEEP,
            "unacked_restore_throttle": 1,
            "unacked_restore_limit": 200,
            "unacked_key": jobs.unacked.key(),
            "unacked_index_key": jobs.unacked_index.key(),
            "unacked_mutex_key": jobs.unacked_mutex.key(),
            "unacked_mutex_expire": (jobs.unacked_mutex.lifetime.milliseconds or 0) // 1000,
            "priority_steps": list(PRIORITY_LEVELS),
            "sep": PRIORITY_SEPARATOR,
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
        },
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # A server that is full, or became a replica, answers with an error, which must not end a worker.
        broker_channel_error_retry=True,
        task_queues=[Queue(jobs.queue_key(queue), routing_key=jobs.queue_key(queue)) for queue in queues],
        task_default_queue=jobs.queue_key(queues[0]),
        task_acks_late=True,
        task_ignore_result=True,
        # Celery itself limits messages to the number of processes: kombu's own count would stay too high for
        # ever after a failed acknowledgement, and the worker would take nothing more.
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=0,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_proc_alive_timeout=60,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    for queue in app.amqp.queues.values():
        queue.exchange = Exchange("")  # the default exchange, which needs no binding keys
    # For a message that was sent by a process of a version that does not know the job, and its limit.
    longest = max((job.hard_limit.total_seconds() for job in jobs.kinds.values()), default=None)
    app.task(name=TASK, time_limit=longest)(run)
    app.steps["consumer"].add(VisibilityRenewal)
    return app


class VisibilityRenewal(bootsteps.StartStopStep):
    """Renew the visibility of a consumer's messages by the timer of its event loop."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Start with the connection."""
        self._timer = consumer.timer.call_repeatedly(RENEWAL, renew_visibility, (consumer,))

    def stop(self, _: Any) -> None:
        """Stop with the connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def renew_visibility(consumer: Any) -> None:
    """Set the score of every message whose job this worker runs.

    kombu's own list of delivered messages would not do: one whose acknowledgement failed stays in it.
    """
    channel = consumer.task_consumer.channel
    tags = [request.message.delivery_tag for request in list(state.reserved_requests)]
    if tags:
        now = time()  # kombu compares the scores with a worker's clock, too
        try:
            with channel.conn_or_acquire() as client:
                client.zadd(channel.unacked_index_key, dict.fromkeys(tags, now), xx=True)
        except channel.connection_errors as problem:
            _log.warning("the messages of running jobs were not renewed: %s", problem)


class Broker(NamedTuple):
    """Celery's settings to reach a server."""

    url: str
    transport: dict[str, Any]
    tls: dict[str, Any] | None


def broker_for(url: str) -> Broker:
    """A store's server as Celery's broker; `InvalidUrl` for a cluster, which kombu cannot use."""
    target = parse_url(url)
    if target.kind == "cluster":
        raise InvalidUrl(NO_CLUSTER)
    if target.kind == "sentinel":
        return Broker(_sentinels(target), _sentinel_options(target), _tls(target))
    (address,), user_info = target.addresses, _user_info(target.credentials)
    if address.path:
        return Broker(f"redis+socket://{user_info}{address.path}?virtual_host={target.database}", {}, None)
    scheme = "rediss" if target.tls else "redis"
    return Broker(f"{scheme}://{user_info}{address}/{target.database}", {}, _tls(target))


def _sentinels(target: Target) -> str:
    user_info = _user_info(target.credentials)
    return ";".join(f"sentinel://{user_info}{address}/{target.database}" for address in target.addresses)


def _sentinel_options(target: Target) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if target.sentinel_credentials.user:
        options["username"] = target.sentinel_credentials.user
    if target.sentinel_credentials.password:
        options["password"] = target.sentinel_credentials.password
    if (tls := _tls(target)) is not None:
        options |= {"ssl": True, **tls}  # broker_use_ssl applies to the master only
    return {"master_name": target.master, **({"sentinel_kwargs": options} if options else {})}


def _user_info(credentials: Credentials) -> str:
    if credentials.user is None and credentials.password is None:
        return ""
    return f"{quote(credentials.user or '', safe='')}:{quote(credentials.password or '', safe='')}@"


def _tls(target: Target) -> dict[str, Any] | None:
    if target.tls is None:
        return None
    files = {
        "ssl_ca_certs": target.tls.ca,
        "ssl_certfile": target.tls.cert,
        "ssl_keyfile": target.tls.key,
    }
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **{name: path for name, path in files.items() if path}}


def run_celery_worker(jobs: Jobs, settings: WorkerSettings, queues: tuple[str, ...], processes: int) -> int:
    """Run a worker with this many processes until a signal stops it; returns its exit code."""
    stopping = mmap.mmap(-1, 1)  # one byte shared with all children
    child = _CeleryProcess(jobs, settings, stopping)
    app = celery_app(jobs, settings.broker_url, queues, child.run)

    def stop(**_: Any) -> None:
        stopping[0] = 1

    signals.worker_process_init.connect(child.start, weak=False)
    signals.worker_process_shutdown.connect(child.stop, weak=False)
    signals.worker_shutting_down.connect(stop, weak=False)
    worker = app.Worker(
        hostname=f"{jobs.name}-{os.getpid()}@{socket.gethostname()}",
        pool="prefork",
        concurrency=processes,
        loglevel=logging.getLogger().getEffectiveLevel(),
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


class _CeleryProcess:
    """One of Celery's child processes; created in the parent, started in the child."""

    def __init__(self, jobs: Jobs, settings: WorkerSettings, stopping: mmap.mmap) -> None:
        self._jobs = jobs
        self._settings = settings
        self._stopping = stopping
        self._token, self._parent = worker_token(), os.getpid()
        self._blocking_store = blocking.connect(
            settings.url, jobs.catalogue, queue_url=settings.queue_url, required=False
        )
        self._opened = AsyncExitStack()
        self._backend: JobBackend
        self._attempts: AttemptRunner
        self._reaper: asyncio.Task[None]

    def start(self, **_: Any) -> None:
        """Connect, and compete for the reaper's lock."""
        die_with_parent(self._parent)
        self._blocking_store.wait(self._start())

    def run(self, job_id: str) -> str:
        """Run a job: Celery's task."""
        return self._blocking_store.wait(self._run(job_id))

    def stop(self, **_: Any) -> None:
        """Close everything that was opened."""
        self._blocking_store.wait(self._opened.aclose())
        self._blocking_store.close()

    async def _run(self, job_id: str) -> str:
        word = await self._attempts.run(job_id)
        limited = [
            each.queue for each in (await self._attempts.claims.settings()).values() if each.is_limited
        ]
        if limited and word != "refused":  # its place is free
            await send_missing_messages(self._backend, limited)
        return word

    async def _start(self) -> None:
        engine = sql_engine(self._settings.database_url)
        self._opened.push_async_callback(engine.dispose)
        delivery = CeleryDelivery(engine)
        resources = await self._opened.enter_async_context(self._jobs.open_resources(delivery))
        opened = self._blocking_store.aio
        clients: dict[Role, Client] = {"cache": opened.client("cache"), "queue": opened.client("queue")}
        store = Store(clients, *opened.catalogues, resources=resources)
        self._opened.push_async_callback(store.aclose)
        self._backend = JobBackend(self._jobs, store, delivery)
        control = control_engine(self._settings, self._opened, _CONTROL_POOL)
        self._attempts = attempt_runner(
            self._backend,
            worker_name(self._token),
            self._opened,
            is_stopping=lambda: bool(self._stopping[0]),
            engines=AttemptEngines(control, control),
        )
        self._reaper = asyncio.create_task(run_reaper(self._backend))
        self._opened.callback(self._reaper.cancel)
