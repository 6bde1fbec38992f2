"""Regressions: cases that fuzzing found, shrunk; each of them failed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.areas import AREAS
from tests.fuzz.runner import replay_cases

FOUND: dict[str, list[tuple[str, Any]]] = {
    "values": [
        # Names in a hash that are no text.
        ("on a server", ("lists", ("HSET", [b"\xff", b"name"]), False)),
        # The marker of a tag that is not a number.
        ("keys of patterns", ("caches", 3, ("SET", [b""]), 0)),
        # The instant of a revocation that is infinite.
        ("keys of patterns", ("smaller patterns", 3, ("SET", [b"1e400"]), 0)),
    ],
    "cookies": [
        # A blank before the first cookie, and a path that ends a header in some servers.
        ("headers", [b" __Host-session=@TOKEN"]),
        ("attributes", ("0", "lax", None, "\x00", False)),
    ],
    "resp": [
        # Pushes of another form, in the middle of everything.
        ("pushes", [b">1\r\n$10\r\ninvalidate\r\n"]),
        ("first words", [b">1\r\n$10\r\ninvalidate\r\n"]),
        # A map of slots that is a number, and one with slots that there are not.
        ("maps of slots", ([b"*1\r\n:1\r\n"], [b"-MOVED 1 @HERE\r\n"])),
        ("maps of slots", ([b"*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n"], [b"-MOVED 1 @HERE\r\n"])),
        # A surplus reply went to a command that had not left yet.
        (
            "own reply or error",
            ([("GET", False)] * 4 + [("script", False)] + [("GET", False)] * 2 + [("script", False)],
             [("send", b"$0\r\n\r\n")] * 3, [1]),
        ),
    ],
}  # fmt: skip


@pytest.mark.parametrize("area", FOUND)
def test_a_found_case_holds(area: str, tmp_path: Path) -> None:
    """A case that once failed passes."""
    replay_cases(AREAS[area], FOUND[area], tmp_path)
