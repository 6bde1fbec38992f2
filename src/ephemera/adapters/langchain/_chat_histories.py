"""The messages of chats, for LangChain's `RunnableWithMessageHistory` and for code of your own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from ephemera.adapters._store_access import AsyncAccess, BlockingAccess, StoreAccess
from ephemera.adapters.langchain._stored_objects import decode_message, encode_message
from ephemera.blocking import BlockingStore
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Role, Sliding, Store, check_declaration

_log = logging.getLogger("ephemera.langchain")


class ChatHistories:
    """The histories of chats: `store[CHATS].history(session_id)` is one.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of a history; its one field is `{session_id}`.
        lifetime: How long a history is kept after its last message, or with `sliding` after its last use.
        max_messages: How many messages of a history are kept, the newest.
        role: The server's role; `queue` for histories that must not be evicted.
        purpose: What the histories are for, for the documentation of the catalogue.
        if_lost: What is lost with a history, for the documentation of the catalogue.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lifetime: Fixed | Sliding,
        max_messages: int = 1000,
        role: Role = "cache",
        purpose: str = "The messages of a chat",
        if_lost: str = "the chat starts again",
    ) -> None:
        check_declaration(catalogue, pattern)
        if pattern.count("{") != 1 or "{session_id}" not in pattern:
            raise InvalidDeclaration(pattern, "its one field is {session_id}", "as in chat:{session_id}")
        if type(max_messages) is not int or max_messages < 1:
            raise InvalidDeclaration(
                pattern, f"max_messages={max_messages!r} keeps nothing", "use a positive number"
            )
        self.keyspace = catalogue.list(
            pattern,
            bytes,
            max_length=max_messages,
            lifetime=lifetime,
            role=role,
            purpose=purpose,
            if_lost=if_lost,
            sensitive=True,
        )

    def bind(self, store: Store) -> BoundChatHistories:
        """The histories of a store."""
        store[self.keyspace]  # refuses a store without the catalogue
        return BoundChatHistories(self, AsyncAccess(store))

    def bind_sync(self, store: BlockingStore) -> BoundChatHistories:
        """The histories of a synchronous store, for any thread or event loop, and after a fork."""
        return BoundChatHistories(self, BlockingAccess(store))

    def __repr__(self) -> str:
        return f"<ChatHistories {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


class BoundChatHistories:
    """The histories of one store: `store[CHATS]`."""

    def __init__(self, declared: ChatHistories, access: StoreAccess) -> None:
        self._declared = declared
        self._access = access

    def history(self, session_id: str) -> ChatHistory:
        """The history of a chat: `RunnableWithMessageHistory(chain, store[CHATS].history)`."""
        return ChatHistory(self._declared, self._access, session_id)


class ChatHistory(BaseChatMessageHistory):
    """The history of one chat."""

    def __init__(self, declared: ChatHistories, access: StoreAccess, session_id: str) -> None:
        super().__init__()
        self._declared = declared
        self._access = access
        self.session_id = session_id

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # a property, as the base allows
        """All messages, oldest first."""
        return self._access.wait(self._read())

    async def aget_messages(self) -> list[BaseMessage]:
        """All messages, oldest first."""
        return await self._access.run(self._read())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all of them or none."""
        self._access.wait(self._append(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all of them or none."""
        await self._access.run(self._append(messages))

    def clear(self) -> None:
        """Delete the history."""
        self._access.wait(self._delete())

    async def aclear(self) -> None:
        """Delete the history."""
        await self._access.run(self._delete())

    async def _read(self) -> list[BaseMessage]:
        messages: list[BaseMessage] = []
        for data in await self._list.range(-(self._declared.keyspace.max_length or 0), -1, **self._fields):
            try:
                messages.append(decode_message(data))
            except ValueError as problem:
                self._list.stats.undecodable += 1
                _log.warning("%r: a message cannot be decoded: %s", self._declared, problem)
        return messages

    async def _append(self, messages: Sequence[BaseMessage]) -> None:
        if messages:
            await self._list.push(*map(encode_message, messages), **self._fields)

    async def _delete(self) -> None:
        await self._list.delete(**self._fields)

    @property
    def _list(self) -> Any:
        return self._access.store[self._declared.keyspace]

    @property
    def _fields(self) -> dict[str, str]:
        return {"session_id": self.session_id}
