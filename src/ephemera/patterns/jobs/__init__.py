"""Jobs that survive their worker: SQL is the source of truth, Redis wakes workers and holds checkpoints.

    JOBS = Jobs(catalogue, "gen_checkpoint:{job_id}", queues=("generation", "export"), progress=PROGRESS)

    @JOBS.job(queue="generation", retry=Retry(attempts=5), time_limit=timedelta(minutes=30))
    async def generate(run: Run, topic: str) -> list[str]:
        outline = await run.step("outline", write_outline, topic)
        return [await run.step(f"slide:{n}", write_slide, outline, n, event=Done(n)) for n in range(15)]

    async with connect(url, catalogue, resources={JOBS: engine}) as store:
        job_id = await store[JOBS].enqueue(generate.options(delay=timedelta(minutes=5)), topic="whales")
        slides = await store[JOBS].result(job_id)

    JOBS.schedule("nightly", Cron("0 3 * * *", tz="Europe/Berlin"), generate, topic="whales of the day")

*Delivery.* With an engine, workers claim rows that are due by themselves (`ephemera worker`), many at once in
a process. With `CeleryDelivery(engine)`, Celery carries messages to them (`worker --delivery celery`).

*Keys.* The checkpoint, a hash, expires 1 h after its last change. `jobs:wake` and `jobs:finished` are
channels, `jobs:reaper` is a lock. Celery keeps `celery_queue:{queue}`, a list for each queue and priority,
and `jobs:unacked`, `:unacked_index` and `:unacked_mutex`. SQL has the tables `jobs`, `jobs_steps`,
`jobs_queues` and `jobs_schedules`.

*Atomicity.* Each change of a row is one statement that names the fence and the state it expects. Saving a
checkpoint, appending its progress entry and waking listeners is one script that compares the fence.
`run.transact` commits a step's effects together with its record.

*Guarantees.* Every job that was committed runs to an end. A step is recorded once; it is repeated only if its
worker died between the work and the record. The jobs of a killed worker continue elsewhere within 10 s, from
their last step. Of two workers on one job the older one is cancelled, and refused by SQL and by the
checkpoint. Limits of a queue hold for all workers together. A delayed job is not delivered before it is due.
Of two equal unique jobs one is enqueued, and of each run of a schedule one job, whatever the number of
processes: indexes in SQL refuse the second. `on_finished` is called at least once for each end of a job. Rows
of jobs that ended are kept for 30 days.

*When Redis is down or hung.* Enqueuing writes the row. Workers find it when they poll; Celery's message
follows when Redis is back. Running jobs continue and record their steps in SQL, without progress events. If
Redis was emptied or evicted keys, jobs continue from SQL, and messages are sent again within seconds.

*When SQL is down.* Enqueuing fails. Running jobs wait for it as long as their lease lasts; then they are
cancelled, and continue later.

Celery's queues need a standalone server or Sentinel; a cluster is refused. SQL delivery works on any.
"""

from importlib.util import find_spec

from ephemera.errors import MissingExtra

if _missing := [name for name in ("sqlalchemy", "psycopg", "cronsim") if find_spec(name) is None]:
    raise MissingExtra(f"jobs need {_missing[0]}", "jobs", _missing[0])

from ephemera.patterns.jobs._checkpoint import Checkpoint
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._delivery import CeleryDelivery
from ephemera.patterns.jobs._enqueue import Enqueued
from ephemera.patterns.jobs._job_definition import Job, Retry, Unique
from ephemera.patterns.jobs._job_queries import (
    DURATION_BUCKETS,
    EndedJobs,
    JobCounter,
    JobQueries,
    OpenJobs,
    ScheduleRow,
)
from ephemera.patterns.jobs._queues import QueueSettings, QueueStats, read_queue_stats
from ephemera.patterns.jobs._run_context import Run
from ephemera.patterns.jobs._runtime import BoundJobs
from ephemera.patterns.jobs._schedules import Cron, Every, Schedule
from ephemera.patterns.jobs._sync_run import SyncRun
from ephemera.patterns.jobs._tables import JOB_STATES, JobRow
from ephemera.patterns.jobs._worker import WorkerSettings, run_worker
from ephemera.sql import sql_engine

__all__ = [
    "DURATION_BUCKETS",
    "JOB_STATES",
    "BoundJobs",
    "CeleryDelivery",
    "Checkpoint",
    "Cron",
    "EndedJobs",
    "Enqueued",
    "Every",
    "Job",
    "JobCounter",
    "JobQueries",
    "JobRow",
    "Jobs",
    "OpenJobs",
    "QueueSettings",
    "QueueStats",
    "Retry",
    "Run",
    "Schedule",
    "ScheduleRow",
    "SyncRun",
    "Unique",
    "WorkerSettings",
    "read_queue_stats",
    "run_worker",
    "sql_engine",
]
