"""Scripture on tour: a limit and what its headers say, and an ingest that ends exactly what it changed."""

from __future__ import annotations

import time

from ephemera.keyspace import Store, connect
from ephemera_services.demo.claims import MARK
from ephemera_services.demo.flag_errors import database_of
from ephemera_services.demo.tour.guide import Guide, Step
from ephemera_services.demo.traffic.scripture import Administrator

_MOST = 40  # requests; the free plan has 20 a minute
_TOO_MANY = 429
_CHANGED, _UNCHANGED = "jude.1.2", "john.3.16"


async def _limited(guide: Guide) -> None:
    async with guide.visitor("scripture") as visitor:
        for number in range(1, _MOST):
            answer = await visitor.ask("GET", "/search", params={"q": "light"})
            if number == 1:
                guide.tell("GET /search?q=light", _limits(dict(answer.headers)))
            if answer.status_code == _TOO_MANY:
                break
        guide.hold(answer.status_code == _TOO_MANY, f"{_MOST} searches within a minute were not refused")
        guide.tell(f"request {number} of the same address", f"429, {_limits(dict(answer.headers))}")
        guide.hold(int(answer.headers["retry-after"]) >= 1, "the refusal does not say when to come back")
    async with guide.visitor("scripture") as other:
        await other.want(200, "GET", "/search?q=light")
        guide.tell("the same from another address", 200)


def _limits(headers: dict[str, str]) -> str:
    named = {name: value for name, value in headers.items() if "ratelimit" in name or name == "retry-after"}
    return "; ".join(f"{name}: {value}" for name, value in named.items())


async def _invalidated(guide: Guide) -> None:
    from ephemera_services.scripture import PASSAGES, catalogue

    administrator = Administrator(guide.scene)
    await administrator.want(200, "POST", "/ingest/passages", json=_verse("before"))
    url = database_of(guide.stage.servers.cache_url, "scripture")
    async with guide.visitor("scripture") as reader, connect(url, catalogue, identity=MARK) as store:
        for passage in (_CHANGED, _UNCHANGED):
            await reader.want(200, "GET", f"/passages/{passage}")
        keys = [PASSAGES.space.key(passage_id=passage) for passage in (_CHANGED, _UNCHANGED)]
        guide.tell(f"{_CHANGED} and {_UNCHANGED} are read; in the cache are", await _there(store, keys))
        words = f"after, at {time.time():.0f}"
        done = await administrator.want(200, "POST", "/ingest/passages", json=_verse(words))
        changed = {name: done[name] for name in ("passages", "chapters", "topics", "lexicon") if done[name]}
        guide.tell(f"an ingest changes {_CHANGED}; it says that it ended", changed)
        guide.hold(done["passages"] == [_CHANGED], f"it ended {done['passages']}")
        guide.hold(await _there(store, keys) == [keys[1]], "it did not end exactly what changed")
        guide.tell("in the cache are", await _there(store, keys))
        read = await reader.want(200, "GET", f"/passages/{_CHANGED}")
        guide.hold(read["texts"]["web"] == words, f"a reader saw {read['texts']['web']!r}")
        guide.tell("the next reader sees", repr(words))


async def _there(store: Store, keys: list[str]) -> list[str]:
    return [key for key in keys if await store.call("EXISTS", key)]


def _verse(text: str) -> dict[str, object]:
    return {"items": [{"book": "jude", "chapter": 1, "verse": 2, "texts": {"web": text}}]}


STEPS = (
    Step("scripture", "a limit refuses, and its headers say when to come back", _limited),
    Step("scripture", "an ingest ends exactly what it changed", _invalidated),
)
