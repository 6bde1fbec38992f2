"""LangChain: models with our cache, byte values and chat histories, called both ways, on every server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.caches import BaseCache
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from pydantic import Field

from ephemera import Catalogue, InvalidDeclaration, Lexical, SemanticBackend, fixed, keyspace, sync
from ephemera.adapters.langchain import ByteValues, ChatHistories, LangChainEmbedder, LLMCache
from ephemera.embedded import Valkey, valkey
from ephemera.errors import ConnectionFailed, InvalidValue, SyncCallInEventLoop, UndeclaredKeyspace
from ephemera.keyspace import Store
from tests.patterns.trips import Counting

CATALOGUE = Catalogue("test-langchain")
ANSWERS = LLMCache(CATALOGUE, "answer:{hash}", lifetime=fixed(hours=1))
SIMILAR = LLMCache(CATALOGUE, "similar:{hash}", lifetime=fixed(hours=1))
VALUES = ByteValues(CATALOGUE, "bytes:{key}", lifetime=fixed(hours=1), purpose="Values")
CHATS = ChatHistories(CATALOGUE, "chat:{session_id}", lifetime=fixed(hours=1), max_messages=50)


class Counted(FakeListChatModel):
    """A model that answers with the number of its call."""

    responses: list[str] = Field(default_factory=lambda: ["first", "second", "third", "fourth"])


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for LangChain, on Valkey, Redis 7 and a cluster."""
    resources = {SIMILAR: SemanticBackend(embedder=Lexical())}
    async with keyspace.connect(url, CATALOGUE, resources=resources) as opened:
        yield opened


@pytest.fixture
async def local(server: Valkey) -> AsyncIterator[Store]:
    """A store on one server."""
    resources = {SIMILAR: SemanticBackend(embedder=Lexical())}
    async with keyspace.connect(server.url, CATALOGUE, resources=resources) as opened:
        yield opened


@pytest.fixture
def blocking(url: str) -> Iterator[sync.SyncStore]:
    """A synchronous store."""
    with sync.connect(url, CATALOGUE) as opened:
        yield opened


def asked(question: str, system: str = "Be brief.") -> list[BaseMessage]:
    """A chat with one question."""
    return [SystemMessage(system), HumanMessage(question)]


async def test_a_model_is_asked_once(store: Store) -> None:
    """The second call of the same chat is answered by the cache; another question or model is not."""
    question = f"What is {uuid4()}?"
    model = Counted(cache=store[ANSWERS])
    assert (await model.ainvoke(asked(question))).content == "first"
    assert (await model.ainvoke(asked(question))).content == "first"
    assert (await model.ainvoke(asked(question + "!"))).content == "second"
    assert (await model.ainvoke(asked(question, "Be verbose."))).content == "third"
    assert (await model.ainvoke(asked(question), stop=["."])).content == "fourth"


def test_a_model_is_asked_once_by_synchronous_code(blocking: sync.SyncStore) -> None:
    """`invoke` uses the cache of a synchronous store, until it is cleared."""
    question, cache = f"What is {uuid4()}?", blocking[ANSWERS]
    model = Counted(cache=cache)
    assert [model.invoke(asked(question)).content for _ in range(2)] == ["first"] * 2
    cache.clear()
    assert model.invoke(asked(question)).content == "second"


async def test_coroutines_may_use_the_cache_of_a_synchronous_store(url: str) -> None:
    """`ainvoke` with it neither blocks nor fails, as one global cache may serve both kinds of code."""
    opened = sync.connect(url, CATALOGUE)
    try:
        model, question = Counted(cache=opened[ANSWERS]), f"What is {uuid4()}?"
        answers = [(await model.ainvoke(asked(question))).content for _ in range(2)]
        assert answers == ["first"] * 2
    finally:
        await asyncio.to_thread(opened.close)


async def test_synchronous_calls_on_the_loop_are_refused(local: Store) -> None:
    """They would block it; in a thread they work."""
    with pytest.raises(SyncCallInEventLoop, match="begins with `a`"):
        local[ANSWERS].lookup("prompt", "model")
    assert await asyncio.to_thread(local[ANSWERS].lookup, f"{uuid4()}", "model") is None


async def test_similar_questions_share_an_answer(store: Store) -> None:
    """With an embedder, a question that differs in punctuation does; an opposite or another context not."""
    topic = str(uuid4())[:8]
    model = Counted(cache=store[SIMILAR])
    question = f"Please explain to me how the engine of the whale watching boat {topic} works"
    assert (await model.ainvoke(asked(question))).content == "first"
    assert (await model.ainvoke(asked(question + "?"))).content == "first"
    assert (await model.ainvoke(asked(question + "?", "Answer in French."))).content == "second"
    assert (await model.ainvoke(asked(question.replace("works", "does not work")))).content == "third"


