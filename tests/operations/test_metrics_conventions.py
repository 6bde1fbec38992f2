"""Names and texts of metrics follow Prometheus' conventions, and the page names no others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ephemera.operations.metrics import METRICS, Metric

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "metrics.md"
_NAME = re.compile(r"ephemera(_[a-z]+)+")
_UNITS = ("seconds", "bytes")
# What promtool's lint refuses: units that are not base ones, and types in names.
_NOT_BASE = re.compile(
    r"_(milliseconds|microseconds|nanoseconds|minutes|hours|days|ms|us|kilobytes|kb|megabytes|mb|bits|percent)(_|$)"
)
_TYPES = re.compile(r"_(gauge|counter|histogram|summary|count|sum|bucket|info)(_|$)")
_IDS = {"id", "key", "user", "job_id", "session", "subject", "shard"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_follows_the_conventions(metric: Metric) -> None:
    """Its name has the base unit, and `_total` for counters; its help is a sentence; no label is an id."""
    assert _NAME.fullmatch(metric.name)
    assert not _NOT_BASE.search(metric.name)
    assert not _TYPES.search(metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    bare = metric.name.removesuffix("_total")
    for unit in _UNITS:
        assert f"_{unit}" not in bare.removesuffix(f"_{unit}"), "a unit comes last"
    assert (metric.kind != "histogram") or bare.endswith(_UNITS)
    assert metric.help[0].isupper() or metric.help.startswith(("1 ", "maxmemory"))
    assert metric.help.endswith(".")
    assert metric.name.removeprefix("ephemera_") not in metric.help
    assert not _IDS & set(metric.labels)
    assert all(re.fullmatch(r"[a-z]+", label) for label in metric.labels)
    assert "le" not in metric.labels


def test_names_are_unique() -> None:
    """No two metrics share a name, including the suffixes of histograms."""
    names = [metric.name for metric in METRICS]
    series = {
        f"{metric.name}{suffix}"
        for metric in METRICS
        if metric.kind == "histogram"
        for suffix in ("_bucket", "_count", "_sum")
    }
    assert len(set(names)) == len(names)
    assert not series & set(names)


def test_the_page_names_only_existing_metrics() -> None:
    """The page and its alerts name only declared metrics."""
    named = set(re.findall(r"ephemera_[a-z_]+", PAGE.read_text(encoding="utf-8")))
    assert named <= {metric.name for metric in METRICS}


def test_without_the_extra_the_error_names_it() -> None:
    """Without prometheus-client the error names the extra, and everything else can be imported."""
    script = """
import asyncio, sys
sys.modules["prometheus_client"] = None
import ephemera.cli, ephemera.operations.metrics, ephemera.web.fastapi
from ephemera.operations.metrics import StoreMetrics
try:
    StoreMetrics(None)
except ModuleNotFoundError as missing:
    print(missing)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "metrics need prometheus-client: pip install 'ephemera-data[metrics]'"
