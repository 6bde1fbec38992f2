"""The slow log of the servers by command and pattern: which keys make a server stand still.

Arguments may be secrets, so only the command and the pattern of its first known key are kept: a declared one,
or the shape that undeclared keys have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed
from ephemera.keyspace import Classifier, Keyspace
from ephemera.operations.audit._report import SlowCommand
from ephemera.operations.survey import Shape
from ephemera.wire import NodeClient, as_text, first_key

_ENTRIES = 128  # that a server keeps by default
_KEYS_WITHIN = 8  # arguments; a script's keys come after its name and their number


async def slow_commands(
    nodes: Iterable[NodeClient], keyspaces: Sequence[Keyspace[Any]], shapes: Sequence[Shape]
) -> list[SlowCommand]:
    """The commands in the slow logs, slowest in total first; none of a server that forbids it, or is lost."""
    classify = Classifier((keyspace.template, str(keyspace.pattern)) for keyspace in keyspaces)
    classify_shape = Classifier((shape.template, shape.pattern) for shape in shapes)
    found: dict[tuple[str, str | None], list[int]] = {}
    for node in nodes:
        for command, arguments, micros in await _entries(node):
            pattern = next(filter(None, map(classify, arguments[:_KEYS_WITHIN])), None)
            if pattern is None and isinstance(key := first_key(command, (command, *arguments)), bytes):
                pattern = classify_shape(key)
            found.setdefault((command, pattern), []).append(micros)
    slow = [
        SlowCommand(
            command=command,
            keyspace=pattern,
            times=len(took),
            total_ms=sum(took) / 1000,
            longest_ms=max(took) / 1000,
        )
        for (command, pattern), took in found.items()
    ]
    return sorted(slow, key=lambda each: -each.total_ms)


async def _entries(node: NodeClient) -> list[tuple[str, list[bytes], int]]:
    """Command, arguments and microseconds of each entry."""
    try:
        entries = await node.call("SLOWLOG", "GET", _ENTRIES)
    except (ServerError, ConnectionFailed, StoreClosed):
        return []
    return [(as_text(words[0]).upper(), words[1:], micros) for _, _, micros, words, *_ in entries]
