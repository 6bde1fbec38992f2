"""Scripts: called by digest, and sent again when the server does not know them, unseen by their callers."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path

import pytest

from ephemera.errors import ServerError
from ephemera.wire import NodeClient, Script

_APPEND = Script("append", "redis.call('APPEND', KEYS[1], ARGV[1]) return {KEYS[1], ARGV[1]}")


async def test_a_script_runs_by_digest(client: NodeClient, key: str) -> None:
    """A script gets its keys and arguments; from the second time on only its digest is sent."""
    await client.call("SCRIPT", "FLUSH")
    assert await client.run(_APPEND, [key], ["a"]) == [key.encode(), b"a"]
    assert await client.call("SCRIPT", "EXISTS", _APPEND.sha) == [1]
    await client.run(_APPEND, [key], [b"b"])
    assert await client.call("GETDEL", key) == b"ab"


async def test_a_forgotten_script_is_sent_again(client: NodeClient, key: str) -> None:
    """After SCRIPT FLUSH many callers at once all get their result, each executed once."""
    await client.run(_APPEND, [key], ["x"])
    for _ in range(3):
        await client.call("SCRIPT", "FLUSH")
        await asyncio.gather(*(client.run(_APPEND, [key], ["x"]) for _ in range(200)))
    assert await client.call("STRLEN", key) == 601
    await client.call("DEL", key)
    assert client.link.connection_count == 1


async def test_flushed_while_running(client: NodeClient, key: str) -> None:
    """Scripts flushed again and again among their callers are still executed exactly once each."""
    calls = []
    for n in range(300):
        calls.append(client.run(_APPEND, [key], ["x"]))
        if n % 10 == 0:
            calls.append(client.call("SCRIPT", "FLUSH"))
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert await client.call("STRLEN", key) == 300
    await client.call("DEL", key)


async def test_a_cancelled_caller_of_a_forgotten_script(client: NodeClient, key: str) -> None:
    """A caller cancelled before its script is sent again is left out."""
    await client.call("SCRIPT", "FLUSH")
    call = asyncio.ensure_future(client.run(_APPEND, [key], ["x"]))
    await asyncio.sleep(0)
    call.cancel()
    await client.call("PING")
    assert await client.call("EXISTS", key) == 0


async def test_an_error_in_a_script_is_the_callers(client: NodeClient, key: str) -> None:
    """An error that a script returns reaches its caller as a server error, with the key."""
    failing = Script("failing", "return redis.error_reply('MYCODE refused')")
    with pytest.raises(ServerError) as caught:
        await client.run(failing, [key])
    assert (caught.value.code, caught.value.key) == ("MYCODE", key)


async def test_an_unknown_digest_is_an_error(client: NodeClient) -> None:
    """A digest of an unknown script is an error for the caller."""
    with pytest.raises(ServerError, match="NOSCRIPT"):
        await client.call("EVALSHA", "0" * 40, 0)


def test_scripts_are_files_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script is loaded by its name from the folder `lua` of its package."""
    folder = tmp_path / "bookshop"
    (folder / "lua").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "lua" / "order.lua").write_text("return 1")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    try:
        script = Script.load("bookshop", "order")
    finally:
        sys.modules.pop("bookshop", None)
    assert (script.name, script.source) == ("bookshop_order", "return 1")
    assert repr(script) == f"Script('bookshop_order', sha={script.sha[:8]})"
