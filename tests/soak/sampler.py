"""What the processes of a running demonstration use at one moment."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress

import psutil
import psycopg

from ephemera_services.demo.tour import RunningDemo
from tests.soak.verdict import Phase, Reading

_NAME = re.compile(r" name=(\S*) ")
_SESSIONS = "SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1"


def sample(demo: RunningDemo, phase: Phase) -> list[Reading]:
    """A reading of every process; blocks for a moment."""
    clients = Counter(
        name
        for server in demo.servers.embedded_redis
        for name in _NAME.findall(str(server.ask("CLIENT", "LIST")))
    )
    with psycopg.connect(demo.servers.database_url) as sql:
        sessions: dict[str, int] = dict(sql.execute(_SESSIONS).fetchall())
    readings = []
    for process in demo.processes.all():
        name = process.spec.name
        memory, descriptors = _usage(process.pid)
        readings.append(Reading(name, phase, memory, descriptors, sessions.get(name, 0), clients[name]))
    return readings


def _usage(pid: int) -> tuple[float, int]:
    """Resident memory in MB and descriptors, with those of child processes, which come and go."""
    memory, descriptors = 0.0, 0
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            memory += each.memory_info().rss / 1e6
            descriptors += each.num_fds()
    return memory, descriptors
