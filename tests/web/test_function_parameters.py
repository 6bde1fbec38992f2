"""The parameters of cached functions and pages are fields of keys: what no key can hold is refused."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest
from fastapi import Query

from ephemera import Catalogue
from ephemera.adapters import flask
from ephemera.errors import InvalidDeclaration
from ephemera.web.fastapi import Ephemera

NOWHERE = "redis://127.0.0.1:1"
HOUR = timedelta(hours=1)
UserId = NewType("UserId", str)


class Size(Enum):
    """A type of parameters."""

    SMALL = 1


@pytest.mark.parametrize(
    "annotation",
    [float, Decimal, str | None, list[int], dict[str, str], timedelta, Size | None,
     Annotated[float, Query()], Literal["a", None], None],
)  # fmt: skip
def test_parameters_that_no_key_can_hold_are_refused(annotation: Any) -> None:
    """A cache and a page whose valid requests would all be 400 are found at import, with what to do."""
    eph = Ephemera(NOWHERE, Catalogue("mistakes"))

    async def near(lat: str) -> str:
        return lat

    near.__annotations__["lat"] = annotation
    for decorate in (eph.cached("near:{lat}", fresh=HOUR), eph.page("page:{lat}", fresh=HOUR)):
        with pytest.raises(InvalidDeclaration, match=r"the parameter .lat: .*make lat str, bytes, int"):
            decorate(near)


def test_a_default_that_no_key_can_hold_is_refused() -> None:
    """None has no text, whatever the annotation says; the same holds in Flask."""

    def near(lat: str = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        return lat

    def around(lat: float) -> str:
        return str(lat)

    for function in (near, around):
        eph = flask.Ephemera(NOWHERE, Catalogue("mistakes"))
        with pytest.raises(InvalidDeclaration, match=r"the parameter .lat: .*make lat str, bytes, int"):
            eph.cached("near:{lat}", fresh=HOUR)(function)
        with pytest.raises(InvalidDeclaration, match=r"the parameter .lat: "):
            eph.page("page:{lat}", fresh=HOUR)(function)


@pytest.mark.parametrize(
    "annotation",
    [str, bytes, int, bool, UUID, date, datetime, Size, UserId, str | int, Literal["a", 1], Any,
     Annotated[str, Query(max_length=9)]],
)  # fmt: skip
def test_parameters_that_a_key_can_hold_are_accepted(annotation: Any) -> None:
    """The types of a key's fields, plain or annotated."""
    eph = Ephemera(NOWHERE, Catalogue("right"))

    async def near(lat: str) -> str:
        return lat

    near.__annotations__["lat"] = annotation
    eph.cached("near:{lat}", fresh=HOUR)(near)
