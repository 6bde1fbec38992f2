"""If-None-Match as RFC 9110 (13.1.2) has it: a list of tags, weak or strong, or `*`.

Tags are compared weakly: `W/"x"` and `"x"` are the same. `*` is any page that there is. What is no list of
tags is ignored, as if the header were not there: the client then gets the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ephemera.web._asgi import Header

_TAG = rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_LIST = re.compile(rb"[ \t,]*%s(?:[ \t]*,[ \t,]*%s)*[ \t,]*" % (_TAG, _TAG))
_EACH = re.compile(rb'((?:W/)?"([\x21\x23-\x7e\x80-\xff]*)")')
_MOST = 8192  # bytes of a list that are read; longer ones are no browser's


def if_none_match(headers: Iterable[Header]) -> bytes | None:
    """The tags that a request names, as one list; None when it names none."""
    found = None
    for name, value in headers:
        if name == b"if-none-match":
            found = value if found is None else found + b", " + value
    return found


def names(tags: bytes, etag: bytes) -> bool:
    """Whether a list of tags names this one."""
    if tags == etag:  # by far the most frequent
        return True
    opaque = etag[etag.index(b'"') + 1 : -1]
    return tags.strip(b" \t") == b"*" or any(each[1] == opaque for each in _each(tags))


def named(tags: bytes, stamp: str) -> bytes | None:
    """The tag of a list that says this, as the list has it; `*` names none."""
    opaque = stamp.encode()
    return next((each[0] for each in _each(tags) if each[1] == opaque), None)


def _each(tags: bytes) -> list[tuple[bytes, bytes]]:
    """The tags of a list, each with and without its marks; none of what is no list."""
    if len(tags) > _MOST or _LIST.fullmatch(tags) is None:
        return []
    return _EACH.findall(tags)
