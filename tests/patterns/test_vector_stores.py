"""The vector store, by Qdrant in memory, in a folder and over HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.errors import VectorStoreUnavailable
from ephemera.patterns.semantic_cache import Point, PointPage, Qdrant
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Compass, Model, Outline, scope, semantic_cache
from tests.patterns.qdrant_server import QdrantServer

ONE = Point("1" * 32, "s1", "here", ("a", "b"))
TWO = Point("2" * 32, "s2", "here", ("b",))
ELSEWHERE = Point("3" * 32, "s3", "elsewhere")


@pytest.fixture(scope="module")
def over_http() -> Iterator[QdrantServer]:
    """Qdrant behind its REST routes."""
    with QdrantServer() as running:
        yield running


@pytest.fixture(params=["memory", "folder", "server"])
async def vectors(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Qdrant]:
    """A vector store of each kind."""
    if request.param == "memory":
        location = ":memory:"
    elif request.param == "folder":
        location = str(tmp_path / "vectors")
    else:
        location = request.getfixturevalue("over_http").url
    async with Qdrant(location, timeout=timedelta(seconds=30)) as opened:
        yield opened


async def test_the_nearest_of_a_scope(vectors: Qdrant, key: str) -> None:
    """Points of the scope come nearest first, with their cosine similarity, and none below the threshold."""
    assert await vectors.search(_name(key), [1.0, 0.0], "here", min_similarity=0.5, limit=4) == []
    await vectors.upsert(_name(key), ONE, [3.0, 4.0])
    await vectors.upsert(_name(key), TWO, [2.0, 0.0])
    await vectors.upsert(_name(key), ELSEWHERE, [1.0, 0.0])
    near = await vectors.search(_name(key), [1.0, 0.0], "here", min_similarity=0.5, limit=4)
    assert [each.point for each in near] == [TWO, ONE]
    assert [each.similarity for each in near] == pytest.approx([1.0, 0.6])
    assert [
        each.point
        for each in await vectors.search(_name(key), [1.0, 0.0], "here", min_similarity=0.7, limit=4)
    ] == [TWO]
    assert len(await vectors.search(_name(key), [1.0, 0.0], "here", min_similarity=0.5, limit=1)) == 1


async def test_a_scope_among_many(vectors: Qdrant, key: str) -> None:
    """A hundred scopes with the same vector do not crowd out the one that is searched."""
    for number in range(100):
        await vectors.upsert(_name(key), Point(f"{number:032x}", "s", f"scope {number}"), [1.0, 0.0])
    (near,) = await vectors.search(_name(key), [1.0, 0.0], "scope 99", min_similarity=0.95, limit=4)
    assert near.point.scope == "scope 99"


async def test_a_point_is_deleted_only_with_its_stamp(vectors: Qdrant, key: str) -> None:
    """Deleting a point by an older stamp leaves the newer one."""
    await vectors.upsert(_name(key), ONE, [1.0, 0.0])
    await vectors.upsert(_name(key), TWO, [1.0, 0.0])
    newer = ONE._replace(stamp="s9")
    await vectors.upsert(_name(key), newer, [1.0, 0.0])
    await vectors.delete(_name(key), [ONE, TWO])
    assert await vectors.get(_name(key), ONE.id) == newer
    assert await vectors.get(_name(key), TWO.id) is None
    await vectors.delete(_name(key), [])


async def test_scrolling_returns_every_point_once(vectors: Qdrant, key: str) -> None:
    """All points are listed, page by page; with a source, only those based on it."""
    points = [Point(f"{number:032x}", "s", "here", (f"odd-{number % 2}",)) for number in range(7)]
    for point in points:
        await vectors.upsert(_name(key), point, [1.0, 0.0])
    found: list[Point] = []
    begin: str | None = None
    for _ in range(3):
        page, begin = await vectors.scroll(_name(key), begin, size=3)
        found += page
    assert (found, begin) == (points, None)
    assert await vectors.scroll(_name(key), None, source="odd-1") == PointPage(points[1::2], None)


async def test_collections_by_prefix(vectors: Qdrant, key: str) -> None:
    """Only collections whose names have the prefix are listed."""
    await vectors.upsert(f"{_name(key)}.a", ONE, [1.0, 0.0])
    await vectors.upsert(f"{_name(key)}.b", ONE, [1.0, 0.0, 0.0])
    assert await vectors.collections(f"{_name(key)}.") == [f"{_name(key)}.a", f"{_name(key)}.b"]


async def test_many_at_once(vectors: Qdrant, key: str) -> None:
    """A hundred concurrent writers and readers of a new collection lose nothing."""
    points = [Point(f"{number:032x}", "s", "here") for number in range(50)]
    await asyncio.gather(
        *(vectors.upsert(_name(key), point, [1.0, 0.0]) for point in points),
        *(vectors.search(_name(key), [1.0, 0.0], "here", min_similarity=0.5, limit=4) for _ in points),
    )
    assert (await vectors.scroll(_name(key), None)).points == points


async def test_errors_say_what_is_wrong(vectors: Qdrant, key: str) -> None:
    """A missing collection is VectorStoreUnavailable, and a key is shown nowhere."""
    await vectors.upsert(_name(key), ONE, [1.0, 0.0])
    with pytest.raises(VectorStoreUnavailable, match="retrieve failed"):
        await vectors.get("nowhere", ONE.id)
    assert "secret" not in repr(Qdrant(vectors.location, api_key="secret"))


async def test_a_password_in_a_url_is_shown_nowhere() -> None:
    """Errors and the repr show the server without its password."""
    async with Qdrant("http://ann:passw0rd@127.0.0.1:9") as vectors:
        with pytest.raises(VectorStoreUnavailable, match=r"127\.0\.0\.1:9") as caught:
            await vectors.collections("")
    assert "passw0rd" not in f"{vectors!r} {caught.value}"


async def test_the_event_loop_is_not_blocked(vectors: Qdrant, key: str) -> None:
    """While a hundred points are written, other tasks run."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    points = [Point(f"{number:032x}", "s", "here") for number in range(100)]
    for point in points:
        await vectors.upsert(_name(key), point, [1.0, 0.0])
    counting.cancel()
    assert turns > 200


