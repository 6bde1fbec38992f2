"""`python tools/deploy/hashes.py FOLDER`: requirements with hashes, of the files that pip downloaded there.

It uses the standard library alone, because it runs in the image that is about to be built (hashes.sh).
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

OURS = ("ephemera_data", "ephemera_services")


def requirements(folder: Path) -> str:
    """Return a line for each package; our own distributions are built from source, so they have none."""
    lines = []
    for path in sorted(folder.iterdir()):
        name, version = _name_and_version(path.name)
        if name.replace("-", "_") not in OURS:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    return "".join(lines)


def _name_and_version(file: str) -> tuple[str, str]:
    if file.endswith(".whl"):
        name, version = file.split("-")[:2]
        return name, version
    name, _, version = file.removesuffix(".zip").removesuffix(".tar.gz").rpartition("-")
    return name, version


if __name__ == "__main__":
    sys.stdout.write(requirements(Path(sys.argv[1])))
