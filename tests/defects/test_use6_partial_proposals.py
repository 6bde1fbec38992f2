"""USE6: `infer` stopped after 30 s with 42 % of the keys unseen, and said it had seen all."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import MAX_KEY_LENGTH
from ephemera.operations.infer import infer
from ephemera.operations.survey import BUDGET, KeyShapes, SurveyOptions
from tests.cli.commands import ephemera

KEYS = 30_000


@pytest.fixture(scope="module")
def large() -> Iterator[Valkey]:
    """A server with more keys than one page, of which one is a queue beside thousands that start alike."""
    with embedded.valkey() as server:
        for start in range(0, KEYS, 1000):
            flat = [str(part) for n in range(start, start + 1000) for part in (f"c{n:x}a{n}", 1)]
            server.ask("MSET", *flat)
        server.ask("LPUSH", "celery", "{}")
        yield server


async def test_use6_there_is_no_time_limit_unless_one_is_given(
    large: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the clock jumps past the usual budget at each look, all names are read."""
    clock = iter(range(0, 1 << 60, int(10 * BUDGET)))
    jumping = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("ephemera.operations.survey._scan.time", jumping)
    proposal = await infer(large.url)
    assert proposal.coverage.complete
    assert f"Made from all {KEYS + 1:,} keys" in proposal.source


async def test_use6_a_part_is_called_a_part(large: Valkey) -> None:
    """With a budget that ends early, the source says how many of how many keys it was made from."""
    proposal = await infer(large.url, options=SurveyOptions(budget=1e-9))
    assert not proposal.coverage.complete
    assert proposal.coverage.names < KEYS
    assert f"Made from {proposal.coverage.names:,} of the {KEYS + 1:,} keys" in proposal.source
    assert "INCOMPLETE" in proposal.source.partition("Made from")[0]


def test_use6_the_command_fails_on_a_part(large: Valkey) -> None:
    """The exit code of a partial proposal is 1, and stderr says what to do."""
    outcome = ephemera("infer", "--url", large.url, "--budget", "0.001ms")
    assert outcome.code == 1
    assert "incomplete, made from" in outcome.err
    assert "give a longer --budget, or none" in outcome.err
    assert ephemera("infer", "--url", large.url).code == 0


async def test_use6_a_connection_lost_while_sampling_is_reported() -> None:
    """Names alone tell neither types nor roles: without the sample a proposal is incomplete, and says why."""
    with embedded.valkey() as server:
        for number in range(2000):
            server.ask("LPUSH", f"mails:{number}", "{}")

        def kill(phase: str, *_: int) -> None:
            if phase == "samples":
                server.kill()

        proposal = await infer(server.url, options=SurveyOptions(budget=60.0), on_progress=kill)
    assert proposal.coverage.names == 2000
    assert not proposal.coverage.complete
    assert len(proposal.coverage.lost) == 1
    assert "of the sampled keys" in str(proposal.coverage.not_seen)
    assert "INCOMPLETE: types, roles" in proposal.source


async def test_use6_a_rare_queue_is_not_lost_among_names_that_start_alike(large: Valkey) -> None:
    """However many names begin with its letter, a library's queue stays a shape of its own."""
    roles = {each.pattern: each.role for each in (await infer(large.url)).keyspaces}
    assert roles["celery"] == "queue"


def test_use6_counts_are_the_same_page_by_page() -> None:
    """Names that are only counted, once their shape is known, add up to what following each would give."""
    names = [
        name.encode()
        for n in range(20_000)
        for name in (f"user:{n}:name", f"cart:{n:x}-{n}:{n % 7}", f"day:2026-01-{n % 28 + 1:02d}:{n * n}")
    ]
    names += [b"late:" + b"x" * 1600, b"odd*", b"user:7:address"]
    one_by_one, by_page = KeyShapes(), KeyShapes()
    for name in names:
        one_by_one.add(name)
    for start in range(0, len(names), 1000):
        by_page.add_all(names[start : start + 1000])
    assert {(s.pattern, s.count, s.longest > MAX_KEY_LENGTH) for s in by_page.shapes()} == {
        (s.pattern, s.count, s.longest > MAX_KEY_LENGTH) for s in one_by_one.shapes()
    }
    assert max(s.longest for s in by_page.shapes()) == len(b"late:") + 1600
    assert by_page.undeclarable() == one_by_one.undeclarable()
