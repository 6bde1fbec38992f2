"""Rows against the clients of Node: GET of 100 bytes from the same server, by 50 and by 500 tasks.

ioredis is measured with and without its automatic pipelining, node-redis pipelines by itself. They run in a
process of their own (`node_clients.mjs`), which is idle while ours is measured. npm installs the pinned
versions into a folder under `build`; without Node and npm these peers are missing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks import wire
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers

_PACKAGES = ("ioredis@6.0.0", "redis@6.3.1")
_CLIENTS = ("ioredis", "ioredis, auto-pipelining", "node-redis")
_PROGRAM = Path(__file__).with_name("node_clients.mjs")
_FOLDER = Path(__file__).parents[1] / "build" / "bench-node"


def _install() -> str:
    """The path of Node, with the packages installed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise FileNotFoundError("Node and npm are not installed")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    options = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
    done = subprocess.run([npm, "install", *options, "--prefix", _FOLDER, *_PACKAGES], capture_output=True)
    if done.returncode:
        raise RuntimeError(f"npm could not install {' and '.join(_PACKAGES)}")
    return node


def client(name: str, tasks: int) -> Opener:
    """A client of Node, that many tasks."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        node = await asyncio.to_thread(_install)
        servers.valkey.ask("SET", wire.KEY, wire.VALUE.decode())
        process = await asyncio.create_subprocess_exec(
            *(node, _PROGRAM, str(_FOLDER), name, str(tasks), wire.KEY, wire.VALUE.decode()),
            env={**os.environ, "BENCH_URL": servers.valkey.url},
            stdin=PIPE,
            stdout=PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        write, read = process.stdin.write, process.stdout.readline

        async def measured_round(seconds: float) -> float:
            write(f"{seconds}\n".encode())
            printed = await read()
            if not printed:
                raise RuntimeError("the process gave up; see above")
            return float(printed)

        try:
            yield measured_round
        finally:
            process.stdin.close()  # it ends with its input
            await process.wait()

    return opened


def _row(tasks: int, factor: float) -> Row:
    peers = {name: client(name, tasks) for name in _CLIENTS}
    return Row(f"node: GET, {tasks} tasks", wire.ours(tasks), peers, (Times(factor),))


ROWS = (_row(50, 4), _row(500, 5))
