"""What is public is documented: names, commands, options, settings, metrics. No generated page is old."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ephemera.cli import commands, create_app
from ephemera.operations.metrics import METRICS
from ephemera_services import SERVICES
from ephemera_services.runtime import ServiceSettings
from tests.docs.pages import ROOT, blocks_of, generated, pages, spans_of, written
from tools.reference import __main__ as references
from tools.reference import api_page as api
from tools.reference.cli_page import found
from tools.reference.metrics_page import service_metrics
from tools.reference.settings_page import Setting, own_settings, settings_of

MODULES = [module for modules in api.public_modules().values() for module in modules]


def undocumented(module: str, names: list[api.Name], texts: dict[str, str]) -> list[str]:
    """The names of a module without a docstring, or that no page which speaks of the module has in code."""
    code: set[str] = set()
    for page, text in texts.items():
        if re.search(rf"\b{re.escape(module)}\b", text):
            shown = [*spans_of(text), *(block.text for block in blocks_of(page, text))]
            code.update(word for each in shown for word in re.findall(r"\w+", each))
    return [f"{module}.{name.name}" for name in names if not name.says or name.name not in code]


OF_EVERY_DECLARATION = frozenset(
    (
        "codec",
        "compress_over",
        "invalidated_by",
        "if_lost",
        "purpose",
        "role",
        "sensitive",
        "saves",
        "hash_tag",
    )
)
"""Options that mean the same everywhere: docs/keyspace.md has them."""


@pytest.mark.parametrize("module", [module for module in MODULES if ".patterns." in module])
def test_every_option_of_a_declaration_is_documented(module: str) -> None:
    """What a pattern's declaration takes by name is in code on a page about its module."""
    options = [
        api.Name(module, option, option, declared.says)
        for declared in api.public_names(module)
        if declared.call.startswith(f"{declared.name}(catalogue, ")
        for option in re.findall(r"(\w+)(?==\.\.\.)", declared.call)
        if option not in OF_EVERY_DECLARATION
    ]
    assert undocumented(module, options, explaining()) == []


def test_the_common_options_are_on_the_page_of_the_keyspace() -> None:
    """Those that the rule above leaves out are explained once for all."""
    assert [
        option for option in OF_EVERY_DECLARATION if f"`{option}" not in pages()["docs/keyspace.md"]
    ] == []


def explaining() -> dict[str, str]:
    """The pages that explain: decisions and changes are about the past."""
    return {
        name: text for name, text in written().items() if "/decisions/" not in name and name != "CHANGELOG.md"
    }


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_documented(module: str) -> None:
    """It has a docstring, and a page that people wrote about its module names it in code."""
    assert undocumented(module, api.public_names(module), explaining()) == []


def test_every_module_of_a_package_is_private() -> None:
    """A package's `__init__` is its only public surface, but for the FastAPI module and what Django finds."""
    outside = {
        "ephemera.errors",
        "ephemera.testing",
        "ephemera.web.fastapi",
        "ephemera.adapters.django.apps",
        "ephemera.adapters.django.management.commands.ephemera",
    }
    public = {
        ".".join(file.relative_to(api.SOURCE).with_suffix("").parts)
        for file in api.SOURCE.rglob("*.py")
        if not file.name.startswith("_") and not any(part.startswith("_") for part in file.parts)
    }
    assert public <= outside


def unexplained(command: str, flags: list[str], texts: dict[str, str]) -> list[str]:
    """A command that no page shows, or those of its options that no page which shows it has."""
    showing = [text for text in texts.values() if _shows(command, text)]
    if not showing:
        return [f"ephemera {command}"]
    missing = [flag for flag in flags if not any(re.search(rf"{flag}\b", text) for text in showing)]
    return [f"ephemera {command} {flag}" for flag in missing]


def test_every_command_and_option_is_on_a_page_that_people_wrote() -> None:
    """A page outside of the reference shows each command, and one that shows the command has each option."""
    tree: Any = typer.main.get_command(create_app())
    missing = []
    for command in commands():
        flags = [flag for each in found(tree, command.name).params for flag in each.opts if flag[0] == "-"]
        missing += unexplained(command.name, flags, explaining())
    assert missing == []


