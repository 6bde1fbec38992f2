"""Keyspaces by pattern and by library: what a pattern declares for itself is one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from ephemera import Catalogue, embedded, fixed
from ephemera.cli import load_catalogue
from ephemera.console._keyspace_groups import keyspace_groups
from ephemera.embedded import Valkey
from ephemera.patterns.locks import Locks
from ephemera_services.demo.external_servers import SERVICES
from tests.console.browser_pages import FITS, expect, region, row_of, tile
from tests.console.console_process import RunningConsole, running_console

TASK = '{"id": "7", "body": "", "headers": {}, "properties": {}, "content-type": "application/json"}'


def test_five_services_have_a_row_for_each_pattern() -> None:
    """Every keyspace of every service is in one row, and the keys that patterns add are rows of none."""
    rows = keyspaces = 0
    for service in SERVICES:
        catalogue = load_catalogue(service)
        groups = keyspace_groups(catalogue)
        assert sorted(each.pattern for group in groups for each in group.keyspaces) == sorted(
            each.pattern for each in catalogue
        )
        assert all(group.main in group.keyspaces for group in groups)
        rows, keyspaces = rows + len(groups), keyspaces + len(catalogue)
    assert keyspaces >= 2 * rows  # those that patterns add are the most


def test_a_pattern_is_one_row_with_what_it_declares() -> None:
    """A lock's fencing tokens, waiters and channel belong to it, and the catalogue's order is kept."""
    catalogue = Catalogue("shop")
    catalogue.counter("first", lifetime=fixed(days=1), purpose="First")
    locks = Locks(catalogue, "lock:{name}", lease=timedelta(seconds=9), purpose="One at a time")
    catalogue.flag("last", lifetime=fixed(days=1), purpose="Last")
    groups = keyspace_groups(catalogue)
    assert [(group.main.pattern, group.kind) for group in groups] == [
        ("first", "counter"), ("lock:{name}", "locks"), ("last", "flag"),
    ]  # fmt: skip
    assert groups[1].main is locks.keyspace
    assert len(groups[1].keyspaces) == len(catalogue) - 2


@pytest.fixture(scope="module")
def foreign() -> Iterator[Valkey]:
    """A server that Celery and a program without a catalogue use."""
    with embedded.valkey() as server:
        for number in range(5):
            server.ask("LPUSH", "celery", TASK)
            server.ask("SET", f"celery-task-meta-7c9e6679-7425-40de-944b-e07fc1f90ae{number}", "{}")
            server.ask("SET", f"price:{number}", "7", "EX", 600)
        server.ask("SADD", "_kombu.binding.celery", "celery")
        yield server


@pytest.fixture(scope="module")
def unaided(foreign: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console of that server, without any catalogue."""
    with running_console(tmp_path_factory.mktemp("unaided"), foreign.url, catalogues=()) as running:
        yield running


def test_a_library_is_a_section_on_a_server_without_a_catalogue(
    unaided: RunningConsole, browse: Callable[..., Any], picture: Callable[[Any, str], None]
) -> None:
    """Its keys are shown with their purpose and what to know about it; other keys stay undeclared."""
    page = browse(unaided, "/keyspaces")
    celery = region(page, "Celery")
    expect(row_of(celery, "celery", "queue")).to_be_visible()
    expect(celery).to_contain_text("To replace it")
    expect(celery.locator(".e-hazard").first).to_be_visible()
    others = region(page, "Other keys")
    expect(row_of(others, "price:{price_id}")).to_contain_text("5")
    assert "celery" not in others.inner_text()
    expect(tile(page, "Libraries")).to_have_text("1")
    expect(tile(page, "Keys of libraries")).to_have_text("7")
    expect(tile(page, "Other keys")).to_have_text("5")
    expect(region(page, "Declared keyspaces")).to_have_count(0)
    page.wait_for_function(FITS)
    picture(page, "libraries")


def test_keys_of_a_shape_are_browsed_on_a_server_without_a_catalogue(
    unaided: RunningConsole, browse: Callable[..., Any]
) -> None:
    """A shape is opened from the page of keyspaces; the tree has every shape, under its library if known."""
    page = browse(unaided, "/keyspaces")
    row_of(region(page, "Other keys"), "price:{price_id}").click()
    keys = region(page, "Keys")
    expect(keys.locator("tbody tr")).to_have_count(5)
    expect(keys).to_contain_text("price:3")
    tree = region(page, "Keyspaces").locator(".q-tree")
    celery = tree.locator(".q-tree__node--parent", has=page.get_by_text("Celery", exact=True)).last
    expect(celery).to_contain_text("celery-task-meta-{meta_id}")
    celery.get_by_text("celery", exact=True).click()
    expect(keys.locator("tbody tr")).to_have_count(1)
    expect(row_of(keys, "celery", "list")).to_be_visible()
    tree.get_by_text("Celery", exact=True).click()
    expect(tree.get_by_text("celery-task-meta-{meta_id}", exact=True)).to_be_hidden()
