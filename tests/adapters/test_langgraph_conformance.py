"""LangGraph's public conformance suite, on threads and on the checkpoints of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES, BASE_CAPABILITIES
from langgraph.checkpoint.conformance.report import CapabilityReport

from ephemera import keyspace
from ephemera.adapters.langgraph._saver import GraphSaver
from ephemera.adapters.langgraph._thread_storage import JobThreadStorage
from ephemera.embedded import Valkey
from ephemera.keyspace import Store
from ephemera.patterns.jobs._checkpoint import Checkpoints
from ephemera.wire import Arg, Script
from tests.adapters import graph_fixtures
from tests.patterns import job_fixtures


def _fenced(store: Store, job_id: str) -> Any:
    """A stand-in for a job's run: an id, and a checkpoint with the first fence."""
    checkpoints = Checkpoints(job_fixtures.JOBS.checkpoints, job_fixtures.PROGRESS, store, "jobs:finished")
    return SimpleNamespace(id=job_id, checkpoint=checkpoints.open(job_id, 1, "worker-1"))


class _ManyJobs(JobThreadStorage):
    """A job for each thread, since the suite uses many; each uses Redis as one job does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        super().__init__(_fenced(store, ""))

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        one = JobThreadStorage(_fenced(self._store, thread_id))
        return await one.run(thread_id, script, *arguments)


def _failures(report: CapabilityReport) -> list[str]:
    return [failure for result in report.results.values() for failure in result.failures]


def _passed(report: CapabilityReport) -> dict[str, int]:
    return {name: result.tests_passed for name, result in report.results.items() if result.detected}


async def test_the_whole_suite_passes(url: str) -> None:
    """All eight capabilities, base and extended, are detected, and all their tests pass."""

    @checkpointer_test("threads")
    async def savers() -> AsyncIterator[GraphSaver]:
        async with keyspace.connect(url, graph_fixtures.CATALOGUE) as store:
            yield store[graph_fixtures.THREADS]

    report = await validate(savers)
    assert _failures(report) == []
    passed = _passed(report)
    print(passed)
    assert set(passed) == {capability.value for capability in ALL_CAPABILITIES}
    assert report.conformance_level() == "FULL"
    assert sum(passed.values()) >= 81


async def test_the_suite_passes_on_the_checkpoints_of_jobs(url: str) -> None:
    """In the fenced hash of a job, every base capability and pruning pass."""

    @checkpointer_test("jobs", skip_capabilities={"copy_thread", "delete_for_runs"})
    async def savers() -> AsyncIterator[GraphSaver]:
        async with keyspace.connect(url, job_fixtures.CATALOGUE) as store:
            yield GraphSaver(_ManyJobs(store))

    report = await validate(savers)
    assert _failures(report) == []
    expected = {capability.value for capability in BASE_CAPABILITIES} | {"prune"}
    assert set(_passed(report)) == expected


class Forgetful(GraphSaver):
    """A saver that keeps no writes."""

    async def aput_writes(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


class Backwards(GraphSaver):
    """A saver that lists the oldest first."""

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """List in the wrong order."""
        for found in reversed([each async for each in super().alist(*args, **kwargs)]):
            yield found


@pytest.mark.parametrize("broken", [Forgetful, Backwards])
async def test_the_suite_finds_faulty_checkpointers(server: Valkey, broken: type[GraphSaver]) -> None:
    """A checkpointer that loses its writes, or their order, fails the suite."""

    @checkpointer_test(broken.__name__)
    async def savers() -> AsyncIterator[GraphSaver]:
        async with keyspace.connect(server.url, graph_fixtures.CATALOGUE) as store:
            yield broken(store[graph_fixtures.THREADS]._threads)

    report = await validate(savers)
    assert not report.passed_all_base()
