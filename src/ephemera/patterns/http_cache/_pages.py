"""Pages: what a resource answers with, as it is stored, and the ETag that its content gives it.

A page's ETag is a keyed hash of its content; the key is the page's Redis key and media type. So it survives
the loss of everything: the same content has the same ETag again, other content never has, and no two users'
pages share one. A page that is stored as gzip has a weak ETag, since it is sent with and without that
encoding. Its number (`X-Resource-Version`) is assigned by the server when it is stored.
"""

from __future__ import annotations

import gzip
from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Any

import msgspec

_STAMP_BYTES = 12  # 16 characters of base64
_GZIP_LEVEL = 6


class Page(msgspec.Struct, array_like=True, gc=False):
    """A page; treat it as frozen."""

    etag: bytes  # as in the header, with its quotation marks
    media_type: str
    gzipped: bool
    made_at: int  # milliseconds since 1970, before its load
    fresh: int  # milliseconds from when it is stored
    stale: int  # milliseconds after that
    bumped_with: list[str]  # the keys of all pages that were replaced in the same step
    content: bytes
    number: str = ""
    """Its version: digits that grow whenever the content changes."""

    @property
    def stamp(self) -> str:
        """The hash in its ETag, without quotation marks."""
        return self.etag[-17:-1].decode()

    @property
    def body(self) -> bytes:
        """Its content as a client without gzip gets it."""
        return gzip.decompress(self.content) if self.gzipped else self.content

    def json(self) -> Any:
        """Return its content, decoded."""
        return msgspec.json.decode(self.body)


def build_page(key: str, value: Any, media_type: str, *, compress_over: int, made_at: float) -> Page:
    """Return the page of what a loader returned: bytes and text as they are, anything else as JSON."""
    if isinstance(value, str):
        body = value.encode()
    else:
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    digest = blake2b(body, digest_size=_STAMP_BYTES, key=_hash_key(key, media_type)).digest()
    stamp = urlsafe_b64encode(digest)
    gzipped = len(body) > compress_over
    return Page(
        etag=b'W/"%s"' % stamp if gzipped else b'"%s"' % stamp,
        media_type=media_type,
        gzipped=gzipped,
        made_at=int(made_at),
        fresh=0,  # set when it is stored
        stale=0,
        bumped_with=[],
        content=gzip.compress(body, _GZIP_LEVEL, mtime=0) if gzipped else body,
        number=f"{made_at * 1000:016.0f}",
    )


def _hash_key(key: str, media_type: str) -> bytes:
    return blake2b(f"{media_type} {key}".encode(), digest_size=32).digest()
