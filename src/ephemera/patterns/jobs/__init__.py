"""Jobs that survive their worker: SQL has the truth, Celery carries the message, Redis the checkpoint.

    JOBS = Jobs(catalogue, "gen_checkpoint:{job_id}", queues=("generation", "export"), progress=PROGRESS)

    @JOBS.job(queue="generation", attempts=5, time_limit=timedelta(minutes=30))
    async def generate(run: Run, topic: str) -> list[str]:
        outline = await run.step("outline", write_outline, topic)
        return [await run.step(f"slide:{n}", write_slide, outline, n, event=Done(n)) for n in range(15)]

    job_id = await JOBS.on(store, engine).enqueue(generate, topic="whales")

Keys: the checkpoint, a hash, 1 h from its last change; `celery_queue:{queue}`, a list for each queue, and
`jobs:unacked`, `:unacked_index`, `:unacked_mutex`, kept by Celery; `jobs:reaper`, a lock. SQL: `jobs` and
`jobs_steps`. Atomic: each change of a row is one statement that names the fence and state it expects; a
checkpoint, its progress entry and the wake of listeners are one script that compares the fence;
`run.transact` commits a step's effects with its record. Promised: every job that was committed is run to an
end. A step is recorded once; it is repeated only if its worker died between the work and the record. A
killed worker's jobs go on elsewhere within 10 s, from their last step. Of two workers on one job the older
is cancelled, and refused by SQL and by the checkpoint. Redis down or hung: enqueuing writes the row, and
the message follows when Redis is back; jobs that run go on, recording in SQL, without progress events.
Emptied or evicted: jobs go on from SQL, and messages are sent again within seconds. SQL down: enqueuing
fails; jobs that run wait for it as long as their lease lasts, and are then cancelled, to go on later.
Celery's queues need a standalone server or Sentinel: a cluster is refused.
"""

from importlib.util import find_spec

if _missing := [name for name in ("sqlalchemy", "psycopg", "celery") if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"jobs need {_missing[0]}: pip install '/path/to/ephemera[jobs]'", name=_missing[0]
    )

from ephemera.patterns.jobs._checkpoints import Checkpoint, Checkpoints
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._job_definition import Job
from ephemera.patterns.jobs._rows import JobRow
from ephemera.patterns.jobs._run_context import Run
from ephemera.patterns.jobs._runtime import BoundJobs

__all__ = ["BoundJobs", "Checkpoint", "Checkpoints", "Job", "JobRow", "Jobs", "Run"]
