"""The command `make profile`: flame graphs of a request and of the wire, and the page that shows them.

py-spy looks at the process from outside, a thousand times a second, so it does not slow Python down as a
tracing profiler does. A request is that of `benchmarks.quickstart`, under uvicorn with 50 browsers; the wire
is 50 tasks that repeat a GET. Waiting is not sampled: the graphs show CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGINT
from tempfile import TemporaryDirectory

import uvloop

from benchmarks import machine
from benchmarks.flame_graph import Stack, draw, layer_time, own_time, parse
from benchmarks.load import Tasks
from benchmarks.scale_costs import quickstart_request, quickstart_sessions
from benchmarks.servers import Servers
from benchmarks.uvicorn_process import UVICORN
from benchmarks.web import Requests, connected
from ephemera.embedded import free_ports
from ephemera.wire import open_client

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "internals" / "profile.md"
TEMPLATE = Path(__file__).with_name("profile_page.txt")
IMAGES = {"request": "A request of the quickstart's service", "wire": "The wire, 50 tasks"}
_KEY = "bench:wire"
_TASKS = 50
_RATE = 1000  # samples a second
_MOST = 12  # functions in the tables


def main() -> None:
    """Profile both, and write the pictures and the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each is profiled (10)")
    parser.add_argument("--repeat", metavar="URL", help="repeat the GET of the wire, to be profiled")
    arguments = parser.parse_args()
    if arguments.repeat:
        uvloop.run(_repeat(arguments.repeat, arguments.seconds))
        return
    facts = machine.facts()
    found = {name: uvloop.run(_profiled(name, arguments.seconds)) for name in IMAGES}
    write(found, facts)


def write(found: dict[str, Counter[Stack]], facts: dict[str, str], docs: Path = DOCS) -> None:
    """Write the pictures and the page of these samples."""
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, stacks in found.items():
        (docs / "images" / f"profile-{name}.svg").write_text(draw(stacks, IMAGES[name]), encoding="utf-8")
        page = page.replace(f"{{{{{name} layers}}}}", _layers(stacks))
        page = page.replace(f"{{{{{name} functions}}}}", _functions(stacks))
    when = datetime.now(UTC).date().isoformat()
    processor, python = facts["CPU"].rpartition(", load")[0], facts["Python"].partition(" ")[0]
    measured = f"Sampled on {when} on {processor}, Python {python}."
    path = docs / PAGE.relative_to(DOCS)
    path.parent.mkdir(exist_ok=True)
    path.write_text(page.replace("{{measured on}}", measured), encoding="utf-8")


def _layers(stacks: Counter[Stack]) -> str:
    rows = [f"| {layer} | {share:.0%} |" for layer, share in layer_time(stacks).items()]
    return "\n".join(["| layer | CPU of its own |", "|---|---:|", *rows])


def _functions(stacks: Counter[Stack]) -> str:
    rows = [
        f"| `{frame.label}` | {frame.file and f'`{frame.file}`'} | {share:.1%} |"
        for frame, share in list(own_time(stacks).items())[:_MOST]
    ]
    return "\n".join(["| function | file | CPU of its own |", "|---|---|---:|", *rows])


async def _profiled(name: str, seconds: float) -> Counter[Stack]:
    with Servers() as servers, TemporaryDirectory(prefix="ephemera-profile-") as folder:
        raw = Path(folder) / "stacks.txt"
        profile = _request if name == "request" else _wire
        await profile(servers, raw, seconds)
        return parse(raw.read_text(encoding="utf-8"))


async def _wire(servers: Servers, raw: Path, seconds: float) -> None:
    servers.valkey.ask("SET", _KEY, "v" * 100)
    words = ("-m", "benchmarks.profiles", "--seconds", str(seconds), "--repeat", servers.valkey.url)
    process = await _spied(raw, *words)
    await process.wait()


async def _repeat(url: str, seconds: float) -> None:
    async with open_client(url) as client:

        async def work(times: int) -> None:
            for _ in range(times):
                await client.call("GET", _KEY)

        await Tasks(_TASKS, work)(seconds)


async def _request(servers: Servers, raw: Path, seconds: float) -> None:
    port = free_ports(1)[0]
    options = [word for option, value in UVICORN.items() for word in (f"--{option}", value)]
    application = ("-m", "uvicorn", "benchmarks.quickstart_app:app", "--port", str(port), "--no-access-log")
    tokens = await quickstart_sessions(servers, _TASKS)
    process = await _spied(raw, *application, *options, url=servers.valkey.url)
    try:
        asked = [await connected(port, *quickstart_request(token)) for token in tokens]
        await Requests(asked)(seconds)
    finally:
        process.send_signal(SIGINT)  # it writes its file, and ends what it has started
        await process.wait()


async def _spied(raw: Path, *words: str, url: str = "") -> Process:
    """Python with these arguments, under py-spy."""
    spy = Path(sys.executable).with_name("py-spy")
    if not spy.exists():
        sys.exit("py-spy is not installed: pip install 'ephemera-data[bench]', or make profile")
    options = ("--format", "raw", "--function", "--full-filenames", "--rate", str(_RATE))
    return await asyncio.create_subprocess_exec(
        *(str(spy), "record", *options, "--output", str(raw), "--", sys.executable, *words),
        env={**os.environ, "BENCH_URL": url},
        stdout=DEVNULL,
        stderr=DEVNULL,
    )


if __name__ == "__main__":
    main()
