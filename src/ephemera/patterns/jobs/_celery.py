"""Celery, set up to carry the messages of jobs and nothing else.

*The message* holds a job's id and the longest time that its attempt may take. It is Celery's task message
(protocol 2) in the envelope of kombu's Redis transport (`_job_message`).

*The application.* Jobs are acknowledged after their attempt, and a worker takes no more of them than it has
processes. Results, events, remote control, gossip and mingle are off: SQL holds that information, and each of
them would leave keys on the server. kombu's bookkeeping keys have names of their own, because a sweep after
8 s would restore the long tasks of any other Celery application on the same server.

*Visibility.* kombu scores each delivered message by its delivery time and restores those that are older than
the visibility timeout. Nothing renews that score, so a job longer than the timeout would be delivered again
while it runs, and a timeout long enough for every job would make a dead worker's jobs wait as long. Here the
worker's parent process, which no job can block, renews the scores of all its messages every two seconds. So a
timeout of 8 s works for jobs of any length. A message that was acknowledged meanwhile stays deleted.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from time import time
from typing import Any, NamedTuple
from urllib.parse import quote

from celery import Celery, bootsteps
from celery.worker import state
from kombu import Exchange, Queue

from ephemera.errors import InvalidUrl
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._runtime import NO_CLUSTER, TASK
from ephemera.wire import Credentials, Target, parse_url

VISIBILITY = 8
"""Seconds after which the messages of a worker that no longer renews them are restored."""
SWEEP = 2
"""Seconds between two sweeps for messages to restore."""
RENEWAL = 2.0
"""Seconds between two renewals of a worker's messages."""

_log = logging.getLogger("ephemera.jobs")


def celery_app(jobs: Jobs, url: str, queues: Sequence[str], run: Callable[[str], str]) -> Celery:
    """A Celery application whose only task calls `run` with a job's id."""
    broker = broker_for(url)
    app = Celery(f"ephemera-{jobs.name}", broker=broker.url, set_as_current=False)
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
    app.task(name=TASK)(run)
    app.steps["consumer"].add(VisibilityRenewal)
    return app


class VisibilityRenewal(bootsteps.StartStopStep):  # type: ignore[misc]
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
