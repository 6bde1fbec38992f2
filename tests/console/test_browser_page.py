"""The key browser: search, values, and changes, which need a role and a confirmation and are logged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from ephemera import Catalogue, Store, connect, embedded, fixed
from ephemera.console._connections import ConsoleService, Service
from ephemera.console._formats import HIDDEN
from ephemera.console._key_search import PAGE, KeyScope, KeySearch
from ephemera.console._key_values import TOO_DEEP, TOO_LARGE, KeyEntry, read_entry
from ephemera.embedded import Valkey
from ephemera.errors import KeyNotChanged
from ephemera.keyspace import CodecName, Keyspace, Template
from ephemera.patterns.locks import Locks
from tests.console.browser_pages import FITS, expect, region, row_of
from tests.console.console_process import RunningConsole, running_console, settled
from tests.console.shop_keys import BASKET, NOTE, PROFILE, SESSION, VISITS, Session, catalogue
from tests.least_privilege import admitted

MARKUP = "<img src=x onerror=\"document.title='owned'\">"
VIEWER = "the password of a viewer"
ACCOUNTS = {"EPHEMERA_CONSOLE_ACCOUNTS": f"ada view {VIEWER}\ngrace operate the password of grace"}


def service_of(store: Store, declared: Catalogue = catalogue) -> Service:
    """A store as a service of the console."""
    return Service(ConsoleService((declared,), "redis://cache.internal"), store, None)


def scope_of(service: Service, keyspace: Keyspace[Any] | None) -> KeyScope:
    """A keyspace of the service, or its undeclared keys."""
    return KeyScope(service, "cache" if keyspace is None else keyspace.role, keyspace)


async def entry(scope: KeyScope, key: str, *, undeclared: bool = True) -> KeyEntry:
    """A key that exists."""
    found = await read_entry(scope, key.encode(), undeclared=undeclared)
    assert found is not None
    return found


async def found(search: KeySearch) -> set[bytes]:
    """All keys that a search finds; the work of each step is bounded."""
    keys: list[bytes] = []
    while not search.done:
        before = search.scanned
        keys += await search.more()
        assert search.scanned - before <= 50_000
    assert len(keys) == len(set(keys))
    return set(keys)


async def test_a_search_finds_keys_of_one_keyspace_by_a_part(server: Valkey) -> None:
    """Other keyspaces and undeclared keys are not among them, and a long search is continued."""
    async with connect(server.url, catalogue) as store:
        service = service_of(store)
        for number in range(3 * PAGE):
            await store[PROFILE].put({"name": "Ada"}, user_id=number)
        await store[NOTE].put("text", note_id="17")
        await store.call("SET", "stranger:17", "x", "EX", 60)
        profiles = scope_of(service, PROFILE)
        assert len(await found(KeySearch(profiles, ""))) == 3 * PAGE
        sought = await found(KeySearch(profiles, "profile:17"))
        assert b"cache:profile:17" in sought
        assert sought == {each for each in sought if b"profile:17" in each}
        assert await found(KeySearch(scope_of(service, None), "17")) == {b"stranger:17"}
        whole = await KeySearch(profiles, "cache:profile:299").more()
        assert whole[0] == b"cache:profile:299"


async def test_a_shape_has_only_its_undeclared_keys(server: Valkey) -> None:
    """Neither keys of other shapes, nor declared ones that would fit, are found in it."""
    async with connect(server.url, catalogue) as store:
        for key in ("tag:{1}:top", "tag:{2}:top", "tag:1:top", "tag:{1}:new", "tag:{1}:top:more"):
            await store.call("SET", key, "x", "EX", 60)
        await store[NOTE].put("text", note_id="17")
        service = service_of(store)
        tops = KeyScope(service, "cache", None, shape=Template("tag:{tag_id}:top", hash_tag="tag_id"))
        assert await found(KeySearch(tops, "")) == {b"tag:{1}:top", b"tag:{2}:top"}
        assert await found(KeySearch(tops, "2")) == {b"tag:{2}:top"}
        notes = KeyScope(service, "cache", None, shape=Template(NOTE.pattern))
        assert await found(KeySearch(notes, "")) == set()


async def test_a_secret_is_neither_shown_nor_found_by_a_guess(server: Valkey) -> None:
    """Keys of a sensitive keyspace, and undeclared ones that look like a secret, match no text."""
    async with connect(server.url, catalogue) as store:
        service = service_of(store)
        await store[SESSION].put(Session(user="ada", role="member"), session_id="guess")
        await store.call("SET", "token:guess", "guess", "EX", 60)
        await store.call("HSET", "account:7", "name", "Ada", "password", "guess")
        await store.call("XADD", "logins", "*", "name", "Ada", "password", "guess")
        await store.call("SET", "session:archive:guess", "guess", "EX", 60)
        for scope in (scope_of(service, SESSION), scope_of(service, None)):
            assert await found(KeySearch(scope, "guess")) == set()
            assert len(await found(KeySearch(scope, ""))) >= 1
        hidden = [
            await entry(scope_of(service, SESSION), "session:guess"),
            await entry(scope_of(service, None), "token:guess"),
            await entry(scope_of(service, None), "account:7", undeclared=False),
        ]
        hidden.append(await entry(scope_of(service, None), "session:archive:guess"))
        assert [each.text for each in hidden] == [HIDDEN] * 4
        assert [each.may_delete for each in hidden] == [False, False, True, False]
        for key in ("account:7", "logins"):
            shown = (await entry(scope_of(service, None), key)).text
            assert "Ada" in shown
            assert "guess" not in shown


@pytest.mark.parametrize(
    "value", ["hunter2", "postgres://ann:pass@db/shop", "4111111111111111", "k3j5k3j5k3j5k3j5", "Xy9!zz"]
)
async def test_what_may_be_a_secret_is_not_shown_of_undeclared_keys(server: Valkey, value: str) -> None:
    """Of undeclared keys only words and short numbers are shown, however the value is stored."""
    async with connect(server.url, catalogue) as store:
        scope = scope_of(service_of(store), None)
        await store.call("SET", "stranger:text", value, "EX", 60)
        await store.call(
            "SET", "stranger:json", msgspec.json.encode({"city": "Porto", "at": [value]}), "EX", 60
        )
        await store.call("HSET", "stranger:hash", "city", "Porto", "visits", "17", "at", value)
        await store.call("LPUSH", "stranger:list", value, "Porto")
        shown = {
            name: (await entry(scope, f"stranger:{name}")).text for name in ("text", "json", "hash", "list")
        }
    assert value not in str(shown)
    assert shown["text"] == HIDDEN
    assert all("Porto" in shown[name] for name in ("json", "hash", "list"))
    assert "17" in shown["hash"]


async def test_a_hostile_value_can_be_deleted(server: Valkey) -> None:
    """JSON that nests as deep as any decoder goes, or deeper, is not shown, and does not hide its key."""
    async with connect(server.url, catalogue) as store:
        for depth in (2_000, 5_000):
            await store.call("SET", "stranger:deep", b"[" * depth + b"]" * depth, "EX", 60)
            hostile = await entry(scope_of(service_of(store), None), "stranger:deep")
            assert hostile.text == TOO_DEEP
            await hostile.delete()


async def test_an_edited_value_keeps_its_ttl_and_fits_its_type(server: Valkey) -> None:
    """A value of another type is refused, and so is one that changed since it was shown."""
    async with connect(server.url, catalogue) as store:
        service = service_of(store)
        await store[PROFILE].put({"name": "Ada"}, user_id=1)
        await store.call("EXPIRE", "cache:profile:1", 1000)
        await store[VISITS].add(3, page="start", day="2026-11-15")
        shown = await entry(scope_of(service, PROFILE), "cache:profile:1")
        await shown.replace('{"name": "Grace"}')
        assert await store[PROFILE].get(user_id=1) == {"name": "Grace"}
        assert 0 < await store.call("TTL", "cache:profile:1") <= 1000
        for wrong in ("{", "7", '{"name": 7}', "null", ""):
            with pytest.raises(KeyNotChanged, match="does not decode"):
                await shown.replace(wrong)
        await store[PROFILE].put({"name": "Alan"}, user_id=1)
        with pytest.raises(KeyNotChanged, match="in the meantime"):
            await shown.replace('{"name": "Joan"}')
        assert await store[PROFILE].get(user_id=1) == {"name": "Alan"}
        counter = await entry(scope_of(service, VISITS), "visits:start:2026-11-15")
        await counter.replace("40")
        assert await store[VISITS].get(page="start", day="2026-11-15") == 40
        for wrong in ("x", "4.5", str(2**63)):
            with pytest.raises(KeyNotChanged, match="whole number"):
                await counter.replace(wrong)


class Record(msgspec.Struct):
    """A record with parts that JSON writes as text."""

    name: str
    data: bytes
    at: datetime


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_records_and_bytes_are_edited_as_json(server: Valkey, codec: CodecName) -> None:
    """The text is decoded as the declared type, whatever stores it; what does not fit is refused."""
    declared = Catalogue("records")
    day = fixed(days=1)
    records = declared.value("record:{id}", Record, codec=codec, lifetime=day, purpose="Records")
    blobs = declared.value("blob:{id}", bytes, lifetime=day, purpose="Bytes")
    at = datetime(2026, 11, 1, tzinfo=UTC)
    async with connect(server.url, declared) as store:
        service = service_of(store, declared)
        await store[records].put(Record("book", b"1", at), id=1)
        shown = await entry(scope_of(service, records), "record:1")
        await shown.replace(shown.text.replace("book", "bread").replace("MQ==", "Mg=="))
        assert await store[records].get(id=1) == Record("bread", b"2", at)
        for wrong in ('{"name": "bread"}', shown.text.replace("Mg==", "?"), "[]", "bread"):
            with pytest.raises(KeyNotChanged, match="does not decode"):
                await shown.replace(wrong)
        await store[blobs].put(b"1", id=1)
        await (await entry(scope_of(service, blobs), "blob:1")).replace('"Mg=="')
        assert await store[blobs].get(id=1) == b"2"


async def test_another_service_on_the_server_keeps_its_secrets(server: Valkey) -> None:
    """Its sensitive keys are undeclared for this one, and still hidden."""
    codes = Catalogue("codes")
    code = codes.value("code:{phone}", str, sensitive=True, lifetime=fixed(minutes=5), purpose="Codes")
    async with connect(server.url, catalogue, codes) as store:
        await store[code].put("482", phone="555")
        undeclared = KeyScope(service_of(store), "cache", None, (service_of(store, codes),))
        assert await found(KeySearch(undeclared, "555")) == set()
        shown = await entry(undeclared, "code:555")
        assert (shown.text, shown.may_delete) == (HIDDEN, False)


async def test_what_a_pattern_must_keep_cannot_be_deleted(server: Valkey) -> None:
    """A key of role queue that a pattern declares stays; one that a service declares itself does not."""
    declared = Catalogue("depot")
    locks = Locks(declared, "lock:{name}", lease=timedelta(seconds=9), role="queue", purpose="One at a time")
    plain = declared.set(
        "orders:{day}", str, role="queue", purpose="Orders", lifetime=fixed(days=9, outlives="a day")
    )
    async with connect(server.url, declared) as store:
        service = service_of(store, declared)
        await store[plain].add("book", day="monday")
        async with store[locks].hold(name="door"):
            held = await entry(scope_of(service, locks.keyspace), locks.keyspace.key(name="door"))
            with pytest.raises(KeyNotChanged):
                await held.delete()
            with pytest.raises(KeyNotChanged):
                await held.expire(5)
            with pytest.raises(KeyNotChanged):
                await held.replace("x")
        listed = await entry(scope_of(service, plain), "orders:monday")
        await listed.expire(5)
        assert 0 < await store.call("TTL", "orders:monday") <= 5
        await listed.delete()
        with pytest.raises(KeyNotChanged, match="no longer exists"):
            await listed.delete()


async def fill(url: str) -> None:
    """Some keys of the shop, one of them hostile, and an undeclared one."""
    async with connect(url, catalogue) as store:
        for number in range(30):
            await store[PROFILE].put({"name": f"User {number}", "city": MARKUP}, user_id=number)
        await store[NOTE].put(MARKUP, note_id=MARKUP)
        await store[BASKET].add("bread", user_id=1)
        await store.call("SET", "legacy:1", "left behind")


@pytest.fixture(scope="module")
def depot() -> Iterator[Valkey]:
    """A server with these keys."""
    with embedded.valkey() as server:
        settled(fill(server.url))
        yield server


@pytest.fixture(scope="module")
def allowed(depot: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console with actions and accounts of every role."""
    folder = tmp_path_factory.mktemp("browser")
    with running_console(folder, depot.url, "--allow-actions", **ACCOUNTS) as running:
        yield running


