"""The README's examples run, and say what the README says they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would, in a folder of its own."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("example", "printed"), [(0, "Session(user='ada', role='admin')"), (1, "b'hello'")])
def test_example_prints_what_the_readme_promises(example: int, printed: str, tmp_path: Path) -> None:
    """Each example of the README runs as it stands, without a warning."""
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[example])
    done = run(sys.executable, "-W", "error", str(script), folder=tmp_path)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (printed, "", 0)


def test_example_of_the_pytest_plugin_passes_in_a_suite_of_its_own(tmp_path: Path) -> None:
    """The README's test runs in a project that has nothing but the plugin and pytest-asyncio."""
    (tmp_path / "test_greeting.py").write_text(EXAMPLES[2])
    done = run(sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", folder=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_figures_are_those_of_the_last_run() -> None:
    """What the README says of the peers is no more than what was measured."""
    text = " ".join(README.read_text(encoding="utf-8").split())
    said = re.search(
        r"At 50 concurrent tasks it does more than (\d+) times .* at 500 more than (\d+) times", text
    )
    assert said is not None
    measured = {
        row["name"]: row for row in json.loads((README.parent / "benchmarks/results.json").read_text())
    }
    for tasks, times in zip((50, 500), said.groups(), strict=True):
        row = measured[f"wire: {tasks} tasks"]
        assert row["ours"] > int(times) * row["peers"]["redis-py"]
    said = re.search(r"answers more than (\d+) times as many as the same with starsessions and limits", text)
    assert said is not None
    row = measured["web: sessions and limits on a hello"]
    assert row["ours"] > int(said[1]) * row["peers"]["starsessions and limits"]


def test_first_example_has_about_ten_lines() -> None:
    """The README's promise of ten lines is kept: statements of the program, blank lines apart."""
    lines = [line for line in EXAMPLES[0].splitlines() if line.strip()]
    imports = [line for line in lines if line.startswith(("import", "from"))]
    assert len(lines) - len(imports) <= 12
