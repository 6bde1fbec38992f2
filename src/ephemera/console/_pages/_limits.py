"""Limits: throttled subjects by rule; any subject can be looked up and reset."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from nicegui import ui

from ephemera.console._components import Action, Column, Empty, empty, section, table, tile, tiles
from ephemera.console._connections import Service
from ephemera.console._formats import NO_VALUE, format_seconds
from ephemera.console._sources import RowSources, service_column
from ephemera.console._view import ConsolePage, View
from ephemera.operations.formatting import format_count
from ephemera.operations.inspect import LimitStatus, limit_status, reset_limit, throttled_subjects
from ephemera.patterns.rate_limits import RateLimits, Rule

_KINDS = {"fixed": "fixed window", "sliding": "sliding window", "bucket": "token bucket"}


def build(view: View) -> None:
    """Draw the page."""
    declared = view.patterns(RateLimits)
    if not declared:
        empty(
            "No limits are declared",
            "Declare them with RateLimits(catalogue, 'ratelimit', ...): see docs/patterns/rate_limits.md.",
            icon="speed",
        )
        return
    _Limits(view, declared)


class _Limits:
    """The page in one browser."""

    def __init__(self, view: View, declared: list[tuple[Service, RateLimits]]) -> None:
        self._declared = declared
        self._of = {
            _id(service, rule): (service, limits, rule)
            for service, limits in declared
            for rule in limits.rules.values()
        }
        self._subjects: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._lookup: tuple[str, list[str]] | None = None
        with tiles():
            self._now, self._by, self._next = tile("Throttled now"), tile("Top rule"), tile("Longest wait")
        with section("Throttled", "Subjects that were denied and would be denied again now."):
            self._throttled = self._table(
                view,
                Empty(
                    "No one is throttled",
                    "Denied subjects appear here within a second.",
                    icon="speed",
                ),
            )
        with section(
            "Look up a subject",
            "The state of a rule for a user, a key or an address; looking it up consumes nothing.",
        ):
            with ui.element("form").classes("e-row").on("submit.prevent", self._look_up):
                options = self._options(many=len(view.services) > 1)
                self._rule = ui.select(options, value=next(iter(options)), label="Rule").props(
                    "dense outlined"
                )
                self._subject = ui.input("Subject").props("dense outlined clearable")
                ui.button("Look up", icon="search").props('type="submit" unelevated no-caps')
            self._found = self._table(
                view,
                Empty("No subject looked up", "Choose a rule and enter a subject.", icon="person_search"),
            )
            self._found.show([])
        with section("Rules"):
            self._rules = table(
                [
                    Column("rule", "Rule"),
                    Column("limit", "Limit"),
                    Column("kind", "Algorithm"),
                    Column("counts", "Key", kind="mono"),
                    Column("down", "When Redis is down"),
                    Column("throttled", "Throttled", kind="number"),
                    *service_column(view),
                ],
                empty=Empty("No rules", "", icon="rule"),
                search=len(self._of) > 10,
            )
        self._sources = RowSources(self._show)
        self._timer = view.every(2, self._refresh)

    def _options(self, *, many: bool) -> dict[str, str]:
        """The names of the rules; with the algorithm where a service has two of one name."""
        names = {name: _named(service, rule, many=many) for name, (service, _, rule) in self._of.items()}
        often = Counter(names.values())
        return {
            name: f"{text}, {_KINDS[self._of[name][2].algorithm.kind]}" if often[text] > 1 else text
            for name, text in names.items()
        }

    def _table(self, view: View, no_rows: Empty) -> Any:
        return table(
            [
                Column("subject", "Subject", kind="mono"),
                Column("rule", "Rule"),
                Column("limit", "Limit"),
                Column("state", "State", kind="badge"),
                Column("used", "Used", kind="bar"),
                Column("wait", "Retry after", kind="time"),
                Column("free", "Reset in", kind="time"),
                *service_column(view),
            ],
            empty=no_rows,
            actions=[
                Action(
                    "reset",
                    "Reset",
                    "restart_alt",
                    what="limit.reset",
                    question=lambda row: f"Reset {row['rule']} for {row['subject']}?",
                    target=lambda row: f"{row['rule']} {row['subject']}",
                    work=self._reset,
                    done="The limit is reset.",
                )
            ],
            view=view,
            then=lambda: self._timer.now(),
        )

    async def _reset(self, row: dict[str, Any]) -> None:
        name, subject = self._subjects[row["id"]]
        service, limits, rule = self._of[name]
        await reset_limit(service.store, limits, rule.name, subject)

    async def _look_up(self) -> None:
        _, _, rule = self._of[self._rule.value]
        text = (self._subject.value or "").strip()
        # Several fields are separated by commas; a single one may contain a comma.
        parts = [part.strip() for part in text.split(",")] if len(rule.subject_fields) > 1 else [text]
        if len(parts) != len(rule.subject_fields) or not all(parts):
            wanted = ", ".join(rule.subject_fields) or "no subject"
            ui.notify(f"This rule needs: {wanted}.", type="warning", position="bottom")
            return
        self._lookup = (self._rule.value, parts)
        await self._timer.now()

    async def _refresh(self) -> None:
        await self._refresh_lookup()
        await self._sources.refresh({pair: partial(self._read, *pair) for pair in self._declared})

    async def _refresh_lookup(self) -> None:
        if self._lookup is None:
            return
        name, subject = self._lookup
        service, limits, rule = self._of[name]
        seen = await limit_status(service.store, limits, rule.name, subject)
        self._found.show([self._row(service, rule, each, "lookup") for each in seen])

    async def _read(self, service: Service, limits: RateLimits) -> list[dict[str, Any]]:
        seen = await throttled_subjects(service.store, limits)
        return [self._row(service, limits[each.rule], each, "throttled") for each in seen]

    def _row(self, service: Service, rule: Rule, seen: LimitStatus, where: str) -> dict[str, Any]:
        name = _id(service, rule)
        row = _row(service, rule, seen)
        row["id"] = f"{where}/{name}/{seen.limit}/{seen.subject!r}"  # two may look alike
        self._subjects[row["id"]] = (name, seen.subject)
        return row

    def _show(self, rows: list[dict[str, Any]]) -> None:
        rows = sorted(rows, key=lambda row: (-row["wait_sort"], row["id"]))
        self._throttled.show(rows)
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["of"]] = counts.get(row["of"], 0) + 1
        self._rules.show(
            [
                _rule_row(name, service, rule, counts.get(name, 0))
                for name, (service, _, rule) in self._of.items()
            ]
        )
        self._now.show(
            f"{len(rows):,}",
            f"by {len(counts)} of {format_count(len(self._of), 'rule')}",
            "warn" if rows else "good",
        )
        most = max(counts, key=lambda name: counts[name], default=None)
        self._by.show(
            *(
                (NO_VALUE, "")
                if most is None
                else (self._of[most][2].name, f"{format_count(counts[most], 'subject')} throttled")
            )
        )
        self._next.show(*((rows[0]["wait"], rows[0]["subject"]) if rows else (NO_VALUE, "")))


def _id(service: Service, rule: Rule) -> str:
    """The id of a rule: a service may have two rules of one name with different keys."""
    return f"{service.name}/{rule.name}/{rule.keyspace.pattern}"


def _named(service: Service, rule: Rule, *, many: bool) -> str:
    counts = f"{rule.name} ({', '.join(rule.subject_fields)})" if rule.subject_fields else rule.name
    return f"{service.name}: {counts}" if many else counts


def _row(service: Service, rule: Rule, seen: LimitStatus) -> dict[str, Any]:
    used = max(0, seen.limit - seen.remaining)
    never = seen.retry_after is None
    asked = f" for {seen.cost:,}" if seen.cost > 1 else ""
    return {
        "of": _id(service, rule),
        "subject": seen.subject_text,
        "rule": rule.name,
        "limit": f"{_tier(seen.tier)}{seen.limit:,} in {format_seconds(rule.algorithm.per / 1000)}",
        "limit_sort": seen.limit,
        "state": ("never allowed" if never else f"throttled{asked}") if seen.is_throttled else "allowed",
        "state_tone": "bad" if seen.is_throttled else "good",
        "used": round(100 * used / seen.limit) if seen.limit else 100,
        "used_text": f"{used:,} of {seen.limit:,}",
        "wait": "" if not seen.is_throttled else "never" if never else format_seconds(seen.retry_after or 0),
        "wait_sort": float(10**12) if never else seen.retry_after,
        "free": format_seconds(seen.reset),
        "free_sort": seen.reset,
        "service": service.name,
    }


def _rule_row(name: str, service: Service, rule: Rule, count: int) -> dict[str, Any]:
    per = format_seconds(rule.algorithm.per / 1000)
    limits = ", ".join(f"{_tier(tier)}{limit:,}" for tier, limit in rule.tiers.items())
    return {
        "id": name,
        "rule": rule.name,
        "limit": f"{limits} in {per}",
        "kind": _KINDS[rule.algorithm.kind],
        "counts": rule.keyspace.pattern,
        "down": rule.when_down if isinstance(rule.when_down, str) else "a local share",
        "throttled": count,
        "service": service.name,
    }


def _tier(tier: str) -> str:
    return f"{tier} " if tier else ""


PAGE = ConsolePage("/limits", "Limits", "speed", build)
