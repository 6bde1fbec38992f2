"""SEC1, siblings: a list item in a queue of Celery's that is no message of ours ended the worker."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres
from ephemera.patterns.jobs._broker_messages import ForeignMessage, checked
from ephemera.patterns.jobs._delivery import _job_message
from tests.fuzz.hostile_keys import hostile_values, plausible_records
from tests.services.feed_users import until
from tests.services.slides_processes import working
from tests.services.slides_users import QUICK

QUEUE = "celery_queue:ingestion"


def ours() -> Any:
    """A message as it is in the list."""
    return json.loads(_job_message("job-1", "ingest", QUEUE, 3, None))


def test_sec1_a_message_of_ours_is_delivered_as_it_was() -> None:
    """Also one that kombu has restored; fields that are not ours do not reach Celery."""
    message = ours()
    headers = {"redelivered": False, **message["headers"]}
    found = checked(message)
    assert found["headers"] == headers
    assert found["body"] == message["body"]
    assert found["properties"].pop("delivery_info") == {
        "redelivered": False, **message["properties"].pop("delivery_info"),
    }  # fmt: skip
    assert found["properties"] == message["properties"]
    message = ours()
    message["headers"] |= {"redelivered": True, "stamps": {"a": "b"}, "chord": "x"}
    message["properties"]["delivery_info"]["redelivered"] = True
    found = checked(message)
    assert found["headers"].keys() == headers.keys()
    assert found["headers"]["redelivered"]
    assert found["properties"]["delivery_info"]["redelivered"]


def body(*parts: Any) -> str:
    """A body as Celery has it."""
    return base64.b64encode(json.dumps(parts).encode()).decode()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "task": lambda m: m["headers"].update(task={}),
    "no id": lambda m: m["headers"].pop("id"),
    "time limit": lambda m: m["headers"].update(timelimit="x"),
    "expiry": lambda m: m["headers"].update(expires="tomorrow"),
    "tag": lambda m: m["properties"].update(delivery_tag=[1]),
    "pickle": lambda m: m.update({"content-type": "application/x-python-serialize"}),
    "not base64": lambda m: m.update(body="%"),
    "no body": lambda m: m.update(body=None),
    "two ids": lambda m: m.update(body=body(["a", "b"], {}, {})),
    "a number": lambda m: m.update(body=body([1], {}, {})),
    "keywords": lambda m: m.update(body=body(["a"], {"x": 1}, {})),
    "callbacks": lambda m: m.update(body=body(["a"], {}, {"callbacks": [{"task": "os.system"}]})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_sec1_a_message_that_is_not_ours_is_refused(change: str) -> None:
    """Whatever part of it is another one."""
    message = ours()
    CHANGES[change](message)
    with pytest.raises(ForeignMessage):
        checked(message)


@pytest.mark.parametrize("raw", [None, 1, "x", [], {}, {"properties": 1}, {"headers": []}])
def test_sec1_anything_else_is_refused(raw: object) -> None:
    """Of any JSON type."""
    with pytest.raises(ForeignMessage):
        checked(raw)


def test_sec1_hostile_messages_end_no_worker(postgres: Postgres, tmp_path: Path) -> None:
    """A worker drops hundreds of them, says so, and takes what comes after them."""
    with embedded.valkey() as cache, embedded.valkey() as queue:
        places = {
            **QUICK, "EPHEMERA_URL": cache.url, "EPHEMERA_QUEUE_URL": queue.url,
            "EPHEMERA_DATABASE_URL": postgres.database("sec1_messages"),
        }  # fmt: skip
        with working(tmp_path, places) as worker:
            for change in CHANGES.values():
                message = ours()
                change(message)
                queue.ask("LPUSH", QUEUE, json.dumps(message))
            for value in [*hostile_values(f"touch {tmp_path}/canary"), *plausible_records()]:
                if len(value) < 100_001:
                    queue.ask("LPUSH", QUEUE, value)  # type: ignore[arg-type]
            queue.ask("LPUSH", QUEUE, json.dumps(ours()))
            until(lambda: queue.ask("EXISTS", QUEUE) == 0, "the queue is empty")
            log = tmp_path / "slides-worker.log"
            until(lambda: "job-1" in log.read_text(errors="replace"), "our own message was taken")
            assert worker.poll() is None
            text = log.read_text(errors="replace")
        assert "Unrecoverable" not in text
        assert "that is not ours was dropped" in text
        assert not (tmp_path / "canary").exists()
