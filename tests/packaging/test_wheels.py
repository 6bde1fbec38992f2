"""Both distributions as users get them: built, checked, and installed without the clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.pages import blocks_of
from tools.reference.api_page import public_modules
from tools.release import installs

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
_EXTRAS = "tracing,django,flask,limits,cachelib,flask-caching,dogpile,redis-py,channels,socketio,langchain"
"""Those of public modules that the services do not need."""
_IMPORT_EVERYTHING = """
import importlib, json, sys
import ephemera
if not ephemera.__file__.startswith(sys.prefix):
    sys.exit(f"ephemera was imported from {ephemera.__file__}")
missing = []
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(name)
    missing += [f"{name}.{each}" for each in getattr(module, "__all__", ()) if not hasattr(module, each)]
print(json.dumps(missing))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of both distributions."""
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "services"):
        _run([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(project)], folder)
    found = sorted(folder.glob("*.whl"))
    assert [wheel.name.split("-")[0] for wheel in found] == ["ephemera_data", "ephemera_services"]
    return found


@pytest.fixture(scope="module")
def installed(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh virtual environment with both wheels and nothing of the clone."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *constraints]
    _run([*pip, *map(str, wheels), f"ephemera-data[{_EXTRAS}]"], folder)
    return folder / "bin"


def test_the_metadata_is_complete(wheels: list[Path], tmp_path: Path) -> None:
    """`twine check --strict` accepts both wheels."""
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, wheels)], tmp_path)


def test_the_generators_are_in_neither_wheel(wheels: list[Path], tmp_path: Path) -> None:
    """A wheel has its own package and its metadata, nothing else."""
    for wheel in wheels:
        names = _run([sys.executable, "-m", "zipfile", "--list", str(wheel)], tmp_path).splitlines()[1:]
        package = wheel.name.split("-")[0].replace("ephemera_data", "ephemera")
        assert {name.split("/")[0].split("-")[0] for name in names} <= {package, wheel.name.split("-")[0]}


def test_the_sbom_is_of_what_users_get(wheels: list[Path], tmp_path: Path) -> None:
    """The environment that is described has a wheel and what it needs: nothing that builds or tests it."""
    python = installs.environment(tmp_path / "described", [f"{wheels[0]}[zstd]"])
    listed = _run([sys.executable, "-m", "pip", "--python", str(python), "list", "--format=json"], tmp_path)
    assert {each["name"] for each in json.loads(listed)} == {
        "ephemera-data",
        "hiredis",
        "msgspec",
        "zstandard",
    }


def test_every_public_name_can_be_imported(installed: Path, tmp_path: Path) -> None:
    """Each name of each public module, `testing` aside, which needs pytest."""
    modules = [name for group in public_modules().values() for name in group if name != "ephemera.testing"]
    missing = _run([str(installed / "python"), "-c", _IMPORT_EVERYTHING, json.dumps(modules)], tmp_path)
    assert json.loads(missing) == []


def test_the_example_of_the_readme_runs(installed: Path, tmp_path: Path) -> None:
    """The first program of the README prints what it says."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = next(block for block in blocks_of("README.md", text) if "import asyncio" in block.text)
    (tmp_path / "example.py").write_text(example.text, encoding="utf-8")
    said = _run([str(installed / "python"), "example.py"], tmp_path)
    assert said.strip().splitlines()[-1] in text


def test_the_command_line_has_the_services(installed: Path, tmp_path: Path) -> None:
    """`ephemera --help` lists our commands and those that the services register."""
    said = _run([str(installed / "ephemera"), "--help"], tmp_path)
    assert all(command in said for command in ("audit", "infer", "worker", "serve", "demo"))


def test_the_tour_of_the_demonstration_passes(installed: Path, tmp_path: Path) -> None:
    """`ephemera demo --tour` checks each of its steps, and all of them hold."""
    _run([str(installed / "ephemera"), "demo", "--tour"], tmp_path)


def _run(command: Sequence[str], folder: Path) -> str:
    """The output of a command that must succeed, run outside of the clone."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EPHEMERA"))}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
