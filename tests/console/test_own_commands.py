"""What the console itself sends: few commands while no page is open, counted apart from other clients."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from tests.console.browser_pages import eventually, expect, tile
from tests.console.console_process import running_console
from tests.console.test_many_keys import calls_of

_CHECKS = 60  # PINGs: three health checks


@pytest.fixture
def own_valkey() -> Iterator[Valkey]:
    """A server that only the console uses."""
    with embedded.valkey() as server:
        yield server


def test_an_idle_console_sends_less_than_twenty_commands_a_second(
    own_valkey: Valkey, tmp_path: Path, browse: Callable[..., Any]
) -> None:
    """Its connections are named, and a page shows how many commands are the console's own."""
    with running_console(tmp_path, own_valkey.url) as console:
        before, began = _total(own_valkey), time.monotonic()
        eventually(lambda: calls_of(own_valkey)["ping"] >= _CHECKS, "three health checks")
        sent, seconds = _total(own_valkey) - before, time.monotonic() - began
        assert sent < 20 * seconds
        assert "name=ephemera-console " in str(own_valkey.ask("CLIENT", "LIST"))
        page = browse(console)
        note = tile(page, "Commands").locator("xpath=following-sibling::*")
        expect(note).to_have_text(re.compile(r"^/s, [\d,]+ own$"))


def _total(server: Valkey) -> int:
    """The commands that the server has run, without those of the test itself, which asks by AUTH and INFO."""
    return sum(count for name, count in calls_of(server).items() if name not in ("auth", "info"))
