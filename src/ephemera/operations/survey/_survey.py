"""Count every key name on a server by keyspace, and inspect a random sample of each keyspace.

First all names are read by SCAN, on a cluster from all nodes concurrently, and each is assigned to its
keyspace or to a shape of undeclared keys. Then each keyspace's sample is inspected: type, TTL, size,
contents. Both share one time budget, most of which goes to the names; what was not seen is reported, with a
cursor to resume from.

A survey opens connections of its own, because it tells the server not to count its reads as accesses.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, repeat, zip_longest
from typing import Any

from ephemera.keyspace import RESERVED, Keyspace
from ephemera.operations.libraries import exact_names
from ephemera.operations.survey._key_inspector import ContentReader, KeyInspector, SampledKey
from ephemera.operations.survey._key_shapes import EXAMPLES, KeyShapes
from ephemera.operations.survey._key_tree import Sighting
from ephemera.operations.survey._page_classifier import PageClassifier
from ephemera.operations.survey._samples import Reservoir
from ephemera.operations.survey._scan import Scan, resume_cursor, run_scans, start_scans
from ephemera.operations.survey._server_info import ServerInfo, read_server_info
from ephemera.wire import NodeClient, open_client

ProgressCallback = Callable[[str, int, int], None]
"""Called with the current phase (`names` or `samples`), how much of it is done, and the total."""

SAMPLE_SIZE = 100
"""Default number of keys inspected per keyspace."""

BUDGET = 30.0
"""Default time limit of a survey, in seconds."""

_NAMES_SHARE = 0.8  # of the budget


@dataclass(frozen=True)
class SurveyOptions:
    """How much to read: samples are of each keyspace, and of each shape of undeclared keys.

    Without a sample and a reader of shapes only names are counted.
    """

    sample: int = SAMPLE_SIZE
    budget: float = BUDGET
    cursor: str | None = None
    contents: bool = True
    shape_sample: int = EXAMPLES


class KeyspaceSample:
    """The keys of one keyspace (None: undeclared keys): their number, and a random sample of them."""

    def __init__(self, keyspace: Keyspace[Any] | None, size: int, rng: random.Random) -> None:
        self.keyspace = keyspace
        self.count = 0
        self.keys: list[SampledKey] = []
        self._reservoir: Reservoir[tuple[Scan, bytes]] = Reservoir(size, rng)

    def add(self, scan: Scan, names: Sequence[bytes]) -> None:
        """Count names, and offer them to the sample."""
        self.count += len(names)
        self._reservoir.offer_some(len(names), zip(repeat(scan), names))

    def draw(self, read_content: ContentReader | None) -> Iterator[tuple[Scan, SampledKey]]:
        """The sample in random order, each key with its server's scan."""
        drawn = list(dict.fromkeys(self._reservoir.items))  # SCAN may return a name twice
        random.shuffle(drawn)
        self.keys = [SampledKey(key, read_content) for _, key in drawn]
        return zip((scan for scan, _ in drawn), self.keys, strict=True)


@dataclass
class Survey:
    """What was seen, and what was not."""

    scans: list[Scan]
    samples: list[KeyspaceSample]
    unknown: KeyspaceSample
    shapes: KeyShapes
    resumed: bool
    seconds: float = 0.0
    inspectors: list[KeyInspector] = field(default_factory=list)
    examples: dict[bytes, SampledKey] = field(default_factory=dict)  # of shapes, and of refused keys
    uninspected: int = 0  # sampled keys that the budget, or the connection, did not suffice for

    @property
    def all_samples(self) -> list[KeyspaceSample]:
        """The samples of all keyspaces, and that of undeclared keys."""
        return [*self.samples, self.unknown]

    @property
    def names(self) -> int:
        """Number of names seen."""
        return sum(scan.names for scan in self.scans)

    @property
    def keys(self) -> int:
        """Number of keys that the servers reported at the start."""
        return sum(scan.info.keys for scan in self.scans)

    @property
    def complete(self) -> bool:
        """Whether every key was seen, from the beginning to the end."""
        return not self.resumed and all(scan.done for scan in self.scans)

    @property
    def inspected(self) -> bool:
        """Whether every command about the sampled keys was answered."""
        return not self.uninspected and not any(inspector.failures for inspector in self.inspectors)

    @property
    def cursor(self) -> str | None:
        """The cursor to resume from, if something is left."""
        return resume_cursor(self.scans)


@asynccontextmanager
async def open_servers(url: str) -> AsyncIterator[list[tuple[NodeClient, ServerInfo]]]:
    """The servers that hold a URL's keys, on connections of their own, each with its INFO."""
    async with open_client(url) as client:
        nodes = client.read_nodes()
        infos = await asyncio.gather(*map(read_server_info, nodes))
        yield list(zip(nodes, infos, strict=True))


