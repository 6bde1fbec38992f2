"""The rules that all commands follow, checked on the tree of commands."""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ephemera.cli import Command, commands
from tests.cli.commands import ephemera, names, parsed
from tests.cli.demo_process import SCRIPT
from tools.reference.cli_page import reference
from tools.reference.source_reader import default_shown

EVERY = pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
CLI_PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def parameters_of(command: Command) -> list[Any]:
    """The parameters of a command, without `--help`."""
    return list(parsed(command.name).params)


def test_the_tree_holds_the_declared_commands_and_no_others() -> None:
    """Everything `ephemera` offers is in `commands()`, with its examples."""
    assert sorted(names()) == sorted(command.name for command in commands())


@EVERY
def test_every_command_says_what_it_does_with_examples_and_exit_codes(command: Command) -> None:
    """The help of each command has a text, at least one example, and its exit codes."""
    shown = ephemera(*command.name.split(), "--help")
    assert shown.code == 0
    text = " ".join(shown.out.split())
    assert command.help().partition(".")[0] in text
    assert command.examples
    assert all(does in text for does, _ in command.examples)
    assert all(f"{code} {meaning}" in text for code, meaning in command.exit_codes().items())
    assert set(command.exit_codes()) >= {0, 1, 2}


@EVERY
def test_every_parameter_has_help_and_an_environment_variable(command: Command) -> None:
    """`--some-flag` is `EPHEMERA_SOME_FLAG`, for each option of each command; arguments have one, too."""
    for parameter in parameters_of(command):
        assert parameter.help, parameter.name
        name = parameter.opts[0]
        if name.startswith("-"):
            assert parameter.envvar == "EPHEMERA_" + name.strip("-").upper().replace("-", "_")
        else:
            assert parameter.envvar.startswith("EPHEMERA_")


@EVERY
def test_every_report_is_available_as_json(command: Command) -> None:
    """Every command has --json, except those that serve, and those whose result is files, JSON or SQL."""
    flags = {flag for parameter in parameters_of(command) for flag in parameter.opts}
    others = ("console", "dashboard", "demo", "migrate sql", "new", "serve", "worker")
    assert ("--json" in flags) == (command.name not in others)


@EVERY
def test_every_example_can_be_typed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples in the help parse unchanged, in a folder with the modules they name."""
    (tmp_path / "myservice").mkdir()
    (tmp_path / "myservice" / "keys.py").write_text(
        "from ephemera.keyspace import Catalogue\ncatalogue = Catalogue('example')\n"
    )
    (tmp_path / "myservice" / "jobs.py").write_text(
        "from ephemera.patterns.jobs import Jobs\nfrom myservice.keys import catalogue\n"
        "JOBS = Jobs(catalogue, 'checkpoint:{job_id}', queues=('work',))\n"
    )
    (tmp_path / "secret.txt").write_text("a secret")
    (tmp_path / "released.json").write_text('{"catalogue": "example", "keyspaces": []}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for _, line in command.lines():
        words = shlex.split(line.partition(">")[0])
        assert line.startswith(f"ephemera {command.name}")
        given = words[1 + len(command.name.split()) :]
        with parsed(command.name).make_context(command.name, given) as context:
            assert context.command is parsed(command.name)


def test_the_command_line_overrides_the_environment() -> None:
    """A variable works like its option, and the option overrides it."""
    environment = {"EPHEMERA_ROLE": "queue", "EPHEMERA_MEMORY": "2gb"}
    assert "maxmemory 2gb\n" in ephemera("server-config", env=environment).out
    assert "maxmemory 1gb\n" in ephemera("server-config", "--memory", "1gb", env=environment).out
    assert "noeviction" in ephemera("server-config", env=environment).out


def test_wrong_usage_has_an_error_message() -> None:
    """Unknown commands, options and values end with code 2 and a message."""
    for words, message in (
        (["servr-config"], "Did you mean 'server-config'?"),
        (["server-config", "--rolle", "cache"], "--rolle"),
        (["server-config", "--role", "both"], "'both' is not one of"),
        (["server-config"], "Missing option '--role'"),
        (
            ["server-config", "--role", "cache", "--memory", "lots"],
            "--memory: 'lots' is not an amount of at least 1mb",
        ),
        (
            ["acl", "identity", "--for", "nope"],
            "--for: 'nope' is not one of service, metrics, monitoring, tracking",
        ),
        (["acl", "identity", "--user", "a b"], "--user: 'a b' is not printable ASCII"),
        (["worker"], "Missing argument 'NAME'"),
        (["worker", "nosuch"], "no installed package registers 'nosuch'"),
        (["mark", "--url", "http://localhost"], "the URL's scheme is not known"),
    ):
        outcome = ephemera(*words)
        assert outcome.code == 2
        assert message in outcome.said, outcome.err
        assert not outcome.out


@EVERY
def test_every_example_can_be_copied_from_a_narrow_terminal(command: Command) -> None:
    """At 80 columns examples break only at a backslash, and can be copied."""
    shown = ephemera(*command.name.split(), "--help", env={"COLUMNS": "80"})
    lines = [line.strip() for line in shown.out.splitlines()]
    for does, example in command.lines():
        first = lines.index(f"# {does}") + 1
        last = next(place for place in range(first, len(lines)) if not lines[place].endswith("\\"))
        copied = " ".join(line.removesuffix("\\").strip() for line in lines[first : last + 1])
        assert copied == example


def test_a_flag_that_takes_no_value_is_shown_without_one() -> None:
    """`--json` and `--help` are shown without a value."""
    for words in (["mark"], ["events"], []):
        assert "<bool>" not in ephemera(*words, "--help").out
    assert "--url" in ephemera("mark", "--help").out
    assert "<str>" in ephemera("mark", "--help").out


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_a_closed_pipe_is_not_a_failure(form: str) -> None:
    """When the reader closes the pipe, a command ends quietly with code 0."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [SCRIPT, "catalogue", "identity", "--format", form],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_default_of_nothing_is_not_shown() -> None:
    """The reference has no empty code span and no empty list."""
    assert "| `` |" not in reference()
    assert "`[]`" not in reference()


@pytest.mark.parametrize(
    ("default", "message"),
    [
        ("None", "=None"),
        ("-1", "=-1"),
        ("'cache'", "='cache'"),
        ("timedelta(minutes=5)", "=timedelta(minutes=5)"),
        ("Cookie()", "=Cookie()"),
        ("()", "=()"),
        ("('service',)", "=('service',)"),
        ("_LONGEST_DEFAULT", "=60"),
        ("object()", "=..."),
        ("some.thing", "=..."),
        (repr("x" * 100), "=..."),
    ],
)
def test_defaults_are_shown_in_the_reference(default: str, message: str) -> None:
    """Values are shown as in the source, constants by their value."""
    parsed = ast.parse(default, mode="eval").body
    assert default_shown("tools.reference.source_reader", parsed) == message


def test_version_shows_the_version() -> None:
    """`--version` prints the package's and Python's version."""
    outcome = ephemera("--version")
    assert outcome.code == 0
    assert outcome.out.startswith("ephemera 0.")


def test_the_reference_page_is_up_to_date() -> None:
    """docs/cli.md is the current reference; otherwise: make docs."""
    assert CLI_PAGE.read_text(encoding="utf-8") == reference()
