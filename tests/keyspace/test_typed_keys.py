"""Typed keys: UUID, date, datetime, Enum, bool, int, bytes and str fields, and what type checkers know."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ephemera import Cache, Locks
from ephemera.errors import InvalidDeclaration, InvalidField, WrongFields
from ephemera.keyspace import Catalogue, Key, KeyPattern, Store, Template, connect, fixed
from ephemera.keyspace._field_types import field_type
from tests.keyspace.strategies import field_values


class Colour(enum.Enum):
    """Values are stored, names may change."""

    RED = "r:d"
    EMPTY = ""
    SEVEN = 7
    DAY = date(2026, 1, 1)


class Plan(enum.StrEnum):
    """An Enum that is also text."""

    FREE = "free"
    PRO = "pro"


_ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=12) | st.text(alphabet=":{}*?[]\\%.-_a1\x00\n\x7f\x85é😀", max_size=8),
    bytes: st.binary(max_size=12),
    int: st.integers(),
    bool: st.booleans(),
    UUID: st.uuids(),
    date: st.dates(),
    datetime: st.builds(lambda moment, zone: moment.replace(tzinfo=zone), _MOMENTS, _ZONES),
    Colour: st.sampled_from(Colour),
    Plan: st.sampled_from(Plan),
}


@st.composite
def typed_templates(draw: st.DrawFn) -> Template:
    """A pattern with one to three typed fields, some ended by a character that dates and numbers hold."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    pattern = "x:" + "".join(f"{{f{number}}}{draw(st.sampled_from(':.-'))}" for number in range(len(types)))
    declared = {f"f{number}": field_type(each) for number, each in enumerate(types)}
    hash_tag = draw(st.sampled_from([None, *declared]))
    return Template(KeyPattern(pattern[:-1], declared), hash_tag=hash_tag)


def drawn_fields(draw: Any, template: Template) -> dict[str, Any]:
    """Values of the declared types."""
    return {name: draw(VALUES[each.type]) for name, each in template.types.items()}


@given(st.data(), typed_templates())
def test_a_key_is_parsed_to_the_same_types(data: st.DataObject, template: Template) -> None:
    """Whatever the values, parsing the key returns equal values of the declared types."""
    fields = drawn_fields(data.draw, template)
    key = template.render(fields)
    parsed = template.parse(key.encode())
    assert parsed == fields
    for name, each in template.types.items():
        assert type(parsed[name]) is each.type or isinstance(parsed[name], enum.Enum)
    assert template.render(parsed) == key
    text = template.parse_text(key)
    assert text is not None
    assert template.render(text) == key


@given(st.data(), typed_templates())
def test_different_values_have_different_keys(data: st.DataObject, template: Template) -> None:
    """Two sets of values have the same key only if they are equal."""
    one, other = (drawn_fields(data.draw, template) for _ in range(2))
    assert (template.render(one) == template.render(other)) is (one == other)


@given(st.data(), typed_templates(), field_values)
def test_text_that_is_never_rendered_is_no_key(data: st.DataObject, template: Template, junk: Any) -> None:
    """What an untyped pattern would render is parsed only if the typed one renders the same."""
    untyped = Template(str(template.pattern), hash_tag=template.hash_tag)
    fields = {**drawn_fields(data.draw, template), template.fields[0]: junk}
    key = untyped.render(fields)
    parsed = template.parse(key)
    assert parsed is None or template.render(parsed) == key


@given(_MOMENTS, _MOMENTS)
def test_instants_sort_as_text(one: datetime, other: datetime) -> None:
    """Keys of a later instant sort after those of an earlier one."""
    assume(one != other)
    template = Template(KeyPattern("x:{at}", {"at": field_type(datetime)}))
    keys = [template.render({"at": each.replace(tzinfo=UTC)}) for each in sorted((one, other))]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (UUID("AAAAAAAA-0000-0000-0000-00000000000F"), "aaaaaaaa-0000-0000-0000-00000000000f"),
        (date(987, 1, 2), "0987-01-02"),
        (datetime(2026, 11, 18, 10, 30, tzinfo=timezone(timedelta(hours=1))), "20261118T093000.000000Z"),
        (True, "1"),
        (-7, "-7"),
        (Colour.RED, "r%3Ad"),
        (Colour.EMPTY, "%%"),
        (Plan.PRO, "pro"),
        (b"\xff", "%FF"),
    ],
)
def test_how_values_are_rendered(value: Any, text: str) -> None:
    """The one rendering of each type, with and without a declared type."""
    assert Template("x:{v}").render({"v": value}) == f"x:{text}"
    declared = Template(KeyPattern("x:{v}", {"v": field_type(type(value))}))
    assert declared.render({"v": value}) == f"x:{text}"


class Visit(Key, pattern="tk_visits:{page}:{day}"):
    """A page on a day."""

    page: str
    day: date


class ById(Key, pattern="tk_value:{user}"):
    """A user."""

    user: UUID