async def test_a_folder_outlives_its_process(tmp_path: Path) -> None:
    """Vectors in a folder are there when it is opened again."""
    async with Qdrant(str(tmp_path / "v")) as first:
        await first.upsert("c", ONE, [1.0, 0.0])
    async with Qdrant(str(tmp_path / "v")) as second:
        assert await second.get("c", ONE.id) == ONE


async def test_a_folder_belongs_to_one_process(tmp_path: Path) -> None:
    """A second process that opens the folder gets an error that says why, at once."""
    script = (
        "import asyncio, sys\n"
        "from ephemera.errors import VectorStoreUnavailable\n"
        "from ephemera.patterns.semantic_cache import Qdrant\n"
        "async def main():\n"
        "    try:\n"
        "        async with Qdrant(sys.argv[1]): pass\n"
        "    except VectorStoreUnavailable as problem: print(problem)\n"
        "asyncio.run(main())\n"
    )
    async with Qdrant(str(tmp_path / "v")):
        command = [sys.executable, "-c", script, str(tmp_path / "v")]
        said = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert "already accessed by another instance" in said.stdout


async def test_stores_share_a_server(server: Valkey, over_http: QdrantServer) -> None:
    """What one process asked for is a semantic hit in another that shares the vectors."""
    model, where = Model(), scope()
    async with (
        keyspace.connect(server.url, CATALOGUE) as one,
        keyspace.connect(server.url, CATALOGUE) as other,
        Qdrant(over_http.url) as first,
        Qdrant(over_http.url) as second,
    ):
        await semantic_cache(one, OUTLINES, embedder=Compass(), vectors=first).get_or_ask(
            "a @0", where, model
        )
        outlines = semantic_cache(other, OUTLINES, embedder=Compass(), vectors=second)
        assert (await outlines.get_or_ask("b @2", where, model)).value == Outline("a @0")
        assert await outlines.delete("a @0", where)
        assert await outlines.find("b @2", where) is None


async def test_a_server_that_hangs_is_given_up(over_http: QdrantServer) -> None:
    """After its timeout a paused server is `VectorStoreUnavailable`; resumed, it works again."""
    async with Qdrant(over_http.url, timeout=timedelta(seconds=30)) as vectors:
        await vectors.upsert("hangs", ONE, [1.0, 0.0])
        over_http.pause()
        vectors._timeout = 0.2
        try:
            with pytest.raises(VectorStoreUnavailable, match="TimeoutError"):
                await vectors.get("hangs", ONE.id)
        finally:
            over_http.resume()
    async with Qdrant(over_http.url, timeout=timedelta(seconds=30)) as vectors:
        assert await vectors.get("hangs", ONE.id) == ONE


def test_nothing_is_imported_before_it_is_needed() -> None:
    """The pattern and the embedders need no extra to be imported."""
    script = (
        "import sys\n"
        "import ephemera.patterns.semantic_cache, ephemera.patterns.embedders\n"
        "print([name for name in ('qdrant_client', 'numpy', 'httpx', 'torch') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_is_named() -> None:
    """Without qdrant-client the error says what to install."""
    script = (
        "import asyncio, sys\n"
        "sys.modules['qdrant_client'] = None\n"
        "from ephemera.errors import VectorStoreUnavailable\n"
        "from ephemera.patterns.semantic_cache import Qdrant\n"
        "async def main():\n"
        "    try: await Qdrant().collections('')\n"
        "    except VectorStoreUnavailable as problem: print(problem)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'ephemera-data[semantic]'" in done.stdout


def _name(key: str) -> str:
    """A collection of this test alone."""
    return "".join(letter if letter.isalnum() else "-" for letter in key)
