"""The README's examples run, and say what the README says they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
_REDIS_PY = """
import asyncio
from redis.asyncio import Redis
from ephemera import embedded

async def main(server):
    async with Redis.from_url(server.url) as redis:
        await asyncio.gather(*(redis.incr("visits") for _ in range(100)))
        print(clients(server))

def clients(server):
    return sum("lib-name=redis-py" in line for line in server.ask("CLIENT", "LIST").splitlines())

with embedded.valkey() as server:
    asyncio.run(main(server))
"""
"""A program that uses redis-py alone, and prints the number of its connections."""


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would, in a folder of its own."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_example_prints_what_the_readme_promises(tmp_path: Path) -> None:
    """The first example of the README runs as it stands, without a warning."""
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[0])
    done = run(sys.executable, "-W", "error", str(script), folder=tmp_path)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("Session(user='ada')", "", 0)


def test_the_one_line_to_change_is_enough(tmp_path: Path) -> None:
    """After it, redis-py's own client shares one connection among its tasks."""
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[1] + _REDIS_PY)
    done = run(sys.executable, "-W", "error", str(script), folder=tmp_path)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("1", "", 0)


def test_the_readme_is_short() -> None:
    """It is read in a minute: at most 150 lines."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_figures_are_those_of_the_last_run() -> None:
    """What the README says of the peers is no more than what was measured."""
    text = " ".join(README.read_text(encoding="utf-8").split())
    said = re.search(
        r"At 50 concurrent tasks it handles more than (\d+) times .* at 500 more than (\d+) times", text
    )
    assert said is not None
    measured = {
        row["name"]: row for row in json.loads((README.parent / "benchmarks/results.json").read_text())
    }
    for tasks, times in zip((50, 500), said.groups(), strict=True):
        row = measured[f"wire: {tasks} tasks"]
        assert row["ours"] > int(times) * row["peers"]["redis-py"]
    said = re.search(r"serves more than (\d+) times as many requests as the same service with stars", text)
    assert said is not None
    row = measured["web: sessions and limits on a hello"]
    assert row["ours"] > int(said[1]) * row["peers"]["starsessions and limits"]


def test_first_example_has_ten_lines() -> None:
    """The README's promise is kept, not counting blank lines and imports."""
    lines = [line for line in EXAMPLES[0].splitlines() if line.strip()]
    imports = [line for line in lines if line.startswith(("import", "from"))]
    assert len(lines) - len(imports) <= 10
