"""The message that Celery carries for a job: its id, and how long its attempt may take at the most.

It is Celery's task message (protocol 2) in the envelope of kombu's Redis transport, put in the queue's list
as kombu does. We put it there ourselves because kombu only knows how to block: so it leaves by the store's
own connection, many in one trip, and fails at once when that is down.
"""

from __future__ import annotations

import base64
import socket
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec

TASK = "ephemera.jobs.run"
"""The name of the one Celery task."""


def message(job_id: str, kind: str, queue_key: str, hard_limit: timedelta | None) -> bytes:
    """The message that makes a worker run a job; past the hard limit its process is killed."""
    task_id = str(uuid4())  # not the job's: a worker may meet two messages of one job
    limit = None if hard_limit is None else hard_limit.total_seconds()
    arguments: Any = [[job_id], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    return msgspec.json.encode(
        {
            "body": base64.b64encode(msgspec.json.encode(arguments)).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {
                "lang": "py",
                "task": TASK,
                "id": task_id,
                "root_id": task_id,
                "parent_id": None,
                "group": None,
                "shadow": kind,
                "eta": None,
                "expires": None,
                "retries": 0,
                "timelimit": [limit, None],
                "argsrepr": f"({job_id!r},)",
                "kwargsrepr": "{}",
                "origin": f"ephemera@{socket.gethostname()}",
                "ignore_result": True,
            },
            "properties": {
                "correlation_id": task_id,
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue_key},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )
