"""The fault campaign in short: two minutes of every kind of fault against all services; all guarantees hold.

Its seed is another each time; it is printed, with the command that brings the same faults again.
`make faults` runs it for longer. When it is over, and its servers are still there, things are put wrong by
hand, one in each system, and the checkers must find all of them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.chaos.campaign import SYSTEMS
from tests.chaos.campaign.campaign import Campaign, Outcome
from tests.chaos.campaign.ledger import Ledger
from tests.chaos.campaign.load.feed import FeedLoad
from tests.chaos.campaign.load.identity import PASSWORD, IdentityLoad, Revoked
from tests.chaos.campaign.load.league import LeagueLoad
from tests.chaos.campaign.load.scripture import ScriptureLoad
from tests.chaos.campaign.load.service_load import Load
from tests.chaos.campaign.load.slides import SlidesLoad
from tests.chaos.campaign.report import summary
from tests.chaos.campaign.schedule import KINDS

pytestmark = pytest.mark.timeout(900)  # seconds; the machine may be busy

SEED = int.from_bytes(os.urandom(3))
_SECONDS = 120.0  # of faults; starting, and waiting for what was promised, come on top
_AGAIN = (
    f"seed {SEED}; to have the same faults again: python -m tests.chaos.campaign --minutes 2 --seed {SEED}"
)


class _Ran:
    """A finished campaign, and what its checkers reported about injected errors."""

    outcome: Outcome
    found: dict[str, list[str]]


@pytest.fixture(scope="module")
def ran() -> _Ran:
    """Run a short campaign; its seed and faults are in the output of a failure."""
    print(_AGAIN)
    run, run.found = _Ran(), {}

    async def put_wrong(loads: list[Load]) -> None:
        for load in loads:
            load.ledger, load.patience = Ledger(load.timeline), 0.5
            await _PLANTED[load.system](load)
            await load.settle()
            await load.check()
            run.found[load.system] = load.ledger.violations

    try:
        run.outcome = asyncio.run(Campaign(SEED, _SECONDS, log=print, afterwards=put_wrong).run())
    except Exception as problem:
        problem.add_note(_AGAIN)
        raise
    return run


def test_all_guarantees_hold_while_everything_fails(ran: _Ran) -> None:
    """Nothing acknowledged is lost, nothing revoked is accepted, nothing is done twice or read stale."""
    text, ledger = summary(ran.outcome), ran.outcome.ledger
    print(f"{_AGAIN}\n{text}")
    assert ledger.violations == [], f"{_AGAIN}\n{text}"
    assert {fault.kind for fault in ran.outcome.faults} == set(KINDS)
    for system in SYSTEMS:
        assert any(what.startswith(f"{system}.") for what in ledger.acknowledged), text
        assert any(what.startswith(f"{system}:") for what in ledger.checked), text


@pytest.mark.parametrize(
    ("system", "guarantees"),
    [
        (
            "identity",
            [
                "a revoked access token is refused",
                "a revoked refresh token is refused",
                "a replaced password is refused",
            ],
        ),
        (
            "slides",
            [
                "each slide is there once",
                "a view that was answered is counted",
                "an edit that was acknowledged is there",
                "a withdrawn link opens nothing",
                "a presentation that was written is announced once",
                "no presentation is charged twice",
                "no more presentations than the plan has for a month",
            ],
        ),
        (
            "scripture",
            ["no reader sees what an acknowledged ingest has replaced", "an event that was acknowledged"],
        ),
        (
            "feed",
            [
                "an insight that was acknowledged is in SQL",
                "a channel's numbers have no gap",
                "an item that was marked as read stays so",
            ],
        ),
        (
            "league",
            [
                "a vote that was acknowledged is in SQL",
                "a result that was acknowledged is in SQL",
                "a prediction that was acknowledged is in SQL",
                "an action of live control takes effect once",
            ],
        ),
    ],
)
def test_a_checker_reports_an_injected_error(ran: _Ran, system: str, guarantees: list[str]) -> None:
    """A valid revoked token, a lost vote and a doubled slide are among the reported errors."""
    for guarantee in guarantees:
        assert any(guarantee in violation for violation in ran.found[system]), ran.found[system]


async def _living_tokens(load: IdentityLoad) -> None:
    """Record a valid sign-in as ended, and a valid password as replaced."""
    form = {"email": load.people[0].email, "password": PASSWORD}
    answer = await load.request_until_ok("login", "POST", "/auth/login", json=form)
    tokens = answer.json()
    said = (load.people[0].id, load.services[0], 0.0, time.monotonic(), "logout")
    load.revoked.append(Revoked((tokens["access_token"],), tokens["refresh_token"], *said))
    load.passwords.replaced.append((load.people[0].email, PASSWORD))


async def _lost_vote(load: LeagueLoad) -> None:
    """Record a vote, a prediction, a card and a result that SQL does not have."""
    load.predicted[1, 1] = (99, 99)
    load.booked["a player without a card"] = True
    load.votes.attempted[1, 1] = "home"
    load.votes.acknowledged[1, 1] = time.monotonic()
    result = next(iter(load.results.values()))
    result.written += 2
    result.acknowledged = result.written


async def _old_passage(load: ScriptureLoad) -> None:
    """Record a text and a user that do not exist."""
    load.written[1] += 1
    load.acknowledged[1] = load.written[1]
    load.users.append("00000000-0000-0000-0000-000000000000")


async def _lost_insight(load: FeedLoad) -> None:
    """Delete an insight from SQL, and record a read mark that it does not have."""
    load.read.add(("a stranger", 1))
    channel = next(each for each in load.channels if each.acknowledged)
    seq = min(channel.acknowledged)
    await _sql(load, f"DELETE FROM feed.insights WHERE channel_id = '{channel.name}' AND seq = {seq}")


async def _doubled_slide(load: SlidesLoad) -> None:
    """Double a slide, lose a view, an edit, a withdrawal and a delivery, charge twice, overdraw a month."""
    await _sql(load, "UPDATE slides.presentation_slides SET title = title || '!'")
    load.edits.withdrawn.append(load.link)
    await _sql(load, "DELETE FROM slides.webhook_deliveries")
    excused = load.uncertain_views + sum(map(load.lost_in_a_crash, load.views))
    load.views += [time.monotonic()] * (excused + 1)
    await _sql(
        load,
        "INSERT INTO slides.presentation_slides "
        "(id, presentation_id, number, title, bullets, notes, sources) "
        "SELECT gen_random_uuid(), presentation_id, number, title, bullets, notes, sources "
        f"FROM slides.presentation_slides WHERE presentation_id = '{load.decks[0].presentation_id}' LIMIT 1",
    )
    await _sql(load, "UPDATE slides.usage_records SET presentations = 2 * presentations")
    studio = "(SELECT to_jsonb(id) FROM slides.users WHERE email = 'ivan@studio.example')"
    await _sql(
        load, f"UPDATE slides.jobs SET arguments = jsonb_set(arguments::jsonb, '{{user_id}}', {studio})"
    )
    load.overdraft.accepted |= {deck.job_id: (-1.0, -1.0) for deck in load.decks}


async def _sql(load: Load, statement: str) -> None:
    with load.world.servers.sql(load.system) as sql:
        sql.execute(cast("Any", statement))


_PLANTED: dict[str, Callable[[Any], Any]] = {
    "identity": _living_tokens,
    "league": _lost_vote,
    "scripture": _old_passage,
    "feed": _lost_insight,
    "slides": _doubled_slide,
}
