"""Cached HTTP resources: pages with ETags, loaded once for all processes, that change together.

    SITE = HttpCache(catalogue, "league", windows=MATCHES)
    TABLE = SITE.resource(
        "league:table", load_table, purpose="The table",
        freshness=Freshness(fresh=timedelta(days=7)), in_window=Freshness(fresh=timedelta(seconds=30)),
    )
    async with connect(url, catalogue, resources={SITE: db, MATCHES: db}) as store:   # `await load_table(db)`
        page = await store[TABLE].page()                  # its etag, number and body
        await store[SITE].bump(TABLE.at(), RESULTS.at())  # after the commit: reload, replace in one step

*Keys.* Each resource has the keys of a `cache` with local entries: the page, `loading:...`, `loaded:...`. A
site has `prewarm:SITE:leader`, a lock, and `prewarm:SITE:hits:{day}`, the most requested pages of a day.

*Lifetimes.* A page lives for `freshness`, or inside a window for `in_window`; what is made outside expires at
the next opening at the latest. `Settled` content lives for `settled` instead. Records of requests live for
two days.

*Atomicity.* A bump stores its pages, their numbers and their ETags in one script, all of them or none, and
only if no later bump has begun since. On a cluster this holds for the pages of one slot; the slots of a bump
follow each other within a round trip. A process that has read one page of a bump drops older local entries of
the others. ETags are hashes of the content, so they survive the loss of Redis and never name other content.
Numbers come from the server's clock, in microseconds, and from the page before, so neither a flush nor a
clock that is set back repeats one.

*Large pages.* After `store[SITE].store_bodies_in(bodies, over=32_768)` the content of larger public pages is
in a `BodyStore`, such as an object store, named by its SHA-256; Redis has the ETag and a pointer. Content is
stored before its pointer, checked when it is read, and not read for a 304. If it is missing or damaged the
page is loaded, and while the body store is down content stays in Redis. Give it to every process: one without
it loads what it finds as a pointer. The body store removes what no page names any more, once it is older than
the longest lifetime of a page.

*When Redis is down* or hangs: a local entry, then a stale one, then the loader, as `cache` does. When there
is nothing to serve, a caller waits for `wait` and gets `StillLoading`, or `LoadFailed`, after which this
process does not try again for a second. `bump` and `delete` raise `ConnectionFailed`: repeat them. Evicted
pages are loaded again.
"""

from ephemera.patterns.cache import Freshness
from ephemera.patterns.http_cache._declaration import HttpCache, PageRef, Representation, Resource
from ephemera.patterns.http_cache._resource import BodyStore, BoundResource, Page, Settled
from ephemera.patterns.http_cache._site import BoundHttpCache, PrewarmReport

__all__ = [
    "BodyStore",
    "BoundHttpCache",
    "BoundResource",
    "Freshness",
    "HttpCache",
    "Page",
    "PageRef",
    "PrewarmReport",
    "Representation",
    "Resource",
    "Settled",
]
