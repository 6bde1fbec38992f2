"""The installed command, run as a process the way its users do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = str(Path(sys.executable).with_name("ephemera"))


def run(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the console script beside this Python."""
    return subprocess.run(
        [SCRIPT, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_service_shows_the_catalogue_in_its_folder(tmp_path: Path) -> None:
    """A module of the current folder is found, wherever the script lives, and JSON is all of stdout."""
    (tmp_path / "keys.py").write_text(
        "from ephemera.keyspace import Catalogue, fixed\n"
        "catalogue = Catalogue('shop')\n"
        "catalogue.counter('n:{id}', lifetime=fixed(hours=1), purpose='counts')\n"
    )
    done = run("catalogue", "keys:catalogue", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["catalogue"] == "shop"


def test_the_package_is_the_command_as_well(tmp_path: Path) -> None:
    """`python -m ephemera` is for where the script is not on the path."""
    told = [sys.executable, "-m", "ephemera", "--version"]
    done = subprocess.run(told, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == (run("--version").stdout, 0)
    assert done.stdout


def test_without_its_extra_the_command_says_what_to_install() -> None:
    """The script is there in every installation; where its libraries are not, one line says so."""
    hidden = "import sys; sys.modules['typer'] = None; import ephemera.cli"
    done = subprocess.run(
        [sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == ("ephemera: the command line needs an extra: pip install 'ephemera-data[cli]'\n")


def test_errors_are_one_line_without_a_trace_or_a_secret() -> None:
    """An absent server ends with code 1 and says what to do."""
    done = run("mark", "--url", "redis://user:s3cr3t@127.0.0.1:1", "--name", "x")
    assert done.returncode == 1
    assert done.stderr == (
        "ephemera: 127.0.0.1:1: cannot connect: connection refused. "
        "Is it running, and are host and port right?\n"
    )
