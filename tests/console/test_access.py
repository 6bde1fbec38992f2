"""The account, its sign-ins, and permission checks in the console's process."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from ephemera.console import _access as access
from ephemera.console import _waiting_attempts as waiting_attempts
from ephemera.console._access import Account, AccountRole, ConsoleAccess
from ephemera.console._actions import READ_ONLY, SIGNED_OUT, Actor, act
from ephemera.console._sign_in import SignInRoutes
from ephemera.console._waiting_attempts import WaitingAttempts
from ephemera.errors import Unavailable
from ephemera.web import ClientAddress, Cookie

WORD = "the right password"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that sign-ins see, advanced by hand."""
    now = [1000.0]
    monkeypatch.setattr(access, "monotonic", lambda: now[0])
    return now


def signed_in(known: ConsoleAccess) -> Any:
    """A valid sign-in."""
    return known.find(known.sign_in("operator", WORD, "::1"))


def test_only_the_right_user_and_password_get_a_token() -> None:
    """A wrong user or password gets no token."""
    known = ConsoleAccess("operator", WORD)
    assert known.sign_in("operator", WORD + " ", "::1") is None
    assert known.sign_in("root", WORD, "::1") is None
    assert known.sign_in("", "", "::1") is None
    assert known.sign_in("operator", "\udcff", "::1") is None
    token = known.sign_in("operator", WORD, "::1")
    assert known.find(token) is not None
    assert known.find("another") is None
    assert known.find(None) is None


def test_wrong_passwords_are_limited_by_address(clock: list[float]) -> None:
    """After ten wrong passwords an address must wait until the window is over."""
    known = ConsoleAccess("operator", WORD)
    for _ in range(10):
        assert known.wait("10.0.0.1") == 0
        known.sign_in("operator", "wrong", "10.0.0.1")
    assert 0 < known.wait("10.0.0.1") <= 300
    assert known.wait("10.0.0.2") == 0
    clock[0] += 301
    known.remove_expired()
    assert known.wait("10.0.0.1") == 0


def test_no_account_gives_more_guesses_at_another(tmp_path: Path) -> None:
    """Signing in with one forgives no wrong password for another, at its address or in its browser."""
    ada, file = Account("ada", "the password of ada", "view"), tmp_path / "history.key"
    known = ConsoleAccess("operator", WORD, [ada], file)
    for _ in range(10):
        assert known.wait("10.0.0.1") == 0
        known.sign_in("operator", "guess", "10.0.0.1")
        known.sign_in("ada", "wrong", "10.0.0.2")
        for address in ("10.0.0.1", "10.0.0.2"):
            assert known.sign_in("ada", "the password of ada", address) is not None
    assert known.wait("10.0.0.1") > 0
    assert known.wait("10.0.0.2") == 0
    browser = known.browsers.issue("ada")
    assert known.browsers.subject(browser, "ada") is not None
    assert known.browsers.subject(browser, "operator") is None
    changed = ConsoleAccess("operator", "another password", [ada], file)
    assert changed.browsers.subject(browser, "ada") is not None  # it tells ada nothing of the operator's


def test_a_sign_in_expires_and_runs_its_callbacks(clock: list[float]) -> None:
    """An hour without use or twelve hours in total end it, and the pages it opened are notified."""
    known = ConsoleAccess("operator", WORD)
    idle = signed_in(known)
    left: list[str] = []
    idle.when_ended(lambda: left.append("idle"))
    clock[0] += 3500
    used = signed_in(known)
    clock[0] += 200
    known.remove_expired()
    assert not idle.valid
    assert left == ["idle"]
    for _ in range(13):
        known.used(used)
        clock[0] += 3500
    known.remove_expired()
    assert not used.valid


def test_an_ended_sign_in_stays_ended() -> None:
    """Using it again does not revive it."""
    known = ConsoleAccess("operator", WORD)
    token = known.sign_in("operator", WORD, "::1")
    found = known.find(token)
    assert found is not None
    known.sign_out(token)
    known.used(found)
    assert not found.valid
    assert known.find(token) is None