async def test_the_acl_of_a_console_is_enough(depot: Valkey) -> None:
    """Searches and changes need no more rights than docs give a console, and no large value is read."""
    purposes = ("service", "metrics", "monitoring")
    async with (
        admitted(depot.url, catalogue, purposes=purposes) as user,
        connect(user.url, catalogue) as store,
    ):
        service = service_of(store)
        assert await found(KeySearch(scope_of(service, None), "legacy:1")) == {b"legacy:1"}
        await store[NOTE].put("a", note_id=1)
        note = await entry(scope_of(service, NOTE), "note:1")
        await note.replace("b")
        await note.expire(60)
        await note.delete()
        await store[NOTE].put("x" * 1_000_000, note_id=1)
        depot.ask("CONFIG", "RESETSTAT")
        large = await entry(scope_of(service, NOTE), "note:1")
        assert (large.text, large.raw) == (TOO_LARGE, None)
        assert "cmdstat_get:" not in str(depot.ask("INFO", "commandstats"))
        await large.delete()
        assert await user.denied() == []


def asked(page: Any, question: str) -> Any:
    """The confirmation with this text: the drawer is a dialog, too, with buttons of the same names."""
    return page.get_by_role("dialog").filter(has_text=question)


def test_an_administrator_edits_and_deletes_a_key(
    allowed: RunningConsole, depot: Valkey, browse: Callable[..., Any]
) -> None:
    """Search, open, edit and delete ask for confirmation, and each is a line in the log; markup is text."""
    page = browse(allowed, "/browser?service=shop&keyspace=cache:profile:{user_id}")
    keys = region(page, "Keys")
    expect(keys).to_contain_text("30 keys in total")
    page.get_by_label("Part of a key").fill("profile:17")
    page.keyboard.press("Enter")
    expect(keys).to_contain_text("1 key in total")
    row_of(keys, "cache:profile:17").press("Enter")
    panel = page.locator(".e-drawer")
    editor = panel.get_by_label("Value")
    expect(editor).to_be_visible()
    assert json.loads(editor.input_value()) == {"name": "User 17", "city": MARKUP}
    editor.fill('{"name": "Renamed"}')
    panel.get_by_role("button", name="Save").click()
    asked(page, "Its TTL is kept.").get_by_role("button", name="Save").click()
    page.get_by_text("The value is saved.").wait_for()
    assert '{"name":"Renamed"}' in str(depot.ask("GET", "cache:profile:17"))
    assert int(str(depot.ask("TTL", "cache:profile:17"))) > 0
    panel.get_by_role("button", name="Delete").click()
    asked(page, "This cannot be undone.").get_by_role("button", name="Delete").click()
    page.get_by_text("The key is deleted.").wait_for()
    expect(keys).to_contain_text("0 keys")
    assert depot.ask("EXISTS", "cache:profile:17") == 0
    done = [(line["action"], line["target"], line["outcome"]) for line in allowed.lines()]
    assert done == [(f"key.{what}", "cache:profile:17", "done") for what in ("read", "edit", "delete")]
    page.goto(f"{allowed.url}/browser?service=shop&keyspace=note:{{note_id}}")
    expect(row_of(region(page, "Keys"), "onerror")).to_be_visible()
    row_of(region(page, "Keys"), "onerror").click()
    expect(page.get_by_label("Value")).to_have_value(MARKUP)
    assert page.locator("img[src=x]").count() == 0
    assert "owned" not in page.title()


