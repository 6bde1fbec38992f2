"""The environment of a measurement: the machine, the interpreter, the server."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ephemera import embedded

_PACKAGES = ("uvloop", "hiredis", "redis", "coredis", "valkey-glide", "redis-om")


def facts() -> dict[str, str]:
    """Facts for the header of a report, by name."""
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "CPU": f"{_cpu()}, {len(os.sched_getaffinity(0))} cores, load {load}",
        "Python": f"{platform.python_version()} on {platform.system()} {platform.release()}",
        "server": _server(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
    }


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _server() -> str:
    with embedded.valkey() as server:
        lines = str(server.ask("INFO", "server")).splitlines()
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    name = said.get("server_name", "redis").capitalize()
    return f"{name} {said.get('valkey_version', said.get('redis_version', '?'))}, embedded"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
