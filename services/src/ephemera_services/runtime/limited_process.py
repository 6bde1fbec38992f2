"""Runs a function on untrusted data in a process of its own, with limits that the kernel enforces.

    limits = ProcessLimits(memory=256_000_000, cpu=4, wall=4.75)
    chunks = await run_limited("ephemera_services.slides.document_text:extract", content, limits, list[str])

The function takes the data as a seekable binary file and returns JSON-compatible data. Its process has a
limit on memory, processor time, wall-clock time and output, an environment without secrets, and no files
besides the data. It starts in about a tenth of a second, and ends with the process that started it.

The exception distinguishes the cause. `FunctionRefused` and `LimitExceeded` are about the data, and a second
attempt would end in the same way. `ProcessDied` is anything else, such as the kernel's OOM killer.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar, cast

import msgspec

from ephemera.errors import EphemeraError

T = TypeVar("T")

_CHILD = Path(__file__).with_name("limited_child.py")
_INHERITED = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "COVERAGE_PROCESS_START")
_BLOCK = 64 * 1024  # bytes per read of the output
_BUSY = 5  # times its wall-clock limit, at most, on a machine that has other things to do


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a process may use."""

    memory: int
    """Address space in bytes, of which the interpreter itself takes about 50 MB. Linux enforces it."""
    cpu: int
    """Seconds of processor time, the start of the interpreter included."""
    wall: float
    """Seconds by the clock, without those in which it was ready to run and other processes ran: on a busy
    machine up to five times as many."""
    output: int = 16_000_000
    """Bytes of the encoded result."""


class FunctionRefused(EphemeraError, ValueError):
    """The function raised a ValueError, whose text this is."""


class LimitExceeded(EphemeraError):
    """The process was ended because it exceeded a limit."""

    def __init__(self, limit: Literal["memory", "cpu", "wall", "output"]) -> None:
        super().__init__(f"the process exceeded its limit: {limit}")
        self.limit = limit


class ProcessDied(EphemeraError):
    """The process ended without a result, and not because of a limit."""


class _Reply(msgspec.Struct):
    """What the child writes: a result, or why there is none."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    refused: str | None = None
    limit: Literal["memory"] | None = None
    failed: str | None = None
    """The type of another exception."""


async def run_limited(function: str, data: bytes, limits: ProcessLimits, result: type[T]) -> T:
    """Call `function` ("module:name") on the data in a new process, and return its result.

    The process is killed if the caller is cancelled.
    """
    started = time.monotonic()
    with _file_of(data) as file:
        process = _start(function, file, limits)
    try:
        output = await asyncio.to_thread(_read, process, limits, started)
    finally:
        os.kill(process.pid, signal.SIGKILL)  # without effect on one that has exited by itself
        process.wait()
    reply = _decode(output, process.returncode)
    if reply.limit is not None:
        raise LimitExceeded(reply.limit)
    if reply.refused is not None:
        raise FunctionRefused(reply.refused)
    if reply.failed is not None:
        raise ProcessDied(f"{function} raised {reply.failed}")
    try:
        return msgspec.json.decode(reply.result, type=result)
    except msgspec.DecodeError as problem:  # it read hostile data, and may be in its power
        raise ProcessDied(f"{function} returned no {result}: {problem}") from None


@contextmanager
def _file_of(data: bytes) -> Iterator[int]:
    """A descriptor of a file with this content: in memory where the system can."""
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("data"), "wb") if in_memory else tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file.fileno()


def _start(function: str, file: int, limits: ProcessLimits) -> subprocess.Popen[bytes]:
    arguments = (function, str(limits.memory), str(limits.cpu), str(os.getpid()))
    return subprocess.Popen(  # noqa: S603 - the command is ours
        [sys.executable, "-P", "-B", str(_CHILD), *arguments],
        env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        stdin=file,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a library's warnings may quote the data
    )


def _read(process: subprocess.Popen[bytes], limits: ProcessLimits, started: float) -> bytes:
    """The output until its end, when the process exits."""
    found = bytearray()
    with cast("BinaryIO", process.stdout) as pipe:
        while (left := _seconds_left(process.pid, limits.wall, started)) > 0:
            if not select.select([pipe], [], [], left)[0]:
                continue
            block = os.read(pipe.fileno(), _BLOCK)
            if not block:
                return bytes(found)
            found += block
            if len(found) > limits.output:
                raise LimitExceeded("output")
    raise LimitExceeded("wall")


def _seconds_left(pid: int, wall: float, started: float) -> float:
    """Until the limit by the clock; what the process waited for a processor does not count."""
    allowed = min(wall + _waited_for_processor(pid), wall * _BUSY)
    return started + allowed - time.monotonic()


def _waited_for_processor(pid: int) -> float:
    """Seconds for which it was ready to run; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _decode(output: bytes, code: int) -> _Reply:
    if code == -signal.SIGXCPU:
        raise LimitExceeded("cpu")
    try:
        if code == 0:
            return msgspec.json.decode(output, type=_Reply)
    except msgspec.DecodeError:
        pass
    raise ProcessDied(f"the process ended with {code} and without a result")