def sign_in_routes(known: ConsoleAccess) -> Starlette:
    """The form of these accounts, without a console."""
    cookie = Cookie("console", same_site="strict", secure=False)
    return Starlette(routes=SignInRoutes(known, cookie, ClientAddress()).routes)


def form(password: str) -> dict[str, str]:
    """The form of the operator with a password."""
    return {"user": "operator", "password": password}


async def test_an_attacker_cannot_lock_out_an_operator_at_the_same_address() -> None:
    """While others at the address guess without end, the right password still signs in, in a new browser.

    Guesses are checked only in turns, and a large form is not read at all.
    """
    known = ConsoleAccess("operator", WORD)
    known.waiting = WaitingAttempts(interval=0.02)
    transport = httpx.ASGITransport(sign_in_routes(known))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
        for _ in range(10):
            assert (await client.post("/sign-in", data=form("x"))).status_code == 401
        assert 0 < known.wait("127.0.0.1") <= 300
        checked: list[int] = []
        began = asyncio.get_running_loop().time()

        async def guess(guesser: int) -> None:
            for number in range(100_000):
                answer = await client.post("/sign-in", data=form(f"guess {guesser} {number}"))
                checked.append(answer.status_code)

        attackers = [asyncio.create_task(guess(number)) for number in range(20)]
        try:
            async with asyncio.timeout(60):
                while (answer := await client.post("/sign-in", data=form(WORD))).status_code != 303:
                    assert answer.headers["retry-after"] == "2"
                turns = (asyncio.get_running_loop().time() - began) / 0.02
        finally:
            for attacker in attackers:
                attacker.cancel()
            await asyncio.gather(*attackers, return_exceptions=True)
        assert checked.count(401) <= turns + 10  # the right password gives the address its first ten again
        large = await client.post("/sign-in", content=b"x" * 10_000)
        assert large.status_code in (401, 429)


async def test_what_waits_is_bounded_and_one_address_does_not_displace_another() -> None:
    """A flood is refused, the attempt of another address gets its turn, and equal attempts wait once."""
    waiting = WaitingAttempts(interval=0.2)
    flood = [asyncio.create_task(waiting.wait("10.0.0.1", "operator", f"{n}")) for n in range(300)]
    same = [asyncio.create_task(waiting.wait("10.0.0.2", "operator", "same")) for _ in range(3)]
    assert await asyncio.gather(*same) == [True] * 3
    refused = [each for each in flood if each.done() and not each.result()]
    assert len(refused) >= 250
    for each in flood:
        each.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_equal_attempts_hold_few_connections() -> None:
    """Of many requests with one password the last three wait, and the others are refused at once."""
    known = ConsoleAccess("operator", WORD)
    known.waiting = WaitingAttempts(interval=30)  # no turn within the test
    transport = httpx.ASGITransport(sign_in_routes(known))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
        for _ in range(10):
            await client.post("/sign-in", data=form("x"))
        sent = [asyncio.create_task(client.post("/sign-in", data=form("x"))) for _ in range(500)]
        async with asyncio.timeout(15):  # requests that wait are refused after 20 s
            while sum(each.done() for each in sent) < 497:
                await asyncio.sleep(0.01)
        assert {each.result().status_code for each in sent if each.done()} == {429}
        assert sum(not each.done() for each in sent) == 3
        for each in sent:
            each.cancel()
        await asyncio.gather(*sent, return_exceptions=True)


class Work:
    """An action that records whether it ran."""

    def __init__(self) -> None:
        self.done = False

    async def run(self) -> str:
        """Run it."""
        await asyncio.sleep(0)
        self.done = True
        return "result"


