"""Large pages of the league in an object store: a folder, and a bucket by the API of S3."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import httpx
import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.league import Settings, keys, page_objects
from ephemera_services.league.page_objects import LONGEST_LIFETIME, PageObjects
from ephemera_services.runtime import InvalidSettings, read_settings
from tests.defects.service_apps import App, opened
from tests.services.s3_server import BUCKET, Bucket, running_bucket

SCHEDULE, KEY = "/api/league/schedule", keys.SCHEDULE.at().key
OVER = 500  # bytes: the demonstration's schedule is larger, and its entry with a pointer smaller
Process: TypeAlias = Callable[[], AbstractAsyncContextManager[App]]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a healthy store may be slow."""
    monkeypatch.setattr(page_objects, "TIMEOUT", timedelta(seconds=30))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the object store, which the service creates."""
    return tmp_path / "pages"


@pytest.fixture
async def process(server: Valkey, postgres: Postgres, folder: Path) -> Process:
    """Opens processes of one league, each with nothing in its memory."""
    server.ask("FLUSHALL")
    variables = {
        "EPHEMERA_DATABASE_URL": postgres.database(f"league_{uuid4().hex[:12]}"),
        "EPHEMERA_LEAGUE_DEMO": "true",
        "EPHEMERA_LEAGUE_PREWARM": "false",
        "EPHEMERA_LEAGUE_OBJECT_STORE_URL": f"file://{folder}",
        "EPHEMERA_LEAGUE_OBJECT_STORE_OVER": str(OVER),
    }

    @asynccontextmanager
    async def open_process() -> AsyncIterator[App]:
        async with opened("league", server, postgres, variables, empty=False) as app:
            yield app

    return open_process


async def _get(app: App, **headers: str) -> httpx.Response:
    """The schedule, also where loading it takes longer than the service lets a client wait."""
    for _ in range(15):
        response = await app.ask(
            "GET", SCHEDULE, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        if response.status_code != 202:
            break
    return response


def _object(server: Valkey, folder: Path) -> Path:
    """The object of the schedule: the only one that its entry names."""
    entry = server.ask("GET", KEY)
    assert isinstance(entry, str)
    (found,) = [each for each in folder.glob("*/*") if each.name in entry]
    return found


async def test_a_large_page_is_an_object_and_a_pointer(
    process: Process, server: Valkey, folder: Path
) -> None:
    """Redis has less than the threshold, every process serves the page, and a 304 reads no object."""
    async with process() as app:
        first = await _get(app)
    path, size = _object(server, folder), server.ask("STRLEN", KEY)
    assert first.status_code == 200
    assert isinstance(size, int)
    assert size < OVER < path.stat().st_size
    assert sha256(path.read_bytes()).hexdigest() == path.name
    async with process() as app:
        second = await _get(app)
        assert (second.status_code, second.json(), second.headers["etag"]) == (
            200,
            first.json(),
            first.headers["etag"],
        )
        plain = await _get(app, Accept_Encoding="identity")
        assert plain.json() == first.json()
    path.unlink()
    async with process() as app:
        for _ in range(3):  # from the head of the entry, from the entry, and from this process
            not_modified = await _get(app, If_None_Match=first.headers["etag"])
            assert (not_modified.status_code, not_modified.content) == (304, b"")
            assert not_modified.headers["x-resource-version"] == first.headers["x-resource-version"]
    assert not path.exists()


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"something else")])
async def test_a_lost_object_is_loaded_again(
    process: Process, server: Valkey, folder: Path, damage: Callable[[Path], object]
) -> None:
    """Whether it is deleted or damaged: the response is the same, and the object is whole again."""
    async with process() as app:
        first = await _get(app)
    path = _object(server, folder)
    content = path.read_bytes()
    damage(path)
    async with process() as app:
        again = await _get(app)
    assert (again.status_code, again.json(), again.headers["etag"]) == (
        200,
        first.json(),
        first.headers["etag"],
    )
    assert path.read_bytes() == content


async def test_without_its_store_pages_stay_in_redis(process: Process, server: Valkey, folder: Path) -> None:
    """A folder that is gone and cannot be created fails no request, and Redis has what it could not take."""
    async with process() as app:
        shutil.rmtree(folder)
        folder.write_text("a file in its place")
        first = await _get(app)
        await app.service.site.bump(keys.SCHEDULE.at())
        second = await _get(app)
    size = server.ask("STRLEN", KEY)
    assert (first.status_code, second.status_code) == (200, 200)
    assert isinstance(size, int)
    assert size > OVER


async def test_only_objects_older_than_any_page_are_removed(folder: Path) -> None:
    """Of one shard at a time; what was stored again meanwhile is young."""
    contents = {sha256(each).hexdigest(): each for each in (b"old", b"young", b"again")}
    old, young, again = contents
    with closing(PageObjects(f"file://{folder}")) as objects:
        for digest, content in contents.items():
            assert await objects.put(digest, content)
        long_ago = (folder / young[:2] / young).stat().st_mtime - LONGEST_LIFETIME.total_seconds() - 60
        for digest in (old, again):
            os.utime(folder / digest[:2] / digest, (long_ago, long_ago))
        assert await objects.put(again, contents[again])
        removed = [await objects.remove_unused(shard) for shard in range(256)]
    assert {path.name for path in folder.glob("*/*")} == {young, again}
    assert (sum(removed), removed[int(old[:2], 16)]) == (1, 1)


@pytest.mark.parametrize("url", ["/a/folder", "https://example.com/pages", "file://", "s3://"])
def test_a_wrong_url_stops_the_start(url: str) -> None:
    """Only folders and buckets are object stores, and a mistake is not found out later."""
    with pytest.raises(InvalidSettings, match="EPHEMERA_LEAGUE_OBJECT_STORE_URL"):
        read_settings(Settings, {"EPHEMERA_LEAGUE_OBJECT_STORE_URL": url})


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket on loopback, and its endpoint and credentials in the environment."""
    with running_bucket() as bucket:
        for name, value in bucket.variables.items():
            monkeypatch.setenv(name, value)
        yield bucket


