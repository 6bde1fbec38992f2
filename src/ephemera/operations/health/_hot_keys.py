"""Hot keys: single keys that get a large part of the commands of their server.

A cluster spreads keys over its nodes, but one key is on one node, and one node executes commands on one core.
A short sample of what the servers execute shows such keys, whatever the eviction policy (the counters behind
OBJECT FREQ need an LFU policy). Commands inside scripts are not counted: the script is, under its first key.
"""

from __future__ import annotations

import asyncio
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ephemera.keyspace import Catalogue, Classifier, Keyspace
from ephemera.operations.formatting import format_key
from ephemera.wire import NodeClient, as_text, first_key, open_client

SAMPLE_SIZE = 20_000
"""Commands of one server after which its sample ends."""
HOT_SHARE = 0.05
"""The share of a server's commands from which a key is hot."""
_ENOUGH = 200  # commands, below which a share says nothing
_LINE = re.compile(r'(\d+\.\d+) \[\d+ (.+?)\] (".*)', re.DOTALL)
_ARGUMENT = re.compile(r'"(?:[^"\\]|\\.)*"')
_IN_SCRIPT = "lua"


class HotKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key, and the share of the commands of its server that it gets."""

    server: str
    key: str
    """Its pattern, or nothing, if it may be a secret."""
    pattern: str | None
    """None if no catalogue declares it."""
    command: str
    """The most frequent command on it."""
    share: float
    per_second: float


async def find_hot_keys(
    url: str,
    catalogues: Iterable[Catalogue] = (),
    *,
    seconds: float = 1.0,
    at_most: int = SAMPLE_SIZE,
    share: float = HOT_SHARE,
) -> list[HotKey]:
    """The keys of each server behind a URL that get at least this share of its commands, hottest first.

    It runs MONITOR, which slows a busy server down while it lasts, and needs a user who may.
    """
    keyspaces = [keyspace for catalogue in catalogues for keyspace in catalogue]
    async with open_client(url) as client:
        nodes: Sequence[NodeClient] = client.nodes()
        samples = await asyncio.gather(*(node.sample_commands(seconds, at_most) for node in nodes))
    found = [
        hot
        for node, lines in zip(nodes, samples, strict=True)
        for hot in _hot_keys(str(node.endpoint), lines, keyspaces, share)
    ]
    return sorted(found, key=lambda hot: -hot.per_second)


def _hot_keys(
    server: str, lines: list[bytes], keyspaces: Sequence[Keyspace[Any]], share: float
) -> Iterator[HotKey]:
    commands = list(filter(None, map(_parse, lines)))
    if len(commands) < _ENOUGH:
        return
    lasted = max(commands[-1][0] - commands[0][0], 0.001)
    classify = Classifier((keyspace.template, keyspace) for keyspace in keyspaces)
    names: dict[str, Counter[str]] = {}
    for _, command, key in commands:
        if key is not None:
            names.setdefault(key, Counter())[command] += 1
    for escaped, counts in names.items():
        times = counts.total()
        if times < share * len(commands):
            continue
        name: bytes = literal_eval(f'b"{escaped}"')  # the server escapes as Python does
        keyspace = classify(name)
        yield HotKey(
            server=server,
            key=format_key(name, keyspace),
            pattern=None if keyspace is None else str(keyspace.pattern),
            command=counts.most_common(1)[0][0],
            share=times / len(commands),
            per_second=times / lasted,
        )


def _parse(line: bytes) -> tuple[float, str, str | None] | None:
    """Time, command and escaped key of a line; None for a command inside a script."""
    parts = _LINE.fullmatch(line.decode("ascii", "replace"))
    if parts is None or parts[2] == _IN_SCRIPT:
        return None
    arguments = tuple(argument[1:-1] for argument in _ARGUMENT.findall(parts[3]))
    name = arguments[0].upper()
    key = first_key(name, arguments)
    return float(parts[1]), name, None if key is None else as_text(key)
