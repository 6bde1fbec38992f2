"""A job that runs a graph whose nodes each write a row to SQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.adapters.langgraph import JobSaver
from ephemera.patterns.jobs import Retry, Run
from tests.adapters.graph_fixtures import State, chain, write_slide
from tests.patterns.job_fixtures import JOBS, noted, write

MOMENTS: dict[int, Callable[[Run], Awaitable[None]]] = {}
"""Functions that a test runs at the start of a node."""


@JOBS.job(queue="generation", retry=Retry(attempts=100), time_limit=timedelta(minutes=5))
async def present(run: Run, topic: str, careful: bool = False) -> list[str]:
    """A graph of 15 nodes, each with an effect in SQL; a careful one records it in the same transaction."""

    async def effect(sql: AsyncConnection, number: int) -> None:
        await noted(sql, run, f"node:{number}")

    async def node(number: int, state: State) -> dict[str, Any]:
        if number in MOMENTS:
            await MOMENTS[number](run)
        if careful:
            await run.transact(f"node:{number}", effect, number)
        else:
            await write(run.engine, run, f"node:{number}")
        return await write_slide(number, state)

    saver = JobSaver(run)
    graph = chain(node).compile(checkpointer=saver)
    first: State = {"topic": topic, "slides": []}
    state = await graph.ainvoke(await saver.input(first), saver.config, durability="sync")
    return list(state["slides"])