async def test_nothing_is_changed_without_permission(caplog: pytest.LogCaptureFixture) -> None:
    """Without permission an action is refused without running, and that is logged."""
    caplog.set_level(logging.INFO, "ephemera.console.actions")
    work = Work()
    actor = Actor(signed_in(ConsoleAccess("operator", WORD)), "10.0.0.9", may_act=False)
    outcome = await act(actor, "session.end", "user 7", work.run())
    assert not outcome
    assert outcome.message == READ_ONLY
    assert not work.done
    line: Any = caplog.records[-1]
    assert (line.who, line.action, line.target, line.outcome) == (
        "operator",
        "session.end",
        "user 7",
        "refused",
    )
    reading = await act(actor, "audit.run", "server", work.run(), changes=False)
    assert reading.result == "result"


@pytest.mark.parametrize(
    ("role", "allowed"), [("view", ""), ("operate", "session.end"), ("administer", "session.end key.delete")]
)
async def test_a_role_limits_what_an_account_may_do(
    role: AccountRole, allowed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each role includes those before it; a refusal names both roles, and the log has the account's."""
    caplog.set_level(logging.INFO, "ephemera.console.actions")
    known = ConsoleAccess("operator", WORD, [Account("ada", "password of ada", role)])
    assert known.sign_in("ada", WORD, "::1") is None
    found = known.find(known.sign_in("ada", "password of ada", "::1"))
    assert found is not None
    actor = Actor(found, "::1", may_act=True)
    needed: list[tuple[str, AccountRole]] = [("session.end", "operate"), ("key.delete", "administer")]
    for what, needs in needed:
        work = Work()
        outcome = await act(actor, what, "x", work.run(), needs=needs)
        assert (outcome.done, work.done) == ((what in allowed), (what in allowed))
        line: Any = caplog.records[-1]
        assert (line.who, line.role) == ("ada", role)
        if not outcome:
            assert outcome.message == f"This needs the role {needs}; yours is {role}."
    reading = await act(actor, "audit.run", "server", Work().run(), changes=False)
    assert reading.done


async def test_nothing_is_done_after_sign_out() -> None:
    """A page that is still open runs no action any more, not even one that only reads."""
    known = ConsoleAccess("operator", WORD)
    token = known.sign_in("operator", WORD, "::1")
    gone = known.find(token)
    assert gone is not None
    known.sign_out(token)
    for changes in (True, False):
        work = Work()
        outcome = await act(Actor(gone, "::1", may_act=True), "x.y", "z", work.run(), changes=changes)
        assert (outcome.done, outcome.message, work.done) == (False, SIGNED_OUT, False)


async def test_actions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A line has who, from where, what, on what and the outcome; texts of foreign errors are not logged."""
    caplog.set_level(logging.INFO, "ephemera.console.actions")
    actor = Actor(signed_in(ConsoleAccess("operator", WORD)), "10.0.0.9", may_act=True)
    assert await act(actor, "job.retry", "job 1", Work().run())
    line: Any = caplog.records[-1]
    assert (line.who, vars(line)["from"], line.action) == ("operator", "10.0.0.9", "job.retry")
    assert (line.target, line.outcome) == ("job 1", "done")

    async def fails(error: Exception) -> None:
        await asyncio.sleep(0)
        raise error

    outcome = await act(actor, "job.retry", "job 1", fails(Unavailable("cache.internal:6379", "it is down")))
    assert "cache.internal:6379" in outcome.message
    strange = await act(actor, "job.retry", "job 1", fails(ValueError("INSERT secret")))
    assert "secret" not in strange.message
    assert [vars(each).get("outcome") for each in caplog.records if hasattr(each, "outcome")] == [
        "done", "failed", "failed",
    ]  # fmt: skip


async def test_an_attempt_sent_again_still_gets_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request's patience ends without taking the place of the second one, which has the same."""
    waiting = WaitingAttempts(interval=1)
    monkeypatch.setattr(waiting_attempts, "_PATIENCE", 0.01)
    first = asyncio.create_task(waiting.wait("10.0.0.1", "operator", WORD))
    await asyncio.sleep(0)
    monkeypatch.setattr(waiting_attempts, "_PATIENCE", 30)
    second = asyncio.create_task(waiting.wait("10.0.0.1", "operator", WORD))
    assert not await first
    assert await second
