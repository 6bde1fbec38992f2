"""SEC2: a 63 KB DOCX of empty paragraphs took 101 s and 1.3 GB in the process that answers requests."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ephemera_services.runtime import (
    LimitExceeded,
    ProcessDied,
    ProcessLimits,
    limited_process,
    run_limited,
)
from ephemera_services.slides import Settings, jobs
from ephemera_services.slides.document_text import Chunk, media_type
from tests.defects.hostile_documents import HOSTILE, archive, docx, pptx

_EXTRACT = "ephemera_services.slides.document_text:extract"
_MEGABYTE = 1_000_000
# The clock is not asked, because machines that run tests are busy: processor time is.
_LIMITS = ProcessLimits(memory=256 * _MEGABYTE, cpu=2, wall=60)


_MEASURE = f"""
import asyncio, json, resource, sys
from pathlib import Path
from ephemera_services.runtime import FunctionRefused, LimitExceeded, ProcessLimits, run_limited
from ephemera_services.slides.document_text import Chunk

LIMITS = ProcessLimits(memory={_LIMITS.memory}, cpu={_LIMITS.cpu}, wall={_LIMITS.wall})

def used():
    return resource.getrusage(resource.RUSAGE_CHILDREN)

for path in sys.argv[1:]:
    before, reason = used(), None
    try:
        asyncio.run(run_limited({_EXTRACT!r}, Path(path).read_bytes(), LIMITS, list[Chunk]))
    except (FunctionRefused, LimitExceeded) as refused:
        reason = str(refused)
    after = used()
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([reason, seconds, after.ru_maxrss * 1024]))
"""


def test_sec2_a_hostile_document_is_refused_within_its_limits(tmp_path: Path) -> None:
    """Each ends with a reason, having used less than 5 s of processor time and 256 MB.

    They are read by another process that has no other children: the kernel reports what they used at most. A
    child has the memory of its parent until it runs its program, so this one does not build the documents.
    """
    for name, document in HOSTILE.items():
        assert (tmp_path / name).write_bytes(document()) < 5 * _MEGABYTE, name
    command = [sys.executable, "-c", _MEASURE, *(str(tmp_path / name) for name in HOSTILE)]
    measured = subprocess.run(command, check=True, capture_output=True, timeout=280)
    found = [json.loads(line) for line in measured.stdout.splitlines()]
    for name, (reason, seconds, memory) in zip(HOSTILE, found, strict=True):
        assert reason, name
        assert 0 < seconds < 5, name
        assert 0 < memory < 256 * _MEGABYTE, name


async def test_sec2_documents_that_people_write_are_read_within_the_limits() -> None:
    """Paragraphs, tables and slides are read in order, alternatives once."""
    alternatives = (
        "<mc:AlternateContent xmlns:mc='http://schemas.openxmlformats.org/markup-compatibility/2006'>"
        "<mc:Choice>{0}</mc:Choice><mc:Fallback>{0}</mc:Fallback></mc:AlternateContent>"
    ).format("<w:r><w:t>box</w:t></w:r>")
    paragraph = "<w:p><w:r><w:t>{}</w:t><w:tab/><w:t>end.</w:t></w:r></w:p>"
    table = f"<w:tbl><w:tr><w:tc>{paragraph.format('In a cell')}</w:tc></w:tr></w:tbl>"
    written = docx(f"{paragraph.format('First &amp; last')}{table}<w:p>{alternatives}</w:p>")
    found = await run_limited(_EXTRACT, written, _LIMITS, list[Chunk])
    assert [chunk["text"] for chunk in found] == ["First & last end.", "In a cell end.", "box"]
    slides = [f"<a:p><a:r><a:t>Slide {n}.</a:t></a:r></a:p>" for n in range(1, 12)]
    read = await run_limited(_EXTRACT, pptx(*slides), _LIMITS, list[Chunk])
    assert read[0]["text"].endswith("Slide 10.\n\nSlide 11.")


_FUNCTIONS = """
import time
def sleep(file): time.sleep(60)
def compute(file):
    while True: pass
def allocate(file): return [bytearray(1_000_000) for _ in range(1_000)]
def print_endlessly(file): return ["x" * 1_000_000] * 3
"""


@pytest.mark.parametrize(
    ("function", "limit"),
    [("sleep", "wall"), ("compute", "cpu"), ("allocate", "memory"), ("print_endlessly", "output")],
)
async def test_sec2_each_limit_ends_the_process(
    function: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sleeps, computes, allocates or writes without end is stopped by the limit that is meant for it."""
    (tmp_path / "hostile_functions.py").write_text(_FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    limits = ProcessLimits(
        memory=256 * _MEGABYTE, cpu=1, wall=60 if limit != "wall" else 1, output=2 * _MEGABYTE
    )
    with pytest.raises(LimitExceeded) as exceeded:
        await run_limited(f"hostile_functions:{function}", b"", limits, list[str])
    assert exceeded.value.limit == limit


async def test_sec2_waiting_for_a_processor_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that shares a processor with others takes longer by the clock, and is not refused for it."""
    (tmp_path / "slow_functions.py").write_text(
        "import time\ndef compute(file):\n    while time.process_time() < 1: pass\n    return ['done']\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(limited_process, "_BUSY", 100)  # whatever else the machine does
    limits = ProcessLimits(memory=256 * _MEGABYTE, cpu=30, wall=1.75)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})  # children inherit it: three of them share one processor
    try:
        calls = (run_limited("slow_functions:compute", b"", limits, list[str]) for _ in range(3))
        assert await asyncio.gather(*calls) == [["done"]] * 3
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("content", [b'{"a": 1}', b"[1]", rb'["\ud800"]'])
async def test_sec2_the_process_is_not_believed(content: bytes) -> None:
    """A result of another type, as of a process that hostile data has taken over, is an error of ours."""
    with pytest.raises(ProcessDied):
        await run_limited("json:load", content, _LIMITS, list[str])


def test_sec2_the_service_itself_parses_nothing() -> None:
    """An upload is judged by its first bytes and its archive's names; limits are 5 s and 256 MB."""
    assert "wordprocessingml" in media_type(HOSTILE["docx-zip-bomb"]())
    assert "presentationml" in media_type(HOSTILE["pptx-empty-paragraphs"]())
    with pytest.raises(ValueError, match="not a DOCX or PPTX"):
        media_type(archive(readme=b"hello"))
    settings = Settings()
    assert settings.reading_seconds + jobs._STARTING < 5
    assert settings.reading_megabytes == 256
