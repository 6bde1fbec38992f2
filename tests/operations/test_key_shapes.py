"""Shapes of undeclared keys: they cover every declarable key, never overlap, and are readable."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemera.keyspace import Catalogue, KeyspaceOptions, Template, permanent, shared_key
from ephemera.operations.survey import MAX_SHAPES, KeyShapes
from ephemera.operations.survey._key_parser import parse_key
from tests.keyspace.strategies import field_values


def shapes_of(*keys: bytes | str) -> KeyShapes:
    """The shapes of these keys."""
    shapes = KeyShapes()
    for key in keys:
        shapes.add(key if isinstance(key, bytes) else key.encode())
    return shapes


def declared(shapes: KeyShapes) -> Catalogue:
    """A catalogue of the shapes, which refuses overlaps and invalid patterns."""
    catalogue = Catalogue("shapes")
    for shape in shapes.shapes():
        about: KeyspaceOptions = {"lifetime": permanent(reason="x"), "purpose": "x"}
        if shape.hash_tag is not None:
            about["hash_tag"] = shape.hash_tag
        catalogue.value(shape.pattern, bytes, **about)
    return catalogue


def patterns_of(*keys: str) -> set[str]:
    """The patterns that these keys seem to follow."""
    return {shape.pattern for shape in shapes_of(*keys).shapes()}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(alphabet="ab1Z:_-./ é{}*", max_size=16).map(str.encode), max_size=50))
def test_any_text_is_declarable_or_has_a_reason(keys: list[bytes]) -> None:
    """Each key without a percent sign fits a shape or is undeclarable with a reason, and all are counted."""
    shapes = shapes_of(*keys)
    catalogue = declared(shapes)
    for key in keys:
        assert (catalogue.classify(key) is None) == isinstance(parse_key(key), str), key
    counted = sum(shape.count for shape in shapes.shapes()) + sum(
        each.count for each in shapes.undeclarable()
    )
    assert counted == len(keys)


@st.composite
def plain_templates(draw: st.DrawFn) -> Template:
    """A template whose fields stand alone between ':', with or without a hash tag."""
    parts = [draw(st.sampled_from(["a", "b", "ab", "user", "__v", "x-y", "a.b"]))]
    fields: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            fields.append(f"f{len(fields)}")
            parts.append(f"{{{fields[-1]}}}")
        else:
            parts.append(draw(st.sampled_from(["a", "b", "ab", "", "user", "v1", "x-y"])))
    return Template(":".join(parts), hash_tag=draw(st.sampled_from([None, *fields])))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_keys_of_any_catalogue_are_covered(data: st.DataObject) -> None:
    """Keys of any catalogue with plain fields and any values, hostile ones included, fit the shapes."""
    templates: list[Template] = []
    for template in data.draw(st.lists(plain_templates(), min_size=1, max_size=8)):
        if all(shared_key(template, other) is None for other in templates):
            templates.append(template)
    keys = [
        template.render({name: data.draw(field_values) for name in template.fields}).encode()
        for template in templates
        for _ in range(data.draw(st.integers(1, 5)))
    ]
    catalogue = declared(shapes_of(*keys))
    assert [key for key in keys if catalogue.classify(key) is None] == []


@pytest.mark.parametrize(
    ("keys", "pattern"),
    [
        (["user:1", "user:22"], "user:{user_id}"),
        (["users:ann7", "users:bob9"], "users:{user_id}"),
        ([f"order:{uuid.UUID(int=n)}" for n in (1, 2)], "order:{order_id}"),
        ([f"file:{n:040x}" for n in (1, 2)], "file:{file_hash}"),
        (["hits:2026-01-31", "hits:2026-02-28"], "hits:{date}"),
        (["hits:2026013123", "hits:2026022800"], "hits:{hour}"),
        (["seen:1780000000", "seen:1780000060"], "seen:{timestamp}"),
        (["login:10.0.0.1", "login:192.168.1.77"], "login:{ip}"),
        (["mail:a@example.org", "mail:b@example.net"], "mail:{email}"),
        (["shop:1:cart:2", "shop:3:cart:4"], "shop:{shop_id}:cart:{cart_id}"),
        (["job:{7}:log", "job:{8}:log"], "job:{job_id}:log"),
        (["user_12", "user_34"], "user_{user_id}"),
        (["app/users/12", "app/users/7"], "app/users/{user_id}"),
        (["page:en-12", "page:en-7"], "page:en-{en_id}"),
        (["cart:ABXV8bBA5dtmQsgbx4_GU1iKDt7"], "cart:{cart_id}"),  # most of a random id would be a literal
        (["session:en-12", "session:en-7"], "session:{session_id}"),  # nothing of a session is shown
        (["9b1deb4d-3b7d-4bad-9bdd-2b0d7b3d0001:a", "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3d0002:a"], "9{id}:a"),
        (["9f3c21ab", "9a77e001"], "9{id}"),
        (["a::1", "a::2"], "a::{a_id}"),
        (["league:table"], "league:table"),
    ],
)
def test_fields_are_recognized_and_named(keys: list[str], pattern: str) -> None:
    """Varying parts become fields, named by their form and the word before; constant parts stay literals."""
    assert patterns_of(*keys) == {pattern}


def test_few_words_stay_literals_and_many_become_a_field() -> None:
    """Three kinds of sub-keys are literals, a hundred names are data."""
    assert patterns_of("md:1:meta", "md:2:live", "md:3:meta") == {"md:{md_id}:meta", "md:{md_id}:live"}
    names = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    assert patterns_of(*(f"home:{name}" for name in names)) == {"home:{home_name}"}


def test_words_that_repeat_under_each_other_are_data() -> None:
    """Plans that all have the same features are a field, the features stay literals."""
    keys = [f"allow:{plan}:{feature}" for plan in ("free", "paid", "pro") for feature in ("ai", "search")]
    assert patterns_of(*keys) == {"allow:{allow_name}:ai", "allow:{allow_name}:search"}


def test_frequent_first_words_stay_literals() -> None:
    """Hundreds of names in first position become prefixes that do not capture frequent words."""
    names = [f"{a}{b}{c}" for a in "abcdes" for b in "aeiou" for c in "lmnrst"]
    found = patterns_of(*(f"{name}:1" for name in names), *(f"session:{n}" for n in range(1000)))
    assert "session:{session_id}" in found
    assert len(found) < len(names) / 2


@pytest.mark.parametrize("seed", range(4))
def test_prefixes_of_many_first_words_capture_no_later_word(seed: int) -> None:
    """However many different first words there are, the patterns made of them do not overlap."""
    chance = random.Random(seed)
    names = ["".join(chance.choices("abcdefghijklmnop", k=seed + 2)) for _ in range(1000)]
    shapes = shapes_of(*names, *(f"{name}:1" for name in names))
    assert len(declared(shapes)) == len(shapes.shapes())


def test_the_number_of_shapes_is_bounded() -> None:
    """However many words there are, the number of shapes stays readable."""
    words = [f"{a}{b}" for a in "abcdefghijklmno" for b in "aeiou"]
    shapes = shapes_of(
        *(f"{one}:{two}:{three}" for one in words for two in words[:14] for three in words[:9])
    )
    assert len(shapes.shapes()) <= MAX_SHAPES
    assert len(declared(shapes)) == len(shapes.shapes())


def test_what_follows_a_secret_word_is_never_a_literal() -> None:
    """A password that reads like a word does not become part of a pattern."""
    shapes = shapes_of("password:hunter", "reset_token:mellon")
    assert {shape.pattern for shape in shapes.shapes()} == {
        "password:{password_name}",
        "reset_token:{token_name}",
    }
    assert all(shape.secret for shape in shapes.shapes())


def test_literals_before_a_hash_tag_are_bounded() -> None:
    """Too many different literals right before a hash tag are undeclarable."""
    shapes = shapes_of(*(f"user{number}{{7}}" for number in range(200)))
    assert len(shapes.shapes()) == 50
    (left,) = shapes.undeclarable()
    assert (left.count, "hash tags" in left.reason) == (150, True)
