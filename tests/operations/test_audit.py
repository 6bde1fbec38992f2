"""The audit: what is as declared passes, and each way not to be is found, on Valkey and on Redis 7."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ephemera.errors import CannotConnect, OverlappingPatterns
from ephemera.keyspace import Catalogue, fixed
from ephemera.operations.audit import KINDS, audit
from ephemera.wire import Arg, open_client
from tests.operations.audit_fixtures import KEYS, audited, catalogue, of_kind, state_of

HOUR = 3_600_000


async def change(url: str, *commands: tuple[Arg, ...]) -> None:
    """Do something behind the catalogue's back."""
    async with open_client(url) as client:
        for command in commands:
            await client.call(*command)


async def test_what_was_written_through_the_catalogue_is_as_declared(shop: str) -> None:
    """Keys of every kind that accessors wrote give no finding about keys or values."""
    report = await audited(shop)
    about_servers = {"no-memory-limit", "unpersisted-queue"}
    assert {finding.kind for finding in report.findings} <= about_servers
    assert report.coverage.complete
    assert report.coverage.names == KEYS
    assert report.coverage.cursor is None
    assert all(space.keys == space.sampled == 1 for space in report.keyspaces)
    assert all(space.contents_read == 1 for space in report.keyspaces)


async def test_unknown_keys_come_by_shape_with_examples(shop: str) -> None:
    """Undeclared keys are grouped, counted, shown and measured; those no pattern renders say why."""
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


async def test_a_space_without_keys_is_told(shop: str) -> None:
    """A declared space with no key is a note, not a problem."""
    await change(shop, ("UNLINK", "profile:1"))
    (finding,) = of_kind(await audited(shop), "empty-keyspace")
    assert (finding.keyspace, finding.severity) == ("profile:{user_id}", "note")


async def test_wrong_types_are_found(shop: str) -> None:
    """A key of another type than declared is found, whatever it holds."""
    await change(shop, ("UNLINK", "profile:1"), ("HSET", "profile:1", "a", "b"))
    (finding,) = of_kind(await audited(shop), "wrong-type")
    assert finding.message == "of type hash, declared string"
    assert finding.examples == ["profile:1"]


async def test_missing_and_excessive_ends_are_found(shop: str) -> None:
    """No TTL where there should be one, one above the policy, and one where there should be none."""
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
    """What the declared codec cannot read is found in every kind that has one."""
    await change(shop, command)
    (finding,) = of_kind(await audited(shop), "undecodable")
    assert finding.keyspace == pattern


async def test_large_values_are_not_read_and_big_keys_are_told(shop: str) -> None:
    """A value above the bound is measured, not fetched; one above 1 MiB is a finding."""
    await change(shop, ("SET", "profile:1", b"x" * 2_000_000, "PX", 60_000))
    report = await audited(shop)
    assert of_kind(report, "undecodable") == []
    assert state_of(report, "profile:{user_id}").too_large_to_read == 1
    (finding,) = of_kind(report, "big-key")
    assert "up to 1.9 MiB" in finding.message or "up to 2" in finding.message
    assert state_of(report, "profile:{user_id}").largest[0].size > 2_000_000


async def test_of_large_collections_a_few_members_are_read(shop: str) -> None:
    """A collection that is too large as a whole is judged by some of its members."""
    await change(shop, ("HSET", "cart:1", *(part for n in range(20_000) for part in (f"thing-{n}", n))))
    cart = state_of(await audited(shop), "cart:{user_id}")
    assert (cart.contents_read, cart.undecodable, cart.too_large_to_read) == (1, 0, 0)
    assert cart.largest[0].members == 20_001


async def test_streams_show_length_groups_pending_and_lag(shop: str) -> None:
    """A stream's entries, and what its groups have not delivered or not finished, are told."""
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
    """Neither ids of a sensitive space nor any value is in the report, also not of keys that look like it."""
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
    told = msgspec.json.encode(report)
    assert b"s3cret" not in told
    assert b"v4lue" not in told
    assert report.unknown.keys == 4


async def test_a_sample_is_extrapolated_with_bounds(shop: str) -> None:
    """With a sample of some keys, counts stay exact and shares get an interval that holds the truth."""
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


async def test_a_server_that_is_not_there_is_an_error() -> None:
    """Nothing is reported about a server that cannot be reached."""
    with pytest.raises(CannotConnect):
        await audit("redis://127.0.0.1:1", [catalogue])


def test_every_kind_of_finding_is_documented() -> None:
    """The page on the audit names each kind, with its weight in the same row."""
    page = (Path(__file__).parents[2] / "docs" / "operations" / "audit.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for kind, (weight, _) in KINDS.items():
        assert any(f"`{kind}`" in row and f"| {weight} |" in row for row in rows), kind
