"""Health checks of servers, and estimates of their capacity: `ephemera doctor`, and `/healthz` of a service.

    health = await check_server("redis://cache.internal", [catalogue])

*What is checked.* Each check has its measured value, its rule and, when the rule is violated, advice. Values
that a server counts since its start, such as hits and evictions, are judged as such; `since` is the server's
uptime. The overall status is that of the worst check: `problem` when something is lost, refused or about to
be, `warning` when it will go wrong some day or a larger server would do better.

*Cost.* Nothing is scanned and nothing is written: INFO, a number of PINGs in sequence, TIME, and SLOWLOG
where the user may ask it. `estimate_capacity` also audits the server, without reading contents, and
`find_hot_keys` listens to its commands for a moment.

*When Redis is down.* A server that cannot be reached is itself a result: a `Health` with a `problem`.
"""

from ephemera.operations.health._capacity import Capacity, KeyspaceSize, estimate_capacity
from ephemera.operations.health._checks import Check, Latency, Status, Vitals, failed_check, worst_status
from ephemera.operations.health._health import Health, ServerHealth, check_client, check_server
from ephemera.operations.health._hot_keys import HotKey, find_hot_keys

__all__ = [
    "Capacity",
    "Check",
    "Health",
    "HotKey",
    "KeyspaceSize",
    "Latency",
    "ServerHealth",
    "Status",
    "Vitals",
    "check_client",
    "check_server",
    "estimate_capacity",
    "failed_check",
    "find_hot_keys",
    "worst_status",
]
