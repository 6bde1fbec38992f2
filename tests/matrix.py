"""Which tests `make test` leaves to `make test-matrix`.

`make test` runs each test once, on the embedded server. Left out are:

- `matrix`: the same test on another server (Redis 7, a cluster, Sentinel) or as a restricted user. A run with
  the parameter of another server is marked here, and so are the files below.
- `campaign`: tests that kill, freeze and restart processes for seconds or minutes, generated requests to
  every operation of a service, load, and the site.
- `wheels`: tests that install both wheels (`make test-wheels`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
OTHER_SERVERS = frozenset(("redis", "redis7", "redis 7", "redis7-tls", "cluster", "sentinel"))
MARKED = {
    "chaos": "campaign",
    "cli/test_demo.py": "campaign",
    "cli/test_demo_tour.py": "campaign",
    "docs/test_site.py": "campaign",
    "docs/test_tutorial.py": "campaign",
    "services/test_feed_capacity.py": "campaign",
    "services/test_feed_without_redis.py": "campaign",
    "services/test_feed_workers.py": "campaign",
    "services/test_slides_outages.py": "campaign",
    "deploy/test_servers.py": "matrix",  # services as restricted users, on the servers of deploy/
    "security/test_services.py": "matrix",  # services as the users of `ephemera acl`
    "services/test_scripture_cluster.py": "matrix",
}
"""Files and folders that are marked as a whole."""


def configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line("markers", "matrix: the same test on another server or as a restricted user")
    config.addinivalue_line("markers", "campaign: seconds or minutes of faults, or the whole demonstration")
    config.addinivalue_line("markers", "wheels: builds both wheels and installs them without the clone")


def mark(items: list[pytest.Item]) -> None:
    """Mark what belongs to the matrix."""
    for item in items:
        path = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        for name, marker in MARKED.items():
            if path == name or path.startswith(f"{name}/"):
                item.add_marker(marker)
        parameters = getattr(item, "callspec", None)
        if parameters is not None and OTHER_SERVERS.intersection(_texts(parameters.params)):
            item.add_marker(pytest.mark.matrix)


def _texts(parameters: dict[str, object]) -> list[str]:
    return [value for value in parameters.values() if isinstance(value, str)]
