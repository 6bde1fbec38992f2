"""A few of the cases that `make fuzz` draws by the thousand, the same ones in every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.areas import AREAS
from tests.fuzz.running import Budget, try_area

CASES = {"keys": 40, "values": 25, "cookies": 20, "tokens": 20, "headers": 25, "resp": 20}
"""Of each trial that needs no service: `tests/services` asks these with hostile tokens and requests, too."""


@pytest.mark.parametrize("area", CASES)
def test_what_must_hold_for_all_cases_holds_for_these(area: str, tmp_path: Path) -> None:
    """No hostile case of this seed breaks a promise."""
    for tally in try_area(AREAS[area], 1, Budget(cases=CASES[area]), tmp_path, services=False):
        assert tally.failure is None, f"{tally.failure.case!r:.500}\n{tally.failure.error[-3000:]}"
        assert tally.cases


def test_every_area_is_tried() -> None:
    """The documents of the services have tests of their own, `tests/services/test_*_conformance.py`."""
    assert {*CASES, "openapi"} == set(AREAS)
