"""Tour of scripture: a rate limit with its headers, and an ingest that invalidates exactly what changed."""

from __future__ import annotations

import time

from ephemera.keyspace import Store, connect
from ephemera_services.demo.external_servers import IDENTITY, service_database
from ephemera_services.demo.tour.steps import Step, StepContext
from ephemera_services.demo.traffic.scripture import Administrator

_ATTEMPTS = 40  # requests; the free plan has 20 a minute
_TOO_MANY = 429
_CHANGED, _UNCHANGED = "jude.1.2", "john.3.16"


async def _limited(context: StepContext) -> None:
    async with context.client("scripture") as client:
        for number in range(1, _ATTEMPTS):
            response = await client.request("GET", "/search", params={"q": "light"})
            if number == 1:
                context.report("GET /search?q=light", _limits(dict(response.headers)))
            if response.status_code == _TOO_MANY:
                break
        context.check(
            response.status_code == _TOO_MANY, f"{_ATTEMPTS} searches within a minute were not refused"
        )
        context.report(f"request {number} of the same address", f"429, {_limits(dict(response.headers))}")
        context.check(int(response.headers["retry-after"]) >= 1, "the response has no Retry-After")
    async with context.client("scripture") as other:
        await other.expect(200, "GET", "/search?q=light")
        context.report("the same from another address", 200)


def _limits(headers: dict[str, str]) -> str:
    named = {name: value for name, value in headers.items() if "ratelimit" in name or name == "retry-after"}
    return "; ".join(f"{name}: {value}" for name, value in named.items())


async def _invalidates(context: StepContext) -> None:
    from ephemera_services.scripture import PASSAGES, catalogue

    administrator = Administrator(context.traffic)
    await administrator.expect(200, "POST", "/ingest/passages", json=_verse("before"))
    url = service_database(context.demo.servers.cache_url, "scripture")
    async with context.client("scripture") as reader, connect(url, catalogue, identity=IDENTITY) as store:
        for passage in (_CHANGED, _UNCHANGED):
            await reader.expect(200, "GET", f"/passages/{passage}")
        keys = [PASSAGES.keyspace.key(passage_id=passage) for passage in (_CHANGED, _UNCHANGED)]
        context.report(f"{_CHANGED} and {_UNCHANGED} are read; cached are", await _existing(store, keys))
        text = f"after, at {time.time():.0f}"
        done = await administrator.expect(200, "POST", "/ingest/passages", json=_verse(text))
        changed = {name: done[name] for name in ("passages", "chapters", "topics", "lexicon") if done[name]}
        context.report(f"an ingest changes {_CHANGED}; it reports as invalidated", changed)
        context.check(done["passages"] == [_CHANGED], f"it invalidated {done['passages']}")
        context.check(await _existing(store, keys) == [keys[1]], "it did not invalidate exactly what changed")
        context.report("cached are", await _existing(store, keys))
        read = await reader.expect(200, "GET", f"/passages/{_CHANGED}")
        context.check(read["texts"]["web"] == text, f"a reader saw {read['texts']['web']!r}")
        context.report("the next reader sees", repr(text))


async def _existing(store: Store, keys: list[str]) -> list[str]:
    return [key for key in keys if await store.call("EXISTS", key)]


def _verse(text: str) -> dict[str, object]:
    return {"items": [{"book": "jude", "chapter": 1, "verse": 2, "texts": {"web": text}}]}


STEPS = (
    Step("scripture", "a rate limit refuses a request and says when to retry", _limited),
    Step("scripture", "an ingest invalidates exactly what it changed", _invalidates),
)
