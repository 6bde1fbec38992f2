"""Messages and generations as plain values, and back.

What Redis holds is untrusted. LangChain's own loader builds the class that the data names; here the data
selects one of the classes below by its tag, and pydantic validates its fields. No other type is ever built,
no module is imported, no secret is read from the environment, and what is too large is not decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from langchain_core import messages
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk

from ephemera.errors import InvalidValue
from ephemera.keyspace import DECODE_ERRORS

MAX_BYTES = 8 * 1024 * 1024
"""The longest message that is stored or decoded."""

_MESSAGES: dict[str, type[BaseMessage]] = {
    kind.model_fields["type"].default: kind
    for kind in (
        *(messages.HumanMessage, messages.AIMessage, messages.SystemMessage, messages.ToolMessage),
        *(messages.ChatMessage, messages.FunctionMessage, messages.RemoveMessage),
        *(messages.HumanMessageChunk, messages.AIMessageChunk, messages.SystemMessageChunk),
        *(messages.ToolMessageChunk, messages.ChatMessageChunk, messages.FunctionMessageChunk),
    )
}
_GENERATIONS: dict[str, type[Generation]] = {
    kind.__name__: kind for kind in (Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk)
}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class StoredGeneration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A generation as it is stored."""

    kind: str
    text: str
    info: dict[str, Any] | None = None
    message: dict[str, Any] | None = None


def dump_message(message: BaseMessage) -> dict[str, Any]:
    """A message as plain values; `InvalidValue` for a class that is not LangChain's own."""
    if _MESSAGES.get(message.type) is not type(message):
        kind = type(message)
        raise InvalidValue(
            "messages", "those of langchain_core.messages", f"a {kind.__module__}.{kind.__qualname__}"
        )
    return _plain("a message", message.model_dump())


def _plain(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """The content as JSON has it; `InvalidValue` if it has no such form."""
    try:
        plain: dict[str, Any] = msgspec.to_builtins(content, enc_hook=_plain_text)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidValue(name, "what JSON can express", str(problem)) from None
    return plain


def _plain_text(value: Any) -> str:
    """The text of a `str` of another class: LangChain has one that can be called, too."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__}")


def build_message(content: dict[str, Any]) -> BaseMessage:
    """The message of plain values; ValueError if there is none."""
    tag = content.get("type")
    kind = _MESSAGES.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise ValueError(f"the message type {str(tag)[:100]!r} is unknown")
    try:
        return kind.model_validate(content)
    except ValueError:
        raise
    except Exception as problem:  # a validator may raise anything
        raise ValueError(f"{type(problem).__name__}: {problem}"[:200]) from None


def encode_message(message: BaseMessage) -> bytes:
    """A message in JSON; `InvalidValue` if it cannot be, or is too large."""
    data = _encode(dump_message(message))
    if len(data) > MAX_BYTES:
        raise InvalidValue("a message", f"at most {MAX_BYTES >> 20} MiB", f"{len(data) / (1 << 20):.1f} MiB")
    return data


def decode_message(data: bytes) -> BaseMessage:
    """The message of JSON; ValueError if there is none."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data)} bytes are too long for a message")
    try:
        content = _decode(data)
    except DECODE_ERRORS as problem:
        raise ValueError(str(problem)) from None
    return build_message(content)


def dump_generations(generations: Iterable[Generation]) -> list[StoredGeneration]:
    """Generations as plain values; `InvalidValue` for a class that is not LangChain's own."""
    return [_dump_generation(generation) for generation in generations]


def _dump_generation(generation: Generation) -> StoredGeneration:
    kind = type(generation)
    if _GENERATIONS.get(kind.__name__) is not kind:
        raise InvalidValue(
            "generations", "those of langchain_core.outputs", f"a {kind.__module__}.{kind.__qualname__}"
        )
    message = dump_message(generation.message) if isinstance(generation, ChatGeneration) else None
    info = generation.generation_info
    return StoredGeneration(
        kind.__name__,
        str.__str__(generation.text),
        None if info is None else _plain("generation_info", info),
        message,
    )


def build_generations(stored: Sequence[StoredGeneration]) -> list[Generation]:
    """The generations of plain values; ValueError if there is an unknown one."""
    return [_build_generation(each) for each in stored]


def _build_generation(stored: StoredGeneration) -> Generation:
    kind = _GENERATIONS.get(stored.kind)
    if kind is None:
        raise ValueError(f"the generation {stored.kind[:100]!r} is unknown")
    if not issubclass(kind, ChatGeneration):
        return kind(text=stored.text, generation_info=stored.info)
    message: Any = build_message(stored.message or {})
    return kind(message=message, generation_info=stored.info)
