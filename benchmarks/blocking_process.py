"""Synchronous reads in a process of their own: `python -m benchmarks.blocking_process MODE CONTENDER URL`.

The mode "forked" reads in a child that was forked after its parent had used the client, as under gunicorn's
sync workers and in Celery's prefork pool. The mode "gevent" reads in 8 greenlets after `monkey.patch_all()`.
For each number on its input, every worker reads that often, and it prints the seconds that all of them took.
It imports nothing that gevent would have to patch first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

GREENLETS = 8
_KEY, _VALUE = "bench:process:plain", b"v" * 100
Read = Callable[[], Any]


def _open(name: str, url: str) -> Read:
    """A client that has read once, and its read."""
    if name == "ours":
        store: Any = import_module("ephemera.sync").connect(url)
        store.call("SET", _KEY, _VALUE)
        read: Read = lambda: store.call("GET", _KEY)  # noqa: E731
    else:
        client: Any = import_module("redis").Redis.from_url(url, protocol=3, socket_timeout=None)
        client.set(_KEY, _VALUE)
        read = lambda: client.get(_KEY)  # noqa: E731
    if read() != _VALUE:
        raise RuntimeError(f"{name} did not read what was stored")
    return read


def _forked(name: str, url: str) -> None:
    read = _open(name, url)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status))
    _serve(lambda each: _repeat(read, each))


def _in_gevent(name: str, url: str) -> None:
    gevent: Any = import_module("gevent")
    import_module("gevent.monkey").patch_all()
    read = _open(name, url)
    _serve(
        lambda each: gevent.joinall(
            [gevent.spawn(_repeat, read, each) for _ in range(GREENLETS)], raise_error=True
        )
    )


def _repeat(read: Read, times: int) -> None:
    for _ in range(times):
        read()


def _serve(work: Callable[[int], Any]) -> None:
    """Do what the input asks for, until it ends."""
    for line in sys.stdin:
        began = time.perf_counter()
        work(int(line))
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    {"forked": _forked, "gevent": _in_gevent}[sys.argv[1]](*sys.argv[2:])
