"""Keys: for any field values, keys are distinct and parse back to the same values."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ephemera import embedded
from ephemera.errors import InvalidDeclaration, InvalidField
from ephemera.keyspace import Catalogue, Classifier, FieldValue, Store, Template, connect, fixed, shared_key
from ephemera.wire import key_slot
from tests.fuzz.trials import Area, Trial

_HOSTILE = st.text(alphabet=":{}*?[]\\%.-_/#ab1%4A3\x00\n\r\x7f\x85é\u2028\ufeff😀\udcff", max_size=14)
_BROKEN_UTF8 = st.lists(
    st.sampled_from([b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"%", b":", b"a"]),
    max_size=6,
).map(b"".join)
VALUES: st.SearchStrategy[FieldValue] = st.one_of(
    _HOSTILE, st.text(max_size=20), st.binary(max_size=20), _BROKEN_UTF8, st.integers()
)
_MARKS = ":.-/_|@#"


@st.composite
def _patterns(draw: st.DrawFn) -> tuple[str, str | None]:
    """A pattern over few letters, so that two of them often meet; and the field that is its tag, if any."""
    pattern = draw(st.text(alphabet="ab:.", min_size=1, max_size=3))
    names = [f"f{number}" for number in range(draw(st.integers(0, 3)))]
    for name in names:
        pattern += f"{{{name}}}{draw(st.sampled_from(_MARKS))}{draw(st.text(alphabet='ab', max_size=2))}"
    if names and pattern[-1] in _MARKS:
        pattern = pattern[:-1]
    return pattern, draw(st.sampled_from([None, *names]))


_CATALOGUES = st.lists(_patterns(), min_size=2, max_size=8)
_FILLED = st.tuples(_CATALOGUES, st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=2, max_size=8))


def _templates(patterns: list[tuple[str, str | None]]) -> list[Template]:
    """Those that do not overlap, as a catalogue holds them."""
    kept: list[Template] = []
    for pattern, tag in patterns:
        template = Template(pattern, hash_tag=tag)
        if all(each.pattern != pattern and shared_key(template, each) is None for each in kept):
            kept.append(template)
    return kept


def _read(value: FieldValue) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "surrogateescape")


def _do_not_collide(case: tuple[list[tuple[str, str | None]], list[list[FieldValue]]]) -> None:
    kept = _templates(case[0])
    classify = Classifier((template, template) for template in kept)
    owners: dict[str, tuple[str, tuple[str, ...]]] = {}
    for template in kept:
        for values in case[1]:
            fields = dict(zip(template.fields, values, strict=False))
            key = template.render(fields)
            read = tuple(_read(value) for value in fields.values())
            assert owners.setdefault(key, (template.pattern, read)) == (template.pattern, read)
            assert template.parse(key) == template.parse(key.encode()) == dict(zip(fields, read, strict=True))
            assert classify(key.encode()) is template
            assert not re.search(r"[*?\[\]\\\x00-\x20\x7f-\x9f]", key.replace(" ", ""))
            if template.hash_tag is not None:
                alone = Template("x:{tag}", hash_tag="tag").render({"tag": fields[template.hash_tag]})
                assert key_slot(key) == key_slot(alone)


def _belongs_or_not(case: tuple[list[tuple[str, str | None]], bytes]) -> None:
    kept = _templates(case[0])
    owner = Classifier((template, template) for template in kept)(case[1])
    for template in kept:
        fields = template.parse(case[1])
        assert (fields is not None) == (template is owner)
        if fields is not None:
            rendered: dict[str, FieldValue] = dict(fields)
            assert template.render(rendered).encode() == case[1]


def _declared_or_refused(case: tuple[str, str | None]) -> None:
    try:
        template = Template(case[0], hash_tag=case[1])
    except InvalidDeclaration as refused:
        assert refused.advice
        return
    key = template.render(dict.fromkeys(template.fields, "x"))
    assert template.parse(key) == dict.fromkeys(template.fields, "x")


_catalogue = Catalogue("fuzz-keys")
_LIFE: Any = {"lifetime": fixed(minutes=5), "purpose": "fuzzing"}
_PLAIN = _catalogue.value("fuzz:plain:{one}", bytes, **_LIFE)
_PAIR = _catalogue.value("fuzz:pair:{one}:{two}", bytes, **_LIFE)
_DOTTED = _catalogue.value("fuzz:dot:{one}.{two}", bytes, **_LIFE)
_TAGGED = _catalogue.value("fuzz:tag:{one}:{two}", bytes, hash_tag="two", **_LIFE)
_SPACES = (_PLAIN, _PAIR, _DOTTED, _TAGGED)


class _OnServer:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, pairs: list[tuple[FieldValue, FieldValue]]) -> None:
        """Write under every pair in every space, and find each where it was put, and nothing else."""
        await self._store.call("FLUSHDB")
        wanted: dict[tuple[str, tuple[str, ...]], tuple[Any, dict[str, FieldValue], bytes]] = {}
        for one, two in pairs:
            for space in _SPACES:
                given = {"one": one, "two": two}
                fields: dict[str, Any] = {name: given[name] for name in space.template.fields}
                mark = f"{len(wanted)}".encode()
                try:
                    assert await self._store[space].put(mark, **fields)
                except InvalidField:
                    continue
                wanted[space.pattern, tuple(map(_read, fields.values()))] = (space, fields, mark)
        for space, fields, mark in wanted.values():
            assert await self._store[space].get(**fields) == mark
        keys = set(await self._store.call("KEYS", "*"))
        assert len(keys) == len(wanted)
        for key in keys:
            owner = _catalogue.classify(key)
            assert owner is not None
            parsed = owner.parse(key)
            assert parsed is not None
            assert (owner.pattern, tuple(parsed.values())) in wanted
        for space, fields, _ in wanted.values():
            assert await self._store[space].delete(**fields)
        assert not await self._store.call("DBSIZE")


@asynccontextmanager
async def _opened(_: Path) -> AsyncIterator[list[Trial]]:
    with embedded.valkey() as server:
        async with connect(server.url, _catalogue) as store:
            yield [
                Trial(
                    "do not collide",
                    "Every key parses back to the values it was rendered from, belongs to its pattern "
                    "alone, and no two sets of values share one; a tag alone decides the slot.",
                    _FILLED,
                    _do_not_collide,
                ),
                Trial(
                    "belongs or not",
                    "Any bytes are the key of one pattern, which renders them again, or of none.",
                    st.tuples(
                        _CATALOGUES,
                        st.one_of(
                            st.binary(max_size=16),
                            st.text("ab:.-{}%4A3|", max_size=16).map(str.encode),
                        ),
                    ),
                    _belongs_or_not,
                ),
                Trial(
                    "declared or refused",
                    "Any text is a pattern that works, or is refused with advice.",
                    st.tuples(
                        st.one_of(st.text(max_size=30), st.text("ab{}:.%*f0\n é", max_size=20)),
                        st.one_of(st.none(), st.text(max_size=4), st.sampled_from(["a", "b", "f", "f0"])),
                    ),
                    _declared_or_refused,
                ),
                Trial(
                    "on a server",
                    "What is written under hostile values is found under them, and nowhere else.",
                    st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5),
                    _OnServer(store).check,
                    batch=40,
                ),
            ]


KEYS = Area("keys", _opened)
