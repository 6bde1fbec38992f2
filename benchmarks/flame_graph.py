"""Draws sampled stacks as a flame graph: an SVG of boxes, as wide as their share of the time.

The first call is above, what it calls is below it, and siblings are in the order of their names. A box has
the colour of the layer that its code belongs to. Frames above the event loop are left out, and so is what was
sampled while modules were imported. Calls in C, such as a socket's write, belong to the Python function that
makes them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from benchmarks.plot import INK

LAYERS = {
    "wire": "#ff9b5c",
    "keyspace": "#ffd166",
    "patterns": "#f29ac0",
    "web adapters": "#bda6f5",
    "uvicorn": "#8fbcff",
    "Starlette and FastAPI": "#7fd1c0",
    "the program": "#cfe38a",
    "event loop, Python": "#c3c9d1",
}
"""The colour of each layer; dark text is read on all of them."""
_TEXT = "#1c2128"
_LAYER_OF = (
    ("/ephemera/wire/", "wire"),
    ("/ephemera/keyspace/", "keyspace"),
    ("/ephemera/patterns/", "patterns"),
    ("/ephemera/web/", "web adapters"),
    ("/site-packages/uvicorn/", "uvicorn"),
    ("/site-packages/starlette/", "Starlette and FastAPI"),
    ("/site-packages/fastapi/", "Starlette and FastAPI"),
    ("/site-packages/pydantic/", "Starlette and FastAPI"),
    ("/benchmarks/", "the program"),
)
_FRAME = re.compile(r"(?P<name>.*) \((?P<path>.*?)(?::\d+)?\)")
_LOOP = "Runner.run"
_WIDTH, _ROW, _TOP, _LETTER = 1200, 19, 30, 6.1  # pixels
_NARROW = 2.0  # pixels, below which a box is left out


class Frame(NamedTuple):
    """A function, and the file it is in."""

    name: str
    path: str

    @property
    def layer(self) -> str:
        """The layer that it belongs to."""
        return next((layer for part, layer in _LAYER_OF if part in self.path), "event loop, Python")

    @property
    def label(self) -> str:
        """Its name without the functions around it."""
        return self.name.rpartition("<locals>.")[2]

    @property
    def file(self) -> str:
        """Its file, from the package on."""
        for mark in ("/site-packages/", "/src/", "/lib/python", "/main/"):
            if mark in self.path:
                return self.path.rpartition(mark)[2]
        return self.path.rpartition("/")[2]


Stack = tuple[Frame, ...]
ROOT = Frame("event loop", "")


def parse(text: str) -> Counter[Stack]:
    """The samples of each stack below the event loop, from py-spy's raw format."""
    stacks: Counter[Stack] = Counter()
    for line in text.splitlines():
        called, _, samples = line.rpartition(" ")
        names = [found for part in called.split(";") if (found := _FRAME.fullmatch(part))]
        frames = [Frame(found["name"], found["path"]) for found in names]
        at = [place for place, frame in enumerate(frames) if frame.name == _LOOP]
        if at and not any("importlib" in frame.path for frame in frames):
            stacks[ROOT, *frames[at[0] + 1 :]] += int(samples)
    return stacks


@dataclass
class Box:
    """A frame, the samples in it and below it, and what it calls."""

    frame: Frame
    samples: int = 0
    calls: dict[Frame, Box] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """How many frames are below one another."""
        return 1 + max((each.depth for each in self.calls.values()), default=0)


def tree(stacks: Counter[Stack]) -> Box:
    """The boxes of all stacks."""
    root = Box(ROOT)
    for stack, samples in stacks.items():
        box = root
        box.samples += samples
        for frame in stack[1:]:
            box = box.calls.setdefault(frame, Box(frame))
            box.samples += samples
    return root


def own_time(stacks: Counter[Stack]) -> dict[Frame, float]:
    """The share of each function itself, without what it calls in Python; the largest first."""
    total, own = max(1, stacks.total()), Counter[Frame]()
    for stack, samples in stacks.items():
        own[stack[-1]] += samples
    return {frame: samples / total for frame, samples in own.most_common()}


def layer_time(stacks: Counter[Stack]) -> dict[str, float]:
    """The share of each layer itself."""
    shares = dict.fromkeys(LAYERS, 0.0)
    for frame, share in own_time(stacks).items():
        shares[frame.layer] += share
    return {layer: share for layer, share in shares.items() if share}


def draw(stacks: Counter[Stack], title: str) -> str:
    """The graph as an SVG."""
    root = tree(stacks)
    boxes = list(_boxes(root, 0.0, 0, _WIDTH / max(1, root.samples)))
    height = _TOP + _ROW * (1 + max((level for _, _, _, level in boxes), default=0)) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"',
        ' font-family="Verdana, DejaVu Sans, sans-serif" font-size="10.5">',
        f"<title>{escape(title)}</title>",
        *_legend(layer_time(stacks)),
    ]
    for box, x, width, level in boxes:
        parts.append(_drawn(box, x, width, _TOP + _ROW * level, box.samples / root.samples))
    return "".join([*parts, "</svg>\n"])


def _boxes(box: Box, x: float, level: int, scale: float) -> Iterator[tuple[Box, float, float, int]]:
    """Each box with its place, its width and its level, as far as it can be seen."""
    yield box, x, box.samples * scale, level
    for frame in sorted(box.calls):
        called = box.calls[frame]
        if called.samples * scale >= _NARROW:
            yield from _boxes(called, x, level + 1, scale)
        x += called.samples * scale


def _legend(layers: Iterable[str]) -> Iterator[str]:
    x = 2.0
    for layer in layers:
        yield f'<rect x="{x:.0f}" y="5" width="13" height="13" rx="2" fill="{LAYERS[layer]}"/>'
        yield f'<text x="{x + 18:.0f}" y="16" font-size="12" fill="{INK}">{layer}</text>'
        x += 18 + 7.3 * len(layer) + 16


def _fitted(label: str, room: int) -> str:
    """The label, its last part, or the beginning of that, whichever fits into that many letters."""
    if len(label) <= room:
        return label
    last = label.rpartition(".")[2]
    return last if len(last) <= room else f"{last[: room - 1]}…" if room > 3 else ""


def _drawn(box: Box, x: float, width: float, y: float, share: float) -> str:
    frame, text = box.frame, _fitted(box.frame.label, int((width - 6) / _LETTER))
    label = f'<text x="{x + 3:.1f}" y="{y + 13}" fill="{_TEXT}">{escape(text)}</text>' if text else ""
    where = f", {frame.file}" if frame.path else ""
    return (
        f"<g><title>{escape(frame.name)}{escape(where)}: {share:.1%}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{max(0.5, width - 0.7):.1f}" height="{_ROW - 1}" rx="2" '
        f'fill="{LAYERS[frame.layer]}"/>{label}</g>'
    )
