"""Celery, set up to carry the messages of jobs and nothing else.

Jobs are acknowledged after their attempt, and a worker takes no more of them than it has processes.
Results, events, remote control, gossip and mingle are off: SQL says what there is to know, and each of them
would leave keys on the server. The bookkeeping keys of kombu have names of their own, because a sweep after
8 s would restore the long tasks of any other Celery application that shares the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from celery import Celery
from kombu import Exchange, Queue

from ephemera.patterns.jobs._brokers import broker_of
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._messages import TASK
from ephemera.patterns.jobs._visibility import KeepVisible

VISIBILITY = 8
"""Seconds without a sign of life after which a worker's messages are restored."""
SWEEP = 2
"""Seconds between two looks for messages to restore."""


def celery_app(jobs: Jobs, url: str, queues: Sequence[str], run: Callable[[str], str]) -> Celery:
    """A Celery application whose one task gives the ids of jobs to `run`."""
    broker = broker_of(url)
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
        # A server that is full, or became a replica, answers with an error: no reason to end a worker.
        broker_channel_error_retry=True,
        task_queues=[Queue(jobs.queue_key(queue), routing_key=jobs.queue_key(queue)) for queue in queues],
        task_default_queue=jobs.queue_key(queues[0]),
        task_acks_late=True,
        task_ignore_result=True,
        # As many messages as processes, counted by Celery: kombu's own count would stay too high for ever
        # after an acknowledgement that failed, and the worker would take nothing more.
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
        queue.exchange = Exchange("")  # the nameless one, which needs no binding keys
    app.task(name=TASK)(run)
    app.steps["consumer"].add(KeepVisible)
    return app
