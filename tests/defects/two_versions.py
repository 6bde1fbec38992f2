"""A small service in two versions: the new one has an optional field more wherever something is stored.

`Process` runs one of them as a process of its own, which executes commands that come through a pipe, consumes
events and runs jobs.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, Literal

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, Store, connect, fixed, sliding
from ephemera.patterns.cache import Cache, LocalCache
from ephemera.patterns.events import Events
from ephemera.patterns.jobs import Jobs, Retry, Run, sql_engine
from ephemera.patterns.preferences import Preferences
from ephemera.patterns.sessions import Sessions
from tests.patterns.job_store import attempt_by

Name = Literal["old", "new"]
KINDS = ("hash", "value")
_STARTS_WITHIN = 60.0  # seconds

_spawn = multiprocessing.get_context("forkserver")


class OldSession(msgspec.Struct):
    """A session."""

    user_id: str


class NewSession(OldSession):
    """The same with a field more."""

    theme: str = "light"


class OldLook(msgspec.Struct):
    """Preferences."""

    zoom: int = 1


class NewLook(OldLook):
    """The same with a field more."""

    theme: str = "light"


class OldItem(msgspec.Struct):
    """What is cached, published, given to jobs, returned by their steps and kept in their checkpoints."""

    number: int


class NewItem(OldItem):
    """The same with a field more."""

    color: str = "red"


class Version:
    """The declarations of one version."""

    def __init__(self, name: Name) -> None:
        self.name = name
        self.session, self.look, self.item = (
            (OldSession, OldLook, OldItem) if name == "old" else (NewSession, NewLook, NewItem)
        )
        self.catalogue = catalogue = Catalogue("deployed")
        self.sessions = {
            kind: Sessions(
                catalogue, f"deployed:session:{kind}:{{id}}", self.session, user="user_id", kind=kind,
                lifetime=sliding(hours=1), index=f"deployed:index:{kind}:{{user_id}}",
            )
            for kind in ("hash", "value")
        }  # fmt: skip
        self.cache: Cache[Any] = Cache(
            catalogue, "deployed:item:{n}", self.item, fresh=timedelta(minutes=5), local=LocalCache(),
            purpose="Items",
        )  # fmt: skip
        self.looks: Preferences[Any] = Preferences(catalogue, "deployed:look:{user}", self.look)
        self.events: Events[Any] = Events(
            catalogue, "deployed:events", self.item, purpose="Items that are new"
        )
        self.handled = catalogue.set(
            "deployed:handled", int, lifetime=fixed(hours=1), purpose="Events that were handled"
        )
        self.loads = catalogue.counter(
            "deployed:loads:{n}", lifetime=fixed(hours=1), purpose="How often an item was loaded"
        )
        self.jobs = Jobs(catalogue, "deployed:checkpoint:{job_id}", queues=("work",), name="deployed")
        self.job = self.jobs.job(queue="work", retry=Retry(attempts=10))(
            self._old_job() if name == "old" else self._new_job()
        )

    def _old_job(self) -> Any:
        async def make(run: Run, item: OldItem) -> int:
            return await self._make(run, item, OldItem)

        return make

    def _new_job(self) -> Any:
        async def make(run: Run, item: NewItem, size: int = 1) -> int:
            return await self._make(run, item, NewItem)

        return make

    async def _make(self, run: Run, item: Any, item_type: Any) -> int:
        """A first attempt that leaves a step and a checkpoint, and a second, elsewhere, that reads them."""

        def draft() -> Any:
            return item_type(item.number)

        draft.__annotations__["return"] = item_type
        made = await run.step("draft", draft)
        if run.attempt == 1:
            await run.checkpoint.save({"kept": msgspec.msgpack.encode(made)})
            raise LookupError("the first attempt fails")
        kept = (await run.checkpoint.load("kept"))["kept"]
        assert msgspec.msgpack.decode(kept, type=item_type).number == made.number == item.number
        return int(made.number)


class Service:
    """One version on its servers; each method is a command."""

    def __init__(self, version: Version, store: Store, engine: AsyncEngine) -> None:
        self.version = version
        self.store = store
        self.jobs = store[version.jobs]
        self.engine = engine

    async def sign_in(self, kind: str, user: str) -> str:
        """Create a session."""
        return await self.store[self.version.sessions[kind]].create(self.version.session(user))

    async def who(self, kind: str, token: str) -> str | None:
        """The user of a session; None when it is not known."""
        session = await self.store[self.version.sessions[kind]].get(token)
        return None if session is None else str(session.user_id)

    async def rotate(self, kind: str, token: str) -> str | None:
        """Replace a token."""
        return await self.store[self.version.sessions[kind]].rotate(token)

    async def item(self, n: int) -> int:
        """A cached value."""

        async def load(n: int) -> Any:
            await self.store[self.version.loads].add(n=n)
            return self.version.item(n)

        return int((await self.store[self.version.cache].get_or_load(load, n=n)).number)

    async def look(self, user: str) -> dict[str, Any]:
        """The preferences of a user."""
        return msgspec.structs.asdict(await self.store[self.version.looks].get(user=user))

    async def change_look(self, user: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Change some of them."""
        return msgspec.structs.asdict(await self.store[self.version.looks].merge(changes, user=user))

    async def publish(self, number: int) -> str:
        """Publish an event."""
        return await self.store[self.version.events].publish(self.version.item(number))

    async def enqueue(self, number: int) -> str:
        """Enqueue a job, with an argument that only the new version has."""
        more = {"size": 2} if self.version.name == "new" else {}
        return await self.jobs.enqueue(self.version.job, self.version.item(number), **more)

    async def summary(self) -> dict[str, Any]:
        """What became of events and jobs."""
        info = await self.store[self.version.events].info()
        return {
            "handled": sorted(await self.store[self.version.handled].members()),
            "dead events": info.dead,
            "pending": sum(group.pending for group in info.groups),
            "jobs": {row.id: (row.state, row.result) for row in await self.jobs.find(limit=10_000)},
        }

    async def loads(self, n: int) -> int:
        """How often a value was loaded."""
        return await self.store[self.version.loads].get(n=n)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Consume events and run jobs in the background."""
        handled = self.store[self.version.handled]

        async def handle(item: Any, delivery: Any) -> None:
            await handled.add(item.number)

        async with self.store[self.version.events].consume("deployed", handle):
            runner = asyncio.create_task(self._run_jobs())
            try:
                yield
            finally:
                self.stopping = True
                await runner

    stopping = False

    async def _run_jobs(self) -> None:
        attempt = attempt_by(self.jobs, f"{self.version.name}-{os.getpid()}")
        while not self.stopping:
            for row in await self.jobs.find(states=("waiting",), limit=1000):
                if not self.stopping:
                    await attempt.run(row.id)
            await asyncio.sleep(0.05)


async def _serve(name: Name, url: str, sql: str, pipe: Connection) -> None:
    version, engine = Version(name), sql_engine(sql)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.dispose)
        store = await stack.enter_async_context(
            connect(url, version.catalogue, resources={version.jobs: engine})
        )
        service = Service(version, store, engine)
        await service.jobs.create_tables()
        await stack.enter_async_context(service.working())
        pipe.send(name)

        async def execute(number: int, command: str, arguments: tuple[Any, ...]) -> None:
            pipe.send((number, await getattr(service, command)(*arguments)))

        async with asyncio.TaskGroup() as running:
            while (asked := await loop.run_in_executor(None, pipe.recv)) is not None:
                running.create_task(execute(*asked))


def _main(name: Name, url: str, sql: str, pipe: Connection) -> None:
    from tests.timeouts import use_long_timeouts

    use_long_timeouts()
    asyncio.run(_serve(name, url, sql, pipe))


class Process:
    """A process of one version, which executes any number of commands at once."""

    def __init__(self, name: Name, url: str, sql: str) -> None:
        self.name = name
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_main, args=(name, url, sql, theirs))
        self._process.start()
        theirs.close()
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Wait until it serves."""
        assert await asyncio.wait_for(asyncio.to_thread(self._pipe.recv), _STARTS_WITHIN) == self.name
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Hand results to those who asked; EOFError to all of them if the process has died."""
        try:
            while True:
                number, result = await asyncio.to_thread(self._pipe.recv)
                self._waiting.pop(number).set_result(result)
        except (EOFError, OSError):
            for each in self._waiting.values():
                each.set_exception(EOFError(f"the {self.name} process has died"))

    async def ask(self, command: str, *arguments: Any) -> Any:
        """Execute a command and return its result; EOFError if the process has died."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._pipe.send((number, command, arguments))
        return await self._waiting[number]

    async def stop(self) -> None:
        """End it in order: commands, running events and jobs are finished."""
        await asyncio.gather(*self._waiting.values())
        self._pipe.send(None)
        await asyncio.to_thread(self._process.join, _STARTS_WITHIN)
        assert self._process.exitcode == 0, self._process.exitcode

    async def kill(self) -> None:
        """End it at once, if it still runs."""
        self._process.kill()
        self._process.join()
        if self._reader is not None:
            await self._reader
        self._pipe.close()
