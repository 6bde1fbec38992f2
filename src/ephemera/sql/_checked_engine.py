"""An engine that checks the version of some tables before it is first used."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera._futures import SingleFlight
from ephemera.sql._schema import SqlSchema
from ephemera.sql._versions import verify


class CheckedEngine(AsyncEngine):
    """The engine of a runtime object: its first connection is refused if the tables do not fit the code.

    It shares the pool of the engine it is made from. The check is repeated until it succeeds, and then never
    made again.
    """

    def __init__(self, engine: AsyncEngine, schema: SqlSchema) -> None:
        super().__init__(engine.sync_engine.execution_options())
        self._schema = schema
        self._check = _Check(engine, schema)

    def connect(self) -> AsyncConnection:
        """A connection that checks the tables when it starts."""
        return _CheckedConnection(self, self._check)

    def execution_options(self, **options: Any) -> CheckedEngine:
        """The same with other options, and one check for both."""
        other = CheckedEngine(super().execution_options(**options), self._schema)
        other._check = self._check
        return other


class _Check:
    """Whether the tables of a schema fit the code, on one engine; concurrent callers share one check."""

    def __init__(self, engine: AsyncEngine, schema: SqlSchema) -> None:
        self._check = SingleFlight(lambda: verify(engine, schema))
        self._passed = False

    async def __call__(self) -> None:
        if not self._passed:
            await self._check.run()
            self._passed = True


class _CheckedConnection(AsyncConnection):
    def __init__(self, engine: AsyncEngine, check: _Check) -> None:
        super().__init__(engine)
        self._check = check

    async def start(self, is_ctxmanager: bool = False) -> AsyncConnection:
        await self._check()
        return await super().start(is_ctxmanager)
