"""Drawing: sequences of messages between participants, and boxes joined by arrows.

Each picture has its own light background, so that it can be read on any page; the site inverts its lightness
in the dark theme.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

INK, MUTED, LINE, CARD = "#1d2740", "#5b6784", "#8a94ad", "#fbfcff"
COLOURS = {"": "#e6ebf7", "sql": "#dff1e6", "redis": "#fde6dc", "end": "#e9e4f7", "bad": "#fbdfe2"}
_STYLE = "font-family='system-ui,-apple-system,Segoe UI,Roboto,sans-serif'"
_ARROWS = (
    "<defs><marker id='arrow' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7' "
    f"orient='auto-start-reverse'><path d='M0 0 10 5 0 10z' fill='{INK}'/></marker></defs>"
)


@dataclass(frozen=True, slots=True)
class Message:
    """An arrow from one participant to another; to itself: a note beside its line."""

    sender: str
    receiver: str
    text: str
    reply: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A box at a place of the grid; `kind` chooses its colour."""

    name: str
    column: float
    row: float
    text: str
    kind: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one box to another."""

    start: str
    end: str
    text: str = ""
    dashed: bool = False


def svg(title: str, width: float, height: float, parts: list[str]) -> str:
    """A whole picture, with its title for those who do not see it."""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' role='img' {_STYLE} "
        f"font-size='13'><title>{escape(title)}</title>{_ARROWS}"
        f"<rect width='{width:g}' height='{height:g}' rx='10' fill='{CARD}'/>" + "".join(parts) + "</svg>\n"
    )


def text(
    x: float, y: float, content: str, *, colour: str = INK, anchor: str = "middle", more: str = ""
) -> str:
    """One line of text."""
    return f"<text x='{x:g}' y='{y:g}' fill='{colour}' text-anchor='{anchor}' {more}>{escape(content)}</text>"


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A box of a colour."""
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='7' fill='{COLOURS[kind]}' "
        f"stroke='{LINE}'/>"
    )


def line(
    start: tuple[float, float], end: tuple[float, float], *, dashed: bool = False, colour: str = INK
) -> str:
    """An arrow between two points."""
    dash = " stroke-dasharray='5 4'" if dashed else ""
    return (
        f"<path d='M{start[0]:g} {start[1]:g} L{end[0]:g} {end[1]:g}' stroke='{colour}' stroke-width='1.4' "
        f"fill='none'{dash} marker-end='url(#arrow)'/>"
    )


def sequence(title: str, participants: dict[str, str], messages: list[Message]) -> str:
    """Participants (name and colour) from left to right, messages from top to bottom."""
    gap, step, top = 225.0, 40.0, 78.0
    places = {name: 120 + gap * index for index, name in enumerate(participants)}
    height = top + step * len(messages) + 24
    parts = []
    for name, kind in participants.items():
        x = places[name]
        parts.append(f"<path d='M{x:g} 50 V{height - 14:g}' stroke='{LINE}' stroke-dasharray='2 4'/>")
        parts.append(rectangle(x - 82, 16, 164, 34, kind))
        parts.append(text(x, 38, name, more="font-weight='600'"))
    for index, message in enumerate(messages):
        parts += _message(message, places, top + step * index)
    return svg(title, 120 + gap * (len(participants) - 1) + 120, height, parts)


def _message(message: Message, places: dict[str, float], y: float) -> list[str]:
    start, end = places[message.sender], places[message.receiver]
    colour = "#b4232f" if message.refused else INK
    if start == end:
        width = len(message.text) * 6.9 + 20
        return [
            (
                f"<rect x='{start - width / 2:g}' y='{y - 14:g}' width='{width:g}' height='26' rx='13' "
                f"fill='#fff6d8' stroke='#d8c376'/>"
            ),
            text(start, y + 4, message.text, colour=colour),
        ]
    way = 1 if end > start else -1
    return [
        line((start + 4 * way, y + 8), (end - 4 * way, y + 8), dashed=message.reply, colour=colour),
        text((start + end) / 2, y, message.text, colour=colour),
    ]


def boxes(title: str, found: list[Box], arrows: list[Arrow], *, cell: tuple[float, float] = (190, 96)) -> str:
    """Boxes on a grid, and arrows between their edges."""
    width, height = 158.0, 52.0
    centres = {box.name: (100 + box.column * cell[0], 50 + box.row * cell[1]) for box in found}
    parts = []
    for arrow in arrows:
        start, end = _edges(centres[arrow.start], centres[arrow.end], width, height)
        parts.append(line(start, end, dashed=arrow.dashed))
        if arrow.text:
            middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
            parts += _label(middle, arrow.text)
    for box in found:
        x, y = centres[box.name]
        parts.append(rectangle(x - width / 2, y - height / 2, width, height, box.kind))
        parts.append(text(x, y + (-2 if box.detail else 5), box.text, more="font-weight='600'"))
        if box.detail:
            parts.append(text(x, y + 15, box.detail, colour=MUTED, more="font-size='11'"))
    right = max(x for x, _ in centres.values()) + 100
    bottom = max(y for _, y in centres.values()) + 50
    return svg(title, right, bottom, parts)


def _label(middle: tuple[float, float], content: str) -> list[str]:
    width = len(content) * 6.2 + 8
    x, y = middle
    return [
        (
            f"<rect x='{x - width / 2:g}' y='{y - 10:g}' width='{width:g}' height='18' fill='{CARD}' "
            f"opacity='0.92'/>"
        ),
        text(x, y + 4, content, colour=MUTED, more="font-size='11.5'"),
    ]


def _edges(
    start: tuple[float, float], end: tuple[float, float], width: float, height: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where the line between two centres leaves the one box and enters the other."""
    across, down = end[0] - start[0], end[1] - start[1]
    share = min(width / 2 / abs(across) if across else 1.0, height / 2 / abs(down) if down else 1.0)
    return (
        (start[0] + across * share, start[1] + down * share),
        (end[0] - across * share, end[1] - down * share),
    )
