"""A few of the cases that `make fuzz` draws by the thousand, the same ones in every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import stored_values
from tests.fuzz.areas import AREAS
from tests.fuzz.runner import Budget, fuzz_area, replay_cases
from tests.services.services import SERVICES

CASES = {"keys": 40, "values": 25, "cookies": 20, "tokens": 20, "headers": 25, "resp": 20}
"""Cases of each trial that needs no service; `tests/services` sends hostile tokens and requests, too."""

ATTACKED = [name if name == "slides" else pytest.param(name, marks=pytest.mark.campaign) for name in SERVICES]
"""With `make test` slides, which has a bit of everything, LangGraph's checkpoints included."""


@pytest.mark.parametrize("area", CASES)
def test_every_trial_holds_for_some_cases(area: str, tmp_path: Path) -> None:
    """No hostile case of this seed violates a guarantee."""
    for tally in fuzz_area(AREAS[area], 1, Budget(cases=CASES[area]), tmp_path, services=False):
        assert tally.failure is None, f"{tally.failure.case!r:.500}\n{tally.failure.error[-3000:]}"
        assert tally.cases


@pytest.mark.parametrize("service", ATTACKED)
def test_hostile_bytes_in_every_key_of_a_service(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seconds of what `make fuzz` does for longer: see `tests/fuzz/stored_values.py`."""
    monkeypatch.setattr(stored_values, "SECONDS", 2.0)
    replay_cases(AREAS["stored_values"], [(service, 1)], tmp_path)


def test_every_area_is_covered() -> None:
    """The documents of the services have tests of their own, `tests/services/test_*_conformance.py`."""
    assert {*CASES, "openapi", "stored_values"} == set(AREAS)
