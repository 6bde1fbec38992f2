"""`ephemera new`: what it writes is complete and passes its own tests, and mistakes are explained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.commands import ephemera
from tests.docs.pages import READERS_PLUGINS, ROOT


def test_a_new_service_passes_its_own_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is complete, and passes the tests beside it, with servers of their own."""
    monkeypatch.chdir(tmp_path)
    written = ephemera("new", "web_shop")
    assert written.code == 0
    assert set(written.out.split()) == {
        f"web_shop/{each}"
        for each in (
            "Dockerfile", "README.md", "compose.yaml", "pyproject.toml", "tests/test_service.py",
            "web_shop/__init__.py", "web_shop/jobs.py", "web_shop/service.py",
        )
    }  # fmt: skip
    folder = tmp_path / "web_shop"
    assert not [path for path in folder.rglob("*.*") if "myservice" in path.read_text()]
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert set(services) == {"valkey", "postgres", "service", "worker"}
    path = os.pathsep.join((str(ROOT / "src"), str(folder)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=folder,
        env={**os.environ, **READERS_PLUGINS, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of the file system is a message, not a traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").symlink_to(tmp_path / "gone")
    failed = ephemera("new", "shop")
    assert failed.code == 1
    assert failed.err == f"ephemera: {tmp_path / 'shop'} cannot be written: File exists\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Shop!", "cannot name a Python package"),
        ("class", "cannot name a Python package"),
        ("../shop", "cannot name a Python package"),
        ("json", "choose another"),
        ("taken", "exists and is not an empty folder"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad name or a folder with files is wrong usage, says what to do, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious.txt").write_text("keep me")
    refused = ephemera("new", name)
    assert refused.code == 2
    assert message in refused.said
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "precious.txt"]
