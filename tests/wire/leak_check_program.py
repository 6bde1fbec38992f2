"""A program that uses the whole wire and must leave nothing open; run by test_close."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import uvloop

from ephemera.errors import CannotConnect
from ephemera.wire import Script, open_client

_SCRIPT = Script("one", "return 1")


async def use(url: str) -> None:
    """Connect, call, run, block, subscribe, track, cancel, lose, and close."""
    async with open_client(url) as client:
        await client.call("SET", "{x}", "1")
        await client.run(_SCRIPT, ["{x}"])
        await client.track(lambda keys: None)
        waiting = asyncio.ensure_future(client.call("BLPOP", "{x}:list", 0))
        cancelled = asyncio.ensure_future(client.call("BLPOP", "{x}:list", 0))
        async with client.subscribe("a", "b") as one, client.subscribe("{x}", kind="shard"):
            await client.call("PUBLISH", "a", "hello")
            await anext(one)
        abandoned = client.subscribe("c")
        await abandoned.__aenter__()
        cancelled.cancel()
        calls = [asyncio.ensure_future(client.call("GET", "{x}")) for _ in range(100)]
        for call in calls[::2]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        unawaited = client.call("GET", "{x}")
    await asyncio.gather(waiting, cancelled, unawaited, return_exceptions=True)


async def fail(url: str) -> None:
    """Fail to connect, and continue without."""
    with contextlib.suppress(CannotConnect):
        async with open_client(url):
            raise AssertionError(f"a server listens at {url}")
    async with open_client(url, required=False) as client:
        await asyncio.sleep(0.05)
        assert not client.up


async def main(urls: list[str], absent: list[str]) -> None:
    """Do everything twice: what the first round allocates for good is not a leak."""
    asyncio.get_running_loop().slow_callback_duration = 60  # a slow machine is not a leak
    before: list[str] = []
    for _ in range(2):
        before = open_files()
        for url in urls:
            await use(url)
        for url in absent:
            await fail(url)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}, asyncio.all_tasks()
    assert open_files() == before, (open_files(), before)


def open_files() -> list[str]:
    """What this process has open, by number and kind."""
    listed = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            listed.append(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:  # the listing's own
            continue
    return sorted(listed)


if __name__ == "__main__":
    name, urls, absent = sys.argv[1:]
    factory = uvloop.new_event_loop if name == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory, debug=True) as runner:
        runner.run(main(urls.split(" "), absent.split(" ")))