def _shows(command: str, text: str) -> bool:
    """Whether a page has a command, even as one of several: `ephemera jobs list|show`."""
    group, _, name = command.rpartition(" ")
    return bool(re.search(rf"ephemera {group} ?(?:[a-z-]+\|)*{name}\b", text))


def test_every_setting_says_what_it_is_for() -> None:
    """Each field of the settings of each service has a text below it, which the reference shows."""
    shared = settings_of(ServiceSettings)
    assert silent(shared + [setting for name in SERVICES for setting in own_settings(name)]) == []


def silent(settings: list[Setting]) -> list[str]:
    """The settings without a description."""
    return [setting.variable for setting in settings if not setting.means]


def test_every_metric_says_what_it_is() -> None:
    """Each metric of a store or of a service has a meaning, and the reference names it."""
    page = generated()["docs/reference/metrics.md"]()
    own = [row for name in SERVICES if f"### The service {name}\n" in page for row in service_metrics(name)]
    descriptions = {metric.name: metric.help for metric in METRICS} | {row[0]: row[3] for row in own}
    assert obscure(descriptions, page) == []


def obscure(descriptions: dict[str, str], page: str) -> list[str]:
    """The metrics that a page does not have, or of which nothing is said."""
    return [name for name, means in descriptions.items() if len(means) < 10 or f"| `{name}` |" not in page]


@pytest.mark.parametrize("page", sorted(generated()))
def test_a_generated_page_is_that_of_now(page: str) -> None:
    """What is in the repository is what `make docs` would write."""
    there = (ROOT / page).read_text(encoding="utf-8")
    assert there == generated()[page](), f"{page} is old: make docs"


def test_an_undocumented_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted class is reported: on no page, on a page about another module, or without a docstring."""
    source = '__all__ = ["Planted"]\nclass Planted:\n    """What was forgotten."""\n'
    monkeypatch.setattr(api, "_tree", lambda module: ast.parse(source))
    names = api.public_names("ephemera.planted")
    page = "`Planted` is in `ephemera.planted`."
    assert undocumented("ephemera.planted", names, {"a.md": page}) == []
    for texts in (
        {},
        {"a.md": "`Planted` of `ephemera.other`."},
        {"a.md": "Planted is in `ephemera.planted`."},
    ):
        assert undocumented("ephemera.planted", names, texts) == ["ephemera.planted.Planted"]
    monkeypatch.setattr(
        api, "_tree", lambda module: ast.parse(source.replace('"""What was forgotten."""', "pass"))
    )
    assert undocumented("ephemera.planted", api.public_names("ephemera.planted"), {"a.md": page})


def test_a_silent_setting_is_noticed() -> None:
    """A field without a docstring is reported by its variable's name."""

    class Shop(ServiceSettings, kw_only=True, frozen=True):
        service = "shop"

        opens: str = "at nine"
        """When it opens."""
        closes: str = "at five"

    assert silent(settings_of(Shop)) == ["EPHEMERA_SHOP_CLOSES"]


def test_an_undocumented_option_or_metric_is_noticed() -> None:
    """A planted command, option and metric are reported."""
    page = {"a.md": "`ephemera plant --deep` digs, and `ephemera jobs list|grow` lists."}
    assert unexplained("plant", ["--deep", "--wide"], page) == ["ephemera plant --wide"]
    assert unexplained("weed", [], page) == ["ephemera weed"]
    assert unexplained("jobs grow", [], page) == []
    rows = "| `seeds_total` | counter | | Seeds that were sown. |"
    descriptions = {"seeds_total": "Seeds that were sown.", "weeds": "Weeds that were seen.", "x": ""}
    assert obscure(descriptions, rows) == ["weeds", "x"]


def test_an_outdated_page_is_regenerated(tmp_path: Path) -> None:
    """`make docs` writes what differs, and says so; a second time there is nothing to do."""
    (tmp_path / "cli.md").write_text("old")
    assert "cli.md" in references.write(tmp_path)
    assert references.write(tmp_path) == []