async def test_a_bucket_does_what_a_folder_does(bucket: Bucket) -> None:
    """With the API of S3: objects are stored, read by another process, replaced, and removed when unused."""
    await _stores(f"s3://{BUCKET}/league")
    assert bucket.unsigned == 0
    ((key, (content, written)),) = bucket.objects.items()
    with closing(PageObjects(f"s3://{BUCKET}/league")) as objects:
        shard = int(sha256(content).hexdigest()[:2], 16)
        assert await objects.remove_unused(shard) == 0
        bucket.objects[key] = (content, written - LONGEST_LIFETIME)
        assert await objects.remove_unused(shard) == 1
    assert bucket.objects == {}


async def test_without_its_bucket_a_page_has_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is down stores nothing, and says so."""
    with running_bucket() as gone:
        for name, value in gone.variables.items():
            monkeypatch.setenv(name, value)
    with closing(PageObjects(f"s3://{BUCKET}/league")) as objects:
        assert not await objects.put("00" * 32, b"a page")
        assert await objects.get("00" * 32) is None


@pytest.mark.skipif("EPHEMERA_TEST_S3_URL" not in os.environ, reason="needs EPHEMERA_TEST_S3_URL=s3://bucket")
async def test_a_bucket_of_a_real_store_does_the_same() -> None:
    """The same with a store that the environment names."""
    await _stores(f"{os.environ['EPHEMERA_TEST_S3_URL']}/{uuid4().hex}")


async def _stores(url: str) -> None:
    content = uuid4().bytes * 1000
    digest = sha256(content).hexdigest()
    with closing(PageObjects(url)) as one, closing(PageObjects(url)) as two:
        assert await one.get(digest) is None
        assert await one.put(digest, content)
        assert await two.get(digest) == content
        assert await one.put(digest, content)
        assert await one.remove_unused(int(digest[:2], 16)) == 0
    with closing(PageObjects(url)) as third:
        assert await third.get(digest) == content
