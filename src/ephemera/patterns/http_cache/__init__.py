"""Resources for HTTP: pages with ETags, loaded once for all processes, that change together.

    SITE = HttpCache(catalogue, "league", windows=MATCHES)
    TABLE = SITE.resource(
        "league:table", load_table, purpose="The table",
        life=Life(fresh=timedelta(days=7)), inside=Life(fresh=timedelta(seconds=30)),
    )
    site = store[SITE].using(db)              # what loaders get: `await load_table(db)`
    page = await store[TABLE].page()          # its etag, number and body
    await site.bump(TABLE.at(), RESULTS.at()) # after the commit: loaded anew, then changed in one step

Keys: of each resource those of a `cache` with local copies: the page, `loading:...`, `loaded:...`; of the
site those of `prewarm`.
Lifetimes: `life`, or inside a window `inside`; what is made outside ends at the next opening at the latest.
Atomic: a bump stores its pages, their numbers and their ETags in one script, all of them or none, and only
if no later bump has begun since it did. On a cluster this holds for those in one slot; the slots of a bump
follow each other within a trip. A process that has read one page of a bump forgets older copies of the rest.
ETags are hashes of the content, so they survive the loss of Redis, and never name other content. Numbers
come from the server's clock, in microseconds, and from the page before, so neither a flush nor a clock that
is set back repeats one.
Down or hung: a copy, then a stale copy, then the loader, as `cache` does; when nothing is there, a caller
waits for `wait` and gets `StillLoading`, or `LoadFailed`, after which nobody here tries for a second. `bump`
and `forget` raise `ConnectionFailed`: repeat them. Evicting: loaded again.
"""

from ephemera.patterns.http_cache._declaration import HttpCache, Resource, Target
from ephemera.patterns.http_cache._pages import Page
from ephemera.patterns.http_cache._runtime import BoundResource
from ephemera.patterns.http_cache._site import BoundHttpCache
from ephemera.patterns.windows import Life

__all__ = ["BoundHttpCache", "BoundResource", "HttpCache", "Life", "Page", "Resource", "Target"]
