"""Several jobs and planners of one catalogue, in one database and on one server, do not see each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import sqlalchemy as sa

from ephemera import Store, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue
from ephemera.patterns.jobs import CeleryDelivery, Run
from ephemera.patterns.planner import Planner, Task
from ephemera.sql import migrate
from tests.sql.databases import empty_database
from tests.sql.declared_tables import PLANS, Declared

DECLARED = Declared(sa.MetaData())


@DECLARED.jobs.job(queue="work")
async def pack(run: Run) -> None:
    """Do nothing."""


@DECLARED.mails.job(queue="work")
async def send(run: Run) -> None:
    """Do nothing."""


@pytest.fixture
async def store(postgres: Postgres, server: Valkey) -> AsyncIterator[Store]:
    """A store with all of them."""
    async with empty_database(postgres) as engine:
        await migrate(engine, DECLARED.catalogue)
        resources: dict[object, object] = dict.fromkeys((DECLARED.planner, DECLARED.news), engine)
        resources |= dict.fromkeys((DECLARED.jobs, DECLARED.mails), CeleryDelivery(engine))
        async with connect(server.url, DECLARED.catalogue, resources=resources) as opened:
            yield opened


async def test_jobs_of_two_names_have_rows_and_queues_of_their_own(store: Store) -> None:
    """Each enqueues into its own table and its own queue, although the queues have the same name."""
    first = await store[DECLARED.jobs].enqueue(pack)
    second = await store[DECLARED.mails].enqueue(send)
    assert [row.id for row in await store[DECLARED.jobs].find()] == [first]
    assert [row.id for row in await store[DECLARED.mails].find()] == [second]
    keys = [jobs.queue_key("work") for jobs in (DECLARED.jobs, DECLARED.mails)]
    assert keys == ["celery_queue:work", "mails:celery_queue:work"]
    assert [await store.client("queue").call("LLEN", key) for key in keys] == [1, 1]


async def test_planners_of_two_names_plan_for_themselves(store: Store) -> None:
    """A user of one planner is not due because of an insight of another."""
    for declared in (DECLARED.planner, DECLARED.news):
        await store[declared].enroll("ann", plan="free")
        await store[declared].subscribe("ann", "art")
    users: list[str] = []

    async def enqueue(tasks: Sequence[Task]) -> None:
        users.extend(task.user_id for task in tasks if task.reason == "novelty")

    await store[DECLARED.news].publish("art")
    await store[DECLARED.planner].tick(enqueue)
    assert users == []
    await store[DECLARED.news].tick(enqueue)
    assert users == ["ann"]


def test_a_planner_of_a_strange_name_is_refused() -> None:
    """The name is part of the names of tables and keys."""
    with pytest.raises(InvalidDeclaration, match="is not a plain name"):
        Planner(Catalogue("strange"), sa.MetaData(), plans=PLANS, name="a; DROP TABLE users")
