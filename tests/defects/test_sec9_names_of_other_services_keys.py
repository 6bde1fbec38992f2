"""SEC9: a user of `ephemera acl` could follow the names of all keys with CLIENT TRACKING BCAST."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from ephemera import Cache, Catalogue, LocalCache, connect, embedded
from ephemera.errors import ServerError
from ephemera.operations.configuration import PURPOSES, access_rules
from ephemera.wire import open_client
from tests.cli.commands import ephemera
from tests.least_privilege import admitted
from tests.wire.debian_redis import BINARY, DebianRedis
from tools.deploy.layout import SERVICES
from tools.deploy.servers import users

news = Catalogue("sec9")
ARTICLES: Cache[str] = Cache(
    news, "sec9:{id}", str, fresh=timedelta(minutes=5), local=LocalCache(), purpose="x"
)


@pytest.fixture(scope="module", params=["valkey", "redis7"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that announces the changes of all keys, whatever the user may read."""
    if request.param == "valkey":
        with embedded.valkey() as valkey:
            yield valkey.url
    elif not BINARY.exists():
        pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
    else:
        with DebianRedis() as redis:
            yield redis.url


async def test_sec9_no_purpose_but_tracking_permits_it(url: str) -> None:
    """CLIENT TRACKING is refused, in each of its forms, unless the user was explicitly given it."""
    purposes = tuple(each for each in PURPOSES if each != "tracking")
    async with admitted(url, news, purposes=purposes) as user, open_client(user.url) as client:
        for prefixes in ((), ("sec9:",), ("other-service:",)):
            with pytest.raises(ServerError, match="permissions"):
                await client.track(lambda keys: None, prefixes)


async def test_sec9_a_local_cache_is_right_without_it(url: str) -> None:
    """A user without tracking asks the server at each read, so that it sees a change by another at once."""
    async with admitted(url, news) as user, connect(url, news) as other:
        async with connect(user.url, news) as store:
            for version in ("one", "two"):
                await other[ARTICLES].put(version, id=1)
                for _ in range(2):
                    assert await store[ARTICLES].get(id=1) == version


def test_sec9_a_queue_user_never_has_it() -> None:
    """There are no caches on a queue server, so there is nothing to announce."""
    assert "client|tracking" in access_rules(news, "x", purposes=("service", "tracking")).commands
    rules = access_rules(news, "x", role="queue", purposes=("service", "tracking"))
    assert "client|tracking" not in rules.commands


def test_sec9_the_command_names_the_consequence() -> None:
    """Who adds it reads what it reveals; who has local caches and leaves it out reads what that costs."""
    with_it = ephemera("acl", "league", "--for", "service", "--for", "tracking")
    assert "names of all keys that change on the server" in with_it.said
    assert "+client|tracking" in with_it.out
    without = ephemera("acl", "league")
    assert "--for tracking" in without.said
    assert "+client|tracking" not in without.out
    assert "tracking" not in ephemera("acl", "feed").said


def test_sec9_in_production_who_tracks_shares_no_server() -> None:
    """The users with tracking are those of services that have a server for themselves."""
    for group in ("cache", "pages", "texts", "queue"):
        lines = users(group).splitlines()
        tracking = {line.split()[1] for line in lines if "+client|tracking" in line}
        names = {each.name for each in SERVICES if group in (each.cache, "queue")}
        assert not tracking or tracking == names, group
        assert len(names) == 1 or not tracking, group
