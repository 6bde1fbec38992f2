"""Settings from environment variables: read once at startup, validated, and immutable.

    class Settings(ServiceSettings, kw_only=True, frozen=True):
        service: ClassVar[str] = "identity"
        logins_per_hour: Annotated[int, msgspec.Meta(ge=1)] = 5       # EPHEMERA_IDENTITY_LOGINS_PER_HOUR

    settings = read_settings(Settings, os.environ)

*Names.* A field of `ServiceSettings` itself is `EPHEMERA_FIELD`, shared by all services; a field that a
service adds is `EPHEMERA_SERVICE_FIELD`. A variable with a service's prefix that matches no field is an
error, so that a typing mistake does not silently become the default.

*Values.* Numbers, `true` or `false`, durations such as `15m` or `7d`, comma-separated lists. An empty
variable counts as not set. A `Secret` is never shown in a repr, a log or an error.

*Errors.* All problems are reported at once, each with the name of its variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

import msgspec

from ephemera.errors import EphemeraError, InvalidUrl
from ephemera.web import LOOPBACK_HOSTS, HardeningMiddleware
from ephemera.wire import parse_url

S = TypeVar("S", bound="ServiceSettings")

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)")


class InvalidSettings(EphemeraError, ValueError):
    """The environment variables are invalid; `problems` has one line per variable."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("invalid settings: " + "; ".join(problems))
        self.problems = problems


class Secret:
    """A text that is only shown by `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class ServiceSettings(msgspec.Struct, kw_only=True, frozen=True):
    """The settings that all services share. Without URLs a service starts embedded servers."""

    service: ClassVar[str] = ""

    url: Secret | None = None
    """Redis: sessions, caches, limits; `redis://`, `rediss://`, `unix://`, `redis+cluster://`, ..."""
    queue_url: Secret | None = None
    """A second Redis that never evicts, for data that must not be evicted; default: the first one."""
    database_url: Secret | None = None
    """PostgreSQL: `postgresql://user:password@host/database`."""
    data: str | None = None
    """The folder where embedded servers keep their data; without it the data is deleted with them."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged; `info` has one line per request."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose X-Forwarded-For is trusted."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names of the service, such as `example.com` or `*.example.com`; default: those of loopback."""
    allowed_origins: tuple[str, ...] = ()
    """Other origins whose pages may send requests that change something, such as `https://admin.example.com`."""
    hsts: timedelta | None = None
    """How long browsers use only TLS for this host, such as `365d`, once it is behind TLS for good."""
    max_connections: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """Connections at the same time; a new one replaces the one that has waited longest for a request."""
    request_timeout: timedelta = timedelta(seconds=10)
    """Time for the head of a request; after as much again, its body must arrive at 4 KiB per second."""
    development: bool = False
    """On one machine only: serves `/docs` and `/openapi.json`."""
    metrics_token: Secret | None = None
    """The bearer token for `/metrics`, at least 16 characters; without it there is no such route."""


def read_settings(settings: type[S], environment: Mapping[str, str]) -> S:
    """Return the settings of an environment, or raise `InvalidSettings` with everything that is wrong."""
    names = variable_names(settings)
    problems = list(_unknown(settings.service, names, environment))
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(settings):
        variable = names[field.name]
        text = environment.get(variable, "").rstrip("\r\n")  # a secret read from a file may end with one
        if text:
            try:
                values[field.name] = _convert(text, field.type)
            except ValueError as problem:
                problems.append(f"{variable}: {problem}")
        elif field.required:
            problems.append(f"{variable} must be set")
    if not problems:
        result = settings(**values)
        problems = [*_url_problems(result), *_name_problems(result)]
        if not problems:
            return result
    raise InvalidSettings(problems)


def variable_names(settings: type[ServiceSettings]) -> dict[str, str]:
    """Return the name of each field's environment variable."""
    shared = {field.name for field in msgspec.structs.fields(ServiceSettings)}
    own = f"EPHEMERA_{settings.service.upper()}_"
    return {
        field.name: ("EPHEMERA_" if field.name in shared else own) + field.name.upper()
        for field in msgspec.structs.fields(settings)
    }


def _unknown(service: str, names: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[str]:
    known = set(names.values())
    for variable in sorted(environment):
        if variable.startswith(f"EPHEMERA_{service.upper()}_") and variable not in known:
            near = _closest(variable, known, f"EPHEMERA_{service.upper()}_")
            yield f"{variable} is not a setting" + (f"; did you mean {near}?" if near else "")


def _closest(variable: str, known: set[str], own: str) -> str | None:
    """The variable that was probably meant: one with this prefix, or else the most similar one."""
    completions = {each for each in known if len(variable) > len(own) and each.startswith(variable)}
    near = get_close_matches(variable, sorted(completions), 1, cutoff=0) or get_close_matches(
        variable, sorted(known), 1
    )
    return near[0] if near else None


def _convert(text: str, kind: Any) -> Any:
    """Convert a text to a field's type. ValueError says what was expected and never repeats a secret."""
    if _CONTROL.search(text):
        raise ValueError("it contains a line break or another control character")
    kinds = [each for each in get_args(kind) if each is not type(None)] or [kind]
    only = kinds[0] if len(kinds) == 1 and get_origin(kind) is not Annotated else kind
    if only is Secret:
        return Secret(text)
    if get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if only is timedelta:
        return _duration(text)
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise ValueError(f"{text[:60]!r}: {problem}") from None


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"{text[:60]!r} is not a duration above 0, such as 500ms, 30s, 15m, 1h or 7d")
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def _name_problems(settings: ServiceSettings) -> Iterator[str]:
    """The middleware knows what is a host and what is an origin."""
    options: dict[str, dict[str, Any]] = {
        "EPHEMERA_ALLOWED_HOSTS": {"hosts": settings.allowed_hosts or LOOPBACK_HOSTS},
        "EPHEMERA_ALLOWED_ORIGINS": {"hosts": LOOPBACK_HOSTS, "origins": settings.allowed_origins},
    }
    for variable, given in options.items():
        try:
            HardeningMiddleware(_no_app, **given)
        except ValueError as problem:
            yield f"{variable}: {problem}"


async def _no_app(*_: Any) -> None:
    raise NotImplementedError


def _url_problems(settings: ServiceSettings) -> Iterator[str]:
    for variable, url in (("EPHEMERA_URL", settings.url), ("EPHEMERA_QUEUE_URL", settings.queue_url)):
        try:
            if url is not None:
                parse_url(url.reveal())
        except InvalidUrl as problem:
            yield f"{variable}: {problem}"
    database = settings.database_url
    if database is not None and not database.reveal().startswith(("postgresql://", "postgres://")):
        yield "EPHEMERA_DATABASE_URL: it must begin with postgresql://"
    if settings.queue_url is not None and settings.url is None:
        yield "EPHEMERA_QUEUE_URL is set and EPHEMERA_URL is not: set both or neither"
