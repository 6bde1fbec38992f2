"""The URL of the server in the URL of a storage."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from limits.errors import ConfigurationError

from ephemera.errors import InvalidUrl
from ephemera.wire import parse_url

KINDS = (
    "ephemera",
    "ephemeras",
    "ephemera+unix",
    "ephemera+cluster",
    "ephemeras+cluster",
    "ephemera+sentinel",
    "ephemeras+sentinel",
)
"""The schemes: those of our URLs with `ephemera` in place of `redis`."""


def server_url(uri: str, options: dict[str, Any]) -> str:
    """The URL for the wire; options of the storage that are not in its URL are added to it."""
    url = uri.removeprefix("async+").replace("ephemera", "redis", 1).replace("redis+unix", "unix", 1)
    options = dict(options)
    user, password = options.pop("username", ""), options.pop("password", "")
    if user or password:
        scheme, _, rest = url.partition("://")
        url = f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest.rpartition('@')[2]}"
    if master := options.pop("service_name", ""):
        url = f"{url.rstrip('/')}/{master}"
    if options:
        url += ("&" if "?" in url else "?") + urlencode(options)
    try:
        parse_url(url)
    except InvalidUrl as problem:
        raise ConfigurationError(f"storage options or URL: {problem}") from problem
    return url
