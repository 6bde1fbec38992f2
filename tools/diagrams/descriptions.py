"""What the diagrams show."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tools.diagrams.drawing import Arrow, Box, Message, boxes, sequence

_CACHE_FILL = partial(
    sequence,
    "A cache fill and its fence: a value from before an invalidation is never stored",
    {"reader": "", "Redis": "redis", "SQL": "sql", "writer": ""},
    [
        Message("reader", "Redis", "GET price:book"),
        Message("Redis", "reader", "nothing", reply=True),
        Message("reader", "Redis", "claim: loading:price:book = 7f3a"),
        Message("reader", "SQL", "SELECT price"),
        Message("SQL", "reader", "12.99", reply=True),
        Message("writer", "SQL", "UPDATE price = 9.99; COMMIT"),
        Message("writer", "Redis", "delete: the entry and the claim"),
        Message("reader", "Redis", "fill 12.99, if the claim is 7f3a"),
        Message("Redis", "reader", "refused: the claim is gone", reply=True, refused=True),
        Message("reader", "reader", "gets 12.99, once"),
        Message("reader", "Redis", "the next read loads 9.99"),
    ],
)
_REVOCATION = partial(
    sequence,
    "Signing out everywhere: one write, and every process knows",
    {"browser": "", "service A": "", "Redis": "redis", "service B": ""},
    [
        Message("browser", "service A", "sign out everywhere"),
        Message("service A", "Redis", "revoked up to now, for user 42"),
        Message("Redis", "service B", "published to every process"),
        Message("service A", "browser", "204", reply=True),
        Message("browser", "service B", "request with an old token"),
        Message("service B", "Redis", "token, family, user: one read"),
        Message("Redis", "service B", "issued before the revocation", reply=True, refused=True),
        Message("service B", "browser", "401", reply=True, refused=True),
        Message("service B", "service B", "if Redis is down: when_down"),
    ],
)
_JOB_STATES = partial(
    boxes,
    "The states of a job, each a row in SQL",
    [
        Box("new", 0, 1, "enqueue", detail="in your transaction"),
        Box("waiting", 1.5, 1, "waiting", "sql", "until it is due"),
        Box("running", 3.4, 1, "running", "sql", "lease and fence"),
        Box("retry", 2.45, 0, "try again", detail="raised, or its worker died"),
        Box("done", 5.4, 0, "done", "end", "result kept 30 days"),
        Box("failed", 5.4, 1, "failed", "bad", "not to be retried"),
        Box("dead", 5.4, 2, "dead", "bad", "no attempt left"),
        Box("cancelled", 1.5, 2.2, "cancelled", "end"),
    ],
    [
        Arrow("new", "waiting"),
        Arrow("waiting", "running", "claimed by one worker"),
        Arrow("running", "retry"),
        Arrow("retry", "waiting"),
        Arrow("running", "done", "returned"),
        Arrow("running", "failed", "raised JobFailed"),
        Arrow("running", "dead", "raised, last time"),
        Arrow("waiting", "cancelled", "cancel"),
        Arrow("running", "cancelled", "cancel"),
    ],
)
_EVENT = partial(
    sequence,
    "The way of an event: at least once for every group",
    {"publisher": "", "stream": "redis", "consumer 1": "", "consumer 2": ""},
    [
        Message("publisher", "stream", "publish"),
        Message("stream", "consumer 1", "delivered, now pending"),
        Message("consumer 1", "consumer 1", "handler runs"),
        Message("consumer 1", "stream", "acknowledged: done", reply=True),
        Message("stream", "consumer 1", "another event"),
        Message("consumer 1", "consumer 1", "killed"),
        Message("stream", "consumer 2", "claimed after the lease, one at a time"),
        Message("consumer 2", "consumer 2", "raises: retried, delayed"),
        Message("consumer 2", "stream", "the last try failed: a dead letter", refused=True),
    ],
)
_WRITE_BEHIND = partial(
    sequence,
    "Write-behind: a batch is in SQL once, whatever dies",
    {"service": "", "Redis": "redis", "flusher": "", "SQL": "sql"},
    [
        Message("service", "Redis", "add: one script"),
        Message("flusher", "Redis", "seal: pending becomes batch 17"),
        Message("Redis", "flusher", "batch 17", reply=True),
        Message("flusher", "SQL", "one transaction: rows and 17"),
        Message("SQL", "flusher", "committed", reply=True),
        Message("flusher", "Redis", "remove batch 17"),
        Message("flusher", "flusher", "dies before that"),
        Message("flusher", "SQL", "the next one: 17 again"),
        Message("SQL", "flusher", "has 17: nothing is added twice", reply=True),
    ],
)
_SLOTS = partial(
    boxes,
    "Keys that change together share a slot by their hash tag",
    [
        Box("session", 0, 0, "session:{42}:ab", "redis", "hash tag 42"),
        Box("index", 0, 1, "user_sessions:{42}", "redis", "hash tag 42"),
        Box("other", 0, 2, "session:{71}:cd", "redis", "hash tag 71"),
        Box("slot1", 1.7, 0.5, "slot 8000", detail="CRC16 of 42, mod 16384"),
        Box("slot2", 1.7, 2, "slot 14960", detail="CRC16 of 71, mod 16384"),
        Box("node1", 3.4, 0.5, "node 2", "end", "slots 5461 to 10922"),
        Box("node2", 3.4, 2, "node 3", "end", "slots 10923 to 16383"),
        Box("script", 5.1, 0.5, "one script", detail="atomic on one node"),
    ],
    [
        Arrow("session", "slot1"),
        Arrow("index", "slot1"),
        Arrow("other", "slot2"),
        Arrow("slot1", "node1"),
        Arrow("slot2", "node2"),
        Arrow("node1", "script"),
    ],
)
_LAYERS = partial(
    boxes,
    "The layers: each imports only what is below it",
    [
        Box("service", 0, 0, "your service", "end", "routes and SQL"),
        Box("web", 1.3, 0, "web, adapters", detail="FastAPI, Flask, Django"),
        Box("operations", 2.6, 0, "operations", detail="audit, infer, metrics"),
        Box("console", 3.9, 0, "console, CLI"),
        Box("patterns", 0.65, 1, "patterns", "", "guarantees, scripts"),
        Box("sync", 3.0, 1, "sync", "", "the same, without await"),
        Box("keyspace", 1.3, 2, "keyspace", "", "keys, types, lifetimes"),
        Box("wire", 1.3, 3, "wire", "", "batched writes, cluster"),
        Box("server", 1.3, 4, "Redis or Valkey", "redis", "expendable"),
        Box("sql", 0, 4, "PostgreSQL", "sql", "the source of truth"),
    ],
    [
        Arrow("service", "web"),
        Arrow("web", "patterns"),
        Arrow("operations", "keyspace"),
        Arrow("console", "operations"),
        Arrow("service", "patterns"),
        Arrow("sync", "patterns"),
        Arrow("patterns", "keyspace"),
        Arrow("keyspace", "wire"),
        Arrow("wire", "server"),
        Arrow("patterns", "sql", "jobs, usage", dashed=True),
    ],
)

DIAGRAMS: dict[str, Callable[[], str]] = {
    "cache-fill": _CACHE_FILL,
    "session-revocation": _REVOCATION,
    "job-states": _JOB_STATES,
    "events": _EVENT,
    "write-behind": _WRITE_BEHIND,
    "cluster-slots": _SLOTS,
    "layers": _LAYERS,
}
"""What draws each picture, by its name."""
