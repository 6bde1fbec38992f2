"""Limits: who is being throttled, by which rule, for how long; anybody can be looked up, and given room."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from nicegui import ui

from ephemera.console._components import Action, Column, Empty, empty, section, table, tile, tiles
from ephemera.console._connections import Place
from ephemera.console._moments import NOTHING, lasting
from ephemera.console._page import Page
from ephemera.console._sources import Sources, of_place
from ephemera.console._view import View
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
            "RateLimits(catalogue, 'ratelimit', ...) declares some: see docs/patterns/rate_limits.md.",
            icon="speed",
        )
        return
    _Limits(view, declared)


class _Limits:
    """The page in one browser."""

    def __init__(self, view: View, declared: list[tuple[Place, RateLimits]]) -> None:
        self._declared = declared
        self._of = {
            _id(place, rule): (place, limits, rule)
            for place, limits in declared
            for rule in limits.rules.values()
        }
        self._subjects: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._sought: tuple[str, list[str]] | None = None
        with tiles():
            self._now, self._by, self._next = tile("Throttled now"), tile("By most"), tile("Waits longest")
        with section(
            "Being throttled", "Who was denied and would be again now, at the limit that held for them."
        ):
            self._throttled = self._table(
                view,
                Empty(
                    "Nobody is being throttled",
                    "Whoever is denied shows up here within a second.",
                    icon="speed",
                ),
            )
        with section(
            "Look somebody up", "How a rule stands for a user, a key or an address; looking takes nothing."
        ):
            with ui.element("form").classes("e-row").on("submit.prevent", self._look_up):
                options = self._options(many=len(view.places) > 1)
                self._rule = ui.select(options, value=next(iter(options)), label="Rule").props(
                    "dense outlined"
                )
                self._subject = ui.input("Subject").props("dense outlined clearable")
                ui.button("Look up", icon="search").props('type="submit" unelevated no-caps')
            self._found = self._table(
                view,
                Empty(
                    "Nobody was looked up", "Choose a rule, and name whom it counts.", icon="person_search"
                ),
            )
            self._found.show([])
        with section("Rules"):
            self._rules = table(
                [
                    Column("rule", "Rule"),
                    Column("limit", "Limit"),
                    Column("kind", "Counted by"),
                    Column("counts", "Counts", kind="mono"),
                    Column("down", "Without Redis"),
                    Column("throttled", "Throttled", kind="number"),
                    *of_place(view),
                ],
                empty=Empty("No rules", "", icon="rule"),
                search=len(self._of) > 10,
            )
        self._sources = Sources(self._show)
        self._refreshing = view.every(2, self._refresh)

    def _options(self, *, many: bool) -> dict[str, str]:
        """What the rules are called; by what they count where a service has two of one name."""
        names = {name: _named(place, rule, many=many) for name, (place, _, rule) in self._of.items()}
        often = Counter(names.values())
        return {
            name: f"{text}, {_KINDS[self._of[name][2].algorithm.kind]}" if often[text] > 1 else text
            for name, text in names.items()
        }

    def _table(self, view: View, nobody: Empty) -> Any:
        return table(
            [
                Column("subject", "Who", kind="mono"),
                Column("rule", "Rule"),
                Column("limit", "Limit"),
                Column("state", "State", kind="badge"),
                Column("used", "Used", kind="bar"),
                Column("wait", "Room in", kind="time"),
                Column("free", "All free in", kind="time"),
                *of_place(view),
            ],
            empty=nobody,
            actions=[
                Action(
                    "reset",
                    "Reset",
                    "restart_alt",
                    what="limit.reset",
                    question=lambda row: f"Forget what {row['subject']} has used of {row['rule']}?",
                    target=lambda row: f"{row['rule']} {row['subject']}",
                    work=self._reset,
                    done="There is room again.",
                )
            ],
            view=view,
            then=lambda: self._refreshing.now(),
        )

    async def _reset(self, row: dict[str, Any]) -> None:
        name, subject = self._subjects[row["id"]]
        place, limits, rule = self._of[name]
        await reset_limit(place.store, limits, rule.name, subject)

    async def _look_up(self) -> None:
        _, _, rule = self._of[self._rule.value]
        text = (self._subject.value or "").strip()
        # Several fields are given one after the other; a single one may hold a comma.
        parts = [part.strip() for part in text.split(",")] if len(rule.subject_fields) > 1 else [text]
        if len(parts) != len(rule.subject_fields) or not all(parts):
            wanted = ", ".join(rule.subject_fields) or "nobody"
            ui.notify(f"The rule counts {wanted}: give that.", type="warning", position="bottom")
            return
        self._sought = (self._rule.value, parts)
        await self._refreshing.now()

    async def _refresh(self) -> None:
        await self._look_again()
        await self._sources.refresh({pair: partial(self._read, *pair) for pair in self._declared})

    async def _look_again(self) -> None:
        if self._sought is None:
            return
        name, subject = self._sought
        place, limits, rule = self._of[name]
        seen = await limit_status(place.store, limits, rule.name, subject)
        self._found.show([self._row(place, rule, each, "sought") for each in seen])

    async def _read(self, place: Place, limits: RateLimits) -> list[dict[str, Any]]:
        seen = await throttled_subjects(place.store, limits)
        return [self._row(place, limits[each.rule], each, "throttled") for each in seen]

    def _row(self, place: Place, rule: Rule, seen: LimitStatus, where: str) -> dict[str, Any]:
        name = _id(place, rule)
        row = _row(place, rule, seen)
        row["id"] = f"{where}/{name}/{seen.limit}/{seen.subject!r}"  # two may be shown alike
        self._subjects[row["id"]] = (name, seen.subject)
        return row

    def _show(self, rows: list[dict[str, Any]]) -> None:
        rows = sorted(rows, key=lambda row: (-row["wait_sort"], row["id"]))
        self._throttled.show(rows)
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["of"]] = counts.get(row["of"], 0) + 1
        self._rules.show(
            [_rule_row(name, place, rule, counts.get(name, 0)) for name, (place, _, rule) in self._of.items()]
        )
        self._now.show(
            f"{len(rows):,}",
            f"by {len(counts)} of {format_count(len(self._of), 'rule')}",
            "warn" if rows else "good",
        )
        most = max(counts, key=lambda name: counts[name], default=None)
        self._by.show(
            *((NOTHING, "") if most is None else (self._of[most][2].name, f"throttles {counts[most]:,}"))
        )
        self._next.show(*((rows[0]["wait"], rows[0]["subject"]) if rows else (NOTHING, "")))


def _id(place: Place, rule: Rule) -> str:
    """What tells a rule from all others: a service may have two of one name, on keys of their own."""
    return f"{place.name}/{rule.name}/{rule.keyspace.pattern}"


def _named(place: Place, rule: Rule, *, many: bool) -> str:
    counts = f"{rule.name} ({', '.join(rule.subject_fields)})" if rule.subject_fields else rule.name
    return f"{place.name}: {counts}" if many else counts


def _row(place: Place, rule: Rule, seen: LimitStatus) -> dict[str, Any]:
    used = max(0, seen.limit - seen.remaining)
    never = seen.retry_after is None
    asked = f" for {seen.cost:,}" if seen.cost > 1 else ""
    return {
        "of": _id(place, rule),
        "subject": seen.subject_text,
        "rule": rule.name,
        "limit": f"{_tier(seen.tier)}{seen.limit:,} in {lasting(rule.algorithm.per / 1000)}",
        "limit_sort": seen.limit,
        "state": ("never" if never else f"no room{asked}") if seen.is_throttled else "has room",
        "state_tone": "bad" if seen.is_throttled else "good",
        "used": round(100 * used / seen.limit) if seen.limit else 100,
        "used_text": f"{used:,} of {seen.limit:,}",
        "wait": "" if not seen.is_throttled else "never" if never else lasting(seen.retry_after or 0),
        "wait_sort": float(10**12) if never else seen.retry_after,
        "free": lasting(seen.reset),
        "free_sort": seen.reset,
        "place": place.name,
    }


def _rule_row(name: str, place: Place, rule: Rule, count: int) -> dict[str, Any]:
    per = lasting(rule.algorithm.per / 1000)
    limits = ", ".join(f"{_tier(tier)}{limit:,}" for tier, limit in rule.tiers.items())
    return {
        "id": name,
        "rule": rule.name,
        "limit": f"{limits} in {per}",
        "kind": _KINDS[rule.algorithm.kind],
        "counts": rule.keyspace.pattern,
        "down": rule.when_down if isinstance(rule.when_down, str) else "a local share",
        "throttled": count,
        "place": place.name,
    }


def _tier(tier: str) -> str:
    return f"{tier} " if tier else ""


PAGE = Page("/limits", "Limits", "speed", build)
