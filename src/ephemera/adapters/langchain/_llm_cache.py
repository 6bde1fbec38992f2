"""The cache of a model's answers for LangChain: by exact match, or by similar prompts with an embedder.

It is a `SemanticCache`, whose scope is everything but the question: the model with its parameters
(LangChain's `llm_string`), and for a chat all messages but the last. Two questions are compared only if that
is the same, byte for byte.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.embeddings import Embeddings

from ephemera.adapters._store_access import AsyncAccess, BlockingAccess, StoreAccess
from ephemera.adapters.langchain._stored_objects import (
    StoredGeneration,
    build_generations,
    dump_generations,
)
from ephemera.blocking import BlockingStore
from ephemera.errors import InvalidValue
from ephemera.keyspace import DECODE_ERRORS, REDIS_ERRORS, Catalogue, Fixed, Store
from ephemera.patterns.semantic_cache import MatchPolicy, Scope, SemanticCache

_ALL = "answers"  # the source of every answer, which `clear` invalidates
_MATCH_POLICY: MatchPolicy[Any] = MatchPolicy()
_log = logging.getLogger("ephemera.langchain")


class LangChainEmbedder:
    """LangChain's embeddings as the embedder of a `SemanticBackend`.

    `model` names what the vectors depend on: change it when you change the embeddings.
    """

    def __init__(self, embeddings: Embeddings, *, model: str) -> None:
        self._embeddings = embeddings
        self.model = model

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """A vector for each text."""
        return await self._embeddings.aembed_documents(list(texts))


class PromptScope(Scope, frozen=True, kw_only=True):
    """What an answer depends on besides the question: `model` is a digest of LangChain's `llm_string`."""

    context: str
    """A digest of the rest of the prompt: of a chat, all but the text of its last message."""


class LLMCache:
    """The answers of models: `set_llm_cache(store[ANSWERS])`.

    Similar prompts match if the store has a backend: `resources={ANSWERS: SemanticBackend(embedder=...)}`.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of an answer; its one field is the id of a prompt.
        lifetime: How long an answer is kept.
        match_policy: Which similar prompt's answer may be returned.
        sensitive: Whether consoles and logs hide answers.
        purpose: What the cache is for, for the documentation of the catalogue.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lifetime: Fixed,
        match_policy: MatchPolicy[Any] = _MATCH_POLICY,
        sensitive: bool = True,
        purpose: str = "What a model answered to a prompt",
    ) -> None:
        self.answers = SemanticCache(
            catalogue,
            pattern,
            list[StoredGeneration],
            scope=PromptScope,
            lifetime=lifetime,
            match_policy=match_policy,
            sensitive=sensitive,
            purpose=purpose,
            invalidated_by=("clear()",),
            resource_of=self,
        )

    def bind(self, store: Store) -> BoundLLMCache:
        """The cache of a store."""
        store[self.answers]  # refuses a store without the catalogue, and a wrong resource
        return BoundLLMCache(self, AsyncAccess(store))

    def bind_sync(self, store: BlockingStore) -> BoundLLMCache:
        """The cache of a synchronous store, for any thread or event loop, and after a fork."""
        return BoundLLMCache(self, BlockingAccess(store))

    def __repr__(self) -> str:
        return f"<LLMCache {self.answers.keyspace.pattern!r} of {self.answers.keyspace.catalogue}>"


class BoundLLMCache(BaseCache):
    """The cache of one store: `store[ANSWERS]`.

    When Redis is down, a lookup is a miss and an update does nothing, both logged.
    """

    def __init__(self, declared: LLMCache, access: StoreAccess) -> None:
        self._declared = declared
        self._access = access

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The answer to this prompt or to a similar one, or None."""
        return self._access.wait(self._find(prompt, llm_string))

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The answer to this prompt or to a similar one, or None."""
        return await self._access.run(self._find(prompt, llm_string))

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Store an answer, which replaces an earlier one to the same prompt."""
        self._access.wait(self._put(prompt, llm_string, return_val))

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Store an answer, which replaces an earlier one to the same prompt."""
        await self._access.run(self._put(prompt, llm_string, return_val))

    def clear(self, **kwargs: Any) -> None:
        """Invalidate all answers, in one write."""
        self._access.wait(self._clear(kwargs))

    async def aclear(self, **kwargs: Any) -> None:
        """Invalidate all answers, in one write."""
        await self._access.run(self._clear(kwargs))

    async def _find(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        question, scope = _split(prompt, llm_string)
        answers = self._access.store[self._declared.answers]
        try:
            with answers.stats.counting_errors:
                found = await answers.find(question, scope)
            return None if found is None else build_generations(found.value)
        except REDIS_ERRORS as problem:
            _log.warning("%r: a lookup failed, so the model is asked: %s", self._declared, problem)
        except ValueError as problem:
            answers.stats.undecodable += 1
            _log.warning("%r: an answer cannot be decoded: %s", self._declared, problem)
        return None

    async def _put(self, prompt: str, llm_string: str, generations: RETURN_VAL_TYPE) -> None:
        question, scope = _split(prompt, llm_string)
        answers = self._access.store[self._declared.answers]
        try:
            with answers.stats.counting_errors:
                await answers.put(question, scope, dump_generations(generations))
        except (*REDIS_ERRORS, InvalidValue, TypeError, ValueError) as problem:
            _log.warning("%r: an answer was not stored: %s", self._declared, problem)

    async def _clear(self, options: dict[str, Any]) -> None:
        if options:
            raise InvalidValue("clear()", "no arguments: it clears all answers", ", ".join(options))
        await self._access.store[self._declared.answers].invalidate_source(_ALL)


def _split(prompt: str, llm_string: str) -> tuple[str, PromptScope]:
    """The question of a prompt, which may be similar to another's, and the scope, which may not."""
    question, context = _last_message(prompt) or (prompt, b"")
    scope = PromptScope(
        organization="",
        provider="",
        model=sha256(llm_string.encode(errors="surrogatepass")).hexdigest(),
        language="",
        documents=frozenset((_ALL,)),
        context=sha256(context).hexdigest(),
    )
    return question, scope


def _last_message(prompt: str) -> tuple[str, bytes] | None:
    """The text of a chat's last message, if a person wrote it, and the rest; None if it is not a chat.

    LangChain passes a chat as the JSON of its messages: `{"id": [..., "HumanMessage"], "kwargs": {...}}`.
    """
    try:
        chat = msgspec.json.decode(prompt)
        last = chat[-1]
        question = last["kwargs"].pop("content")
        if last["id"][-1] != "HumanMessage" or not isinstance(question, str):
            return None
    except (*DECODE_ERRORS, LookupError, AttributeError):
        return None
    return question, msgspec.json.encode(chat)
