"""The form of a part of a key (a number, a UUID, a date, a hash, a word ...), and a name for it.

Used to decide which parts of undeclared keys vary, and to give them the names a person would choose.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

_YEAR, _MONTH, _DAY = r"(?:19|20)\d\d", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_HOUR, _MINUTE = r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_WORD, _VERSION = "[a-z]+(?:[A-Z]?[a-z]+)*|[A-Z]+", r"v\d{1,2}"
_FORMS = {
    "uuid": r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    "hash": r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9A-F]{40})",
    "minute": rf"{_YEAR}-?{_MONTH}-?{_DAY}[T_-]?{_HOUR}-?{_MINUTE}",
    "hour": rf"{_YEAR}-?{_MONTH}-?{_DAY}[T_-]?{_HOUR}",
    "date": rf"{_YEAR}[-./]?{_MONTH}[-./]?{_DAY}",
    "month": rf"{_YEAR}-?{_MONTH}",
    "timestamp": r"1\d{9}|1\d{12}",
    "number": r"-?\d+",
    "ip": r"\d{1,3}(?:\.\d{1,3}){3}",
    "email": r"[^@\s]+@[^@\s]+\.[a-zA-Z]+",
    "token": r"eyJ[\w-]+\.[\w-]+\.[\w-]*",
    "hex": r"(?=[a-f]*\d)[0-9a-f]{6,}",
    "word": rf"_*(?:{_WORD}|[A-Z][a-z]+)(?:[_.\-/](?:[a-z]+|[A-Z]+|{_VERSION}))*|{_VERSION}",
}
_FORM = re.compile("|".join(f"(?P<{name}>{form})" for name, form in _FORMS.items()), re.ASCII)
_LONGEST_WORD = 40
_CREDENTIALS = (
    "token|secret|passw|pwd|jwt|otp|(?:api|access)[-_]?key|credential|private|csrf|cookie|bearer|nonce|mfa|2fa"
    "|magic|invit|verif|activation|recovery|(?<![a-z])(?:reset|pin)(?![a-z])"
)
_PRECEDES_SECRET = re.compile(_CREDENTIALS, re.IGNORECASE)
_SECRET = re.compile(
    rf"{_CREDENTIALS}|session|(?<![a-z])sess(?![a-z])|\bsid\b|auth(?!or)|refresh|signature", re.IGNORECASE
)
_RUN = re.compile("[A-Za-z0-9_-]+")
_SORTS = re.compile("[a-z]+|[A-Z]+|[0-9]+")
_RANDOM = (
    6  # changes between digits, small and capital letters, from which on a long run is not a word or date
)
_PLAIN_PART = r"(?:[A-Z]?[a-z]{1,15}|[A-Z]{1,8}|\d{1,4})"
_PLAIN = re.compile(rf"{_PLAIN_PART}(?:[ _.,:/+-]{_PLAIN_PART})*")
_MAX_DIGITS = 8  # of a plain text: a date, not the number of a card
_CODE = 16  # characters of capital letters and digits that are an id: AKIAIOSFODNN7EXAMPLE
_UNINFORMATIVE = frozenset(
    (
        "app",
        "by",
        "cache",
        "count",
        "counts",
        "data",
        "dev",
        "id",
        "ids",
        "key",
        "keys",
        "lock",
        "prod",
        "tmp",
        "v",
    )
)
_OWN_NAMES = {"uuid": "id", "number": "id", "hex": "id", "hash": "hash", "word": "name", "text": "id"}


def form_of(part: str) -> str:
    """The name of a part's form; `text` when it has none in particular."""
    found = _FORM.fullmatch(part)
    return found.lastgroup or "text" if found else "text"


def is_word(part: str) -> bool:
    """Whether a part reads like a word that a programmer wrote, not like data."""
    return len(part) <= _LONGEST_WORD and form_of(part) == "word"


def usual_form(forms: Counter[str]) -> str:
    """The form of nearly all parts."""
    form, count = forms.most_common(1)[0] if forms else ("text", 0)
    if count >= 0.9 * forms.total():
        return form
    if forms.keys() <= {"hex", "number", "hash", "uuid"}:
        return "hex"
    return "text"


def looks_secret(*texts: str) -> bool:
    """Whether a name suggests a secret, or a value is a token."""
    return any(_SECRET.search(text) or form_of(text) == "token" for text in texts)


def is_plain(text: str) -> bool:
    """Whether a text is only words and short numbers: what looks different may be a secret."""
    digits = sum(map(str.isdigit, text))
    return _PLAIN.fullmatch(text) is not None and digits <= _MAX_DIGITS and not looks_secret(text)


def looks_random(text: str, *, shortest: int = 16) -> bool:
    """Whether a text contains an id that could be a bearer's: a UUID, a hash, a token.

    `shortest` is the number of characters from which on an id is hard to guess.
    """
    return any(len(run) >= shortest and _is_random(re.sub("[_-]", "", run)) for run in _RUN.findall(text))


def _is_random(run: str) -> bool:
    is_code = len(run) >= _CODE and run.isupper() and not run.isalpha()
    return is_code or len(_SORTS.findall(run)) > _RANDOM


@lru_cache(maxsize=4096)
def precedes_secret(part: str) -> bool:
    """Whether the part after this one may be a secret, even if it reads like a word."""
    return _PRECEDES_SECRET.search(part) is not None


def field_name(form: str, before: str, taken: Sequence[str]) -> str:
    """Name a field after its form and the literal before it: 'users:' and a number make `user_id`."""
    noun, own = _noun(before), _OWN_NAMES.get(form, form)
    name = f"{noun}_{own}" if noun and form in _OWN_NAMES else own
    if not name.isidentifier() or keyword.iskeyword(name) or name == "until":
        name = own
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}_{number}", number + 1
    return unique


def _noun(before: str) -> str:
    """The last word of a literal, in the singular."""
    words: list[str] = re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1 \2", before).lower())
    informative = [word for word in words if word not in _UNINFORMATIVE]
    if not informative:
        return ""
    word = informative[-1]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word