async def test_langchains_embeddings_are_embedders(server: Valkey) -> None:
    """`LangChainEmbedder` gives the vectors of LangChain's own embeddings, and the name that was chosen."""
    from langchain_core.embeddings import DeterministicFakeEmbedding

    embeddings = DeterministicFakeEmbedding(size=8)
    embedder = LangChainEmbedder(embeddings, model="fake-8")
    resources = {SIMILAR: SemanticBackend(embedder=embedder)}
    async with keyspace.connect(server.url, CATALOGUE, resources=resources) as opened:
        prompt = f"about {uuid4()}"
        await opened[SIMILAR].aupdate(prompt, "model", [Generation(text="it")])
        assert await opened[SIMILAR].alookup(prompt, "model") == [Generation(text="it")]
    assert await embedder.embed(["a", "b"]) == embeddings.embed_documents(["a", "b"])


async def test_an_answer_has_all_it_had(local: Store) -> None:
    """Tool calls, metadata and generation info come back equal; a later update replaces the answer."""
    message = AIMessage(
        content=[{"type": "text", "text": "hé"}],
        tool_calls=[{"name": "look", "args": {"at": [1, None]}, "id": "7", "type": "tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )
    generations = [
        ChatGeneration(message=message, generation_info={"logprobs": [0.5]}),
        Generation(text="plain"),
    ]
    prompt = str(uuid4())
    for answer in (generations, [Generation(text="other")]):
        await local[ANSWERS].aupdate(prompt, "model", answer)
        assert await local[ANSWERS].alookup(prompt, "model") == answer


async def test_what_cannot_be_stored_is_not(local: Store, caplog: pytest.LogCaptureFixture) -> None:
    """An answer that JSON cannot express is not cached, which is logged: the model's caller gets it."""
    prompt = str(uuid4())
    await local[ANSWERS].aupdate(prompt, "model", [Generation(text="x", generation_info={"at": object()})])
    assert await local[ANSWERS].alookup(prompt, "model") is None
    assert "an answer was not stored" in caplog.text
    with pytest.raises(InvalidValue, match="no arguments"):
        await local[ANSWERS].aclear(prompt="x")


@pytest.mark.standalone("it lists the keys of one server")
async def test_every_key_has_a_ttl(local: Store) -> None:
    """Answers, values, their index and histories all expire."""
    await local[ANSWERS].aupdate("prompt", "model", [Generation(text="x")])
    await local[VALUES].amset([("a", b"1")])
    await local[CHATS].history(str(uuid4())).aadd_messages([HumanMessage("hello")])
    keys = [key for key in await local.call("KEYS", "*") if b"ephemera" not in key]
    ttls = {key: await local.call("PTTL", key) for key in keys}
    assert len(ttls) >= 4
    assert min(ttls.values()) > 0


async def test_keys_are_listed_while_they_exist(store: Store) -> None:
    """`yield_keys` lists any text, by prefix, without deleted and evicted keys, in several pages."""
    prefix, odd = str(uuid4()), "a:b{c}*%\n|é "
    keys = [f"{prefix}{odd}{number}" for number in range(1200)]
    values = store[VALUES]
    await values.amset([(key, key.encode()) for key in keys])
    assert await values.amget([keys[7], "none", keys[7]]) == [keys[7].encode(), None, keys[7].encode()]
    await values.amdelete(keys[:100])
    await store[VALUES.keyspace].delete(key=keys[100])  # as an eviction does
    assert sorted([key async for key in values.ayield_keys(prefix=prefix)]) == sorted(keys[101:])
    assert [key async for key in values.ayield_keys(prefix=f"{prefix}x")] == []


async def test_a_lost_index_costs_only_the_listing(local: Store) -> None:
    """Values are there without it, and are listed again when they are written."""
    values, key = local[VALUES], str(uuid4())
    await values.amset([(key, b"1"), (key + "2", b"2")])
    await local.call("DEL", VALUES.index.keyspace.key())
    assert await values.amget([key]) == [b"1"]
    assert [each async for each in values.ayield_keys()] == []
    await values.amset([(key, b"1")])
    assert [each async for each in values.ayield_keys()] == [key]
    await values.amset([])


def test_synchronous_code_lists_keys_page_by_page(blocking: sync.SyncStore) -> None:
    """A generator that is not exhausted leaves nothing behind that a later call would notice."""
    prefix, values = str(uuid4()), blocking[VALUES]
    values.mset([(f"{prefix}{number}", b"x") for number in range(1000)])
    listed = values.yield_keys(prefix=prefix)
    first = next(listed)
    listed.close()
    assert first.startswith(prefix)
    assert len(list(values.yield_keys(prefix=prefix))) == 1000


async def test_messages_that_are_added_together_stay_together(store: Store) -> None:
    """Twenty writers at once: pairs are contiguous, none is lost, and the newest are kept."""
    history = store[CHATS].history(str(uuid4()))

    async def turn(number: int) -> None:
        await history.aadd_messages([HumanMessage(f"{number}"), AIMessage(f"{number}")])

    await asyncio.gather(*map(turn, range(20)))
    messages = await history.aget_messages()
    pairs = [(one.content, other.content) for one, other in zip(messages[::2], messages[1::2], strict=True)]
    assert sorted(pairs) == sorted((f"{number}", f"{number}") for number in range(20))
    await asyncio.gather(*map(turn, range(20)))
    assert len(await history.aget_messages()) == 50
    await history.aclear()
    assert await history.aget_messages() == []


def test_a_history_serves_synchronous_code(blocking: sync.SyncStore) -> None:
    """LangChain's convenience methods work on it; another chat is not affected."""
    chats, name = blocking[CHATS], str(uuid4())
    chats.history(name).add_user_message("hello")
    chats.history(name).add_ai_message("good day")
    chats.history(name).add_messages([])
    assert chats.history(name).messages == [HumanMessage("hello"), AIMessage("good day")]
    assert "good day" in str(chats.history(name))
    assert chats.history(name + "2").messages == []
    chats.history(name).clear()
    assert chats.history(name).messages == []


async def test_without_redis_the_model_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    """A lookup is a miss and an update does nothing, at once; values and histories raise."""
    with valkey() as victim:
        async with keyspace.connect(victim.url, CATALOGUE) as opened:
            cache: BaseCache = opened[ANSWERS]
            await cache.aupdate("prompt", "model", [Generation(text="x")])
            victim.kill()
            assert await cache.alookup("prompt", "model") is None
            await cache.aupdate("prompt", "model", [Generation(text="y")])
            with pytest.raises(ConnectionFailed):
                await opened[VALUES].amset([("a", b"1")])
            with pytest.raises(ConnectionFailed):
                await opened[CHATS].history("a").aget_messages()
    assert "a lookup failed, so the model is asked" in caplog.text
    assert "an answer was not stored" in caplog.text


def test_declarations_that_cannot_work_are_refused() -> None:
    """Wrong fields, lifetimes and bounds are refused where they are declared."""
    catalogue = Catalogue("refused-langchain")
    wrong: Any = "an hour"
    with pytest.raises(InvalidDeclaration, match=r"its one field is \{session_id\}"):
        ChatHistories(catalogue, "chat:{user}", lifetime=fixed(days=1))
    with pytest.raises(InvalidDeclaration, match="max_messages=0 keeps nothing"):
        ChatHistories(catalogue, "chat:{session_id}", lifetime=fixed(days=1), max_messages=0)
    with pytest.raises(InvalidDeclaration, match="values cannot have the lifetime"):
        ByteValues(catalogue, "value:{key}", lifetime=wrong, purpose="x")
    with pytest.raises(InvalidDeclaration, match="it needs one field"):
        ByteValues(catalogue, "value:{key}:{other}", lifetime=fixed(days=1), purpose="x")


async def test_foreign_stores_are_refused(local: Store) -> None:
    """A store without the catalogue is refused when the object is made."""
    foreign = Catalogue("foreign-langchain")
    declared: list[Any] = [
        LLMCache(foreign, "foreign:{hash}", lifetime=fixed(days=1)),
        ByteValues(foreign, "foreign-value:{key}", lifetime=fixed(days=1), purpose="x"),
        ChatHistories(foreign, "foreign-chat:{session_id}", lifetime=fixed(days=1)),
    ]
    for each in declared:
        with pytest.raises(UndeclaredKeyspace):
            local[each]
        assert "foreign-langchain" in repr(each)


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
async def test_a_chain_remembers_its_chat(local: Store) -> None:
    """`RunnableWithMessageHistory` takes `history` as it is, and each chat has its own past."""
    chain: RunnableLambda[Any, Any] = RunnableLambda(lambda messages: AIMessage(f"{len(messages)} messages"))
    remembering = RunnableWithMessageHistory(chain, local[CHATS].history)
    ann, bob = ({"configurable": {"session_id": f"{uuid4()}"}} for _ in range(2))
    replies = [
        (await remembering.ainvoke([HumanMessage("hello")], config)).content  # type: ignore[arg-type]
        for config in (ann, ann, bob)
    ]
    assert replies == ["1 messages", "3 messages", "1 messages"]


async def test_operations_are_few_round_trips(local: Store) -> None:
    """As the page says: a lookup one, an update two, batches of values and messages one."""
    counting = Counting(local.client())
    local._clients["cache"] = counting
    cache, values, chat = local[ANSWERS], local[VALUES], local[CHATS].history(str(uuid4()))
    prompt = str(uuid4())
    await cache.aupdate(f"{prompt} first", "model", [Generation(text="x")])  # reads the server's time, too
    expected: list[tuple[Callable[[], Awaitable[Any]], int]] = [
        (lambda: cache.alookup(prompt, "model"), 1),
        (lambda: cache.aupdate(prompt, "model", [Generation(text="x")]), 2),
        (lambda: values.amset([(f"{prompt}{number}", b"x") for number in range(100)]), 1),
        (lambda: values.amget([f"{prompt}{number}" for number in range(100)]), 1),
        (lambda: values.amdelete([f"{prompt}{number}" for number in range(100)]), 1),
        (lambda: chat.aadd_messages([HumanMessage("x")] * 3), 1),
        (chat.aget_messages, 1),
    ]
    for number, (operation, trips) in enumerate(expected):
        before = counting.trips
        await operation()
        assert (number, counting.trips - before) == (number, trips)