def test_a_viewer_changes_nothing_and_sees_no_undeclared_value(
    allowed: RunningConsole, depot: Valkey, browse: Callable[..., Any]
) -> None:
    """Buttons are disabled, and undeclared values need a higher role."""
    page = browse(allowed, "/browser?service=shop&keyspace=basket:{user_id}", sign_in=False)
    page.get_by_label("User").fill("ada")
    page.get_by_label("Password").fill(VIEWER)
    page.get_by_role("button", name="Sign in").click()
    row_of(region(page, "Keys"), "basket:1").click()
    panel = page.locator(".e-drawer")
    expect(panel).to_contain_text("bread")
    expect(panel.get_by_role("button", name="Delete")).to_be_disabled()
    expect(panel.get_by_role("button", name="Set TTL")).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_text("Undeclared keys", exact=True).click()
    row_of(region(page, "Keys"), "legacy:1").click()
    expect(panel).to_contain_text("shown to the roles operate and administer")
    assert "left behind" not in page.content()
    refused = [line for line in allowed.lines() if line["who"] == "ada" and line["action"] != "key.read"]
    assert refused == []
    assert depot.ask("EXISTS", "basket:1", "legacy:1") == 2


def test_the_browser_fits_a_phone(
    allowed: RunningConsole, browse: Callable[..., Any], picture: Callable[[Any, str], None]
) -> None:
    """Nothing is wider than the window at 390 pixels, and the tree is reached by keyboard."""
    page = browse(allowed, "/browser")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(region(page, "Keys")).to_contain_text("in total")
    page.wait_for_function(FITS)
    node = page.locator(".q-tree__node-header", has_text="cache:profile:{user_id}")
    node.press("Enter")
    expect(row_of(region(page, "Keys"), "cache:profile:3")).to_be_visible()
    picture(page, "browser")
