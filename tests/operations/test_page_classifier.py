"""Classifying whole pages of names gives the same result as classifying each name."""

from __future__ import annotations

from datetime import date
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ephemera.keyspace import Catalogue, Key, Keyspace, KeyspaceOptions, Template, permanent
from ephemera.operations.survey._page_classifier import PageClassifier
from tests.keyspace.strategies import catalogues_of_templates, field_values

_OTHER_KEYS = st.one_of(st.binary(max_size=12), st.text(alphabet="ab:.-%{}\n1", max_size=10).map(str.encode))


def catalogue_of(templates: list[Template]) -> Catalogue:
    """A catalogue with these templates."""
    catalogue = Catalogue("names")
    for template in templates:
        about: KeyspaceOptions = {"lifetime": permanent(reason="x"), "purpose": "x"}
        if template.hash_tag is not None:
            about["hash_tag"] = template.hash_tag
        catalogue.value(template.pattern, bytes, **about)
    return catalogue


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_page_is_classified_as_its_names_are(data: st.DataObject) -> None:
    """Over random catalogues and pages, including hostile and binary names, both ways agree."""
    catalogue = catalogue_of(data.draw(catalogues_of_templates()))
    templates = [space.template for space in catalogue]
    rendered = [
        each.render({name: data.draw(field_values) for name in each.fields}).encode()
        for each in templates
        for _ in range(2)
    ]
    page = [*rendered, *data.draw(st.lists(_OTHER_KEYS, max_size=10))]
    data.draw(st.randoms()).shuffle(page)
    names = PageClassifier(catalogue)
    spaces: list[Keyspace[Any] | None] = [*names.keyspaces, None]
    assert [spaces[number - 1] for number in names(page)] == [catalogue.classify(key) for key in page]


def test_typed_fields_are_classified_by_their_type() -> None:
    """A name whose text is no value of the declared type is unknown, in a page as alone."""

    class Visit(Key, pattern="visits:{day}"):
        day: date

    catalogue = Catalogue("typed", prefix="shop:")
    visits = catalogue.counter(Visit.pattern, lifetime=permanent(reason="x"), purpose="x")
    names = PageClassifier(catalogue)
    page = [b"shop:visits:2026-11-18", b"shop:visits:2026-02-30", b"visits:2026-11-18", b"shop:visits:x"]
    assert names(page) == [1, names.unknown, names.unknown, names.unknown]
    assert [catalogue.classify(name) for name in page] == [visits, None, None, None]


def test_without_keyspaces_everything_is_unknown() -> None:
    """An empty catalogue owns no name, not even the empty one."""
    names: PageClassifier[Keyspace[Any]] = PageClassifier([])
    assert names([b"", b"a", b"\xff"]) == [names.unknown] * 3
    assert names([]) == []
