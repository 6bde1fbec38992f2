r"""How a field's value is written inside a key, so that it can never leave its place.

A value is a string of bytes; text is its UTF-8 form and an int its decimal form. It is written as it is,
except for what has a meaning to keys, globs, hash tags or terminals (`: { } * ? [ ] \ %` and control
characters), the mark that ends the field in its pattern, and bytes that are not UTF-8: each byte of those
becomes `%XX`, in upper-case hexadecimal. An empty value is written `%%`, which no other value can produce,
because every other `%` is followed by two hexadecimal digits.

Two values are written alike only if they are the same bytes, and every text that `encode` gives is read back
by `decode`. What `encode` would never give (`%41` for `A`) is refused by `decode`, so one value has one key.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

FieldValue = str | bytes | int
"""What a field of a key may be given as."""

_OUTSIDE = ":{}*?[]\\"
_CONTROL_OR_SURROGATE = "\x00-\x1f\x7f-\x9f\ud800-\udfff"
_EMPTY = "%%"


def special_characters(ends_with: str = "") -> str:
    """The regular expression of a character that is encoded in a field which these marks end."""
    return f"[{re.escape(_OUTSIDE + ends_with)}%{_CONTROL_OR_SURROGATE}]"


class FieldCodec:
    """The writing of one field's values; `ends_with` is the mark that follows it, if any."""

    __slots__ = ("_special", "characters")

    def __init__(self, ends_with: str = "") -> None:
        self._special = re.compile(special_characters(ends_with))
        self.characters = f"[^{re.escape(_OUTSIDE + ends_with)}{_CONTROL_OR_SURROGATE}]"

    def encode(self, value: FieldValue) -> str:
        """The value as it stands in a key; TypeError or ValueError when it cannot."""
        if type(value) is not str:
            value = _text_of(value)
        if not value:
            return _EMPTY
        if self._special.search(value) is None:
            return value
        return self._special.sub(_percent, _canonical(value))

    def decode(self, written: str) -> str | None:
        """The value of a text made of `characters`; None when `encode` never gives that text.

        Bytes that are not UTF-8 come back as lone surrogates (`surrogateescape`), which `encode` accepts.
        """
        if "%" not in written:
            return written
        if written == _EMPTY:
            return ""
        value = unquote_to_bytes(written).decode("utf-8", "surrogateescape")
        return value if value and self.encode(value) == written else None


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    raise TypeError(f"takes str, bytes or int, not {type(value).__name__}")


def _canonical(text: str) -> str:
    """Text whose surrogate escapes are only those of bytes that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("holds a lone surrogate, which no encoding can carry") from None


def _percent(special: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in special[0].encode("utf-8", "surrogateescape"))
