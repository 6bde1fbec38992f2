"""The console's pages in a real browser, on a shop's data: overview, keyspaces, a keyspace, audit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ephemera.embedded import Valkey
from tests.console.browser_pages import SHIFTS, expect, tile
from tests.console.console_process import RunningConsole


def row(page: Any, text: str) -> Any:
    """The table row that contains a text."""
    return page.locator("tbody tr", has=page.get_by_text(text, exact=True))


def test_the_overview_shows_health_figures_and_advice(
    console: RunningConsole, shop_server: Valkey, browse: Callable[..., Any]
) -> None:
    """Figures match the server, plots have lines, and advice has rule, figure and action."""
    page = browse(console)
    expect(tile(page, "Health")).to_have_text("Problem")
    expect(tile(page, "Keys")).to_have_text(f"{shop_server.ask('DBSIZE'):,}")
    expect(tile(page, "Memory")).to_have_text(re.compile(r"\d+(\.\d)? MiB"))
    advice = page.get_by_role("region", name="Advice")
    expect(advice).to_contain_text("a restart loses orders")
    expect(advice).to_contain_text("policy and persistence suit the roles")
    expect(advice).to_contain_text("keep an append-only file")
    for title in ("Memory", "Commands per second", "Hit ratio", "Evictions per second"):
        plot = page.get_by_role("region", name=title).locator("svg path")
        expect(plot.first).to_be_attached()
    capacity = page.get_by_role("region", name="Capacity")
    expect(capacity).to_contain_text("no limit")
    expect(capacity).to_contain_text("cache:profile:{user_id}")
    expect(page.get_by_role("region", name="All checks")).to_contain_text("hit ratio >= 85%")
    for number in range(40):
        shop_server.ask("GET", f"cache:profile:{number}")
    expect(tile(page, "Hit ratio")).to_have_text(re.compile("%"))


def test_every_keyspace_is_listed_with_its_figures(
    console: RunningConsole, browse: Callable[..., Any]
) -> None:
    """Each keyspace has its kind, lifetime, role, keys, bytes and keys without TTL."""
    page = browse(console, "/keyspaces")
    profile = row(page, "cache:profile:{user_id}")
    expect(profile).to_contain_text("200")
    expect(profile).to_contain_text("value")
    expect(profile).to_contain_text("6 h")
    expect(profile).to_contain_text("KiB")
    expect(row(page, "orders")).to_contain_text("queue")
    expect(row(page, "session:{session_id}")).to_contain_text("24 h sliding")
    expect(tile(page, "Declared keyspaces")).to_have_text("6")
    expect(tile(page, "Undeclared keys")).to_have_text("26")
    unknown = page.get_by_role("region", name="Undeclared keys")
    expect(unknown).to_contain_text("legacy:{legacy_id}")
    page.get_by_label("Find").fill("basket")
    expect(page.get_by_role("region", name="Declared keyspaces").locator("tbody tr")).to_have_count(1)
    page.get_by_label("Find").fill("")
    page.get_by_label("Find").blur()


def test_a_keyspace_has_documentation_ttls_and_entries(
    console: RunningConsole, browse: Callable[..., Any]
) -> None:
    """Its page has the documentation and decoded entries, each in full on demand."""
    page = browse(console, "/keyspaces")
    row(page, "cache:profile:{user_id}").click()
    page.get_by_role("heading", name="cache:profile:{user_id}").wait_for()
    documentation = page.get_by_role("region", name="Documentation")
    for text in ("A user's profile, from SQL", "a join of three tables", "profile update", "6 h"):
        expect(documentation).to_contain_text(text)
    expect(page.get_by_role("region", name="Now")).to_contain_text("200")
    expect(page.get_by_role("region", name="TTLs").locator("svg path").first).to_be_attached()
    entries = page.get_by_role("region", name="Entries")
    expect(entries.locator("tbody tr").first).to_contain_text(re.compile("Porto|Utrecht"))
    entries.locator("tbody tr", has_text="Porto").first.click()
    expect(page.get_by_role("dialog")).to_contain_text('"city"')
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_sensitive_data_is_not_shown(console: RunningConsole, browse: Callable[..., Any]) -> None:
    """Neither values nor ids of a sensitive keyspace reach the browser, on any page."""
    page = browse(console, "/keyspaces")
    expect(row(page, "session:{session_id}")).to_contain_text("200")
    row(page, "session:{session_id}").click()
    entries = page.get_by_role("region", name="Entries")
    expect(entries).to_contain_text("(hidden: sensitive)")
    expect(entries).to_contain_text("declared sensitive")
    entries.locator("tbody tr").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("The value is hidden")
    seen = page.content()
    assert "secret-id" not in seen
    assert "secret-user" not in seen
    assert page.evaluate("JSON.stringify(mounted_app.elements).includes('secret-')") is False


def test_hostile_keys_and_values_are_shown_as_text(
    console: RunningConsole, browse: Callable[..., Any]
) -> None:
    """Markup, scripts and template syntax in keys and values are shown as text and create no element."""
    page = browse(console, "/keyspace?service=shop&keyspace=note:{note_id}")
    entries = page.get_by_role("region", name="Entries")
    expect(entries.locator("tbody tr")).to_have_count(2)
    expect(entries).to_contain_text("note:<img src=x onerror=")
    expect(entries).to_contain_text("{{ 7 * 7 }}")
    entries.locator("tbody tr", has_text="onerror").click()
    expect(page.get_by_role("dialog")).to_contain_text("<script>document.title='owned'</script>")
    _nothing_ran(page)
    page.goto(f"{console.url}/keyspaces")
    expect(page.get_by_role("region", name="Undeclared keys")).to_contain_text("<img src=x onerror=")
    _nothing_ran(page)
    page.goto(f"{console.url}/keyspace?service=shop&keyspace=<img src=x onerror=document.title='owned'>")
    expect(page.get_by_text("Keyspace not found")).to_be_visible()
    _nothing_ran(page)


def _nothing_ran(page: Any) -> None:
    assert page.locator("img[src='x']").count() == 0
    assert page.locator("#app script, .q-dialog script").count() == 0
    assert "owned" not in page.title()


def test_an_audit_runs_and_can_be_exported(
    console: RunningConsole,
    browse: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """It shows progress and findings, and its report can be saved as JSON and Markdown."""
    page = browse(console, "/audit")
    expect(page.get_by_text("Not run yet.")).to_be_visible()
    page.get_by_role("button", name="Run audit").click()
    expect(page.get_by_text(re.compile(r"^Finished .* complete\.$"))).to_be_visible()
    expect(page.get_by_role("progressbar").first).to_have_attribute("aria-valuenow", "1")
    findings = page.get_by_role("region", name="Findings")
    for kind in ("unknown", "no-ttl", "wrong-type", "undecodable"):
        expect(findings).to_contain_text(kind)
    findings.locator("tbody tr", has_text="unknown").first.click()
    panel = page.get_by_role("dialog")
    expect(panel).to_contain_text("it is not known who needs them")
    expect(panel).to_contain_text("ephemera infer --url URL > keys.py")
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    with page.expect_download() as saving:
        page.get_by_role("button", name="JSON").click()
    saving.value.save_as(tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["coverage"]["complete"] is True
    assert {finding["kind"] for finding in report["findings"]} >= {"unknown", "no-ttl"}
    with page.expect_download() as saving:
        page.get_by_role("button", name="Markdown").click()
    saving.value.save_as(tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Audit of shop")
    assert "<img" not in re.sub(r"`[^`]*`", "", text)
    assert "secret-" not in text + json.dumps(report)
    assert console.lines()[-1]["action"] == "audit.run"


def test_pages_do_not_jump_while_they_update(console: RunningConsole, browse: Callable[..., Any]) -> None:
    """Once a page is drawn, ten seconds of updates move nothing."""
    page = browse(console, "/keyspaces")
    expect(row(page, "orders")).to_contain_text("queue")
    expect(page.locator(".e-stand")).to_contain_text("counted")
    page.evaluate(SHIFTS)
    first = page.locator(".e-stand").inner_text()
    page.wait_for_function("text => document.querySelector('.e-stand').innerText !== text", arg=first)
    second = page.locator(".e-stand").inner_text()
    page.wait_for_function("text => document.querySelector('.e-stand').innerText !== text", arg=second)
    assert sum(page.evaluate("window.shifts")) < 0.01


def test_everything_is_reached_by_keyboard(console: RunningConsole, browse: Callable[..., Any]) -> None:
    """Links, rows and panels work with Tab, Enter and Escape alone."""
    page = browse(console)
    page.get_by_role("link", name="Keyspaces").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Declared keyspaces").wait_for()
    expect(row(page, "visits:{page}:{day}")).to_contain_text("41")  # counted: the rows stay as they are
    row(page, "visits:{page}:{day}").press("Enter")
    page.get_by_role("heading", name="visits:{page}:{day}").wait_for()
    page.get_by_role("region", name="Entries").locator("tbody tr").first.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_light_and_dark_follow_the_system_and_the_button(
    console: RunningConsole, browse: Callable[..., Any]
) -> None:
    """The theme follows the system until one is chosen, which survives a reload."""
    page = browse(console, color_scheme="dark")
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))
    page.emulate_media(color_scheme="light")
    expect(page.locator("body")).to_have_class(re.compile("body--light"))
    page.get_by_role("button", name="Theme: Follow the system").click()
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))
    page.reload()
    expect(page.get_by_role("button", name="Theme: Dark")).to_be_visible()
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))


def test_an_unknown_page_or_keyspace_says_so(console: RunningConsole, browse: Callable[..., Any]) -> None:
    """An unknown address shows what to do."""
    page = browse(console, "/nowhere")
    expect(page.get_by_text("Page not found")).to_be_visible()
    page.goto(f"{console.url}/keyspace?service=shop&keyspace=gone")
    expect(page.get_by_text("Keyspace not found")).to_be_visible()


def test_pages_without_declarations_say_how_to_declare(
    console: RunningConsole, browse: Callable[..., Any]
) -> None:
    """Every page of a service without such patterns is empty and names the documentation."""
    page = browse(console, "/sessions")
    for title in ("Sessions", "Limits", "Jobs", "Streams", "Locks", "Write-behind", "Planner"):
        page.get_by_role("link", name=title).click()
        page.get_by_role("heading", name=title).or_(page.locator(".e-empty")).first.wait_for()
        name = title.lower().replace("-", "_").replace("limits", "rate_limits").replace("streams", "events")
        page.locator(".e-empty").get_by_text(f"docs/patterns/{name}.md").wait_for()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/keyspaces", []),
        ("/audit", ["No findings", "No report yet"]),
        ("/limits", ["No limits are declared"]),
    ],
)
def test_no_page_shows_an_empty_state_before_loading(
    console: RunningConsole, path: str, said: list[str]
) -> None:
    """Before data has arrived, a page does not claim that there is none."""
    with console.signed_in() as client:
        sent = client.get(path).text
    boxes = re.findall(
        r'"class":\["e-empty"(,"hidden")?\].*?"text":"([^"]*)","class":\["e-empty-title"\]', sent
    )
    assert boxes, "a page with tables has words for when they are empty"
    assert [title for hidden, title in boxes if not hidden] == said
