"""Messages as Redis holds them: 12 random bytes, and MessagePack or JSON, encrypted if the settings say so.

It is the format of channels_redis, so that processes with either layer share a server. The random bytes keep
equal messages apart, which are members of a sorted set.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

import msgspec

from ephemera.errors import MissingExtra

_RANDOM = 12  # bytes
_CLOCK_SKEW = 10  # seconds that an encrypted message may be older than its expiry

Format = Literal["msgpack", "json"]


class MessageCodec:
    """Encodes and decodes the messages of a layer."""

    def __init__(self, form: Format, keys: Sequence[str | bytes], expiry: float) -> None:
        if form not in ("msgpack", "json"):
            raise ValueError(f"serializer_format is 'msgpack' or 'json', not {form!r}")
        if isinstance(keys, (str, bytes)):
            raise TypeError("symmetric_encryption_keys is a list of keys, the first one to encrypt with")
        packer: Any = msgspec.msgpack if form == "msgpack" else msgspec.json
        self._encode = packer.Encoder().encode
        self._decode = packer.Decoder(dict[str, Any]).decode
        self._crypter: Any = _crypter(keys) if keys else None
        self._max_age = int(expiry) + _CLOCK_SKEW

    def encode(self, message: dict[str, Any]) -> bytes:
        """The stored form of a message."""
        encoded: bytes = self._encode(message)
        return os.urandom(_RANDOM) + (self._crypter.encrypt(encoded) if self._crypter else encoded)

    def decode(self, stored: bytes) -> dict[str, Any] | None:
        """A stored message; None for one that no layer with these settings has sent."""
        encoded = stored[_RANDOM:]
        try:
            if self._crypter:
                encoded = self._crypter.decrypt(encoded, self._max_age)
            message: dict[str, Any] = self._decode(encoded)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        except Exception as problem:
            if type(problem).__name__ != "InvalidToken":
                raise
            return None
        return message


def _crypter(keys: Sequence[str | bytes]) -> Any:
    try:
        fernet = import_module("cryptography.fernet")
    except ImportError:
        raise MissingExtra("symmetric_encryption_keys needs cryptography", "tokens", "cryptography") from None
    texts = [key.encode() if isinstance(key, str) else key for key in keys]
    derived = [base64.urlsafe_b64encode(hashlib.sha256(text).digest()) for text in texts]
    return fernet.MultiFernet([fernet.Fernet(key) for key in derived])
