"""Hostile values and random patterns for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from ephemera.keyspace import FieldValue, Template, shared_key

_HOSTILE = st.text(alphabet=":{}*?[]\\%.-_a1\x00\n\x7f\x85é\u2028😀", max_size=12)

field_values: st.SearchStrategy[FieldValue] = st.one_of(
    _HOSTILE, st.text(max_size=12), st.binary(max_size=12), st.integers()
)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """A valid pattern over few letters, so that two of them often overlap."""
    pattern = draw(st.text(alphabet="ab:.", min_size=1, max_size=4))
    for number in range(draw(st.integers(0, 3))):
        pattern += f"{{f{number}}}" + draw(st.sampled_from(":.-"))
        pattern += draw(st.text(alphabet="ab:.", max_size=2))
    return pattern[:-1] if pattern.endswith((":", ".", "-")) and "{" in pattern else pattern


@st.composite
def templates(draw: st.DrawFn) -> Template:
    """A template, with or without a hash tag."""
    template = Template(draw(patterns()))
    hash_tag = draw(st.sampled_from([None, *template.fields]))
    return Template(template.pattern, hash_tag=hash_tag)


@st.composite
def catalogues_of_templates(draw: st.DrawFn) -> list[Template]:
    """Templates that do not overlap, as a catalogue holds them."""
    kept: list[Template] = []
    for template in draw(st.lists(templates(), min_size=1, max_size=12)):
        if all(template.pattern != other.pattern and shared_key(template, other) is None for other in kept):
            kept.append(template)
    return kept


def fields_of(draw: st.DrawFn, template: Template) -> dict[str, FieldValue]:
    """Values for a template's fields."""
    return {name: draw(field_values) for name in template.fields}


def as_read(value: FieldValue) -> str:
    """A value as it is parsed from a key."""
    raw = value if isinstance(value, bytes) else str(value).encode()
    return raw.decode("utf-8", "surrogateescape")
