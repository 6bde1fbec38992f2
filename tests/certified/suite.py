"""The declaration of a suite: where its tests come from, what they need, and how ours is switched on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from tests.certified.servers import one_valkey

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
Servers = Callable[[ExitStack], Mapping[str, str]]
"""Starts what a run needs, and returns values for the placeholders of the declaration, such as `{port}`."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A test suite of another library; texts marked (*) may contain placeholders such as `{url}`."""

    name: str
    """Names the record and the environment; several suites may come from one distribution."""
    distribution: str
    version: str
    tests: tuple[str, ...]
    """Paths below the unpacked source distribution, or below this folder when they begin with `contracts/`:
    classes of ours that inherit the tests which a library publishes for implementers."""
    what: str
    """What is certified, as the page shows it: `storage of limits, sync and async`."""
    ours: str
    """The pytest plugin, a module of `plugins/`, that makes the tests use ours; empty: they do already."""
    stock: bool = True
    """Whether there is a stock run to compare with. Without one, every test has to pass."""
    requirements: tuple[str, ...] = ()
    """What to install besides the distribution itself; pinned, as in `hiro==1.1.1`."""
    plugins: tuple[str, ...] = ()
    """Pytest plugins of both runs: none is loaded by itself, so that ours do not meddle."""
    arguments: tuple[str, ...] = ()
    """(*) Further arguments of pytest in both runs, such as `-k redis`; `addopts` of the library's own
    settings are not used, the rest of its settings is."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """(*) Environment variables of both runs."""
    servers: Servers = one_valkey
    replacements: Mapping[str, str] = field(default_factory=dict)
    """(*) Texts to replace in the unpacked test files of both runs: fixed ports, mostly."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Tests that run neither stock nor with ours: ids or their beginnings, and why; `*` is any text."""
    differences: Mapping[str, str] = field(default_factory=dict)
    """Tests that pass stock and deliberately not with ours; named in the same way, and why."""
    short: tuple[str, ...] = ()
    """Arguments of pytest that select the part for CI, a few seconds of it; none: CI runs all of it."""
    seconds: int = 600
    """After this time a run is stopped and has failed."""

    @property
    def plugin_folder(self) -> Path:
        """The folder of our pytest plugins, which has no package: suites have a package `tests` too."""
        return FOLDER / "plugins"


def declared() -> list[Suite]:
    """Return all suites, by name."""
    found: list[Suite] = []
    for path in sorted((FOLDER / "suites").glob("[a-z]*.py")):
        module = import_module(f"tests.certified.suites.{path.stem}")
        found += getattr(module, "SUITES", None) or [module.SUITE]
    return sorted(found, key=lambda suite: suite.name)


def chosen(names: Iterable[str]) -> list[Suite]:
    """Return the suites with these names, or all if there are none."""
    suites = {suite.name: suite for suite in declared()}
    wanted = list(names) or list(suites)
    if unknown := set(wanted) - set(suites):
        raise SystemExit(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(suites)}")
    return [suites[name] for name in wanted]


def pattern(test: str) -> re.Pattern[str]:
    """Return what matches the ids that begin like this."""
    return re.compile(".*".join(map(re.escape, test.split("*"))))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced; other braces stay."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