async def survey(
    nodes: Sequence[tuple[NodeClient, ServerInfo]],
    keyspaces: Iterable[Keyspace[Any]],
    options: SurveyOptions,
    reader_for: Callable[[Keyspace[Any]], ContentReader | None] | None = None,
    on_progress: ProgressCallback = lambda *_: None,
    shape_reader: ContentReader | None = None,
    shape_wants: Callable[[bytes, str], bool] | None = None,
) -> Survey:
    """Survey these servers.

    `reader_for` returns the reader of a keyspace's contents, and `shape_reader` reads undeclared keys; None:
    contents are not read. `shape_wants` restricts the latter to some keys, by name and type.
    """
    started = time.monotonic()
    reserved = {keyspace.template.literals[0].partition(":")[0] for keyspace in RESERVED}
    words = await _library_words([node for node, _ in nodes])
    shapes = KeyShapes(words | reserved, options.shape_sample)
    result, process = _start(
        start_scans(nodes, options.cursor), PageClassifier(keyspaces), shapes, options, on_progress
    )
    await run_scans(result.scans, process, started + options.budget * _NAMES_SHARE)
    if not options.contents:
        reader_for = shape_reader = None
    if options.sample or shape_reader:
        new_key = partial(SampledKey, read_content=shape_reader, wants_content=shape_wants)
        await _inspect_samples(result, reader_for, new_key, started + options.budget, on_progress)
    result.seconds = time.monotonic() - started
    return result


async def _library_words(nodes: Sequence[NodeClient]) -> set[str]:
    """The first parts of names that libraries write exactly so, and that exist here."""
    names = [name for name in exact_names() for _ in nodes]
    # MEMORY USAGE does not count as a lookup; a node of a cluster refuses the names of others.
    asked = (node.call("MEMORY", "USAGE", name) for name in exact_names() for node in nodes)
    sizes = await asyncio.gather(*asked, return_exceptions=True)
    return {name.partition(":")[0] for name, size in zip(names, sizes, strict=True) if isinstance(size, int)}


def _start(
    scans: list[Scan],
    classify: PageClassifier[Keyspace[Any]],
    shapes: KeyShapes,
    options: SurveyOptions,
    on_progress: ProgressCallback,
) -> tuple[Survey, Callable[[Scan, Sequence[bytes]], None]]:
    """An empty survey, and the function that processes each page of names."""
    rng = random.Random()
    samples = [KeyspaceSample(keyspace, options.sample, rng) for keyspace in classify.keyspaces]
    unknown = KeyspaceSample(None, options.sample, rng)
    result = Survey(scans, samples, unknown, shapes, resumed=options.cursor is not None)
    by_number = dict(enumerate(result.all_samples, 1))
    total = result.keys

    def process(scan: Scan, page: Sequence[bytes]) -> None:
        numbers = classify(page)
        for number, count in Counter(numbers).items():
            names = page if count == len(page) else list(compress(page, map(number.__eq__, numbers)))
            by_number[number].add(scan, names)
            if number == classify.unknown:
                result.shapes.add_all(names, scan)
        on_progress("names", result.names, total)

    return result, process


async def _inspect_samples(
    result: Survey,
    reader_for: Callable[[Keyspace[Any]], ContentReader | None] | None,
    new_key: Callable[[bytes], SampledKey],
    deadline: float,
    on_progress: ProgressCallback,
) -> None:
    """Inspect the samples, one key of each keyspace in turn, so that all keyspaces share the time fairly."""
    result.inspectors = await asyncio.gather(*(KeyInspector.create(scan.node) for scan in result.scans))
    queues: dict[Scan, list[SampledKey]] = {scan: [] for scan in result.scans}
    drawn = (
        sample.draw(reader_for(sample.keyspace) if reader_for and sample.keyspace else None)
        for sample in result.all_samples
    )
    for scan, name in _shape_samples(result.shapes):
        if name not in result.examples:
            result.examples[name] = new_key(name)
            queues[scan].append(result.examples[name])
    for one_of_each in zip_longest(*drawn):
        for scan, key in filter(None, one_of_each):
            queues[scan].append(key)
    total = sum(map(len, queues.values()))
    done = 0

    def count(inspected: int) -> None:
        nonlocal done
        done += inspected
        on_progress("samples", done, total)

    await asyncio.gather(
        *(
            inspector.inspect(queue, deadline, count)
            for inspector, queue in zip(result.inspectors, queues.values(), strict=True)
        )
    )
    result.uninspected = total - done
    for sample in result.all_samples:
        sample.keys = [key for key in sample.keys if key.exists]
    result.examples = {name: key for name, key in result.examples.items() if key.exists}


def _shape_samples(shapes: KeyShapes) -> Iterator[Sighting]:
    """One key of each shape in turn: a queue that is one key among a million must be seen, too."""
    samples = [each.sample for each in shapes.shapes()] + [each.sample for each in shapes.undeclarable()]
    for one_of_each in zip_longest(*samples):
        yield from filter(None, one_of_each)
