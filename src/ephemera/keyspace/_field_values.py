r"""How a field's value is encoded inside a key, so that it can never reach into the rest of the key.

A value is a string of bytes: text in UTF-8, anything else as `_field_types` renders it. It is written as it
is, except for characters with a meaning in keys, globs, hash tags or terminals (`: { } * ? [ ] \ %` and
control characters), the character that ends the field in its pattern, and bytes that are not UTF-8: each byte
of those becomes `%XX`, in upper-case hexadecimal. An empty value is written `%%`, which no other value can
produce, because every other `%` is followed by two hexadecimal digits.

Two values have the same encoding only if they are the same bytes, and `decode` reverses `encode`. It refuses
text that `encode` never returns (`%41` for `A`), so one value has one key.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from ephemera.keyspace._field_types import FieldValue, field_text

_OUTSIDE = ":{}*?[]\\"
_CONTROL_OR_SURROGATE = "\x00-\x1f\x7f-\x9f\ud800-\udfff"
_EMPTY = "%%"


def special_characters(ends_with: str = "") -> str:
    """The regular expression of a character that is percent-encoded in a field ended by these characters."""
    return f"[{re.escape(_OUTSIDE + ends_with)}%{_CONTROL_OR_SURROGATE}]"


class FieldCodec:
    """Encodes the values of one field; `ends_with` is the character that follows it, if any."""

    __slots__ = ("_special", "characters")

    def __init__(self, ends_with: str = "") -> None:
        self._special = re.compile(special_characters(ends_with))
        self.characters = f"[^{re.escape(_OUTSIDE + ends_with)}{_CONTROL_OR_SURROGATE}]"

    def encode(self, value: FieldValue) -> str:
        """The value as it is written in a key; TypeError or ValueError when that is impossible."""
        if type(value) is not str:
            value = field_text(value)
        if not value:
            return _EMPTY
        if self._special.search(value) is None:
            return value
        return self._special.sub(_percent, _canonical(value))

    def decode(self, written: str) -> str | None:
        """The value of a text made of `characters`; None when `encode` never returns that text.

        Bytes that are not UTF-8 come back as lone surrogates (`surrogateescape`), which `encode` accepts.
        """
        if "%" not in written:
            return written
        if written == _EMPTY:
            return ""
        value = unquote_to_bytes(written).decode("utf-8", "surrogateescape")
        return value if value and self.encode(value) == written else None


def _canonical(text: str) -> str:
    """Text whose surrogate escapes stand only for bytes that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("holds a lone surrogate, which cannot be encoded") from None


def _percent(special: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in special[0].encode("utf-8", "surrogateescape"))
