from __future__ import annotations

import enum
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ephemera.errors import InvalidDeclaration, InvalidField, KeyTooLong, WrongFields
from ephemera.keyspace import FieldValue, Template
from tests.keyspace.strategies import as_read, field_values, fields_of, templates


@given(st.data(), templates())
def test_every_rendered_key_can_be_parsed(data: st.DataObject, template: Template) -> None:
    """Whatever the values, parsing the key returns the same bytes."""
    fields = data.draw(st.composite(fields_of)(template))
    key = template.render(fields)
    read = {name: as_read(value) for name, value in fields.items()}
    assert template.parse(key) == template.parse(key.encode()) == read
    assert template.render(read) == key


@given(st.data(), templates())
def test_different_values_have_different_keys(data: st.DataObject, template: Template) -> None:
    """No two sets of values render the same key."""
    assume(template.fields)
    one, other = (data.draw(st.composite(fields_of)(template)) for _ in range(2))
    same = all(as_read(one[name]) == as_read(other[name]) for name in template.fields)
    assert (template.render(one) == template.render(other)) is same


@given(field_values)
def test_special_characters_are_encoded(value: FieldValue) -> None:
    """Separators, globs, braces and control characters of a value never appear raw in a key."""
    key = Template("key:{id}").render({"id": value})
    assert not re.search(r"[:{}*?\[\]\\\x00-\x1f\x7f-\x9f]", key.removeprefix("key:"))
    key.encode()


@given(field_values, field_values)
def test_a_hash_tag_alone_decides_the_slot(tagged: FieldValue, other: FieldValue) -> None:
    """What a cluster hashes depends on the tagged field alone, and is the same in every pattern."""
    progress = Template("progress:{other}:{job}.x", hash_tag="job").render({"job": tagged, "other": other})
    lock = Template("lock:{job}", hash_tag="job").render({"job": tagged})

    def slot_name(key: str) -> str:
        return key[key.index("{") + 1 : key.index("}")]

    assert slot_name(progress) == slot_name(lock) != ""


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain-id_1.2@x", "plain-id_1.2@x"),
        ("Ω и 日本", "Ω и 日本"),
        ("a:b", "a%3Ab"),
        ("100%", "100%25"),
        ("", "%%"),
        (b"\xff\x00", "%FF%00"),
        ("a\nb", "a%0Ab"),
        (b"caf\xc3\xa9", "café"),
        (-5, "-5"),
        ("\udcff", "%FF"),
    ],
)
def test_how_values_are_encoded(value: FieldValue, written: str) -> None:
    """Ordinary text is readable; the rest is percent-encoded byte by byte, and an empty value is `%%`."""
    assert Template("x:{id}").render({"id": value}) == f"x:{written}"


def test_the_character_that_ends_a_field_is_encoded_in_it() -> None:
    """A dot in the book cannot be mistaken for the dot before the chapter, and is encoded only there."""
    chapter = Template("gl:chapter:{book}.{chapter}:{translation}")
    key = chapter.render({"book": "1.Sam", "chapter": "3.1", "translation": "kjv"})
    assert key == "gl:chapter:1%2ESam.3.1:kjv"
    assert chapter.parse(key) == {"book": "1.Sam", "chapter": "3.1", "translation": "kjv"}


class Text(str, enum.Enum):  # noqa: UP042 - the `__str__` of a StrEnum would be its value
    PRO = "pro:x"
    PHONE = "phone"


def test_a_str_enum_renders_as_its_value() -> None:
    """Members of string enums render as their value, whichever kind of enum they are."""

    class Level(enum.IntEnum):
        HIGH = 3

    template = Template("x:{a}:{b}")
    assert template.render({"a": Text.PRO, "b": Level.HIGH}) == "x:pro%3Ax:3"


