"""LangGraph's public conformance suite, on threads of their own and on the checkpoints of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES, BASE_CAPABILITIES
from langgraph.checkpoint.conformance.report import CapabilityReport

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.keyspace import Store
from ephemera.patterns.jobs._checkpoint import Checkpoints
from ephemera.patterns.langgraph_checkpoints._job_storage import JobThreadStorage
from ephemera.patterns.langgraph_checkpoints._saver import GraphSaver
from ephemera.wire import Arg, Script
from tests.patterns import graph_fixtures, job_fixtures


class _Fenced:
    """Stands for a job's run: an id, and a checkpoint with the first fence."""

    def __init__(self, store: Store, job_id: str) -> None:
        self.id = job_id
        checkpoints = Checkpoints(job_fixtures.JOBS.checkpoints, job_fixtures.PROGRESS, store)
        self.checkpoint = checkpoints.open(job_id, 1, "worker-1")


class _ManyJobs(JobThreadStorage):
    """A job for each thread, since the suite has many; all that is asked of Redis is what one job asks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        super().__init__(_Fenced(store, ""))  # type: ignore[arg-type]

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        one = JobThreadStorage(_Fenced(self._store, thread_id))  # type: ignore[arg-type]
        return await one.run(thread_id, script, *arguments)


def _failures(report: CapabilityReport) -> list[str]:
    return [failure for result in report.results.values() for failure in result.failures]


def _passed(report: CapabilityReport) -> dict[str, int]:
    return {name: result.tests_passed for name, result in report.results.items() if result.detected}


async def test_the_whole_suite_passes(url: str) -> None:
    """All eight capabilities are there, base and extended, and every test of each passes."""

    @checkpointer_test("threads")
    async def savers() -> AsyncIterator[GraphSaver]:
        async with keyspace.connect(url, graph_fixtures.CATALOGUE) as store:
            yield store[graph_fixtures.THREADS]

    report = await validate(savers)
    assert _failures(report) == []
    passed = _passed(report)
    print(passed)  # noqa: T201
    assert set(passed) == {capability.value for capability in ALL_CAPABILITIES}
    assert report.conformance_level() == "FULL"
    assert sum(passed.values()) >= 81


async def test_the_suite_passes_on_the_checkpoints_of_jobs(url: str) -> None:
    """Fenced, in the hash of a job: every base capability, and pruning."""

    @checkpointer_test("jobs", skip_capabilities={"copy_thread", "delete_for_runs"})
    async def savers() -> AsyncIterator[GraphSaver]:
        async with keyspace.connect(url, job_fixtures.CATALOGUE) as store:
            yield GraphSaver(_ManyJobs(store))

    report = await validate(savers)
    assert _failures(report) == []
    expected = {capability.value for capability in BASE_CAPABILITIES} | {"prune"}
    assert set(_passed(report)) == expected


class Forgetful(GraphSaver):
    """Keeps no writes."""

    async def aput_writes(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


class Backwards(GraphSaver):
    """Lists the oldest first."""

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """As it should not be."""
        for found in reversed([each async for each in super().alist(*args, **kwargs)]):
            yield found


@pytest.mark.parametrize("broken", [Forgetful, Backwards])
async def test_the_suite_finds_what_is_wrong(server: Valkey, broken: type[GraphSaver]) -> None:
    """It is the suite that judges: a checkpointer that forgets its writes, or their order, does not pass."""

    @checkpointer_test(broken.__name__)
    async def savers() -> AsyncIterator[GraphSaver]:
        async with keyspace.connect(server.url, graph_fixtures.CATALOGUE) as store:
            yield broken(store[graph_fixtures.THREADS]._threads)

    report = await validate(savers)
    assert not report.passed_all_base()
