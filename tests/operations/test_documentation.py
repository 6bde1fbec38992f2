"""The documentation tables contain everything a catalogue declares."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
import pytest

from ephemera.keyspace import Catalogue, fixed, permanent, sliding, until, windowed
from ephemera.operations.documentation import KeyspaceDoc, as_json, as_markdown, describe, format_type, tables
from ephemera.patterns.cache import Cache
from ephemera.patterns.events import Events


class Session(msgspec.Struct, rename="camel"):
    user_id: str
    expires: datetime
    roles: list[str] = msgspec.field(default_factory=list)
    plan: Literal["free", "pro"] = "free"


def declared() -> Catalogue:
    """A catalogue that uses each option once."""
    catalogue = Catalogue("slides")
    catalogue.hash(
        "session:{session_id}", Session, lifetime=sliding(hours=24), sensitive=True, hash_tag="session_id",
        purpose="Who is signed in", saves="a SQL read | on every request", invalidated_by=("logout", "block"),
        if_lost="users sign in again",
    )  # fmt: skip
    catalogue.counter(
        "ratelimit:{key}:{minute}",
        lifetime=windowed(every=timedelta(minutes=1), keep=timedelta(minutes=2)),
        purpose="Requests a minute",
    )
    catalogue.list("comments:{match}", str, max_length=120, lifetime=fixed(hours=4), purpose="The newest")
    catalogue.mapping(
        "usage:{org}", int, role="queue", purpose="What was used",
        lifetime=fixed(days=90, outlives="the flush every 15 minutes"),
    )  # fmt: skip
    catalogue.flag("blacklist:{jti}", lifetime=until(), purpose="Revoked tokens")
    catalogue.sorted_set("queue:jobs", str, lifetime=permanent(reason="emptied by its workers"),
        role="queue", purpose="Jobs", owner="the planner")  # fmt: skip
    catalogue.channel("pubsub:progress", Session, purpose="Wakes the API")
    return catalogue


def test_every_keyspace_is_documented_in_order() -> None:
    """Pattern, kind, lifetime, role and texts of a declaration are included, in declaration order."""
    session, *others = describe(declared())
    assert session.pattern == "session:{session_id}"
    assert (session.kind, session.holds, session.lifetime) == ("hash", "Session", "24 h sliding")
    assert (session.sensitive, session.hash_tag) == (True, "session_id")
    assert (session.invalidated_by, session.if_lost) == (("logout", "block"), "users sign in again")
    assert [(entry.kind, entry.lifetime) for entry in others] == [
        ("counter", "2 min from the first write of each 1 min window"),
        ("list", "4 h"),
        ("mapping", "90 d"),
        ("flag", "until its instant"),
        ("sorted_set", "permanent: emptied by its workers"),
        ("channel", "not stored"),
    ]


def test_records_are_documented_field_by_field() -> None:
    """Fields have their stored names, types and defaults."""
    fields = [(field.name, field.type, field.default) for field in describe(declared())[0].fields]
    assert fields == [
        ("userId", "str", None),
        ("expires", "datetime", None),
        ("roles", "list[str]", "list()"),
        ("plan", "'free' | 'pro'", "'free'"),
    ]


def test_the_tables_leave_out_what_is_empty() -> None:
    """Empty columns and tables are left out."""
    keys, worth, *records = tables(declared())
    assert list(keys.rows[0]) == ["key", "kind", "lifetime", "role", "purpose", "written by"]
    assert [row["key"] for row in worth.rows] == ["session:{session_id}"]
    assert [table.title for table in records] == [
        "Session, in session:{session_id}",
        "Session, in pubsub:progress",
    ]
    bare = Catalogue("bare")
    bare.counter("n:{id}", lifetime=fixed(hours=1), purpose="counts")
    [only] = tables(bare)
    assert list(only.rows[0]) == ["key", "kind", "lifetime", "role", "purpose"]
    assert tables(Catalogue("nothing")) == []


def test_the_kind_column_has_notes() -> None:
    """Length limits, slots, sensitivity and what a lifetime outlives are part of the table."""
    rows = {row["key"]: row for row in tables(declared())[0].rows}
    assert rows["session:{session_id}"]["kind"] == "hash of Session, slot by session_id, sensitive"
    assert rows["comments:{match}"]["kind"] == "list of str, at most 120"
    assert rows["usage:{org}"]["lifetime"] == "90 d, outlives the flush every 15 minutes"
    assert rows["queue:jobs"]["written by"] == "the planner"


def test_markdown_has_as_many_cells_in_each_row() -> None:
    """Bars inside a text are escaped, so every row keeps its columns."""
    page = as_markdown(declared())
    assert "a SQL read \\| on every request" in page
    for block in page.split("\n\n"):
        if block.startswith("|"):
            widths = {line.replace("\\|", "").count("|") for line in block.splitlines()}
            assert len(widths) == 1, block


def test_json_has_every_keyspace() -> None:
    """The JSON contains the same documentation as the tables."""
    document = json.loads(as_json(declared()))
    assert document["catalogue"] == "slides"
    assert msgspec.convert(document["keyspaces"], list[KeyspaceDoc]) == describe(declared())


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (str, "str"),
        (dict[str, list[Session]], "dict[str, list[Session]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (str | None, "str | None"),
        (Annotated[int, msgspec.Meta(ge=0)], "int"),
        (Any, "Any"),
    ],
)
def test_types_are_written_as_in_source(held: Any, text: str) -> None:
    """Module names are left out, and unions are bars."""
    assert format_type(held) == text


def test_wrapped_types_are_shown_as_declared() -> None:
    """The documentation shows users' own types, not how a pattern stores them."""
    catalogue = Catalogue("slides")
    Cache(catalogue, "page:{page}", Session, fresh=timedelta(hours=1), purpose="Pages")
    Events(catalogue, "joined", Session, purpose="Who came")
    shown = {entry.pattern: entry for entry in describe(catalogue)}
    assert [shown[each].holds for each in ("page:{page}", "joined")] == ["Session", "Session"]
    assert [field.name for field in shown["joined"].fields] == ["userId", "expires", "roles", "plan"]
