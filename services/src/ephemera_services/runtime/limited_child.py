"""The process of `run_limited`, a script that imports little: limits itself, then calls the function.

Its arguments are the function, the limits of memory in bytes and of processor time in seconds, and the id of
the process that started it. The data is its standard input; its output is one JSON document.
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import sys


def _limit(memory: int, cpu: int, parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # die with the parent
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # no new privileges
        if os.getppid() != parent:
            sys.exit(1)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))  # SIGXCPU, and a second later SIGKILL
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def _reply(function: str) -> dict[str, object]:
    module, _, name = function.partition(":")
    try:
        return {"result": getattr(importlib.import_module(module), name)(sys.stdin.buffer)}
    except MemoryError:
        return {"limit": "memory"}
    except ValueError as refused:
        return {"refused": str(refused).encode(errors="replace").decode()}  # it may quote lone surrogates
    except Exception as failure:
        return {"failed": type(failure).__name__}  # its text may quote the data


def _main() -> None:
    function, memory, cpu, parent = sys.argv[1:]
    _limit(int(memory), int(cpu), int(parent))
    output = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints
    reply = json.dumps(_reply(function)).encode()
    while reply:
        reply = reply[os.write(output, reply) :]
    os._exit(0)  # without freeing what was allocated, object by object


if __name__ == "__main__":
    _main()
