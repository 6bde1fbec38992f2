"""Several Valkey servers that start and stop at the same time, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ephemera.embedded._ports import LOOPBACK
from ephemera.embedded._processes import poll_until
from ephemera.embedded._valkey import Valkey
from ephemera.errors import ServerError


def start_all(starts: Sequence[Callable[[], Valkey]]) -> list[Valkey]:
    """Start every server; when one cannot, stop the others and raise its error."""
    with ThreadPoolExecutor(len(starts)) as pool:
        starting = [pool.submit(start) for start in starts]
    try:
        return [server.result() for server in starting]
    except BaseException:
        stop_all([server.result() for server in starting if not server.exception()])
        raise


def stop_all(servers: Sequence[Valkey]) -> None:
    """Stop every server."""
    with ThreadPoolExecutor(max(len(servers), 1)) as pool:
        list(pool.map(Valkey.stop, servers))


def follows(server: Valkey, port: int) -> bool:
    """Tell whether the server is a replica of the master on this port, and in sync."""
    reply = server.ask("ROLE")
    return isinstance(reply, list) and reply[:4] == ["slave", LOOPBACK, port, "connected"]


def wait_for_all(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; a server that does not answer yet only delays it."""

    def holds() -> bool:
        try:
            return condition()
        except (OSError, ServerError):
            return False

    return poll_until(holds, seconds)
