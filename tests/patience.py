"""How long tests wait for a server.

Few of them are about time, and on a machine with too much to do a server may be off its core for longer than
a service should wait for it. Those that are (tests/faults) wait as long as a service does.
"""

from __future__ import annotations

from ephemera.wire import url

AS_DELIVERED = (url.TIMEOUT, url.CONNECT_TIMEOUT)
"""What a service has whose URL says nothing else."""


def be_patient() -> None:
    """Let clients of this process wait longer than a service would."""
    url.TIMEOUT, url.CONNECT_TIMEOUT = 2.0, 10.0
