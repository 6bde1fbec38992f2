"""Flame graphs: what py-spy sampled becomes boxes as wide as their share, and tables that add up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import profiles
from benchmarks.flame_graph import ROOT, Frame, draw, layer_time, own_time, parse
from tests.docs.pages import DOCS

RAW = """\
<module> (/x/run.py:1);Runner.run (/lib/python3.11/asyncio/runners.py:86);work (/main/benchmarks/a.py:3);Link.call (/src/ephemera/wire/_link.py:9) 60
<module> (/x/run.py:1);Runner.run (/lib/python3.11/asyncio/runners.py:86);work (/main/benchmarks/a.py:3) 30
<module> (/x/run.py:1);Runner.run (/lib/python3.11/asyncio/runners.py:86) 10
<module> (/x/run.py:1);_find_and_load (<frozen importlib._bootstrap>:1) 500
<module> (/x/run.py:1);Runner.run (/lib/python3.11/asyncio/runners.py:86);_find_and_load (<frozen importlib._bootstrap>:1) 70
"""  # noqa: E501
CALL = Frame("Link.call", "/src/ephemera/wire/_link.py")
WORK = Frame("work", "/main/benchmarks/a.py")


def test_what_the_event_loop_runs_is_kept() -> None:
    """Frames above the event loop are left out, and so are imports."""
    assert parse(RAW) == Counter({(ROOT, WORK, CALL): 60, (ROOT, WORK): 30, (ROOT,): 10})


def test_shares_are_of_the_functions_themselves() -> None:
    """Each function and each layer has its own time, and all of them together are everything."""
    assert own_time(parse(RAW)) == {CALL: 0.6, WORK: 0.3, ROOT: 0.1}
    assert layer_time(parse(RAW)) == pytest.approx(
        {"wire": 0.6, "the program": 0.3, "event loop, Python": 0.1}
    )


def test_boxes_are_as_wide_as_their_share() -> None:
    """The SVG is well-formed; each box has a title with its file, and lies below the one that called it."""
    root = ET.fromstring(draw(parse(RAW), "A <test>"))
    name = "{http://www.w3.org/2000/svg}"
    boxes = {}
    for group in root.iter(f"{name}g"):
        title, box = group.find(f"{name}title"), group.find(f"{name}rect")
        assert title is not None
        assert box is not None
        boxes[title.text] = (float(box.attrib["width"]), float(box.attrib["y"]))
    loop, work, call = (boxes[text] for text in sorted(boxes, key=lambda text: boxes[text][1]))
    assert set(boxes) == {
        "event loop: 100.0%",
        "work, benchmarks/a.py: 90.0%",
        "Link.call, ephemera/wire/_link.py: 60.0%",
    }
    assert (work[0] / loop[0], call[0] / loop[0]) == pytest.approx((0.9, 0.6), abs=0.01)
    assert loop[1] < work[1] < call[1]


def test_the_page_has_its_pictures_and_tables(tmp_path: Path) -> None:
    """The command fills every place of the page, and writes both pictures."""
    (tmp_path / "images").mkdir()
    facts = {"CPU": "abacus, 2 cores, load 1", "Python": "3.11.7 on Linux"}
    profiles.write({"request": parse(RAW), "wire": parse(RAW)}, facts, tmp_path)
    page = (tmp_path / "internals" / "profile.md").read_text(encoding="utf-8")
    assert "{{" not in page
    assert "on abacus, 2 cores, Python 3.11.7." in page
    assert page.count("| `Link.call` | `ephemera/wire/_link.py` | 60.0% |") == 2
    assert {path.name for path in (tmp_path / "images").iterdir()} == {
        "profile-request.svg",
        "profile-wire.svg",
    }


@pytest.mark.parametrize("name", profiles.IMAGES)
def test_the_pictures_of_the_page_are_there(name: str) -> None:
    """Both pictures are in the repository, small, and shown by the page."""
    picture = DOCS / "images" / f"profile-{name}.svg"
    assert ET.parse(picture).getroot().tag.endswith("svg")
    assert picture.stat().st_size < 100_000
    assert f"../images/{picture.name}" in profiles.PAGE.read_text(encoding="utf-8")
