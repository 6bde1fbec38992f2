"""The installed command, run as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = str(Path(sys.executable).with_name("ephemera"))


def run(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the console script next to this Python."""
    return subprocess.run(
        [SCRIPT, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_service_shows_the_catalogue_in_its_folder(tmp_path: Path) -> None:
    """A module in the current folder is found, and stdout contains only JSON."""
    (tmp_path / "keys.py").write_text(
        "from ephemera.keyspace import Catalogue, fixed\n"
        "catalogue = Catalogue('shop')\n"
        "catalogue.counter('n:{id}', lifetime=fixed(hours=1), purpose='counts')\n"
    )
    done = run("catalogue", "keys:catalogue", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["catalogue"] == "shop"


def test_python_m_ephemera_works(tmp_path: Path) -> None:
    """`python -m ephemera` works where the script is not on the path."""
    message = [sys.executable, "-m", "ephemera", "--version"]
    done = subprocess.run(message, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == (run("--version").stdout, 0)
    assert done.stdout


def test_without_its_extra_the_command_says_what_to_install() -> None:
    """Without its libraries the script prints one line that names the extra."""
    hidden = "import sys; sys.modules['typer'] = None; import ephemera.cli"
    done = subprocess.run(
        [sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == ("ephemera: the command line needs an extra: pip install 'ephemera-data[cli]'\n")


def test_errors_are_one_line_without_a_traceback_or_a_secret() -> None:
    """An unreachable server ends with code 1 and advice."""
    done = run("mark", "--url", "redis://user:s3cr3t@127.0.0.1:1", "--name", "x")
    assert done.returncode == 1
    assert done.stderr == (
        "ephemera: 127.0.0.1:1: cannot connect: connection refused. "
        "Is it running, and are host and port right?\n"
    )
