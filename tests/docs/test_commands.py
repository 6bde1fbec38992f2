"""Every command line and every setting that a page shows is one that there is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ephemera.cli import create_app
from ephemera_services import SERVICES
from ephemera_services.runtime import ServiceSettings
from tests.docs.pages import ROOT, blocks, blocks_of, generated, pages, prose, spans_of, written
from tools.reference.settings_page import WITHOUT_FLAG, command_variables, own_settings, settings_of

_TREE: Any = typer.main.get_command(create_app())
_SHELL = ("console", "sh", "bash", "shell")
_VARIABLE = re.compile(r"\bEPHEMERA_[A-Z0-9_]*[A-Z0-9]\b(?![_.]?\.\.)")
FOREIGN = {
    "EPHEMERA_SOME_FLAG": "stands for any flag",
    "EPHEMERA_FIELD": "stands for any field",
    "EPHEMERA_DIGEST_PYTHON": "of deploy/digests.env, for the build of the image",
    "EPHEMERA_SECRET_MONGODB_FEED": "of deploy/.env, for Compose",
}
"""Variables that pages name and nothing reads."""
INNER = {"EPHEMERA_DEMO_CONSOLE"}
"""Variables that only the demonstration sets, for its own console."""


def lines_of(text: str) -> Iterator[str]:
    """The calls of `ephemera` in a block of shell, without prompts, comments and what follows them."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s(?:\||&&|;|>>?|2>|&)(?=\s|$)", line.split(" #")[0]):
            words = part.strip().removeprefix("$ ").strip()
            while re.match(r"[A-Z_]+=\S* ", words):  # variables that are set for this call alone
                words = words.partition(" ")[2]
            if words.startswith("ephemera "):
                yield words


def refused(line: str) -> str | None:
    """Why a command line cannot be typed, or None."""
    words = shlex.split(line)[1:]
    command, path = _TREE, []
    while hasattr(command, "commands"):
        if not words or words[0].startswith("-"):
            return None if words in (["--help"], ["--version"]) else f"{line}: names no command"
        path.append(words.pop(0))
        if path[-1] not in command.commands:
            return f"{line}: there is no command {path[-1]}"
        command = command.commands[path[-1]]
    if words == ["--help"]:
        return None
    try:
        with command.make_context(" ".join(path), words):
            return None
    except Exception as problem:
        return f"{line}: {getattr(problem, 'message', problem)}"


@pytest.fixture
def a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the lines are typed in: a service with keys and jobs, and what flags name."""
    (tmp_path / "myservice").mkdir()
    keys = "from ephemera.keyspace import Catalogue\ncatalogue = Catalogue('example')\n"
    jobs = "from ephemera.patterns.jobs import Jobs\nfrom {} import catalogue\n"
    jobs += "JOBS = Jobs(catalogue, 'checkpoint:{{job_id}}', queues=('work', 'generation'))\n"
    (tmp_path / "myservice" / "keys.py").write_text(keys)
    (tmp_path / "myservice" / "jobs.py").write_text(jobs.format("myservice.keys"))
    for name in ("app", "keys", "shop", "service"):  # what pages call their modules
        (tmp_path / f"{name}.py").write_text(keys)
    (tmp_path / "slides.py").write_text(jobs.format("keys"))
    (tmp_path / "after.py").write_text(jobs.format("shop"))
    (tmp_path / "secret.txt").write_text("a secret")
    (tmp_path / "released.json").write_text('{"catalogue": "example", "keyspaces": []}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("a_service")
def test_every_command_line_can_be_typed() -> None:
    """The parser takes each line as it stands: the command, its options and their values."""
    shown = [(block, line) for block in blocks() if block.language in _SHELL for line in lines_of(block.text)]
    assert len(shown) > 20
    assert [f"{block}: {problem}" for block, line in shown if (problem := refused(line))] == []


def test_every_command_in_the_text_is_there() -> None:
    """Between backticks, `ephemera NAME` names a command or a group, and its flags are the command's."""
    wrong = []
    for page, text in pages().items():
        for span in spans_of(text):
            if span.startswith("ephemera ") and (problem := _unknown(span.split()[1:])):
                wrong.append(f"{page}: {span}: {problem}")
    assert wrong == []


def _unknown(words: list[str]) -> str | None:
    command = _TREE
    while words and hasattr(command, "commands") and re.fullmatch(r"[a-z][a-z|-]*", words[0]):
        names = words.pop(0).split("|")
        missing = [name for name in names if name not in command.commands]
        if missing:
            return f"no command {missing[0]}"
        command = command.commands[names[0]]
    known = {flag for parameter in getattr(command, "params", ()) for flag in parameter.opts} | {"--help"}
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    unknown = [flag for flag in flags if flag not in known]
    return f"no option {unknown[0]}" if unknown else None


def test_every_target_of_make_is_there() -> None:
    """What a page says to `make` is in the Makefile."""
    targets = set(re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    known = {target for line in targets for target in line.split()}
    shown = {
        (page, target)
        for page, text in written().items()
        for code in (
            *spans_of(text),
            *(block.text for block in blocks_of(page, text) if block.language in _SHELL),
        )
        for target in re.findall(r"^(?:\$ )?make ([a-z-]+)", code, re.MULTILINE)
    }
    assert len(shown) > 3
    assert sorted(pair for pair in shown if pair[1] not in known) == []


def known_variables() -> set[str]:
    """What the reference of settings has."""
    known = {setting.variable for setting in settings_of(ServiceSettings)}
    known |= {setting.variable for name in SERVICES for setting in own_settings(name)}
    return known | set(command_variables()) | set(WITHOUT_FLAG)


def test_every_setting_in_the_text_is_there() -> None:
    """What a page calls EPHEMERA_SOMETHING is read by a service or a command."""
    known = known_variables() | set(FOREIGN)
    named = {(page, name) for page, text in written().items() for name in _VARIABLE.findall(text)}
    assert sorted((page, name) for page, name in named if name not in known) == []


def test_every_setting_in_the_code_is_in_the_reference() -> None:
    """No module reads or sets a variable that the reference of settings does not have."""
    literal = re.compile(r"""["'](EPHEMERA_[A-Z0-9_]*[A-Z0-9])["']""")
    sources = (ROOT / "src").rglob("*.py")
    named = {(source.name, name) for source in sources for name in literal.findall(source.read_text("utf-8"))}
    assert sorted(pair for pair in named if pair[1] not in known_variables() | INNER) == []


def test_a_line_that_cannot_be_typed_is_noticed() -> None:
    """A command, an option and a value that do not exist are reported, and so is a missing argument."""
    for line in (
        "ephemera audti",
        "ephemera server-config --role cache --memroy 1gb",
        "ephemera server-config --role both",
        "ephemera mark",
        "ephemera locks",
    ):
        assert refused(line), line
    assert _unknown(["doctor", "--wach"]) == "no option --wach"
    assert _unknown(["jobs", "list|shwo"]) == "no command shwo"
    assert list(lines_of("X=1 ephemera acl a | tee b  # why\n$ ephemera demo &")) == [
        "ephemera acl a",
        "ephemera demo",
    ]
    assert prose("# a\n```console\nephemera x\n```\n") == "# a\n\n"
    assert "docs/cli.md" in generated()


def test_every_install_command_names_our_distribution() -> None:
    """The name `ephemera` on the package index is another project's: pages and errors say `ephemera-data`."""
    texts = [*pages().values(), *(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))]
    assert any("pip install 'ephemera-data[" in text for text in texts)
    assert [text for text in texts if re.search(r"pip install '?ephemera(?!-data|-services)\b", text)] == []
