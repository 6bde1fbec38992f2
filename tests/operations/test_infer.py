"""Inference: the proposed catalogue imports, fits the keys, and hides likely secrets."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import Catalogue, Fixed, Keyspace, Permanent, write_identity
from ephemera.operations.audit import AuditReport, audit
from ephemera.operations.infer import Proposal, infer
from ephemera.operations.survey import SurveyOptions
from ephemera.wire import Arg, open_client
from tests.operations.audit_fixtures import of_kind
from tests.operations.service_catalogues import TABLES, commands


async def write(url: str, writes: Iterable[tuple[Arg, ...]]) -> None:
    """Run these writes on an empty server."""
    async with open_client(url) as client:
        for node in client.nodes():
            await node.call("FLUSHALL")
        for command in writes:
            await client.call(*command)


def imported(source: str) -> Catalogue:
    """The catalogue of a proposed module, imported like any module."""
    module = ModuleType("proposed")
    sys.modules["proposed"] = module  # msgspec looks there for the types of a Struct's fields
    exec(compile(source, "proposed.py", "exec"), module.__dict__)
    catalogue: Catalogue = module.catalogue
    return catalogue


async def inferred(url: str, writes: Iterable[tuple[Arg, ...]]) -> tuple[Proposal, Catalogue, AuditReport]:
    """The proposal for these keys, its catalogue, and the audit against it."""
    await write(url, writes)
    proposal = await infer(url)
    catalogue = imported(proposal.source)
    return proposal, catalogue, await audit(url, [catalogue])


@pytest.mark.parametrize("system", TABLES)
async def test_an_audit_against_the_proposal_finds_no_unknown_keys(own_url: str, system: str) -> None:
    """Every key of each of the five services is declared, with its type and a fitting lifetime."""
    _, catalogue, report = await inferred(own_url, commands(system))
    assert report.unknown.keys == 0
    assert len(catalogue) <= 3 * len(TABLES[system].splitlines())  # a few words may stay words
    for kind in ("wrong-type", "no-ttl", "ttl-above-policy", "unexpected-ttl"):
        assert of_kind(report, kind) == []
    assert {finding.keyspace for finding in of_kind(report, "undecodable")} <= {
        space.pattern for space in catalogue if space.kind == "stream"
    }


async def test_hostile_names_of_a_streams_fields_do_not_break_the_source(own_url: str) -> None:
    """The proposed module imports whatever the names of stream fields are."""
    hostile = (b'a"b', b"c\\d", b"e\nf", b"\xff", b"_v", b"class", b"plain")
    writes = [("XADD", "events:main", "*", *(word for name in hostile for word in (name, "1")))]
    _, catalogue, report = await inferred(own_url, writes)
    assert [space.kind for space in catalogue] == ["stream"]
    assert report.unknown.keys == 0


async def test_a_cluster_is_inferred_from_all_of_its_masters(own_cluster: Cluster) -> None:
    """Keys of all masters are in one catalogue."""
    _, _, report = await inferred(own_cluster.url, commands("slides"))
    assert report.unknown.keys == 0
    assert len(report.servers) == 3


async def test_kinds_types_and_lifetimes_are_inferred(own_url: str) -> None:
    """Kinds and types come from the contents, lifetimes from the longest TTL, rounded up."""
    _, catalogue, _ = await inferred(
        own_url,
        [
            *(("SET", f"flag:{n}", "1", "EX", 3000 + n) for n in range(20)),
            *(("SET", f"view_count:{n}", "1", "EX", 80_000 + n) for n in range(20)),
            *(("SET", f"total:{n}", n * 7) for n in range(20)),
            *(("SET", f"switch:{n}", n % 2, "PX", 9000) for n in range(20)),
            *(("SET", f"price:{n}", f"{n}.5", "EX", 500) for n in range(20)),
            *(("SET", f"page:{n}", '{"title": "x"}', "EX", 500) for n in range(20)),
            *(("SET", f"blob:{n}", b"\xff\x00") for n in range(20)),
            *(("HSET", f"stock:{n}", "apple", 1, "pear", 2) for n in range(20)),
            *(("ZADD", f"board:{n}", 1, n) for n in range(20)),
            *(("RPUSH", f"todo:{n}", "text") for n in range(20)),
            ("XADD", "log:main", "*", "from", "x", "to", "y"),
        ],
    )
    assert {space.pattern: described(space) for space in catalogue} == {
        "flag:{flag_id}": ("flag", None, 3_600_000),
        "view_count:{view_id}": ("counter", None, 86_400_000),
        "total:{total_id}": ("counter", None, None),
        "switch:{switch_id}": ("value", bool, 10_000),
        "price:{price_id}": ("value", float, 600_000),
        "page:{page_id}": ("value", str, 600_000),
        "blob:{blob_id}": ("value", bytes, None),
        "stock:{stock_id}": ("mapping", int, None),
        "board:{board_id}": ("sorted_set", int, None),
        "todo:{todo_id}": ("list", str, None),
        "log:main": ("stream", None, None),
    }
    assert {space.pattern for space in catalogue if space.role == "queue"} == {"todo:{todo_id}", "log:main"}


def described(space: Keyspace[Any]) -> tuple[str, object, int | None]:
    """Kind, value type and lifetime of a keyspace."""
    assert isinstance(space.lifetime, (Fixed, Permanent))
    if isinstance(space.lifetime, Permanent):
        assert space.lifetime.reason == "seen without a TTL"
    return space.kind, getattr(space.codec, "value_type", None), space.lifetime.milliseconds


async def test_undeclarable_keys_are_listed_with_the_reason(own_url: str) -> None:
    """Keys that no pattern renders are comments at the end, and unknown to the audit for the same reason."""
    nasty = {
        b"\xff\x00raw": "it is not UTF-8 text",
        b"line\nbreak": "it holds a control character",
        b"glob:*": "it holds *",
        b"{user:1}.friends": "its braces are not a hash tag around one field",
        b"a{1}b": "a letter or digit follows its hash tag",
        "été:1".encode(): "it does not start with a literal",
        b"": "it does not start with a literal",
        b"50%:off": "its % is not how Ephemera encodes a value",
    }
    fine = [
        b"with space:a b",
        b"x::y:",
        b":lead",
        b"job:{7}.log",
        b"q:%3A",
        b"\x22quoted\x22:'1'",
        b"a.b-c:9",
    ]
    proposal, _, report = await inferred(own_url, [("SET", key, "v") for key in (*nasty, *fine)])
    assert report.unknown.keys == len(nasty)
    reasons = {shape.reason for shape in report.unknown.shapes}
    for reason in nasty.values():
        assert any(each and each.startswith(reason) for each in reasons)
        assert f"# 1 key: {reason}" in proposal.source or reason == "it does not start with a literal"
    assert sum(each.count for each in proposal.left_out) == len(nasty)


async def test_a_percent_sign_that_no_proposed_pattern_encodes_is_listed(own_valkey: Valkey) -> None:
    """A key with a literal beside an empty field is left out where its pattern is not found, and listed."""
    keys = (b"ab:", b"v.%%..", b"v%%", b"q:%3A")
    proposal, _, report = await inferred(own_valkey.url, [("SET", key, "v") for key in keys])
    (left,) = proposal.left_out
    assert (left.count, left.examples) == (1, [b"v.%%.."])
    assert "its own pattern encodes" in left.reason
    assert report.unknown.keys == 1


async def test_secrets_are_not_shown(own_url: str) -> None:
    """Keys and values that look like secrets are not in the source, and their keyspaces are sensitive."""
    field = "18f33429-f59b-4b69-8d97-06dbb411026b"
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
    proposal, catalogue, report = await inferred(
        own_url,
        [
            ("SET", "session:hunter2secretid", "v4lue"),
            ("SET", "password:hunter", "v4lue"),
            ("SET", "api_key:abcdefgh", "v4lue"),
            ("HSET", "account:77", "name", "v4lue", "password", "hunter2"),
            ("HSET", "pending:1", field, "message"),
            ("SET", "session:ABXV8bBA5dtmQsgbx4_GU1iKDt7", "v4lue"),
            ("SET", "opaque:1", token),
            ("SET", "page:1", "welcome"),
        ],
    )
    for secret in ("hunter", "v4lue", "abcdefgh", "gbx4", field, token):
        assert secret not in proposal.source
    shown = {space.pattern for space in catalogue if not space.sensitive}
    assert shown == {"page:{page_id}", "pending:{pending_id}"}
    assert "welcome" in proposal.source
    assert report.unknown.keys == 0


async def test_in_doubt_neither_a_key_nor_a_value_is_shown(own_valkey: Valkey) -> None:
    """Short ids and addresses of people are hidden, and a value is shown only if it is plain words."""
    keys = [
        "short:dQw4w9WgXcQ",
        "upload:AKIAIOSFODNN7EXAMPLE",
        "verification:483920",
        "api-key:abc",
        "2fa:ann",
        "reset:4f9a2b",
        "cart:ann@example.com",
    ]
    values = [
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "AKIAIOSFODNN7EXAMPLE",
        "hunter2",
        "4111 1111 1111 1111",
        "postgres://ann:pass@db/shop",
        "ann@example.com",
        "my password is horse",
    ]
    shown = ["waiting", "en-GB", "2026-11-18"]
    commands: list[tuple[Arg, ...]] = [("SET", key, "waiting") for key in keys]
    commands += [("SET", f"note{chr(97 + n)}:1", value) for n, value in enumerate([*values, *shown])]
    commands += [
        ("XADD", "log:main", "*", "title", "x", "dQw4w9WgXcQxYz01", "y"),
        ("HSET", "h:1", "k3j5x9", "y"),
    ]
    proposal, _, _ = await inferred(own_valkey.url, commands)
    hidden = [*(key.partition(":")[2] for key in keys), *values, "dQw4w9WgXcQxYz01", "k3j5x9"]
    assert [each for each in hidden if each in proposal.source] == []
    assert [each for each in shown if f"holds for example '{each}'" not in proposal.source] == []


async def test_the_mark_of_a_server_is_not_proposed(own_valkey: Valkey) -> None:
    """The reserved key is not declared again, which a store would refuse."""
    await write(own_valkey.url, [("SET", "page:1", "x")])
    async with open_client(own_valkey.url) as client:
        await write_identity(client, "mine")
    proposal = await infer(own_valkey.url)
    assert [declaration.pattern for declaration in proposal.keyspaces] == ["page:{page_id}"]


async def test_patterns_of_many_names_leave_the_mark_alone(own_valkey: Valkey) -> None:
    """However many names start alike, no proposed pattern could have rendered the reserved key."""
    names = [f"e{a}{b}{c}" for a in "abcmnop" for b in "aeiouh" for c in "lmnrst"]
    _, catalogue, report = await inferred(own_valkey.url, [("SET", f"{name}:1", "x") for name in names])
    assert len(catalogue) < len(names)
    assert report.unknown.keys == 0


async def test_a_partial_survey_is_reported(own_valkey: Valkey) -> None:
    """A proposal from part of the keys says so, including in its source."""
    await write(own_valkey.url, [("MSET", *(part for n in range(9000) for part in (f"page:{n}", "x")))])
    proposal = await infer(own_valkey.url, options=SurveyOptions(budget=1e-9))
    assert not proposal.coverage.complete
    assert "Not seen: the names after the cursor" in proposal.source
    assert imported(proposal.source)


async def test_an_empty_server_gives_an_empty_catalogue(own_valkey: Valkey) -> None:
    """There is nothing to declare, and that imports, too."""
    proposal, catalogue, _ = await inferred(own_valkey.url, [])
    assert proposal.keyspaces == []
    assert len(catalogue) == 0


async def test_long_keys_get_the_room_they_need(own_valkey: Valkey) -> None:
    """A key above the usual limit is declared with one that renders it."""
    _, catalogue, _ = await inferred(own_valkey.url, [("SET", "long:" + "x" * 3000, "v")])
    (space,) = catalogue
    assert space.key(**{space.template.fields[0]: "x" * 3000})


_ANY_KEYS = st.lists(st.text(alphabet="ab1Z:_-./ é{}", max_size=16).map(str.encode), max_size=60)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=_ANY_KEYS)
async def test_any_keys_are_declared_or_listed(own_valkey: Valkey, keys: list[bytes]) -> None:
    """Whatever the names, what the audit does not know is exactly what the proposal lists as left out."""
    proposal, _, report = await inferred(own_valkey.url, [("SET", key, "v") for key in keys])
    assert report.unknown.keys == sum(each.count for each in proposal.left_out)
    assert all(shape.pattern is None for shape in report.unknown.shapes)
