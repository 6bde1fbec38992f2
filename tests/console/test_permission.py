"""No action without permission, even if the browser is manipulated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ephemera.embedded import Valkey
from tests.console.console_process import RunningConsole, running_console
from tests.console.write_button_app import KEY

TEMPTING = (sys.executable, "-m", "tests.console.write_button_app")
FORGE = """
([service, name, args]) => {
  const heard = each => (each.events || []).find(event => event.type === name);
  const element = Object.values(mounted_app.elements).filter(heard)[service], event = heard(element);
  window.socket.emit('event', {
    id: Number(Object.keys(mounted_app.elements).find(id => mounted_app.elements[id] === element)),
    client_id: window.clientId, listener_id: event.listener_id, args: [JSON.stringify(args)],
  });
}
"""
"""Sends an event as NiceGUI's own script does, whether or not there is something to press."""


@pytest.fixture(scope="module")
def looking(shop_server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A read-only console with a page of buttons."""
    folder = tmp_path_factory.mktemp("looking")
    with running_console(folder, shop_server.url, program=TEMPTING) as running:
        yield running


@pytest.fixture(scope="module")
def acting(shop_server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """The same with --allow-actions."""
    folder = tmp_path_factory.mktemp("acting")
    with running_console(folder, shop_server.url, "--allow-actions", program=TEMPTING) as running:
        yield running


def test_an_allowed_action_is_confirmed_run_and_logged(
    acting: RunningConsole, shop_server: Valkey, browse: Callable[..., Any]
) -> None:
    """A button asks first, does nothing when cancelled, then runs the action and logs it."""
    page = browse(acting, "/write-button")
    page.get_by_role("button", name="Write", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Write it?").wait_for(state="hidden")
    assert shop_server.ask("EXISTS", KEY) == 0
    page.get_by_role("button", name="Write", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Write").click()
    page.get_by_text("It is written.").wait_for()
    assert shop_server.ask("DEL", KEY) == 1
    (line,) = acting.lines()
    assert (line["who"], line["from"]) == ("operator", "127.0.0.1")
    assert (line["action"], line["target"], line["outcome"]) == ("key.write", KEY, "done")


def test_in_read_only_mode_buttons_are_disabled(looking: RunningConsole, browse: Callable[..., Any]) -> None:
    """The buttons are disabled, and the header says why."""
    page = browse(looking, "/write-button")
    page.get_by_text("read-only", exact=True).wait_for()
    assert page.get_by_role("button", name="Write", exact=True).is_disabled()
    assert page.get_by_role("button", name="Write it").is_disabled()


def test_a_forged_event_changes_nothing(
    looking: RunningConsole, shop_server: Valkey, browse: Callable[..., Any]
) -> None:
    """A forged event of a disabled button is refused by the server, and that is logged."""
    page = browse(looking, "/write-button")
    page.get_by_role("button", name="Write it").wait_for()
    page.evaluate(FORGE, [0, "act", {"id": 1, "name": "write"}])
    page.get_by_role("dialog").get_by_role("button", name="Write it").click()
    page.get_by_text("This console is read-only").wait_for()
    assert shop_server.ask("EXISTS", KEY) == 0
    refused = [line for line in looking.lines() if line["action"] == "row.write"]
    assert [line["outcome"] for line in refused] == ["refused"]


def test_an_action_that_a_row_does_not_offer_is_ignored(
    acting: RunningConsole, shop_server: Valkey, browse: Callable[..., Any]
) -> None:
    """Forged ids, rows without the action and unknown actions do nothing, not even ask."""
    page = browse(acting, "/write-button")
    page.get_by_role("button", name="Write it").wait_for()
    before = len(acting.lines())
    for given in ({"id": 2, "name": "write"}, {"id": 99, "name": "write"}, {"id": 1, "name": "drop"}, "x"):
        page.evaluate(FORGE, [0, "act", given])
    page.evaluate(FORGE, [0, "act", {"id": 1, "name": "write"}])  # the last one is a good one
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert page.get_by_role("dialog").count() <= 1
    assert len(acting.lines()) == before
    assert shop_server.ask("EXISTS", KEY) == 0
