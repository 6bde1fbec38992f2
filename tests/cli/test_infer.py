"""`ephemera infer`: a module on stdout, and a summary on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from tests.cli.commands import ephemera


@pytest.fixture(scope="module")
def legacy() -> Iterator[Valkey]:
    """An undocumented server."""
    with embedded.valkey() as server:
        for number in range(30):
            server.ask("SET", f"order:{number}:paid", "1", "EX", 100 + number)
            server.ask("HSET", f"user:{number}", "name", "ann")
        server.ask("SET", "odd*", "1")
        yield server


def test_the_source_can_be_audited_against(
    legacy: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed module imports, and an audit against it knows all declarable keys."""
    outcome = ephemera("infer", "--url", legacy.url, "--catalogue-name", "legacy")
    assert outcome.code == 0
    assert outcome.err == "2 keyspaces for 60 keys\n1 key cannot be declared; see the end of the source\n"
    (tmp_path / "inferred_keys.py").write_text(outcome.out)
    monkeypatch.syspath_prepend(tmp_path)
    audit = ephemera("audit", "--url", legacy.url, "--catalogue", "inferred_keys:catalogue", "--json")
    report = json.loads(audit.out)
    assert report["catalogues"] == ["legacy"]
    assert report["unknown"]["keys"] == 1
    assert report["unknown"]["shapes"][0]["reason"] == "it holds *"


def test_json_has_the_same(legacy: Valkey) -> None:
    """JSON has the keyspaces, what was left out and why, and the source."""
    proposal = json.loads(ephemera("infer", "--url", legacy.url, "--json").out)
    assert {each["pattern"]: each["kind"] for each in proposal["keyspaces"]} == {
        "order:{order_id}:paid": "flag",
        "user:{user_id}": "mapping",
    }
    assert proposal["left_out"] == [{"reason": "it holds *", "keys": 1, "examples": ["odd*"]}]
    assert "catalogue = Catalogue" in proposal["source"]
    assert proposal["coverage"]["complete"]
