"""Which servers the user named, checked before anything starts; and the database of each service on them.

Services keep their keys apart by Redis's numbered databases: two of them call their sessions `session:...`.
A URL with the number 8 gives them 8 to 12. A cluster has one database, so it cannot be the demonstration's.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from ephemera.errors import EphemeraError, InvalidUrl
from ephemera.wire import parse_url

SYSTEMS = ("identity", "slides", "scripture", "feed", "league")
"""The services, in the order of their databases."""


class InvalidFlag(EphemeraError, ValueError):
    """A flag of the demonstration that cannot be used, and why."""

    def __init__(self, flag: str, problem: str) -> None:
        twin = "EPHEMERA_" + flag.strip("-").upper().replace("-", "_")
        super().__init__(f"{flag} (or {twin}): {problem}")


@dataclass(frozen=True)
class Given:
    """The servers that the user named; None is one of the demonstration's own, or none at all."""

    url: str | None = None
    queue_url: str | None = None
    database_url: str | None = None
    qdrant_url: str | None = None
    mongodb_url: str | None = None

    def check(self) -> None:
        """Raise `InvalidFlag` for the first that cannot be used, whatever runs there."""
        for flag, url in (("--url", self.url), ("--queue-url", self.queue_url)):
            if url is not None:
                _check_redis(flag, url)
        for flag, url, schemes in (
            ("--database-url", self.database_url, ("postgresql://", "postgres://")),
            ("--qdrant-url", self.qdrant_url, ("http://", "https://")),
            ("--mongodb-url", self.mongodb_url, ("mongodb://", "mongodb+srv://")),
        ):
            if url is not None and not url.startswith(schemes):
                raise InvalidFlag(flag, f"it must begin with {' or '.join(schemes)}")


def _check_redis(flag: str, url: str) -> None:
    try:
        target = parse_url(url)
    except InvalidUrl as problem:
        raise InvalidFlag(flag, str(problem)) from None
    if target.kind == "cluster":
        raise InvalidFlag(
            flag,
            "a cluster has one database, and the demonstration's services need one each: "
            "give a single server or Sentinel",
        )


def database_of(url: str, system: str) -> str:
    """The URL of a service's own database on a server: the URL's number, and the following ones."""
    target = parse_url(url)
    number = target.database + SYSTEMS.index(system)
    base, _, options = url.partition("?")
    if base.startswith("unix://"):
        others = [(name, value) for name, value in parse_qsl(options) if name != "db"]
        return f"{base}?{urlencode([*others, ('db', str(number))])}"
    scheme, _, rest = base.partition("://")
    where = [rest.partition("/")[0], *([target.master] if target.master else []), str(number)]
    return f"{scheme}://{'/'.join(where)}" + (f"?{options}" if options else "")
