"""What a run needs on disk: the unpacked source distribution, and the virtual environment of its suite."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from threading import Lock

from tests.certified.suite import ROOT, Suite, fill

BUILD = ROOT / "build/certified"
_locks: defaultdict[Path, Lock] = defaultdict(Lock)
"""One for each folder, since suites that run at the same time may share it."""


def prepare(suite: Suite) -> Path:
    """Return the Python of an environment with these requirements, made by the first suite that has them."""
    wanted = sorted({f"{suite.distribution}=={suite.version}", *suite.requirements})
    text = "\n".join([sys.prefix, sys.version, *wanted])
    home = BUILD / "environments" / f"{suite.distribution}-{sha256(text.encode()).hexdigest()[:12]}"
    stamp, python = home / "installed.txt", home / "bin/python"
    with _locks[home]:
        if not stamp.exists():
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, symlinks=True)
            _see_ours(home)
            _pip("--python", str(python), "install", "--constraint", str(_constraints(home, wanted)), *wanted)
            stamp.write_text(text)
    return python


def _constraints(home: Path, wanted: list[str]) -> Path:
    """Our constraints, without those of what the suite pins itself."""
    pinned = {re.split(r"[\[=<>!~]", each)[0].lower() for each in wanted}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    path = home / "constraints.txt"
    path.write_text("\n".join(line for line in lines if line.partition("==")[0].lower() not in pinned))
    return path


def _see_ours(home: Path) -> None:
    """Put our packages after those of the environment, with what their .pth files say."""
    [site] = home.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (site / "zz_project.pth").write_text(f"import site; site.addsitedir({ours!r})\n")


def _download(suite: Suite) -> Path:
    folder = BUILD / "downloads" / f"{suite.distribution}-{suite.version}"
    with _locks[folder]:
        if not [*folder.glob("*.tar.gz")]:
            # pip builds its metadata, so the build tools have to come as wheels: only this one is without.
            _pip("download", "--no-deps", "--no-binary", suite.distribution, "--dest", str(folder),
                 f"{suite.distribution}=={suite.version}")  # fmt: skip
    return next(folder.glob("*.tar.gz"))


def _pip(*arguments: str) -> None:
    options = ["--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *options, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"pip {' '.join(arguments)} failed:\n{done.stderr}")


def unpack(suite: Suite, run: str, values: Mapping[str, str]) -> Path:
    """Return a fresh copy of the source distribution, with the replacements of the suite."""
    folder = BUILD / "sources" / f"{suite.name}-{run}"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(_download(suite)) as archive:
        archive.extractall(folder, filter="data")
    [root] = folder.iterdir()
    if not any(
        "[pytest]" in text or ":pytest]" in text or "[tool.pytest" in text for text in _settings(root)
    ):
        (root / "pytest.ini").touch()  # else pytest would go up and find ours
    pairs = {old: fill(new, values) for old, new in suite.replacements.items()}
    for path in root.rglob("*.py") if pairs else ():
        _replace(path, pairs)
    return root


def _settings(root: Path) -> list[str]:
    names = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
    return [(root / name).read_text(encoding="utf-8") for name in names if (root / name).exists()]


def _replace(path: Path, pairs: Mapping[str, str]) -> None:
    text = before = path.read_text(encoding="utf-8")
    for old, new in pairs.items():
        text = text.replace(old, new)
    if text != before:
        path.write_text(text, encoding="utf-8")


def digest(suite: Suite) -> str:
    """Return the SHA-256 of the source distribution, for the record."""
    return sha256(_download(suite).read_bytes()).hexdigest()
