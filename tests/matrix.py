"""Which tests are a matrix: the same test on another server, or as a restricted user.

`make test` runs each test once, on the embedded server. A run of it with the parameter of another server
(Redis 7, a cluster, Sentinel) is marked `matrix` here; a test that is one by its nature, such as a service on
the users of `ephemera acl`, carries the marker itself. `make test-matrix` runs them.
"""

from __future__ import annotations

import pytest

OTHER_SERVERS = frozenset(("redis", "redis7", "redis 7", "redis7-tls", "cluster", "sentinel"))


def configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line("markers", "matrix: the same test on another server or as another user")
    config.addinivalue_line("markers", "campaign: minutes of faults or of the whole demonstration")
    config.addinivalue_line("markers", "wheels: builds both wheels and installs them without the clone")


def mark(items: list[pytest.Item]) -> None:
    """Mark every run of a test on a server other than the embedded one."""
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters is not None and OTHER_SERVERS.intersection(_texts(parameters.params)):
            item.add_marker(pytest.mark.matrix)


def _texts(parameters: dict[str, object]) -> list[str]:
    return [value for value in parameters.values() if isinstance(value, str)]
