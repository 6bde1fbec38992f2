"""The value of one key as text, and what may be changed of it.

*Shown.* Declared values are decoded; those of sensitive keyspaces are not read. Undeclared values are JSON or
text, of which only words and short numbers are shown, and no member that is named like a secret; none are
shown if the key or its library suggests one.

*Changed.* What may vanish may be deleted: keys of role `cache`, and undeclared ones. A pattern's keys of role
`queue` are changed only on the page of the pattern, which keeps its guarantees. A value is edited only where
a service declares the keyspace itself, and only if it still is what was shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from ephemera.console._formats import HIDDEN, format_value
from ephemera.console._key_search import KeyScope
from ephemera.console._sampled_entries import UNDECODABLE, content_reader
from ephemera.errors import InvalidValue, KeyNotChanged
from ephemera.keyspace import DECODE_ERRORS, Codec, json_decoder, storable
from ephemera.operations.libraries import identify, signs_of
from ephemera.operations.survey import (
    ContentReader,
    SampledKey,
    inspect_keys,
    is_plain,
    looks_secret,
)
from ephemera.wire import Script

_REPLACE = Script.load("ephemera.console", "replace")
_EDITABLE = ("value", "counter")
_MAX_EDITED = 2000  # characters of a value that can be edited: longer ones are not shown whole
TOO_LARGE = "(too large to read)"
TOO_DEEP = "(nested too deeply to read)"
_UNREAD = (HIDDEN, TOO_LARGE, UNDECODABLE)


class KeyEntry:
    """One key as it was read."""

    def __init__(self, scope: KeyScope, found: SampledKey) -> None:
        self.scope = scope
        self.key = found.key
        self.found = found
        self.hidden = scope.is_hidden(found.key)
        self.text = _text(found)
        self.raw: bytes | None = None
        """The string that `text` shows, if it can be edited."""

    @property
    def may_delete(self) -> bool:
        """Whether deleting it breaks nothing."""
        keyspace = self.scope.keyspace
        if self.hidden:
            return False
        return keyspace is None or keyspace.role == "cache" or self._is_plain

    @property
    def _is_plain(self) -> bool:
        """Whether the service declares the keyspace itself, not by a pattern."""
        return any(
            group.kind == self.scope.keyspace.kind and self.scope.keyspace in group.keyspaces
            for group in self.scope.service.groups
            if self.scope.keyspace is not None
        )

    async def read_raw(self) -> None:
        """Read the string itself, if it can be edited."""
        keyspace = self.scope.keyspace
        if keyspace is None or keyspace.kind not in _EDITABLE or not self._is_plain or self.hidden:
            return
        if self.text in _UNREAD or len(self.text) >= _MAX_EDITED or self.found.type != "string":
            return
        raw = await self.scope.client.call("GET", self.key)
        if raw is not None and _shown(self.scope, raw) == self.text:
            self.raw = raw

    async def replace(self, text: str) -> None:
        """Replace the value with an edited one; its TTL is kept."""
        if self.raw is None:
            raise KeyNotChanged("it cannot be edited")
        data = _encoded(self.scope, self.raw, text)
        if not await self.scope.client.run(_REPLACE, (self.key,), (self.raw, data)):
            raise KeyNotChanged("it was not saved: the value has changed or expired in the meantime")
        self.raw, self.text = data, _shown(self.scope, data)

    async def delete(self) -> None:
        """Delete the key."""
        if not self.may_delete:
            raise KeyNotChanged("it cannot be deleted here")
        if not await self.scope.client.call("UNLINK", self.key):
            raise KeyNotChanged("it no longer exists")

    async def expire(self, seconds: int) -> None:
        """Give it a TTL."""
        if not self.may_delete or not 1 <= seconds <= 10**9:
            raise KeyNotChanged("it cannot have this TTL")
        if not await self.scope.client.call("EXPIRE", self.key, seconds):
            raise KeyNotChanged("it no longer exists")


async def read_entry(scope: KeyScope, key: bytes, *, undeclared: bool) -> KeyEntry | None:
    """Read one key; None if it is gone. Without `undeclared`, values of undeclared keys are not read."""
    found = SampledKey(key, _reader(scope, key, undeclared=undeclared))
    await inspect_keys(scope.client, [found])
    if not found.exists:
        return None
    entry = KeyEntry(scope, found)
    await entry.read_raw()
    return entry


def _reader(scope: KeyScope, key: bytes, *, undeclared: bool) -> ContentReader | None:
    if scope.is_hidden(key):
        return None
    if scope.keyspace is not None:
        return content_reader(scope.keyspace)
    return _read_undeclared if undeclared else None


def _text(found: SampledKey) -> str:
    if found.too_large:
        return TOO_LARGE
    return found.content if isinstance(found.content, str) else HIDDEN


def _read_undeclared(key: SampledKey, content: Any) -> str:
    library = identify(key.key, key.type, signs_of(key.type, content))
    if library is not None and library.keys.sensitive:
        return HIDDEN
    if key.type == "stream":
        content = [{"id": entry_id, **_pairs(flat or ())} for entry_id, flat in content]
    elif key.type == "hash":
        content = dict(content)
    try:
        return format_value(_readable(content))
    except RecursionError:
        return TOO_DEEP


def _pairs(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {_readable_name(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _readable(content: Any) -> Any:
    """Undeclared content without what is named like a secret, or may be one: a password, a URL with one."""
    if isinstance(content, bytes):
        try:
            content = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            content = content.decode("utf-8", "backslashreplace")
    if isinstance(content, Mapping):
        pairs = ((_readable_name(name), value) for name, value in content.items())
        return {name: HIDDEN if looks_secret(name) else _readable(value) for name, value in pairs}
    if isinstance(content, (list, tuple, set)):
        return [_readable(each) for each in content]
    return content if content is None or is_plain(str(content)) else HIDDEN


def _readable_name(name: Any) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _shown(scope: KeyScope, raw: bytes) -> str:
    read = content_reader(scope.keyspace) if scope.keyspace is not None else None
    return "" if read is None else str(read(SampledKey(b"", type="string"), raw))


def _encoded(scope: KeyScope, raw: bytes, text: str) -> bytes:
    """An edited text as the keyspace stores it; refused if it does not decode as declared."""
    keyspace = scope.keyspace
    if keyspace is None:
        raise KeyNotChanged("it is not declared")
    if keyspace.kind == "counter":
        if not text.strip().removeprefix("-").isdecimal() or abs(int(text)) >= 2**63:
            raise KeyNotChanged("it was not saved: it is not a whole number of 64 bits")
        return str(int(text)).encode()
    codec = cast("Codec[Any]", keyspace.codec)
    try:
        is_text = isinstance(codec.decode(raw), str)
        data = codec.encode(text if is_text else json_decoder(storable(codec.value_type))(text))
        fits = codec.decode(data) is not None
    except (*DECODE_ERRORS, InvalidValue, TypeError, AttributeError):
        fits = False
    if not fits:
        raise KeyNotChanged("it was not saved: it does not decode as the declared type")
    return data
