"""What users get with the distributions, for a release: an SBOM (CycloneDX) and the licences of all packages.

The environment of this project would add what builds and tests it. `minilm` is left out: it brings PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.release import installs, versions
from tools.release.builds import run


def everything(wheels: Sequence[Path]) -> list[str]:
    """What to install for the library with all extras that users install, and for the services."""
    library, services = wheels
    return [f"{library}[{','.join(installs.small(versions.extras()))}]", f"{services}[push]"]


def describe(python: Path, folder: Path) -> int:
    """Write the SBOM and the licences of an environment into a folder; how many packages it has."""
    tools = Path(sys.executable).parent
    sbom = folder / "sbom.cyclonedx.json"
    run(str(tools / "cyclonedx-py"), "environment", "--output-file", str(sbom), str(python))
    listed = run(str(tools / "pip-licenses"), f"--python={python}", "--format=markdown", "--order=license")
    (folder / "licences.md").write_text(listed, encoding="utf-8")
    return len(listed.splitlines()) - 2
