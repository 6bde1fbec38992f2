"""Pages: what a resource answers with, as it is stored, and the tag that its content gives it.

A page's ETag is a hash of its key, its media type and its content, so it survives the loss of everything: the
same content has the same tag again, other content never has, and what belongs to one user has a tag that no
other user's page has. A page that is stored under gzip has a weak tag, since it is sent with and without that
coding. Its number (`X-Resource-Version`) is given by the server when it is stored.
"""

from __future__ import annotations

import gzip
from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Any

import msgspec

_STAMP_BYTES = 12  # 16 characters of base64
_LEVEL = 6


class Page(msgspec.Struct, array_like=True, gc=False):
    """A page; treat it as frozen."""

    etag: bytes  # as the header has it, with its quotation marks
    media_type: str
    gzipped: bool
    made: int  # milliseconds since 1970, before its load
    fresh: int  # milliseconds from when it is stored
    stale: int  # milliseconds after that
    together: list[str]  # the keys of all pages that were changed with it
    content: bytes
    number: str = ""
    """Its version: digits that grow with every other content."""

    @property
    def stamp(self) -> str:
        """What its tag says, without the marks."""
        return self.etag[-17:-1].decode()

    @property
    def body(self) -> bytes:
        """Its content as a client without gzip gets it."""
        return gzip.decompress(self.content) if self.gzipped else self.content

    def json(self) -> Any:
        """Its content, decoded."""
        return msgspec.json.decode(self.body)


def make_page(key: str, value: Any, media_type: str, *, compress_over: int, made: float) -> Page:
    """The page of what a loader gave: bytes and text as they are, anything else as JSON."""
    if isinstance(value, str):
        body = value.encode()
    else:
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    digest = blake2b(body, digest_size=_STAMP_BYTES, key=_key_of(key, media_type)).digest()
    stamp = urlsafe_b64encode(digest)
    gzipped = len(body) > compress_over
    return Page(
        etag=b'W/"%s"' % stamp if gzipped else b'"%s"' % stamp,
        media_type=media_type,
        gzipped=gzipped,
        made=int(made),
        fresh=0,  # `BoundResource.give_life` decides
        stale=0,
        together=[],
        content=gzip.compress(body, _LEVEL, mtime=0) if gzipped else body,
        number=f"{made * 1000:016.0f}",
    )


def _key_of(key: str, media_type: str) -> bytes:
    """What a hash is keyed with, so that a page of one key never has the tag of another's."""
    return blake2b(f"{media_type} {key}".encode(), digest_size=32).digest()
