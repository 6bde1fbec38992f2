"""Chooses the sentences of a passage that a slide shows, and shortens them to a bullet's length.

Nothing is rephrased. Sentences with figures and dates come first, then those about the heading, then those at
the beginning. A long sentence is cut to the clauses with its figures, after a bullet with its beginning if
there is room. An ellipsis says where it was cut; remarks in brackets are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

MAX_BULLETS = 5
MAX_WORDS = 15
_MIN_WORDS = 3
_CLAUSE = re.compile(r"(?<=[,;:])\s+|\s+(?=[–—-]\s)")
_DASH = re.compile(r"^[–—-]\s+")  # before a clause that begins a part
_WORD = re.compile(r"[^\W\d_]{4,}")
_LETTER = re.compile(r"[^\W_]")
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_REMARK = re.compile(r"\s*\([^()\d]*\)")
_RELATIVE = re.compile(r"(?:which|who|whose|whom|welche\w*|deren|dessen|qui|dont|котор\w+|któr\w+|kter\w+)\b")
_AND = re.compile(r"^(?:and|und|et|oraz|ve|και|и|а)\s+")
_CONNECTED = re.compile(
    r"(?:and|or|but|that is|und|oder|aber|et|ou|oraz|lub|czyli|nebo|ve|και|ή|и|а|но|или|то есть)\s"
    r"|(?:i\.\s?e|d\.\s?h|tzn|tj|т\.\s?е)\."
)
_JOINT = {
    "after", "although", "and", "because", "before", "but", "that", "until", "when", "where", "whereas",
    "which", "while", "who", "und", "oder", "et", "mais", "qui", "y", "que", "и", "или", "после", "ve", "και",
}  # fmt: skip
"""Words at which a clause that is too long may be divided."""
_LOOSE = re.compile(r"(?:\s+(?:[^\W\d_A-ZА-Я]{1,3}|\d{1,2}))+$")
"""Words at the end of a cut text that only lead on to what was cut."""
_LONG = 35  # words


class SentencePicker:
    """Picks sentences for one deck, none of them twice."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def pick(self, heading: str, sentences: Sequence[str], limit: int = MAX_BULLETS) -> list[str]:
        """The bullets for a heading, in the order of the text."""
        about = words(heading)
        if len(sentences) > 1:
            self._used.add(_folded(heading))  # a title that is a sentence
        fresh = self._fresh(sentences, _MIN_WORDS) or self._fresh(sentences, 1)
        scored = sorted(fresh, key=lambda each: (-_score(each[1], about), each[0]))
        chosen = [sentence for _, sentence in sorted(_that_fit(scored, limit))]
        self._used.update(map(_folded, chosen))
        return _bullets(chosen, limit)

    def _fresh(self, sentences: Sequence[str], least: int) -> list[tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for at, sentence in enumerate(sentences):
            folded = _folded(sentence)
            if least > 1 and sentence.endswith(":"):  # it announces what is on another line
                continue
            if len(sentence.split()) >= least and _LETTER.search(sentence) and folded not in self._used:
                found.setdefault(folded, (at, sentence))
        return list(found.values())


def _that_fit(scored: Sequence[tuple[int, str]], limit: int) -> list[tuple[int, str]]:
    """The first ones for which there is room: one that is cut needs a bullet more, for its beginning."""
    chosen: list[tuple[int, str]] = []
    room = limit
    for at, sentence in scored:
        parts = _parts(sentence)
        needed = 1 if shorten(sentence) == parts[0] else 2
        if needed <= room:
            chosen.append((at, sentence))
            room -= needed
    return chosen or list(scored[:limit])


def words(text: str) -> set[str]:
    """The words of a text that say what it is about."""
    return set(_WORD.findall(text.casefold()))


def shorten(sentence: str) -> str:
    """A sentence of at most `MAX_WORDS` words: the part of it with most figures."""
    return max(_parts(sentence), key=_figures)  # the first of several


def headline(text: str, limit: int = 8) -> str:
    """The beginning of a text, for a title."""
    clauses = _CLAUSE.split(text)
    named = next(
        (at for at in range(1, len(clauses)) if len(" ".join(clauses[:at]).split()) > 2), len(clauses)
    )
    parts = " ".join(clauses[:named]).split()
    if len(parts) <= limit + 3:
        return " ".join(parts).rstrip(".,;:!?")
    return _LOOSE.sub("", " ".join(parts[:limit])).rstrip(".,;:!?") + "…"


def continued(title: str, sentences: Sequence[str]) -> list[str]:
    """The sentences below a title that is the beginning of the first one, which goes on from there."""
    start = title.rstrip("…")
    return [
        f"…{sentence[len(start) :].lstrip(' ,;:')}"
        if at == 0 and sentence.startswith(start) and len(sentence) > len(start) + 1
        else sentence
        for at, sentence in enumerate(sentences)
    ]


def _score(sentence: str, about: set[str]) -> float:
    figures = min(_figures(sentence), 3)
    long = len(sentence.split()) > _LONG
    return 2.0 * (figures > 0) + 0.25 * figures + 0.5 * len(about & words(sentence)) - 1.0 * long


def _bullets(sentences: Sequence[str], limit: int) -> list[str]:
    """The sentences, shortened; while there is room, their beginnings, and further parts with figures."""
    room, bullets = limit - len(sentences), list[str]()
    for sentence in sentences:
        best = shorten(sentence)
        for at, part in enumerate(_parts(sentence)):
            if part == best:
                bullets.append(_balanced(part))
            elif room > 0 and (at == 0 or _figures(part)):
                bullets.append(_balanced(part))
                room -= 1
    return bullets


def _parts(sentence: str) -> list[str]:
    """A sentence in parts of whole clauses, each short enough; an ellipsis says that one is not the first."""
    whole = " ".join(sentence.split())
    if len(whole.split()) > MAX_WORDS:
        whole = _REMARK.sub("", whole)
    if len(whole.split()) <= MAX_WORDS:
        return [whole.rstrip(";,")]
    parts: list[list[str]] = []
    for clause in _in_order(list(_clauses(whole))):
        if parts and _count(parts[-1]) + _count([clause]) <= MAX_WORDS:
            parts[-1].append(clause)
            continue
        loose = parts[-1].pop() if parts and len(parts[-1]) > 1 and _leads_on(parts[-1][-1], clause) else ""
        parts.append([f"{loose} {clause}".strip()])
    shown = [piece for part in parts for piece in _divided(_DASH.sub("", " ".join(part)))]
    stripped = [part.rstrip(",;: ") for part in shown]
    return [
        part if at == 0 or part[0] == "…" else f"…{_AND.sub('', part, count=1)}"
        for at, part in enumerate(stripped)
    ]


def _count(clauses: Sequence[str]) -> int:
    return sum(len(clause.split()) for clause in clauses)


def _leads_on(clause: str, following: str) -> bool:
    """Whether a short clause is rather the beginning of the one behind it, as in "that is, more than"."""
    is_short = len(clause.split()) <= _MIN_WORDS + 1
    return is_short and _CONNECTED.match(clause) is not None and _count([clause, following]) <= MAX_WORDS


def _in_order(clauses: list[str]) -> list[str]:
    """The clauses, with a relative one in the middle of the sentence behind the others."""
    relative = [
        at for at, clause in enumerate(clauses) if 0 < at < len(clauses) - 1 and _RELATIVE.match(clause)
    ]
    if not relative or len(clauses[0].split()) < _MIN_WORDS:
        return clauses
    at = relative[0]
    before = clauses[at - 1].rstrip(",")
    return [*clauses[: at - 1], f"{before} {clauses[at + 1]}", *clauses[at + 2 :], clauses[at]]


def _divided(part: str) -> list[str]:
    """A part that is too long, divided at a word that joins its halves, or else cut."""
    split = _AND.sub("", part, count=1).split() if len(part.split()) == MAX_WORDS + 1 else part.split()
    if len(split) <= MAX_WORDS:
        return [" ".join(split)]
    joints = [
        at
        for at in range(_MIN_WORDS + 1, min(MAX_WORDS + 1, len(split) - _MIN_WORDS))
        if split[at] in _JOINT and not _FIGURE.match(split[at + 1])
    ]
    if not joints:
        return [_window(split)]
    at = min(joints, key=lambda at: abs(len(split) - 2 * at))
    return [" ".join(split[:at]), *_divided(" ".join(split[at:]))]


def _clauses(sentence: str) -> Iterator[str]:
    """Its clauses; what is in brackets is not divided."""
    clause = ""
    for part in filter(None, _CLAUSE.split(sentence)):
        clause = f"{clause} {part}" if clause else part
        if clause.count("(") <= clause.count(")"):
            yield clause
            clause = ""
    if clause:
        yield clause


def _balanced(text: str) -> str:
    """A bullet without the bracket that another part of its sentence closes or opens."""
    if text.startswith("(") and ")" not in text:
        return text[1:]
    return re.sub(r"\)(?=[.!?]?$)", "", text) if ")" in text and "(" not in text else text


def _figures(text: str) -> int:
    return len(_FIGURE.findall(text))


def _window(parts: list[str]) -> str:
    """As many words as fit: the first ones, those up to the last figure, or the last ones."""
    room = MAX_WORDS - 1
    figures = [at for at, word in enumerate(parts) if _FIGURE.search(word)]
    start = 0
    if figures and figures[-1] >= room:
        start = min(figures[0], figures[-1] + 2 - room)
        if figures[-1] - figures[0] >= room:  # they do not all fit
            start = figures[0]
        elif start + room < len(parts) and len(parts) - MAX_WORDS <= figures[0]:
            start, room = len(parts) - MAX_WORDS, MAX_WORDS
    shown = " ".join(parts[start : start + room])
    if start + room < len(parts):
        shown = _LOOSE.sub("", shown).rstrip(",;:") + "…"
    return f"{'…' if start else ''}{shown.rstrip(',;:')}"


def _folded(sentence: str) -> str:
    return " ".join(sentence.casefold().split()).rstrip(".!?…")


def first(sentences: Iterable[str]) -> str:
    """The first sentence with words; empty if there is none."""
    return next((each for each in sentences if _WORD.search(each)), "")
