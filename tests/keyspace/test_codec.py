from __future__ import annotations

import enum
import json
import os
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import _compression as compression
from ephemera.keyspace import choose_codec


class Answer(msgspec.Struct):
    question: str
    score: float
    when: datetime
    sources: list[str] = []


ANSWER = Answer("why?", 0.97, datetime(2024, 5, 1, tzinfo=UTC), ["a", "b"])


@pytest.mark.parametrize("name", ["json", "msgpack"])
@pytest.mark.parametrize("compress_over", [None, 0, 1_000_000])
def test_a_value_round_trips(name: Any, compress_over: int | None) -> None:
    """Every codec decodes what it encoded."""
    codec = choose_codec("answer:{id}", Answer, name, compress_over)
    assert codec.decode(codec.encode(ANSWER)) == ANSWER


def test_json_values_are_readable() -> None:
    """A JSON value with its envelope is valid JSON, so that jq can read it."""
    version, stored = json.loads(choose_codec("a:{id}", Answer).encode(ANSWER))
    assert version == "1"
    assert stored["question"] == "why?"


@pytest.mark.parametrize(
    ("value_type", "value", "stored"),
    [
        (str, "text: é", "text: é".encode()),
        (bytes, b"\x00\xff", b"\x00\xff"),
        (int, -12, b"-12"),
        (float, 1.5, b"1.5"),
        (bool, True, b"1"),
        (bool, False, b"0"),
        (Annotated[int, msgspec.Meta(ge=0)], 3, b"3"),
        (Annotated[str, msgspec.Meta(max_length=3)], "abc", b"abc"),
    ],
)
def test_plain_values_are_stored_as_typed(value_type: Any, value: Any, stored: bytes) -> None:
    """Text, bytes, numbers and booleans are stored as a person would type them."""
    codec = choose_codec("a:{id}", value_type)
    assert codec.name == "plain"
    assert codec.encode(value) == stored
    assert codec.decode(stored) == value


@pytest.mark.parametrize(
    ("value_type", "stored"),
    [
        (str, b"\xff"),
        (int, b"1.5"),
        (int, b"1_000"),
        (int, b""),
        (float, b"nan?"),
        (bool, b"2"),
        (bool, b"true"),
        (Annotated[int, msgspec.Meta(ge=0)], b"-1"),
        (Annotated[str, msgspec.Meta(max_length=3)], b"abcd"),
        (Annotated[bytes, msgspec.Meta(max_length=3)], b"abcd"),
    ],
)
def test_bytes_of_another_type_are_a_miss(value_type: Any, stored: bytes) -> None:
    """Bytes that are not of the type decode to None, without an exception."""
    assert choose_codec("a:{id}", value_type).decode(stored) is None


@given(st.binary(max_size=60))
def test_no_bytes_make_decoding_fail(data: bytes) -> None:
    """Whatever another program left under the key, reading it is a miss and not an exception."""
    for name in ("json", "msgpack"):
        codec = choose_codec("a:{id}", Answer, name, 10)
        good = codec.encode(ANSWER)
        for hostile in (data, good[: len(data)] + data, b"\x28\xb5\x2f\xfd" + data, b"[" * 100_000):
            assert codec.decode(hostile) is None


def test_a_type_evolves() -> None:
    """Another version's value is read with its defaults; one that lacks a required field is a miss."""
    old = msgspec.defstruct("Answer", [("question", str)])
    new = msgspec.defstruct("Answer", [("question", str), ("lang", str, "en")])
    stored = choose_codec("a:{id}", old).encode(old("why?"))
    assert choose_codec("a:{id}", new).decode(stored) == new("why?", "en")
    required = msgspec.defstruct("Answer", [("question", str), ("lang", str)])
    assert choose_codec("a:{id}", required).decode(stored) is None


def test_large_values_are_compressed_when_that_helps() -> None:
    """Above the threshold zstd is used, but never to make a value larger."""
    codec = choose_codec("a:{id}", bytes, "msgpack", 100)
    assert len(codec.encode(b"a" * 10_000)) < 100
    noise = os.urandom(10_000)
    assert len(codec.encode(noise)) < 10_020
    assert codec.decode(codec.encode(noise)) == noise
    assert codec.encode(b"a" * 50).endswith(b"a" * 50)


def test_a_frame_that_claims_to_be_enormous_is_a_miss() -> None:
    """No memory is allocated for a few bytes that claim to be terabytes."""
    bomb = b"\x28\xb5\x2f\xfd\xf0" + bytes(7) + b"\x01"
    assert choose_codec("a:{id}", bytes, "msgpack", 10).decode(bomb) is None


def test_without_zstandard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compression cannot be declared without its library, and compressed data is a miss."""
    compressed = choose_codec("a:{id}", bytes, "msgpack", 10).encode(b"a" * 1000)
    monkeypatch.setattr(compression, "AVAILABLE", False)
    monkeypatch.setattr(compression, "_contexts", None)
    assert choose_codec("a:{id}", bytes, "msgpack").decode(compressed) is None
    with pytest.raises(
        InvalidDeclaration, match=r"'a:\{id\}': compression needs zstandard; .*ephemera-data\[zstd\]"
    ):
        choose_codec("a:{id}", bytes, "msgpack", 10)


@pytest.mark.parametrize(
    ("value_type", "wrong"),
    [
        (Answer, {"question": "x"}),
        (int, "1"),
        (int, True),
        (bool, 1),
        (dict, [1]),
        (dict[str, int], {"a": "x"}),
        (list[int], ["x"]),
        (tuple[int, str], (1, 2)),
    ],
)
def test_a_value_of_another_type_is_refused(value_type: Any, wrong: Any) -> None:
    """Writing a value that could not be decoded fails at once, with the pattern and both types."""
    with pytest.raises(InvalidValue, match=r"'a:\{id\}' holds .+; given \w+"):
        choose_codec("a:{id}", value_type).encode(wrong)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_json_refuses_what_it_would_store_as_null(number: float) -> None:
    """Infinity where None fits would come back as None: JSON refuses it, and MessagePack stores it."""
    for value_type, value in ((dict[str, float | None], {"a": number}), (dict, {"a": [{"b": number}]})):
        json_codec, msgpack = (choose_codec("a:{id}", value_type, name) for name in ("json", "msgpack"))
        with pytest.raises(InvalidValue):
            json_codec.encode(value)
        assert str(msgpack.decode(msgpack.encode(value))) == str(value)
        assert json_codec.decode(json_codec.encode({"a": None})) == {"a": None}


@pytest.mark.parametrize("value_type", [complex, list[object], Answer | None, type(None), Any, msgspec.Raw])
def test_types_that_cannot_be_decoded_are_refused(value_type: Any) -> None:
    """A type msgspec cannot decode, or one that may be None, fails when declared."""
    with pytest.raises(InvalidDeclaration) as caught:
        choose_codec("a:{id}", value_type)
    assert caught.value.pattern == "a:{id}"
    assert caught.value.advice


class Color(enum.Enum):
    RED = "r"


class Node(msgspec.Struct):
    name: str
    children: list[Node] = []
    color: Color = Color.RED


def test_a_recursive_type_is_storable() -> None:
    """A type that contains itself can be declared, and its values round-trip."""
    codec = choose_codec("a:{id}", Node)
    tree = Node("a", [Node("b", [Node("c")])])
    assert codec.decode(codec.encode(tree)) == tree
