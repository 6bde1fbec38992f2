"""What Redis holds is untrusted: LangChain's objects are built of known classes, whatever the data names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core import messages
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from ephemera import Catalogue, fixed, keyspace
from ephemera.adapters.langchain import ChatHistories, LLMCache
from ephemera.adapters.langchain._llm_cache import _split
from ephemera.adapters.langchain._stored_objects import (
    MAX_BYTES,
    StoredGeneration,
    build_generations,
    decode_message,
    encode_message,
)
from ephemera.embedded import Valkey
from ephemera.errors import InvalidValue
from ephemera.keyspace import Store

CATALOGUE = Catalogue("test-untrusted-langchain")
ANSWERS = LLMCache(CATALOGUE, "answer:{hash}", lifetime=fixed(hours=1))
CHATS = ChatHistories(CATALOGUE, "chat:{session_id}", lifetime=fixed(hours=1))

EVERY_MESSAGE: list[BaseMessage] = [
    HumanMessage("hé", name="ann", id="1"),
    AIMessage([{"type": "text", "text": "x"}], response_metadata={"a": [1, None]}),
    messages.SystemMessage("x", additional_kwargs={"n": {"deep": True}}),
    ToolMessage("x", tool_call_id="7", artifact={"a": 1}, status="error"),
    messages.ChatMessage(content="x", role="critic"),
    messages.FunctionMessage(content="x", name="f"),
    messages.RemoveMessage(id="7"),
    messages.HumanMessageChunk(content="x"),
    messages.AIMessageChunk(
        content="x", tool_call_chunks=[{"name": "f", "args": "{", "id": "1", "index": 0}]
    ),
    messages.SystemMessageChunk(content="x"),
    messages.ToolMessageChunk(content="x", tool_call_id="7"),
    messages.ChatMessageChunk(content="x", role="critic"),
    messages.FunctionMessageChunk(content="x", name="f"),
]
SECRET = "EPHEMERA_TEST_SECRET"
HOSTILE = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{}",
    b'{"type": "system"',
    b'{"type": 7, "content": "x"}',
    b'{"type": ["human"], "content": "x"}',
    b'{"type": "os.system", "content": "x"}',
    b'{"type": "human"}',
    b'{"type": "human", "content": {"no": "text"}}',
    b'{"type": "tool", "content": "x", "status": "owned", "tool_call_id": "1"}',
    b'{"type": "ai", "content": "x", "tool_calls": [{"name": 1}]}',
    b'{"type": "ai", "content": "x", "usage_metadata": "none"}',
    b'{"lc": 1, "type": "constructor", "id": ["subprocess", "Popen"], "kwargs": {"args": "id"}}',
    b'{"lc": 1, "type": "secret", "id": ["EPHEMERA_TEST_SECRET"]}',
    dumps(HumanMessage("x")).encode(),
    b'{"type": "human", "content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"type": "human", "content": "' + b"x" * MAX_BYTES + b'"}',
]


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store on one server."""
    async with keyspace.connect(server.url, CATALOGUE) as opened:
        yield opened


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda message: type(message).__name__)
def test_every_message_comes_back_equal(message: BaseMessage) -> None:
    """Each of LangChain's classes is stored and built again, as the same class."""
    found = decode_message(encode_message(message))
    assert found == message
    assert type(found) is type(message)


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data[:40])
def test_hostile_bytes_are_refused(data: bytes) -> None:
    """They are a ValueError, and nothing else."""
    with pytest.raises(ValueError, match=r"(?s).") as refused:
        decode_message(data)
    assert len(str(refused.value)) < 2000


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "content", "tool_calls", "id", "lc", "kwargs", "usage_metadata", "__class__"]
        ),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.text(max_size=8)
            | st.sampled_from(["human", "ai", "tool"]),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
def test_any_json_is_a_message_or_refused(content: dict[str, Any]) -> None:
    """Whatever JSON says, the outcome is one of the known classes or a ValueError."""
    try:
        found = decode_message(msgspec.json.encode(content))
    except ValueError:
        return
    assert type(found) in {type(each) for each in EVERY_MESSAGE}


async def test_a_spoiled_history_has_the_rest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hostile entries are left out, counted and logged; no secret is read, and later messages work."""
    monkeypatch.setitem(os.environ, SECRET, "hunter2")
    history, key = store[CHATS].history(name := str(uuid4())), CHATS.keyspace.key(session_id=name)
    await history.aadd_messages([HumanMessage("before")])
    for data in HOSTILE[:-1]:
        await store.call("RPUSH", key, data)
    await history.aadd_messages([AIMessage("after")])
    found = await history.aget_messages()
    assert found == [HumanMessage("before"), AIMessage("after")]
    assert "hunter2" not in repr(found)
    assert store.stats[CHATS.keyspace].undecodable == len(HOSTILE) - 1


async def test_a_spoiled_answer_is_a_miss(store: Store) -> None:
    """An entry with other bytes, or with an unknown class, is asked for again."""
    cache, prompt = store[ANSWERS], str(uuid4())
    answers = store[ANSWERS.answers]
    question, scope = _split(prompt, "model")
    for stored in (
        StoredGeneration("Popen", "id"),
        StoredGeneration("ChatGeneration", "x"),
        StoredGeneration("ChatGeneration", "x", None, {"type": "constructor", "id": ["os", "system"]}),
    ):
        await answers.put(question, scope, [stored])
        assert await cache.alookup(prompt, "model") is None
    found = await answers.find(question, scope)
    assert found is not None
    key = ANSWERS.answers.keyspace.key(hash=found.id)
    await store.call("SET", key, b"\x80\x04spoiled", "PX", 60_000)
    assert await cache.alookup(prompt, "model") is None
    with pytest.raises(ValueError, match="'Popen' is unknown"):
        build_generations([StoredGeneration("Popen", "id")])


def test_foreign_classes_are_refused_when_written() -> None:
    """A message of a class of its own is refused, since it could not be built again; so is a huge one."""

    class Mine(HumanMessage):
        """Not LangChain's."""

    with pytest.raises(InvalidValue, match=r"those of langchain_core.messages; given a .*Mine"):
        encode_message(Mine(content="x"))
    with pytest.raises(InvalidValue, match="what JSON can express"):
        encode_message(ToolMessage("x", tool_call_id="1", artifact=object()))
    with pytest.raises(InvalidValue, match=r"at most 8 MiB; given 9\.0 MiB"):
        encode_message(HumanMessage("x" * (9 << 20)))
