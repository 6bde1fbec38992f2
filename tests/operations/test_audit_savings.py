"""What would save memory, and which keys make a server slow."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ephemera.console._audit_markdown import as_markdown
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, fixed
from ephemera.operations.audit import KeyspaceReport, as_html, audit, compare_reports, read_report
from tests.cli.commands import ephemera

catalogue = Catalogue("savings")
TEXTS = catalogue.value("text:{id}", bytes, lifetime=fixed(hours=1), purpose="x")
NOISE = catalogue.value("noise:{id}", bytes, lifetime=fixed(hours=1), purpose="x")
LARGE = 20_000  # bytes of a value
KEYS = 120


@pytest.fixture
def filled(own_valkey: Valkey) -> Valkey:
    """Compressible values, a quarter of them in the second half of their lifetime, and random ones."""
    own_valkey.ask("FLUSHALL")
    own_valkey.ask("SLOWLOG", "RESET")
    drawn = random.Random(1)
    for number in range(KEYS):
        own_valkey.ask(
            "SET", f"text:{number}", "abc " * (LARGE // 4), "EX", 1000 if number % 4 == 0 else 3500
        )
        own_valkey.ask("SET", f"noise:{number}", drawn.randbytes(LARGE).hex()[:LARGE], "EX", 3500)
    return own_valkey


async def reports(url: str) -> dict[str, KeyspaceReport]:
    """The report of each keyspace."""
    return {each.pattern: each for each in (await audit(url, [catalogue])).keyspaces}


async def test_savings_are_estimated_from_the_sample(filled: Valkey) -> None:
    """Half the lifetime saves the keys in the second half of theirs; compression what the values show."""
    found = await reports(filled.url)
    text, noise = found["text:{id}"], found["noise:{id}"]
    assert text.size is not None
    assert text.half_lifetime_saves is not None
    assert 0.1 * text.size.value < text.half_lifetime_saves < 0.4 * text.size.value
    assert noise.half_lifetime_saves == 0
    assert (text.compression_saves or 0) > 0.9 * KEYS * LARGE
    assert (noise.compression_saves or 0) < (text.compression_saves or 0) / 1.5


async def test_slow_commands_are_shown_by_pattern_without_arguments(filled: Valkey) -> None:
    """The command and its keyspace, or the shape of undeclared keys, are named, never a key or a value."""
    filled.ask("CONFIG", "SET", "slowlog-log-slower-than", 0)
    try:
        filled.ask("SET", "text:secret-name", "secret-value", "EX", 60)
        for number in range(30):
            filled.ask("SET", f"order:{number}:paid", "secret-value", "EX", 60)
        filled.ask("GET", "secret-name")
    finally:
        filled.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    assert (await audit(filled.url, [catalogue])).slow_commands == []
    report = await audit(filled.url, [catalogue], slow_log=True)
    slow = {(each.command, each.keyspace): each.times for each in report.slow_commands}
    assert slow["SET", "text:{id}"] == 1
    assert slow["SET", "order:{order_id}:paid"] == 30
    assert slow["GET", None] == 1
    without = await audit(filled.url, [], slow_log=True)
    assert ("SET", "order:{order_id}:paid") in {
        (each.command, each.keyspace) for each in without.slow_commands
    }
    assert "secret" not in str(report.slow_commands)


@pytest.mark.parametrize("width", [80, 120])
def test_savings_and_slow_commands_fit_the_terminal(filled: Valkey, width: int) -> None:
    """Keyspaces that would save more than a megabyte and a tenth are named, at any width."""
    filled.ask("CONFIG", "SET", "slowlog-log-slower-than", 0)
    filled.ask("GET", "text:1")
    filled.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    words = ("audit", "--url", filled.url, "--catalogue", f"{__name__}:catalogue", "--slow-log")
    shown = ephemera(*words, env={"COLUMNS": str(width)}).out
    assert "What would save memory" in shown
    assert "Slow log" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_html_and_markdown_have_every_table_and_command(filled: Valkey, tmp_path: Path) -> None:
    """Both have servers, savings, slow log and growth, and each finding with its reason and commands."""
    words = ("audit", "--url", filled.url, "--catalogue", f"{__name__}:catalogue")
    earlier, page = tmp_path / "earlier.json", tmp_path / "audit.html"
    earlier.write_text(ephemera(*words, "--json").out)
    filled.ask("CONFIG", "SET", "slowlog-log-slower-than", 0)
    for number in range(KEYS):
        filled.ask("SET", f"text:new{number}", "x", "EX", 3000)
    filled.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    said = ephemera(*words, "--slow-log", "--against", str(earlier), "--html", str(page), "--json").out
    report = read_report(said.encode())
    document = as_markdown(report)
    for text in (page.read_text(), document):
        for title in ("Servers", "What would save memory", "Slow log", "Since"):
            assert title in text
        assert f"{KEYS} → {2 * KEYS}" in text
    for finding in report.findings:
        assert finding.why in document
        assert all(f"`{command}`" in document for command in finding.commands)
    assert any(finding.commands for finding in report.findings)


async def test_memory_and_growth_of_undeclared_shapes_are_known(own_valkey: Valkey) -> None:
    """Without a catalogue each shape has its bytes, and a comparison shows by how much they grew."""
    own_valkey.ask("FLUSHALL")
    for number in range(20):
        own_valkey.ask("SET", f"order:{number}:paid", "x" * 1000)
    earlier = await audit(own_valkey.url, [])
    (shape,) = earlier.unknown.shapes
    assert shape.size is not None
    assert 20_000 < shape.size.value < 30_000
    for number in range(20, 40):
        own_valkey.ask("SET", f"order:{number}:paid", "x" * 1000)
    (change,) = compare_reports(earlier, await audit(own_valkey.url, [])).changes
    assert (change.pattern, change.keys_before, change.keys) == ("order:{order_id}:paid", 20, 40)
    assert 1.8 * change.size_before < change.size < 2.2 * change.size_before
    assert "order:{order_id}:paid, undeclared" in as_html(earlier)
