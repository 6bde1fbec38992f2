"""Classifying whole pages of names gives the same result as classifying each name."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ephemera.keyspace import Catalogue, Keyspace, KeyspaceOptions, Template, permanent
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


def test_without_keyspaces_everything_is_unknown() -> None:
    """An empty catalogue owns no name, not even the empty one."""
    names = PageClassifier([])
    assert names([b"", b"a", b"\xff"]) == [names.unknown] * 3
    assert names([]) == []
