"""Libraries that run jobs: all of their keys are role queue, because what they lose is work."""

from ephemera.operations.libraries._signature import KeySignature as Keys
from ephemera.operations.libraries._signature import Library

_JOBS_PAGE = "patterns/jobs.md"
_NEVER_EVICT = "a server that evicts loses jobs without a trace: set maxmemory-policy noeviction"

JOB_LIBRARIES: tuple[Library, ...] = (
    Library(
        "Celery",
        (
            Keys("celery-task-meta-* celery-taskset-meta-*", "string", "queue", "Results", sensitive=True),
            Keys("_kombu.binding*", "set zset", "queue", "Bindings of exchanges to queues"),
            Keys("unacked", "hash", "queue", "Messages that workers have not acknowledged", sensitive=True),
            Keys("unacked_index", "zset", "queue", "When those were delivered"),
            Keys("unacked_mutex unacked_restore*", "string", "queue", "Locks of kombu"),
            Keys("chord-unlock-*", "string list zset", "queue", "Parts of unfinished chords", sensitive=True),
            Keys("*.reply.celery.pidbox", "list", "queue", "Replies to remote control"),
            Keys("celeryev.*", "list", "queue", "Events for monitors"),
            Keys("celery celery\x06\x16#", "list", "queue", "Tasks that wait", sensitive=True),
            Keys(
                "*",
                "list",
                "queue",
                "Tasks that wait",
                sensitive=True,
                fields=frozenset(("body", "headers", "properties", "content-encoding")),
            ),
        ),
        (
            "results stay for a day unless `result_expires` is set; `ignore_result=True` writes none",
            "a task that runs longer than `visibility_timeout` (an hour) is delivered again",
            "replies of remote control pile up when they are not read",
            _NEVER_EVICT,
        ),
        "keep Celery as the queue and put jobs whose loss matters into SQL rows",
        "migration/celery.md",
    ),
    Library(
        "RQ",
        (
            Keys("rq:queue:*", "list", "queue", "Ids of jobs that wait"),
            Keys("rq:queues rq:workers rq:workers:*", "set", "queue", "Names of queues and workers"),
            Keys("rq:results:*", "stream", "queue", "Results", sensitive=True),
            Keys("rq:job:*:dependents rq:job:*:dependencies", "set", "queue", "Jobs that wait for another"),
            Keys("rq:job:*", "hash", "queue", "Jobs: pickled call, state, result", sensitive=True),
            Keys(
                "rq:failed:* rq:finished:* rq:wip:* rq:scheduled:* rq:deferred:* rq:canceled:* "
                "rq:executions:*",
                "zset",
                "queue",
                "Registries: ids of jobs by state",
            ),
            Keys("rq:worker:* rq:execution:*", "hash", "queue", "Workers and what they run"),
            Keys("rq:*", "string set hash list zset", "queue", "Other keys of RQ"),
        ),
        (
            "a job is pickled: anyone who can write here runs code in the workers",
            "failed jobs stay for a year unless `failure_ttl` is set; results for 500 s (`result_ttl`)",
            _NEVER_EVICT,
        ),
        "declare each function as a job, with typed arguments in place of pickle",
        _JOBS_PAGE,
    ),
    Library(
        "arq",
        (
            Keys("arq:job:* arq:result:*", "string", "queue", "Pickled jobs and results", sensitive=True),
            Keys("arq:in-progress:* arq:retry:*", "string", "queue", "Running jobs, and their attempts"),
            Keys(
                "arq:queue:health-check arq:queue*:health-check", "string", "queue", "When a worker was seen"
            ),
            Keys("arq:queue arq:queue:* arq:abort", "zset", "queue", "Ids of jobs by the time they are due"),
        ),
        (
            "jobs and results are pickled unless serializers are given: anyone who can write here runs code",
            "results stay for an hour unless `keep_result` is set",
            _NEVER_EVICT,
        ),
        "declare each coroutine as a job; arguments are typed, and a result is a row",
        _JOBS_PAGE,
    ),
    Library(
        "dramatiq",
        (
            Keys("dramatiq:__acks__.*", "set", "queue", "Messages that a worker holds"),
            Keys("dramatiq:__heartbeats__", "zset", "queue", "When each worker was seen"),
            Keys("dramatiq:*.msgs", "hash", "queue", "Messages by id", sensitive=True),
            Keys("dramatiq:*.XQ", "zset", "queue", "Dead letters by time"),
            Keys("dramatiq:*", "list", "queue", "Ids of messages that wait, .DQ those that are delayed"),
        ),
        (
            "dead letters stay for a week (`dead_message_ttl`)",
            _NEVER_EVICT,
        ),
        "declare each actor as a job",
        _JOBS_PAGE,
    ),
    Library(
        "huey",
        (
            Keys("huey.redis.*", "list zset", "queue", "Pickled tasks that wait", sensitive=True),
            Keys(
                "huey.schedule.*", "zset", "queue", "Pickled tasks by the time they are due", sensitive=True
            ),
            Keys("huey.results.*", "hash", "queue", "Results until they are read", sensitive=True),
            Keys("huey.*", "string list hash zset stream", "queue", "Other keys of huey"),
        ),
        (
            "a result that is not read stays forever: use `results=False` or read it",
            "tasks are pickled: anyone who can write here runs code in the consumer",
            _NEVER_EVICT,
        ),
        "declare each task as a job",
        _JOBS_PAGE,
    ),
    Library(
        "taskiq",
        (
            Keys("taskiq taskiq:*", "list stream", "queue", "Messages that wait", sensitive=True),
            Keys("taskiq:* autoclaim:*", "string", "queue", "Results and claims", sensitive=True),
            Keys(
                "*", "list", "queue", "Messages that wait", True, fields=frozenset(("task_id", "task_name"))
            ),
        ),
        (
            "results stay forever unless the backend has `result_ex_time`",
            "a list queue loses the message that a dying worker holds; a stream does not",
            _NEVER_EVICT,
        ),
        "declare each task as a job",
        _JOBS_PAGE,
    ),
    Library(
        "BullMQ",
        (
            Keys("bull:*:meta", "hash", "queue", "Settings of a queue"),
            Keys(
                "bull:*:id bull:*:pc bull:*:stalled-check bull:*:limiter",
                "string",
                "queue",
                "Counters and marks",
            ),
            Keys("bull:*:wait bull:*:active bull:*:paused", "list", "queue", "Ids of jobs by state"),
            Keys(
                "bull:*:completed bull:*:failed bull:*:delayed bull:*:prioritized bull:*:waiting-children "
                "bull:*:repeat bull:*:marker",
                "zset",
                "queue",
                "Ids of jobs by state, with their time or priority",
            ),
            Keys("bull:*:events", "stream", "queue", "Events, trimmed to about 10,000"),
            Keys("bull:*:stalled bull:*:dependencies", "set", "queue", "Ids of jobs to check"),
            Keys("bull:*:lock", "string", "queue", "Locks of workers"),
            Keys("bull:*:logs", "list", "queue", "Log lines of jobs", sensitive=True),
            Keys("bull:*", "hash", "queue", "Jobs", sensitive=True),
        ),
        (
            "completed and failed jobs stay forever unless `removeOnComplete` and `removeOnFail` are set",
            _NEVER_EVICT,
        ),
        "BullMQ serves Node: leave it, on a server of its own",
        "operations/server-config.md",
    ),
    Library(
        "Sidekiq",
        (
            Keys("stat:processed stat:failed stat:processed:* stat:failed:*", "string", "queue", "Counters"),
            Keys("queues processes", "set", "queue", "Names of queues and processes", weak=True),
            Keys("queue:*", "list", "queue", "Jobs that wait", sensitive=True, weak=True),
            Keys("schedule retry dead", "zset", "queue", "Jobs by time", sensitive=True, weak=True),
        ),
        (
            "dead jobs stay for six months, at most 10,000",
            _NEVER_EVICT,
        ),
        "Sidekiq serves Ruby: leave it, on a server of its own",
        "operations/server-config.md",
    ),
)
"""Libraries that run jobs."""
