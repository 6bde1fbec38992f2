"""LangChain: a cache of models' answers, a key-value store, and chat histories. Needs the extra `langchain`.

    ANSWERS = LLMCache(catalogue, "answer:{hash}", lifetime=fixed(days=7))
    VALUES = ByteValues(catalogue, "embedding:{key}", lifetime=fixed(days=30), purpose="Embeddings of texts")
    CHATS = ChatHistories(catalogue, "chat:{session_id}", lifetime=fixed(days=30))

    set_llm_cache(store[ANSWERS])
    CacheBackedEmbeddings.from_bytes_store(embeddings, store[VALUES])
    RunnableWithMessageHistory(chain, store[CHATS].history)

Each has LangChain's synchronous and async methods. Those of an async store serve the coroutines of its event
loop, and threads; those of a synchronous store serve threads, and coroutines of any event loop.

*Keys.* An answer is a value of a semantic cache, with that pattern's companions. A value is one key, and
`keys:...` lists them all. A history is a list.

*Atomicity.* Messages that are added together are stored together, or none. `clear` of the cache is one write,
and no answer that was stored before it is returned after it.

*When Redis is down.* The cache misses, and stores nothing. The others raise `ConnectionFailed`: a chat
without its past would be another chat.

*Types.* What Redis holds is untrusted: messages and generations are built of the classes of `langchain_core`
that are listed in the code, never of what the data names. What cannot be decoded is a miss, and logged.
"""

from importlib.util import find_spec

from ephemera.errors import MissingExtra

if find_spec("langchain_core") is None:
    raise MissingExtra("ephemera.adapters.langchain needs LangChain", "langchain", "langchain_core")

from ephemera.adapters.langchain._byte_values import BoundByteValues, ByteValues
from ephemera.adapters.langchain._chat_histories import BoundChatHistories, ChatHistories, ChatHistory
from ephemera.adapters.langchain._llm_cache import BoundLLMCache, LangChainEmbedder, LLMCache

__all__ = [
    "BoundByteValues",
    "BoundChatHistories",
    "BoundLLMCache",
    "ByteValues",
    "ChatHistories",
    "ChatHistory",
    "LLMCache",
    "LangChainEmbedder",
]
