"""Divides a long sentence into bullets: parts of whole clauses, each of at most `MAX_WORDS` words.

Nothing is rephrased. An ellipsis says where a sentence was cut; remarks in brackets are left out of one that
is too long. A range or a list of numbers and dates stays together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MAX_WORDS = 15
_MIN_WORDS = 3
CLAUSE = re.compile(r"(?<=[,;:])\s+(?!(?:1[89]|20)\d\d\b)|\s+(?=[–—-]\s)")
"""Between two clauses, and not before the year of a date."""
_DASH = re.compile(r"^[–—-]\s+")  # before a clause that begins a part
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_REMARK = re.compile(r"\s*\([^()\d]*\)")
_RELATIVE = re.compile(r"(?:which|who|whose|whom|welche\w*|deren|dessen|qui|dont|котор\w+|któr\w+|kter\w+)\b")
_AND = re.compile(r"^(?:and|und|et|oraz|ve|και|и|а)\s+")
_CONNECTED = re.compile(
    r"(?:and|or|but|that is|und|oder|aber|et|ou|oraz|lub|czyli|nebo|ve|και|ή|и|а|но|или|то есть)\s"
    r"|(?:i\.\s?e|d\.\s?h|tzn|tj|т\.\s?е)\."
)
_CONDITION = {
    "although", "because", "if", "once", "since", "though", "unless", "whereas", "when", "while",
    "da", "falls", "nachdem", "obwohl", "sobald", "solange", "weil", "wenn", "während",
    "lorsque", "parce", "quand", "si", "cuando", "porque", "aunque", "quando", "se", "perché", "poiché",
    "gdy", "jeśli", "jeżeli", "ponieważ", "když", "pokud", "protože", "jestli", "eğer", "αν", "όταν",
    "επειδή", "если", "когда", "поскольку", "хотя", "пока", "чтобы",
}  # fmt: skip
"""Words that begin a clause which says nothing without the one behind it."""
_JOINT = {
    "after", "and", "before", "but", "that", "until", "where", "which", "who",
    "und", "oder", "et", "mais", "qui", "y", "que", "и", "или", "после", "ve", "και",
    *_CONDITION - {"da", "once", "se", "si"},
}  # fmt: skip
"""Words at which a clause that is too long may be divided."""
_PAIRING = frozenset(("and", "or", "until", "und", "oder", "et", "y", "e", "i", "и", "или", "ve", "και"))
"""Words that also join two numbers or two dates."""
_BETWEEN = frozenset(("between", "zwischen", "entre", "tra", "fra", "między", "mezi", "между", "μεταξύ"))
LOOSE = re.compile(r"(?:\s+(?:[^\W\d_A-ZА-Я]{1,3}|\d{1,2}))+$")
"""Words at the end of a cut text that only lead on to what was cut."""


def bullet_parts(sentence: str) -> list[str]:
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
    whole_parts = [
        _balanced(part if at == 0 or part[0] == "…" else f"…{_AND.sub('', part, count=1)}")
        for at, part in enumerate(stripped)
    ]
    if len(whole_parts) > 1 and is_condition(whole_parts[0]):
        whole_parts[0] = f"{whole_parts[0].rstrip('…')}…"
    return whole_parts


def is_condition(part: str) -> bool:
    """Whether the first part of a sentence says nothing without the next, as in "If the winter is cold"."""
    return part.partition(" ")[0].casefold() in _CONDITION


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
        if split[at] in _JOINT and not _joins_figures(split, at)
    ]
    if not joints:
        return _windows(split)
    at = min(joints, key=lambda at: abs(len(split) - 2 * at))
    return [" ".join(split[:at]), *_divided(" ".join(split[at:]))]


def _joins_figures(split: Sequence[str], at: int) -> bool:
    """Whether the word is within a range, or beside a number or a date such as "June 14"."""
    ranges = [begin for begin in range(at) if split[begin].casefold() in _BETWEEN]
    if ranges and not _PAIRING.intersection(split[ranges[-1] : at]):
        return True
    beside = [split[at + 1]] if split[at] not in _PAIRING else [split[at - 1], *split[at + 1 : at + 3]]
    return any(map(_FIGURE.search, beside))


def _clauses(sentence: str) -> Iterator[str]:
    """Its clauses; what is in brackets is not divided."""
    clause = ""
    for part in filter(None, CLAUSE.split(sentence)):
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


def figures_of(text: str) -> int:
    """The number of figures in a text."""
    return len(_FIGURE.findall(text))


def _windows(split: Sequence[str]) -> list[str]:
    """As many words as fit: the first ones, or those around the figures; the next ones if these have more."""
    shown, end = _window(split)
    rest = split[end:]
    return [shown, *_divided(" ".join(rest))] if any(map(_FIGURE.search, rest)) else [shown]


def _window(split: Sequence[str]) -> tuple[str, int]:
    """The words that are shown, and where they end."""
    room = MAX_WORDS - 1
    figures = [at for at, word in enumerate(split) if _FIGURE.search(word)]
    start = 0
    if figures and figures[-1] >= room:
        start = min(figures[0], figures[-1] + 2 - room)
        if figures[-1] - figures[0] >= room:  # they do not all fit
            start = figures[0]
        elif start + room < len(split) and len(split) - MAX_WORDS <= figures[0]:
            start, room = len(split) - MAX_WORDS, MAX_WORDS
    shown = " ".join(split[start : start + room])
    if start + room < len(split):
        shown = LOOSE.sub("", shown)
    end = start + len(shown.split())
    before, after = "…" if start else "", "…" if end < len(split) else ""
    return f"{before}{shown.rstrip(',;:')}{after}", end
