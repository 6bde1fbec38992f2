"""CORE6: values were written that could not be read back."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.errors import InvalidValue
from ephemera.keyspace import Catalogue, fixed, sliding
from ephemera.patterns.cache import Cache, Storage
from ephemera.patterns.preferences import Preferences
from ephemera.patterns.sessions import Sessions

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Name = Annotated[str, msgspec.Meta(max_length=3)]


class Look(msgspec.Struct):
    """Settings, and the fields of a hash."""

    zoom: float = 1.0
    shade: float | None = None
    volume: Percent = 50
    user_id: str = "ann"
    tags: list[int] = []
    nested: dict[str, float | None] = {}


WRONG: dict[str, Any] = {
    "zoom": math.inf,
    "shade": math.nan,
    "volume": 101,
    "tags": ["not a number"],
    "nested": {"a": -math.inf},
}
CODECS: tuple[Any, ...] = ("json", "msgpack")  # the latter can hold inf and nan
HOUR = fixed(hours=1)
KINDS: dict[str, tuple[Any, Any]] = {
    "float": (float, math.inf),
    "nan": (float, math.nan),
    "limit": (Percent, -1),
    "text limit": (Name, "four"),
    "optional float in a list": (list[float | None], [math.inf]),
    "anything": (dict[str, Any], {"a": [math.inf]}),
    "wrong item": (list[int], ["x"]),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", ["value", "mapping", "list"])
async def test_core6_a_value_that_could_not_be_read_is_refused(server: Valkey, name: str, kind: str) -> None:
    """A value that its own reader would refuse, or read as another one, raises and writes nothing."""
    value_type, wrong = KINDS[name]
    catalogue = Catalogue("core6")
    declared: Any = getattr(catalogue, kind)("core6:{n}", value_type, lifetime=HOUR, purpose="a test")
    async with connect(server.url, catalogue) as store:
        accessor = store[declared]
        writes = {
            "value": lambda: accessor.put(wrong, n=1),
            "mapping": lambda: accessor.put({"a": wrong}, n=1),
            "list": lambda: accessor.push(wrong, n=1),
        }
        with pytest.raises(InvalidValue):
            await writes[kind]()
        assert not await accessor.exists(n=1)


@pytest.mark.parametrize("field", WRONG)
async def test_core6_a_stream_and_a_cache_refuse_it(server: Valkey, field: str) -> None:
    """An entry is not appended, and a loaded value is not cached; what was stored stays readable."""
    catalogue, wrong = Catalogue("core6"), Look(**{field: WRONG[field]})
    stream = catalogue.stream("core6:stream:{n}", Look, lifetime=HOUR, purpose="a test")
    caches: list[Cache[Look]] = [
        Cache(
            catalogue, f"core6:cache:{codec}:{{n}}", Look, fresh=timedelta(minutes=5), purpose="Looks",
            storage=Storage(codec=codec),
        )
        for codec in CODECS[: 1 if field in ("zoom", "shade", "nested") else 2]
    ]  # fmt: skip

    async def load(n: int) -> Look:
        return wrong

    async with connect(server.url, catalogue) as store:
        await store.call("FLUSHDB")
        await store[stream].append(Look(zoom=2.0), n=1)
        with pytest.raises(InvalidValue):
            await store[stream].append(wrong, n=1)
        assert [each for _, each in await store[stream].range(n=1)] == [Look(zoom=2.0)]
        for cache in caches:
            await store[cache].put(Look(zoom=2.0), n=1)
            with pytest.raises(InvalidValue):
                await store[cache].put(wrong, n=1)
            assert await store[cache].get(n=1) == Look(zoom=2.0)
            with pytest.raises(InvalidValue):
                await store[cache].get_or_load(load, n=2)
            assert await store[cache].get(n=2) is None


@pytest.mark.parametrize(
    ("member_type", "wrong"), [(Percent, 101), (Name, "four"), (float, math.nan), (int, "x")]
)
@pytest.mark.parametrize("kind", ["set", "sorted_set"])
async def test_core6_a_member_that_could_not_be_read_is_refused(
    server: Valkey, kind: str, member_type: Any, wrong: Any
) -> None:
    """Sets refuse what their own reader would skip, and a score that is not a number."""
    catalogue = Catalogue("core6")
    declared: Any = getattr(catalogue, kind)(
        "core6:members:{n}", member_type, lifetime=HOUR, purpose="a test"
    )
    async with connect(server.url, catalogue) as store:
        accessor = store[declared]
        with pytest.raises(InvalidValue):
            await accessor.add(wrong if kind == "set" else {wrong: 1.0}, n=1)
        if kind == "sorted_set":
            with pytest.raises(InvalidValue):
                await accessor.increment(wrong, 1.0, n=1)
            good: Any = "abc" if member_type is Name else 1
            with pytest.raises(InvalidValue):
                await accessor.add({good: math.nan}, n=1)
        assert not await accessor.exists(n=1)


@pytest.mark.parametrize("field", WRONG)
async def test_core6_a_field_that_could_not_be_read_is_refused(server: Valkey, field: str) -> None:
    """Hashes, sessions and preferences refuse it, whole or in part, and what was stored stays readable."""
    catalogue = Catalogue("core6")
    records = catalogue.hash("core6:record:{n}", Look, lifetime=HOUR, purpose="a test")
    looks: Preferences[Look] = Preferences(catalogue, "core6:look:{n}", Look)
    kinds: dict[Any, Sessions[Look]] = {
        kind: Sessions(
            catalogue, f"core6:{kind}:{{session_id}}", Look, user="user_id", kind=kind,
            lifetime=sliding(hours=1), index=f"core6:index:{kind}:{{user_id}}",
        )
        for kind in ("hash", "value")
    }  # fmt: skip
    change, wrong = {field: WRONG[field]}, Look(**{field: WRONG[field]})
    async with connect(server.url, catalogue) as store:
        await store[records].put(Look(zoom=2.0), n=1)
        await store[looks].merge({"zoom": 2.0}, n=1)
        tokens = {kind: await store[each].create(Look(zoom=2.0)) for kind, each in kinds.items()}
        refusals: list[Any] = [
            lambda: store[records].put(wrong, n=1),
            lambda: store[records].update(change, n=1),
            lambda: store[looks].merge(change, n=1),
            lambda: store[looks].replace(wrong, n=1),
            *(lambda each=each: store[each].create(wrong) for each in kinds.values()),
            *(lambda kind=kind: store[kinds[kind]].update(tokens[kind], **change) for kind in kinds),
        ]
        for refused in refusals:
            with pytest.raises(InvalidValue):
                await refused()
        assert await store[records].get(n=1) == Look(zoom=2.0)
        assert await store[looks].get(n=1) == Look(zoom=2.0)
        for kind, each in kinds.items():
            assert await store[each].get(tokens[kind]) == Look(zoom=2.0)