@pytest.mark.parametrize("pattern", ["x:{a}", "x:{a}:{b}", "x:{a}.{b}:{c}"])
@pytest.mark.parametrize("beside", ["ann", 7, "a:b"])
def test_the_str_method_of_a_value_is_not_used(pattern: str, beside: FieldValue) -> None:
    """A key has the characters of its values, whatever their `__str__` returns."""

    class Loud(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "a:b"

    template = Template(pattern)
    others = dict.fromkeys(template.fields[1:], beside)
    expected = template.render({"a": "phone", **others})
    for said in (Text.PHONE, Loud("phone")):
        key = template.render({"a": said, **others})
        assert (type(key), key) == (str, expected)


@pytest.mark.parametrize("key", ["x:%41", "x:%3a", "x:a:b", "x:", "x:%", "x:a%%", "y:a", "x:a*", b"x:\xff"])
def test_keys_that_are_never_rendered_are_not_parsed(key: str | bytes) -> None:
    """One value has one key: other encodings of it, and keys of other patterns, are refused."""
    assert Template("x:{id}").parse(key) is None


def test_a_pattern_without_fields_is_its_key() -> None:
    """A constant pattern renders and parses itself, and takes no fields."""
    table = Template("league:table")
    assert table.render({}) == "league:table"
    assert table.parse(b"league:table") == {}
    with pytest.raises(WrongFields, match=r"'league:table' takes no fields; given id"):
        table.render({"id": "1"})


@pytest.mark.parametrize("wrong", [{}, {"user_id": "1"}, {"user_id": "1", "sid": "2", "x": "3"}, {"x": "1"}])
@pytest.mark.parametrize("pattern", ["session:{user_id}:{sid}", "session:{sid}"])
def test_wrong_fields_are_named(pattern: str, wrong: dict[str, str]) -> None:
    """The error for missing and unknown fields lists the pattern's fields."""
    template = Template(pattern)
    with pytest.raises(WrongFields) as caught:
        template.render(wrong)
    assert caught.value.pattern == pattern
    assert caught.value.expected == template.fields
    assert caught.value.given == tuple(wrong)


@pytest.mark.parametrize("value", [None, 1.5, ["a"], pytest.param(10**5000, id="huge"), "\ud800"])
def test_values_that_cannot_be_encoded_are_refused(value: FieldValue) -> None:
    """The error names the pattern and the field, for a lone surrogate too."""
    for pattern in ("session:{sid}", "session:{user}:{sid}"):
        fields: dict[str, FieldValue] = dict.fromkeys(Template(pattern).fields, "a")
        with pytest.raises(InvalidField) as caught:
            Template(pattern).render({**fields, "sid": value})
        assert (caught.value.pattern, caught.value.field) == (pattern, "sid")


def test_a_key_that_is_too_long_is_refused() -> None:
    """The limit counts bytes as they are sent, and the error names the pattern, field and length."""
    template = Template("cache:{kind}:{name}", max_key_length=40)
    assert template.render({"kind": "k", "name": "é" * 16})
    with pytest.raises(
        KeyTooLong, match=r"'cache:\{kind\}:\{name\}', field 'name'.* 42 bytes .* 40"
    ) as caught:
        template.render({"kind": "k", "name": "é" * 17})
    assert (caught.value.length, caught.value.limit, caught.value.field) == (42, 40, "name")
    with pytest.raises(KeyTooLong):
        Template("cache:{name}").render({"name": "a" * 1024})


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("{id}:x", "start it with a name"),
        ("", "start it with a name"),
        ("x:{a}{b}", "put ':' between them"),
        ("x:{a}b", "punctuation character"),
        ("x:{a}:{a}", "own name"),
        ("x:{}", "identifier"),
        ("x:{a-b}", "identifier"),
        ("x:{class}", "identifier"),
        ("x:{until}", "'until'"),
        ("x:{a", "printable ASCII"),
        ("x*:{a}", "printable ASCII"),
        ("x y:{a}", "printable ASCII"),
        ("x%:{a}", "printable ASCII"),
        ("ключ:{a}", "printable ASCII"),
    ],
)
def test_patterns_that_cannot_work_are_refused(pattern: str, advice: str) -> None:
    """An ambiguous or dangerous pattern fails when it is declared, and the error says what to do."""
    with pytest.raises(InvalidDeclaration) as caught:
        Template(pattern)
    assert repr(pattern) in str(caught.value)
    assert advice in caught.value.advice


def test_an_unknown_hash_tag_is_refused() -> None:
    """A hash tag must be one of the pattern's fields."""
    with pytest.raises(
        InvalidDeclaration, match=r"'x:\{a\}': the hash tag 'b' .* takes the name of a field: a"
    ):
        Template("x:{a}", hash_tag="b")


def test_the_glob_is_the_pattern_with_stars() -> None:
    """The glob for SCAN and ACL rules matches all keys of the pattern."""
    assert Template("session:{user_id}:{sid}").glob == "session:*:*"
    assert Template("job:{id}:state", hash_tag="id").glob == "job:{*}:state"
