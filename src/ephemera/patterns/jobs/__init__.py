"""Jobs that survive their worker: SQL is the source of truth, Celery carries messages, Redis checkpoints.

    JOBS = Jobs(catalogue, "gen_checkpoint:{job_id}", queues=("generation", "export"), progress=PROGRESS)

    @JOBS.job(queue="generation", attempts=5, time_limit=timedelta(minutes=30))
    async def generate(run: Run, topic: str) -> list[str]:
        outline = await run.step("outline", write_outline, topic)
        return [await run.step(f"slide:{n}", write_slide, outline, n, event=Done(n)) for n in range(15)]

    async with connect(url, catalogue, resources={JOBS: engine}) as store:
        job_id = await store[JOBS].enqueue(generate, topic="whales")

*Keys.* The checkpoint, a hash, expires 1 h after its last change. Celery keeps `celery_queue:{queue}`, a list
for each queue, and `jobs:unacked`, `:unacked_index` and `:unacked_mutex`. `jobs:reaper` is a lock. SQL has
the tables `jobs` and `jobs_steps`.

*Atomicity.* Each change of a row is one statement that names the fence and the state it expects. Saving a
checkpoint, appending its progress entry and waking listeners is one script that compares the fence.
`run.transact` commits a step's effects together with its record.

*Guarantees.* Every job that was committed runs to an end. A step is recorded once; it is repeated only if its
worker died between the work and the record. The jobs of a killed worker continue elsewhere within 10 s, from
their last step. Of two workers on one job the older one is cancelled, and refused by SQL and by the
checkpoint.

*When Redis is down or hung.* Enqueuing writes the row, and the message follows when Redis is back. Running
jobs continue and record their steps in SQL, without progress events. If Redis was emptied or evicted keys,
jobs continue from SQL, and messages are sent again within seconds.

*When SQL is down.* Enqueuing fails. Running jobs wait for it as long as their lease lasts; then they are
cancelled, and continue later.

Celery's queues need a standalone server or Sentinel; a cluster is refused.
"""

from importlib.util import find_spec

from ephemera.errors import MissingExtra

if _missing := [name for name in ("sqlalchemy", "psycopg", "celery") if find_spec(name) is None]:
    raise MissingExtra(f"jobs need {_missing[0]}", "jobs", _missing[0])

from ephemera.patterns.jobs._checkpoint import Checkpoint
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._job_definition import Job
from ephemera.patterns.jobs._job_queries import (
    DURATION_BUCKETS,
    EndedJobs,
    JobCounter,
    JobQueries,
    OpenJobs,
)
from ephemera.patterns.jobs._rows import JOB_STATES, JobRow
from ephemera.patterns.jobs._run_context import Run
from ephemera.patterns.jobs._runtime import BoundJobs, sql_engine
from ephemera.patterns.jobs._worker import WorkerSettings, run_worker

__all__ = [
    "DURATION_BUCKETS",
    "JOB_STATES",
    "BoundJobs",
    "Checkpoint",
    "EndedJobs",
    "Job",
    "JobCounter",
    "JobQueries",
    "JobRow",
    "Jobs",
    "OpenJobs",
    "Run",
    "WorkerSettings",
    "run_worker",
    "sql_engine",
]
