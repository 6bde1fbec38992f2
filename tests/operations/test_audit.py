"""The audit: declared keys pass, and every kind of deviation is found, on Valkey and Redis 7."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import msgspec
import pydantic
import pytest

from ephemera.errors import CannotConnect, OverlappingPatterns
from ephemera.keyspace import Catalogue, Key, connect, fixed
from ephemera.operations.audit import KINDS, audit
from ephemera.wire import Arg, open_client
from tests.operations.audit_fixtures import KEYS, audited, catalogue, of_kind, state_of

HOUR = 3_600_000


async def change(url: str, *commands: tuple[Arg, ...]) -> None:
    """Write without the catalogue."""
    async with open_client(url) as client:
        for command in commands:
            await client.call(*command)


async def test_keys_written_through_the_catalogue_cause_no_findings(shop: str) -> None:
    """Keys of every kind that accessors wrote cause no finding about keys or values."""
    report = await audited(shop)
    about_servers = {"no-memory-limit", "unpersisted-queue"}
    assert {finding.kind for finding in report.findings} <= about_servers
    assert report.coverage.complete
    assert report.coverage.names == KEYS
    assert report.coverage.cursor is None
    assert all(space.keys == space.sampled == 1 for space in report.keyspaces)
    assert all(space.contents_read == 1 for space in report.keyspaces)


async def test_undeclared_keys_are_grouped_by_shape(shop: str) -> None:
    """Undeclared keys are grouped, counted and measured; those that no pattern renders have a reason."""
    await change(shop, *(("SET", f"order:{number}:paid", "x") for number in range(40)))
    await change(shop, ("HSET", b"\xff\xfe", "a", "b"), ("SET", "odd[1]", "x"))
    report = await audited(shop)
    assert report.unknown.keys == 42
    orders, *others = report.unknown.shapes
    assert (orders.pattern, orders.keys, orders.types) == ("order:{order_id}:paid", 40, ["string"])
    assert all(example.startswith("order:") for example in orders.examples)
    assert {shape.reason for shape in others} == {"it is not UTF-8 text", "it holds ["}
    assert report.unknown.size is not None
    assert report.unknown.size.value > 0
    (finding,) = of_kind(report, "unknown")
    assert "42 undeclared keys of 3 shapes" in finding.message


async def test_a_keyspace_without_keys_is_a_note(shop: str) -> None:
    """A declared keyspace without keys is a note, not a problem."""
    await change(shop, ("UNLINK", "profile:1"))
    (finding,) = of_kind(await audited(shop), "empty-keyspace")
    assert (finding.keyspace, finding.severity) == ("profile:{user_id}", "note")


async def test_wrong_types_are_found(shop: str) -> None:
    """A key of another type than declared is found."""
    await change(shop, ("UNLINK", "profile:1"), ("HSET", "profile:1", "a", "b"))
    (finding,) = of_kind(await audited(shop), "wrong-type")
    assert finding.message == "of type hash, declared string"
    assert finding.examples == ["profile:1"]


async def test_missing_and_excessive_ttls_are_found(shop: str) -> None:
    """A missing TTL, one above the policy, and one on a permanent key are found."""
    await change(
        shop,
        ("PERSIST", "profile:1"),
        ("PEXPIRE", "cart:1", 2 * HOUR),
        ("PEXPIRE", "events:all", HOUR),
    )
    report = await audited(shop)
    assert [finding.keyspace for finding in of_kind(report, "no-ttl")] == ["profile:{user_id}"]
    assert [finding.keyspace for finding in of_kind(report, "ttl-above-policy")] == ["cart:{user_id}"]
    assert "2 h" in of_kind(report, "ttl-above-policy")[0].message
    assert [finding.keyspace for finding in of_kind(report, "unexpected-ttl")] == ["events:{topic}"]


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("profile:{user_id}", ("SET", "profile:1", '{"name":"ann"}', "KEEPTTL")),
        ("hits:{page}:{day}", ("SET", "hits:home:2026-01-01", "many", "KEEPTTL")),
        ("session:{session_id}", ("HSET", "session:s3cret", "_v", "other")),
        ("cart:{user_id}", ("HSET", "cart:1", "pear", "two")),
        ("events:{topic}", ("XADD", "events:all", "*", "text", "no shape")),
    ],
)
async def test_undecodable_values_are_found(shop: str, pattern: str, command: tuple[Arg, ...]) -> None:
    """Values that the declared codec cannot decode are found in every kind."""
    await change(shop, command)
    (finding,) = of_kind(await audited(shop), "undecodable")
    assert finding.keyspace == pattern


async def test_large_values_are_not_read_and_big_keys_are_found(shop: str) -> None:
    """A value above the limit is measured, not fetched; one above 1 MiB is a finding."""
    await change(shop, ("SET", "profile:1", b"x" * 2_000_000, "PX", 60_000))
    report = await audited(shop)
    assert of_kind(report, "undecodable") == []
    assert state_of(report, "profile:{user_id}").too_large_to_read == 1
    (finding,) = of_kind(report, "big-key")
    assert "up to 1.9 MiB" in finding.message or "up to 2" in finding.message
    assert state_of(report, "profile:{user_id}").largest[0].size > 2_000_000


async def test_the_commands_of_findings_about_keys_end_them(shop: str) -> None:
    """Following them leaves nothing to find; they name no secret, and no key that has to be quoted."""
    await change(
        shop,
        ("PERSIST", "profile:1"),
        ("SET", "profile:a b", b'{"name": "x"}'),
        ("PERSIST", "session:s3cret"),
        ("PEXPIRE", "cart:1", 2 * HOUR),
        ("PEXPIRE", "events:all", HOUR),
        *(("XADD", "events:all", "*", "text", "x") for _ in range(110)),
    )
    kinds = {"no-ttl", "ttl-above-policy", "unexpected-ttl", "long-stream"}
    found = [each for each in (await audited(shop)).findings if each.kind in kinds]
    commands = [command for each in found for command in each.commands]
    assert sorted(commands) == [
        "PERSIST events:all",
        "PEXPIRE cart:1 3600000 LT",
        "PEXPIRE profile:1 300000 LT",
        "XTRIM events:all MAXLEN 100",
    ]
    await change(
        shop, ("UNLINK", "session:s3cret", "profile:a b"), *(tuple(each.split()) for each in commands)
    )
    assert {each.kind for each in (await audited(shop)).findings} & kinds == set()


async def test_large_collections_are_judged_by_a_few_members(shop: str) -> None:
    """A collection that is too large to read is judged by some of its members."""
    await change(shop, ("HSET", "cart:1", *(part for n in range(20_000) for part in (f"thing-{n}", n))))
    cart = state_of(await audited(shop), "cart:{user_id}")
    assert (cart.contents_read, cart.undecodable, cart.too_large_to_read) == (1, 0, 0)
    assert cart.largest[0].members == 20_001


async def test_streams_show_length_groups_pending_and_lag(shop: str) -> None:
    """The report has a stream's length, and its groups' pending and undelivered entries."""
    await change(
        shop,
        ("XGROUP", "CREATE", "events:all", "mail", "0"),
        ("XREADGROUP", "GROUP", "mail", "worker", "COUNT", 1, "STREAMS", "events:all", ">"),
        *(("XADD", "events:all", "*", "text", "x") for _ in range(110)),
    )
    report = await audited(shop)
    (stream,) = state_of(report, "events:{topic}").streams
    (group,) = stream.groups
    assert (stream.length, group.name, group.consumers) == (111, "mail", 1)
    assert (group.pending, group.lag) == (1, 110)
    assert "1 entries pending and 110 not delivered" in of_kind(report, "stream-lag")[0].message
    assert "111 entries, declared at most 100" in of_kind(report, "long-stream")[0].message


async def test_sensitive_keys_and_values_are_never_shown(shop: str) -> None:
    """The report contains no id of a sensitive keyspace, no similar undeclared key, and no value."""
    await change(
        shop,
        ("PERSIST", "session:s3cret"),
        ("SET", "session:s3cret:more", "v4lue"),
        ("SET", "session:{s3cret", "v4lue"),
        ("SET", "password:s3cret", "v4lue"),
        ("SET", "reset_token:s3cretword", "v4lue"),
    )
    report = await audited(shop)
    (finding,) = of_kind(report, "no-ttl")
    assert finding.examples == ["session:{session_id}"]
    encoded = msgspec.json.encode(report)
    assert b"s3cret" not in encoded
    assert b"v4lue" not in encoded
    assert report.unknown.keys == 4


async def test_a_sample_is_extrapolated_with_bounds(shop: str) -> None:
    """With a sample, counts stay exact and shares get an interval that contains the true value."""
    await change(shop, *(("SET", f"profile:{n}", "bad") for n in range(2, 402)))
    report = await audited(shop, sample=50)
    state = state_of(report, "profile:{user_id}")
    assert (state.keys, state.sampled) == (401, 50)
    (finding,) = of_kind(report, "undecodable")
    assert finding.keys is not None
    assert finding.keys.high is not None
    assert finding.keys.low <= 400 <= finding.keys.high
    assert not finding.keys.exact
    assert state.size is not None
    assert state.size.high is not None
    assert state.size.low <= state.size.value <= state.size.high


async def test_catalogues_that_overlap_are_refused(own_url: str) -> None:
    """Two catalogues that could both own a key cannot be audited together."""
    other = Catalogue("other")
    other.counter("profile:{id}", lifetime=fixed(hours=1), purpose="x")
    with pytest.raises(OverlappingPatterns):
        await audit(own_url, [catalogue, other])


async def test_an_unreachable_server_is_an_error() -> None:
    """An unreachable server raises an error instead of a report."""
    with pytest.raises(CannotConnect):
        await audit("redis://127.0.0.1:1", [catalogue])


def test_every_kind_of_finding_is_documented() -> None:
    """The page on the audit lists each kind with its severity in the same row."""
    page = (Path(__file__).parents[2] / "docs" / "operations" / "audit.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for kind, (weight, _, _) in KINDS.items():
        assert any(f"`{kind}`" in row and f"| {weight} |" in row for row in rows), kind


async def test_prefixed_and_typed_keys_are_audited(own_url: str) -> None:
    """Keys of a prefix, of typed fields and of models pass; the same names without the prefix are unknown."""

    class Visit(Key, pattern="visit:{day}"):
        day: date

    class User(pydantic.BaseModel):
        name: str

    shop = Catalogue("prefixed", prefix="shop:")
    visits = shop.hash(Visit.pattern, User, lifetime=fixed(hours=1), purpose="x")
    users = shop.value("user:{id}", User, lifetime=fixed(hours=1), purpose="x")
    await change(own_url, ("FLUSHALL",))
    async with connect(own_url, shop) as store:
        await store[visits].put(User(name="ann"), **Visit(date(2026, 11, 18)))
        await store[users].put(User(name="ann"), id="1")
    await change(
        own_url, ("SET", "user:1", "x"), ("SET", "shop:visit:soon", "x"), ("SET", "shop:user:2", "[]")
    )
    report = await audit(own_url, [shop])
    assert {space.pattern: space.keys for space in report.keyspaces} == {
        "shop:visit:{day}": 1,
        "shop:user:{id}": 2,
    }
    assert report.unknown.keys == 2
    (finding,) = of_kind(report, "undecodable")
    assert finding.keyspace == "shop:user:{id}"
