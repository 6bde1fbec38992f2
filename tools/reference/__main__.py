"""All generated pages of the documentation: `python -m tools.reference docs` regenerates them.

Each is made from the code it describes, so it cannot tell of what is not there; `tests/docs` fails while a
page differs from what would be written now. `make docs` is the short way to say it.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ephemera.cli import load_catalogue
from ephemera.operations.documentation import as_markdown
from ephemera_services import SERVICES
from tools.diagrams import DIAGRAMS
from tools.reference import api_page as reference_api
from tools.reference import cli_page as reference
from tools.reference import metrics_page as reference_metrics
from tools.reference import settings_page as reference_settings

_DECISIONS = """\
# Decisions

<!-- Made by `make docs`; do not edit. -->

Why things are as they are, where there were serious other ways.

| | |
|---|---|
"""
_PROOF = """\
# Proof

<!-- Made by `make docs`; do not edit. -->

What was claimed, and how it was found to hold: reports that our own commands wrote.

"""


def pages(folder: Path) -> dict[str, Callable[[], str]]:
    """What makes the text of each generated page, by its path in the folder of the documentation."""
    return {
        "cli.md": reference.reference,
        "reference/settings.md": reference_settings.reference,
        "reference/metrics.md": reference_metrics.reference,
        "reference/api.md": reference_api.reference,
        "decisions/README.md": partial(_decisions, folder / "decisions"),
        "proof/README.md": partial(_proof, folder / "proof"),
        **{f"images/diagrams/{name}.svg": draw for name, draw in DIAGRAMS.items()},
        **{f"services/{name}.md": partial(_catalogue, name) for name in SERVICES},
    }


def write(folder: Path) -> list[str]:
    """Write what has changed, and say which pages those were."""
    changed = []
    for name, made in pages(folder).items():
        page, text = folder / name, made()
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
            changed.append(name)
    return changed


def _catalogue(system: str) -> str:
    return as_markdown(load_catalogue(system))


def _decisions(folder: Path) -> str:
    """The records by number and title: a file `0007-events.md` begins with `# 7. Events`."""
    rows = []
    for record in sorted(folder.glob("[0-9]*.md")):
        number, _, subject = _title(record).partition(". ")
        rows.append(f"| [{number}]({record.name}) | {subject} |\n")
    return _DECISIONS + "".join(rows)


def _proof(folder: Path) -> str:
    """The reports by their titles."""
    reports = [page for page in sorted(folder.glob("*.md")) if page.name != "README.md"]
    return _PROOF + "".join(f"- [{_title(report)}]({report.name})\n" for report in reports)


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("say where the documentation is: python -m tools.reference docs")
    written = write(Path(sys.argv[1]))
    sys.stdout.write(f"written: {', '.join(written) or 'nothing, all of it was up to date'}\n")