CATALOGUE = Catalogue("typed-keys")
HOUR = fixed(hours=1)
VISITS = CATALOGUE.counter(Visit.pattern, lifetime=HOUR, purpose="x")
PROFILE = CATALOGUE.value(ById.pattern, list[int], lifetime=HOUR, purpose="x")
TODAY, ANN = date(2026, 11, 18), UUID(int=7)


class Report(Key, pattern="tk_report:{plan}:{day}"):
    """A report of a plan."""

    plan: Plan
    day: date


REPORTS = Cache(CATALOGUE, Report.pattern, str, fresh=timedelta(minutes=1), purpose="x")
REBUILDS = Locks(CATALOGUE, "tk_rebuild:{day}", lease=timedelta(seconds=30), purpose="x")


@pytest.fixture
async def typed(url: str) -> AsyncIterator[Store]:
    """A store with typed keys."""
    async with connect(url, CATALOGUE) as opened:
        yield opened


async def test_typed_keys_reach_accessors_and_patterns(typed: Store) -> None:
    """A typed key is passed with `**` or in a batch; the fields may be given by name as well."""
    visits, home = typed[VISITS], Visit(page="home", day=TODAY)
    await visits.delete(**home)
    assert await visits.add(**home) == 1
    assert await visits.add(page="home", day=TODAY) == 2
    assert await visits.get_many([home, Visit(page="none", day=TODAY)]) == [2, 0]
    await typed[PROFILE].put([1], **ById(ANN))
    assert await typed[PROFILE].get(user=ANN) == [1]
    assert await typed[PROFILE].get(user=str(ANN)) == [1]

    async def load(plan: Plan, day: date) -> str:
        return f"{plan} {day}"

    assert await typed[REPORTS].get_or_load(load, **Report(Plan.PRO, TODAY)) == "pro 2026-11-18"
    async with typed[REBUILDS].hold(day=TODAY):
        assert await typed.call("EXISTS", "tk_rebuild:{2026-11-18}") == 1


def test_keys_are_classified_by_their_types() -> None:
    """A key whose text is no value of a declared type belongs to no keyspace."""
    assert CATALOGUE.classify(b"tk_visits:home:2026-11-18") is VISITS
    assert VISITS.parse(b"tk_visits:home:2026-11-18") == {"page": "home", "day": TODAY}
    assert CATALOGUE.classify(b"tk_visits:home:2026-02-30") is None
    assert CATALOGUE.classify(b"tk_value:00000000-0000-0000-0000-000000000007") is PROFILE
    assert CATALOGUE.classify(b"tk_value:ann") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"page": "home", "day": "20261118"},
        {"page": "home", "day": datetime(2026, 11, 18, tzinfo=UTC)},
        {"page": 7, "day": TODAY},
        {"page": "\ud800", "day": TODAY},
        {"page": None, "day": TODAY},
    ],
)
def test_values_of_another_type_are_refused(fields: Any) -> None:
    """The error names the pattern and the field."""
    with pytest.raises(InvalidField, match=r"tk_visits"):
        VISITS.key(**fields)


def test_naive_datetimes_are_refused() -> None:
    """Without a time zone a datetime is no instant."""
    for pattern in ("x:{at}", KeyPattern("x:{at}", {"at": field_type(datetime)})):
        with pytest.raises(InvalidField, match="time zone"):
            Template(pattern).render({"at": datetime(2026, 1, 1)})


def test_declarations_that_cannot_work_are_refused() -> None:
    """Missing and additional annotations, other types, and Enums whose values look alike."""

    class Alike(enum.Enum):
        ONE = 1
        TEXT = "1"

    with pytest.raises(InvalidDeclaration, match="annotate each field of the pattern: page, day"):

        class Lacks(Key, pattern="x:{page}:{day}"):
            page: str

    with pytest.raises(InvalidDeclaration, match="rename"):

        class Named(Key, pattern="x:{items}"):
            items: str  # type: ignore[assignment]

    with pytest.raises(InvalidDeclaration, match="not float"):

        class Wrong(Key, pattern="x:{size}"):
            size: float

    with pytest.raises(TypeError, match="the same text"):
        field_type(Alike)


def what_type_checkers_refuse() -> None:
    """A missing, unknown or wrongly typed field of a typed key is an error for the type checker."""
    Visit(pag="home", day=TODAY)  # type: ignore[call-arg]
    Visit(page="home")  # type: ignore[call-arg]
    Visit(page="home", day="2026-11-18")  # type: ignore[arg-type]
    Visit("home", TODAY).day = TODAY  # type: ignore[misc]


def test_a_typed_key_is_an_immutable_mapping() -> None:
    """It compares by value, can be a member of a set, and names its fields."""
    assert Visit("home", TODAY) == Visit(page="home", day=TODAY)
    assert len({Visit("home", TODAY), Visit("home", TODAY)}) == 1
    assert dict(Visit("home", TODAY)) == {"page": "home", "day": TODAY}
    with pytest.raises(WrongFields):
        VISITS.key(**ById(ANN))
