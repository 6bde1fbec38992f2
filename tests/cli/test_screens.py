"""Tables on terminals of any width: names and ids are never broken, because people copy them."""

from __future__ import annotations

import io
import uuid
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from ephemera import Catalogue, embedded, fixed
from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera.cli._screens import print_table
from ephemera.operations.documentation import as_json
from tests.cli.commands import ephemera


@pytest.mark.parametrize("width", [80, 120, 180])
def test_ids_and_words_are_whole_at_any_width(width: int) -> None:
    """A table that is too wide becomes a record for each row, without its empty values."""
    ids = [str(uuid.UUID(int=number)) for number in range(2)]
    table = Table("id", "kind", "state", "error", "created (UTC)", "step", title="Jobs")
    for each in ids:
        table.add_row(each, "send_the_monthly_statement", "[red]dead[/]", "x" * 30, "2026-01-31 12:00:00", "")
    written = io.StringIO()
    print_table(table, Console(file=written, width=width))
    shown = written.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert all(whole in shown for whole in (*ids, "send_the_monthly_statement", "x" * 30, "dead", "Jobs"))
    assert ("step" in shown) == (width == 180)


@pytest.mark.parametrize("width", [80, 120])
def test_a_catalogue_fits_the_terminal(width: int) -> None:
    """Every pattern of a service is shown in one piece."""
    shown = ephemera("catalogue", "slides", env={"COLUMNS": str(width)}).out
    assert max(map(len, shown.splitlines())) <= width
    assert [space.pattern for space in load_catalogue("slides") if space.pattern not in shown] == []


@pytest.mark.parametrize("width", [80, 120])
def test_the_doctor_fits_the_terminal(width: int) -> None:
    """Checks and the capacity of each keyspace keep to the width, and cut nothing off."""
    with embedded.valkey() as server:
        words = ("doctor", "--url", server.url, "--catalogue", "slides", "--watch", "100ms")
        shown = ephemera(*words, env={"COLUMNS": str(width)}).out
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown


@pytest.mark.parametrize("width", [80, 120])
def test_proposals_and_sweeps_fit_the_terminal(tmp_path: Path, width: int) -> None:
    """Texts and comments keep to the width; only a pattern and its constant, which stay whole, do not."""
    pattern = f"organization:{{organization_id}}:department:{{department_id}}:{'x' * 40}:holidays"
    fields = [part for number in range(12) for part in (f"a_long_name_of_field_{number:x}", "1")]
    old, new = Catalogue("old"), Catalogue("new")
    old.mapping(pattern, int, lifetime=fixed(hours=1), purpose="Holidays")
    (tmp_path / "old.json").write_text(as_json(old))
    (tmp_path / "new.json").write_text(as_json(new))
    versions = (str(tmp_path / "old.json"), str(tmp_path / "new.json"))
    with embedded.valkey() as server:
        server.ask("LPUSH", "celery", "{}")
        for number in range(9):
            server.ask("HSET", pattern.format(organization_id=7, department_id=number), *fields)
        proposal, swept = (
            ephemera(*words, "--url", server.url, env={"COLUMNS": str(width)})
            for words in (("infer",), ("sweep", *versions))
        )
    assert "9 orphaned keys among 10 names" in swept.out
    lines = [*proposal.out.splitlines(), *proposal.err.splitlines(), *swept.out.splitlines()]
    assert [line for line in lines if len(line) > width and "x" * 40 not in line.lower()] == []
    assert "# fields: a_long_name_of_field_0, a_long_name_of_field_1" in proposal.out
    assert pattern in proposal.out
