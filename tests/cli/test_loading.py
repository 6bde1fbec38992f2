"""Naming a catalogue on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemera.cli import load_catalogue
from ephemera.keyspace import RESERVED
from tests.cli.commands import ephemera


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, whose modules are unloaded afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_catalogue_is_found_by_module_and_object() -> None:
    """`module:object` returns that object."""
    assert load_catalogue("ephemera.keyspace:RESERVED") is RESERVED


def test_the_current_folder_comes_first(here: Path) -> None:
    """A module in the current folder is found without installation, even an attribute of an object in it."""
    (here / "ephemera_loading_sample.py").write_text(
        "from ephemera.keyspace import Catalogue\nclass Keys:\n    mine = Catalogue('mine')\n"
    )
    assert load_catalogue("ephemera_loading_sample:Keys.mine").name == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.such.module:catalogue", "the module no.such.module cannot be imported: ModuleNotFoundError"),
        ("ephemera.keyspace:marks", "has no marks; its catalogues: RESERVED"),
        ("ephemera.errors:catalogue", "the module ephemera.errors has no catalogue; it has no catalogue"),
        ("ephemera.errors:EphemeraError", "is a type, not a Catalogue"),
        ("nosuchsystem", "no installed package registers 'nosuchsystem'"),
        (":catalogue", "is not module:object, as in myservice.keys:catalogue"),
        ("ephemera.errors:", "is not module:object, as in myservice.keys:catalogue"),
    ],
)
def test_a_wrong_catalogue_name_has_a_reason(name: str, message: str) -> None:
    """Each mistake in a catalogue's name has its own message, and is wrong usage."""
    outcome = ephemera("catalogue", name)
    assert outcome.code == 2
    assert message in outcome.said


def test_a_module_that_fails_to_import_is_reported(here: Path) -> None:
    """An invalid declaration is shown as its message, not as a traceback."""
    (here / "ephemera_broken_sample.py").write_text(
        "from ephemera.keyspace import Catalogue\nc = Catalogue('x')\nc.counter('{id}', purpose='x')\n"
    )
    outcome = ephemera("catalogue", "ephemera_broken_sample:c")
    assert outcome.code == 2
    assert "cannot be imported: InvalidDeclaration: '{id}': it has no lifetime" in outcome.said
