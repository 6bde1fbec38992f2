"""What a service is told by its environment: read once at the start, checked, and immutable after that.

    class Settings(SystemSettings, kw_only=True, frozen=True):
        system: ClassVar[str] = "identity"
        logins_per_hour: Annotated[int, msgspec.Meta(ge=1)] = 5       # EPHEMERA_IDENTITY_LOGINS_PER_HOUR

    settings = read(Settings, os.environ)

One rule for names: a field of `SystemSettings` itself is `EPHEMERA_FIELD`, shared by all systems; a field
that a system adds is `EPHEMERA_SYSTEM_FIELD`. Values are text: numbers, `true` or `false`, durations as `15m`
or `7d`, lists with commas. An empty variable is as good as none. A variable of the system's own that no field
has is an error, too, so that a typing mistake is not silently the default.

All problems are told at once, each with its variable's name. A `Secret` shows itself to nobody who does not
ask for it: not in a repr, a log or an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

import msgspec

from ephemera.errors import EphemeraError, InvalidUrl
from ephemera.wire import parse_url

S = TypeVar("S", bound="SystemSettings")

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)")


class InvalidSettings(EphemeraError, ValueError):
    """An environment that a service cannot start with; `problems` has one line for each variable."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("the environment does not fit: " + "; ".join(problems))
        self.problems = problems


class Secret:
    """A text that is shown to nobody who does not ask by `reveal`."""

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


class SystemSettings(msgspec.Struct, kw_only=True, frozen=True):
    """What every system takes; without URLs it starts servers of its own, which end with it."""

    system: ClassVar[str] = ""

    url: Secret | None = None
    """Redis: sessions, caches, limits; `redis://`, `rediss://`, `unix://`, `redis+cluster://`, ..."""
    queue_url: Secret | None = None
    """A second Redis that never evicts, for what must not be; the first one unless given."""
    database_url: Secret | None = None
    """PostgreSQL: `postgresql://user:password@host/database`."""
    data: str | None = None
    """The folder in which embedded servers keep their data; without it, it goes with them."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """From which level on to log; `info` has a line for each request."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose X-Forwarded-For is believed."""
    metrics_token: Secret | None = None
    """What Prometheus sends to read `/metrics`, 16 characters at least; without it there is no such route."""


def read(settings: type[S], environment: Mapping[str, str]) -> S:
    """The settings of an environment, or `InvalidSettings` with everything that is wrong with it."""
    names = variables(settings)
    problems = list(_unknown(settings.system, names, environment))
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(settings):
        variable = names[field.name]
        text = environment.get(variable, "").rstrip("\r\n")  # of a secret that was kept in a file
        if text:
            try:
                values[field.name] = _converted(text, field.type)
            except ValueError as problem:
                problems.append(f"{variable}: {problem}")
        elif field.required:
            problems.append(f"{variable} must be set")
    if not problems:
        made = settings(**values)
        problems = list(_wrong_urls(made))
        if not problems:
            return made
    raise InvalidSettings(problems)


def variables(settings: type[SystemSettings]) -> dict[str, str]:
    """The name of each field's variable."""
    shared = {field.name for field in msgspec.structs.fields(SystemSettings)}
    own = f"EPHEMERA_{settings.system.upper()}_"
    return {
        field.name: ("EPHEMERA_" if field.name in shared else own) + field.name.upper()
        for field in msgspec.structs.fields(settings)
    }


def _unknown(system: str, names: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[str]:
    known = set(names.values())
    for variable in sorted(environment):
        if variable.startswith(f"EPHEMERA_{system.upper()}_") and variable not in known:
            near = _near(variable, known, f"EPHEMERA_{system.upper()}_")
            yield f"{variable} is no setting" + (f"; did you mean {near}?" if near else "")


def _near(variable: str, known: set[str], own: str) -> str | None:
    """The variable that was meant: one that begins like this, or else one that is written much like it."""
    begun = {each for each in known if len(variable) > len(own) and each.startswith(variable)}
    near = get_close_matches(variable, sorted(begun), 1, cutoff=0) or get_close_matches(
        variable, sorted(known), 1
    )
    return near[0] if near else None


def _converted(text: str, kind: Any) -> Any:
    """A text as a value of a field's type; ValueError says what was expected, and never repeats a secret."""
    if _CONTROL.search(text):
        raise ValueError("there is a line break or another control character in it, as at a file's end")
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
        raise ValueError(f"{text[:60]!r} is no duration above 0, as in 500ms, 30s, 15m, 1h or 7d")
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def _wrong_urls(settings: SystemSettings) -> Iterator[str]:
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
        yield "EPHEMERA_QUEUE_URL is set and EPHEMERA_URL is not: name both servers, or none"
