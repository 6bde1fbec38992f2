"""`python -m tools.deploy`: write the generated files; with --check only report outdated ones, and fail."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.deploy import compose, kubernetes, servers

FOLDER = Path(__file__).parents[2] / "deploy"


def generated() -> dict[str, str]:
    """Every generated file by its path in `deploy/`."""
    return {**servers.files(), **compose.files(), **kubernetes.files()}


def old() -> list[str]:
    """The files that are outdated."""
    return [
        name
        for name, text in generated().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != text
    ]


def main() -> int:
    """Write, or check."""
    stale = old()
    if sys.argv[1:] == ["--check"]:
        sys.stderr.write("".join(f"deploy/{name} is old: python -m tools.deploy\n" for name in stale))
        return int(bool(stale))
    texts = generated()
    for name in stale:
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(texts[name], encoding="utf-8")
        sys.stdout.write(f"deploy/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
