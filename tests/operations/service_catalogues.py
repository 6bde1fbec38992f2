"""The key tables of the five services as SYSTEMS.md lists them: examples of undocumented servers."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator

from ephemera.keyspace import Template
from ephemera.wire import Arg

TABLES = {
    "identity": """
        string session:{user_id}:{sid}
        string blacklist:access:{jti}
        string blacklist:refresh:{jti}
        string cache:profile:{user_id}
        string rate:{subject}:{word}:{hour}""",
    "slides": """
        hash session:{session_id}
        set user_sessions:{user_id}
        hash gen_checkpoint:{job_id}
        stream gen_progress:{job_id}
        string semantic_cache:{hash}
        string ratelimit:{api_key_id}:{minute}
        string ratelimit:user:{user_id}:{minute}
        hash plan_limits:{organization_id}
        hash usage:{organization_id}:{period}
        list celery_queue:generation
        list celery_queue:ingestion
        list celery_queue:export
        set ws_connections:{user_id}
        string presentation_view_count:{presentation_id}""",
    "scripture": """
        string gl:passage:{passage_id}
        string gl:passage:{passage_id}:{word}
        string gl:chapter:{word}.{chapter}:{word2}
        string gl:topic:{topic_id}
        string gl:lexicon:{word_id}
        string gl:entitlements:{plan_id}:{word}
        string gl:ai:cache:{hash}
        string gl:session:{user_id}:prefs
        string gl:ratelimit:{subject}:{word}:{minute}
        stream gl:events:notifications
        stream gl:events:users
        stream gl:events:ingest
        string gl:lock:ingest:{word}""",
    "feed": """
        hash ch:{c}
        hash hwm:{u}
        hash us:{u}
        zset dirty:channels
        string lock:user:{u}
        string enq:user:{u}""",
    "league": """
        string league:table
        string league:schedule
        string league:results
        string md:{match_id}:meta
        string md:{match_id}:live
        list md:{match_id}:comments
        string etag:md:{match_id}
        string predictions:active:{word}
        string predictions:user:{user_id}
        zset lb:{word}
        string achievements:{user_id}
        string ads:all
        string public:matches:live
        string public:club:{id}:matches
        string cache:match-window:v1
        string __v:{hash}
        string __lock:{hash}""",
}

_VALUES: dict[str, Callable[[random.Random], str]] = {
    "hash": lambda chance: f"{chance.getrandbits(160):040x}",
    "jti": lambda chance: str(uuid.UUID(int=chance.getrandbits(128))),
    "sid": lambda chance: f"{chance.getrandbits(128):032x}",
    "hour": lambda chance: (
        f"20260{chance.randrange(1, 9)}{chance.randrange(10, 28)}{chance.randrange(10, 23)}"
    ),
    "minute": lambda chance: str(1_780_000_000 + 60 * chance.randrange(100_000)),
    "period": lambda chance: f"2026-{chance.randrange(1, 13):02}",
    "word": lambda chance: chance.choice(["search", "login", "upload", "read", "comedy", "genesis"]),
    "word2": lambda chance: chance.choice(["kjv", "web", "vulgate"]),
    "subject": lambda chance: f"10.0.{chance.randrange(256)}.{chance.randrange(256)}",
}
_WRITES: dict[str, Callable[[str], tuple[Arg, ...]]] = {
    "string": lambda key: ("SET", key, "1", "EX", 300),
    "hash": lambda key: ("HSET", key, "name", "ann", "count", "3"),
    "set": lambda key: ("SADD", key, "member"),
    "zset": lambda key: ("ZADD", key, 1, "member"),
    "list": lambda key: ("RPUSH", key, "item"),
    "stream": lambda key: ("XADD", key, "*", "kind", "started"),
}


def commands(system: str, each: int = 30, seed: int = 1) -> Iterator[tuple[Arg, ...]]:
    """Commands that write keys of every pattern of a service, with random ids."""
    chance = random.Random(seed)
    for line in TABLES[system].split("\n")[1:]:
        kind, pattern = line.split()
        template = Template(pattern)
        for _ in range(each if template.fields else 1):
            fields = {name: _VALUES.get(name, _number)(chance) for name in template.fields}
            yield _WRITES[kind](template.render(fields))


def _number(chance: random.Random) -> str:
    return str(chance.randrange(10**6))
