"""Limits written beside a route or view: their rates, their rules, and whom they count.

No framework is named here: `ephemera.web.fastapi` and the adapters of other frameworks share it, so that
services in different frameworks count the same subjects under the same keys.
"""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import Literal

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue
from ephemera.patterns.rate_limits import RateLimits, Rule, WhenDown, sliding_window

_RATE = re.compile(r"\s*(\d+)\s*/\s*(?:(\d+)\s*)?(second|minute|hour|day)s?\s*")
_HEADER = re.compile(r"header:([!#$%&'*+.^_`|~0-9A-Za-z-]+)")
_DIGEST = 16  # bytes of a header's hash: no secret in a key, and keys of one length


def parse_rate(rate: str) -> tuple[int, timedelta]:
    """The limit and the period of `"60/minute"`, `"5/10 seconds"` and the like."""
    found = _RATE.fullmatch(rate)
    if found is None or not int(found[2] or 1):
        advice = "write it as '60/minute' or '5/10 seconds', with second, minute, hour or day"
        raise InvalidDeclaration(rate, "it is not a rate", advice)
    return int(found[1]), int(found[2] or 1) * timedelta(**{f"{found[3]}s": 1})


def check_rate(rate: str | Rule, name: str | None, when_down: WhenDown) -> None:
    """Refuse what `declare_limit` would refuse, where the limit has no name yet."""
    if isinstance(rate, str):
        parse_rate(rate)
    elif name is not None or when_down != "open":
        raise InvalidDeclaration(rate.name, "a rule has a name and a policy already", "leave them out")


def declare_limit(catalogue: Catalogue, name: str, rate: str | Rule, when_down: WhenDown) -> Rule:
    """Declare the limit of a route, and return its rule; a rule that is declared already is only checked.

    Args:
        catalogue: Where its keys are declared: `limit:NAME:{subject}`, and `limits:NAME` with its denials.
        name: Its name in keys, headers and responses.
        rate: A sliding window such as `"60/minute"`, or a declared rule with one subject and no tiers.
        when_down: The policy while Redis is down: "open", "closed" or `local_share(of=...)`.

    """
    if isinstance(rate, Rule):
        return _checked(rate)
    limit, per = parse_rate(rate)
    key = f"limit:{name}:{{subject}}"
    if any(keyspace.pattern == key for keyspace in catalogue):
        advice = "give one of them name=, or use one for both: api = eph.limit(..., name='api')"
        raise InvalidDeclaration(name, "two limits have this name", advice)
    rule = sliding_window(name, limit, per=per, key=key, when_down=when_down)
    RateLimits(catalogue, f"limits:{name}", rule)
    return rule


def limits_of(rule: Rule) -> RateLimits:
    """The declaration of a rule that `declare_limit` returned."""
    if not isinstance(rule.limits, RateLimits):
        raise InvalidDeclaration(rule.name, "no RateLimits declares this rule", "give it to one first")
    return rule.limits


def _checked(rule: Rule) -> Rule:
    limits_of(rule)
    if "" not in rule.tiers or len(rule.subject_fields) != 1:
        problem = "it has tiers, or another number of subjects than one"
        advice = "make its claims yourself: in FastAPI with Depends(Limited(...))"
        raise InvalidDeclaration(rule.name, problem, advice)
    return rule


class LimitSubject:
    """Whom a limit counts: what `by=` says, parsed.

    Args:
        by: `"address"`, `"user"` or `"header:NAME"`.
        has_users: Whether there are sessions, so that requests can have a user.

    """

    def __init__(self, by: str, *, has_users: bool) -> None:
        header = _HEADER.fullmatch(by)
        if header is None and by not in ("address", "user"):
            advice = "use 'address', 'user', 'header:NAME' or a function of the request"
            raise InvalidDeclaration("limit", f"by={by!r} is unknown", advice)
        if by == "user" and not has_users:
            raise InvalidDeclaration("limit", "by='user' without sessions", "give Ephemera(..., sessions=)")
        self.kind: Literal["address", "user", "header"] = (
            "header" if header else "user" if by == "user" else "address"
        )
        """What is needed of a request, besides its client's network."""
        self.header = header[1].lower() if header else ""
        """The header's name, in lower case."""

    def of(self, network: str, value: object = None) -> str:
        """The subject of a request: its user or header, `value`, or without one the client's network."""
        if self.kind == "address":
            return network
        if value is None or value == "":
            return f"address/{network}"
        if self.kind == "user":
            return f"user/{value}"
        sent = str(value).encode("latin-1", "backslashreplace")
        return f"header/{hashlib.blake2b(sent, digest_size=_DIGEST).hexdigest()}"
