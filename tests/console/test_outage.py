"""With Redis down, every page says so, the console keeps working, and recovers by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ephemera import embedded
from ephemera.console._pages import PAGES
from ephemera.embedded import Valkey, free_ports
from tests.console.browser_pages import SHIFTS, expect
from tests.console.conftest import fill
from tests.console.console_process import running_console, settled


@pytest.fixture
def mortal() -> Iterator[Valkey]:
    """A server that may be killed."""
    with embedded.valkey() as server:
        settled(fill(server.url))
        yield server


def test_an_unavailable_server_is_shown_on_every_page(
    mortal: Valkey, tmp_path: Path, browse: Callable[..., Any], picture: Callable[..., None]
) -> None:
    """Killed or hung, every page says so and can be opened; afterwards it recovers without a reload."""
    with running_console(tmp_path, mortal.url) as console:
        page = browse(console, "/keyspaces")
        table = page.get_by_role("region", name="Declared keyspaces")
        expect(table).to_contain_text("200")
        strip = page.get_by_role("status")
        expect(strip).to_be_hidden()
        page.evaluate(SHIFTS)
        mortal.kill()
        expect(strip).to_contain_text("cannot be reached")
        expect(table).to_contain_text("200")
        assert sum(page.evaluate("window.shifts")) < 0.01  # the banner moves nothing
        for each in PAGES:
            if each.listed:
                page.get_by_role("navigation").get_by_role("link", name=each.title).click()
                expect(page).to_have_title(f"{each.title} · Ephemera")
                expect(strip).to_contain_text("recovers by itself")
        page.get_by_role("navigation").get_by_role("link", name="Overview").click()
        expect(page.get_by_role("region", name="Advice")).to_contain_text("is the server running")
        picture(page, "redis-is-down")
        mortal.restart()
        expect(strip).to_be_hidden()
        expect(page.get_by_role("region", name="All checks")).to_contain_text("PINGs answered")
        mortal.pause()
        expect(strip).to_contain_text("cannot be reached")
        mortal.resume()
        expect(strip).to_be_hidden()


def test_every_class_has_a_rule() -> None:
    """Each class that the console's elements have is styled."""
    folder = Path(str(files("ephemera.console")))
    code = [path.read_text() for path in folder.rglob("*") if path.suffix in (".py", ".js", ".html")]
    used = {name for text in code for name in re.findall(r"\be-[a-z]+(?:-[a-z]+)*(?![a-z-])", text)}
    styles = "".join(path.read_text() for path in (folder / "assets").glob("*.css"))
    assert used > {"e-problems", "e-nav-link"}
    assert {name for name in used if not re.search(rf"\.{name}(?![a-z-])", styles)} == set()


def test_it_starts_and_signs_in_while_redis_is_down(tmp_path: Path, browse: Callable[..., Any]) -> None:
    """Started before its server, it says what is missing, and recovers once the server is up."""
    port = free_ports(1)[0]
    with running_console(tmp_path, f"redis://127.0.0.1:{port}") as console:
        page = browse(console)
        expect(page.get_by_role("status")).to_contain_text(f"127.0.0.1:{port}")
        with embedded.valkey(port=port, password=""):
            expect(page.get_by_role("status")).to_be_hidden()
            expect(page.get_by_role("region", name="All checks")).to_contain_text("PINGs answered")
