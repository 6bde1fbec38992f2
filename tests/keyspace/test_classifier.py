from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemera.keyspace import Classifier, Template, shared_key
from tests.keyspace.strategies import catalogues_of_templates, fields_of, templates


@given(templates(), templates())
def test_a_shared_key_belongs_to_both(one: Template, other: Template) -> None:
    """The key that `shared_key` returns can be rendered by both patterns."""
    key = shared_key(one, other)
    assert key == shared_key(one, other)
    assert (shared_key(other, one) is None) is (key is None)
    if key is not None:
        for template in (one, other):
            fields = template.parse(key)
            assert fields is not None
            assert template.render(dict(fields)) == key


def _short_keys(template: Template) -> set[str]:
    """All keys of a pattern with a few short values, fewer the more fields it has."""
    longest = (0, 4, 2, 1)[len(template.fields)]
    texts = ["".join(t) for n in range(1, longest + 1) for t in itertools.product("ab.-", repeat=n)]
    values = itertools.product(texts, repeat=len(template.fields))
    return {template.render(dict(zip(template.fields, chosen, strict=True))) for chosen in values}


@given(templates(), templates())
def test_no_overlap_is_missed(one: Template, other: Template) -> None:
    """Patterns without a shared key have none in common among all keys of short values."""
    if shared_key(one, other) is None:
        assert not _short_keys(one) & _short_keys(other)


@given(st.data(), templates(), templates())
def test_disjoint_patterns_share_no_key(data: st.DataObject, one: Template, other: Template) -> None:
    """Patterns without a shared key have none in common, whatever hostile values are given."""
    key = one.render(data.draw(st.composite(fields_of)(one)))
    if other.parse(key) is not None:
        assert shared_key(one, other) is not None


@given(st.data(), catalogues_of_templates())
def test_classification_agrees_with_rendering(data: st.DataObject, kept: list[Template]) -> None:
    """Every rendered key is classified as of the pattern that rendered it."""
    classify = Classifier((template, template) for template in kept)
    for template in kept:
        key = template.render(data.draw(st.composite(fields_of)(template)))
        assert classify(key.encode()) is template


@given(catalogues_of_templates(), st.one_of(st.binary(max_size=12), st.text("ab:.-{}%4", max_size=12)))
def test_classification_agrees_with_parsing(kept: list[Template], key: bytes | str) -> None:
    """Any key belongs to the pattern that parses it, and to none when none does."""
    raw = key if isinstance(key, bytes) else key.encode()
    owners = [template for template in kept if template.parse(raw) is not None]
    owner = Classifier((template, template) for template in kept)(raw)
    assert owners == ([] if owner is None else [owner])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rate:{subject}:{endpoint}", "rate:user:{id}"),
        ("session:{sid}", "session:{user}"),
        ("a:{x}.{y}", "a:{x}"),
        ("a:{x}-b", "a:{x}.b-b"),
        ("league:table", "league:{page}"),
        ("x-{a}", "x{b}"),
    ],
)
def test_overlapping_patterns(one: str, other: str) -> None:
    """Patterns with a key in common are detected."""
    assert shared_key(Template(one), Template(other)) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ratelimit:{api_key_id}:{minute}", "ratelimit:user:{user_id}:{minute}"),
        ("gl:passage:{passage_id}", "gl:passage:{passage_id}:{suffix}"),
        ("md:{match_id}:meta", "md:{match_id}:live"),
        ("session:{session_id}", "gl:session:{user_id}:prefs"),
        ("session:{session_id}", "session:{user_id}:{sid}"),
        ("__v:{key}", "__lock:{key}"),
        ("a:{x}.b", "a:{x}.c"),
        ("x{a}", "x:{b}"),
    ],
)
def test_patterns_that_the_systems_need_side_by_side(one: str, other: str) -> None:
    """A colon is encoded in values, so patterns with different numbers of segments never overlap."""
    assert shared_key(Template(one), Template(other)) is None


def test_a_hash_tag_makes_another_pattern() -> None:
    """Braces are never raw in a value, so a tagged pattern and its untagged twin share no key."""
    assert shared_key(Template("job:{id}"), Template("job:{id}", hash_tag="id")) is None
