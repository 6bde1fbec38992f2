"""Building both distributions, twice: the same bytes, or the build depends on where and when it ran."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tools.release.versions import ROOT


def run(*command: str, folder: Path = ROOT, **variables: str) -> str:
    """What a command printed; raises with its output when it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def build(folder: Path) -> dict[str, str]:
    """Build both distributions into a folder: the digest of each file by its name."""
    moment = run("git", "log", "-1", "--format=%ct").strip()
    for project in (ROOT, ROOT / "services"):
        run(sys.executable, "-m", "build", "--outdir", str(folder), str(project), SOURCE_DATE_EPOCH=moment)
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
