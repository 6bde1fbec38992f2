"""The rules that all commands keep, checked on the tree of commands itself."""

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
    """The parameters that a command declares, `--help` apart."""
    return list(parsed(command.name).params)


def test_the_tree_holds_the_declared_commands_and_no_others() -> None:
    """Whatever `ephemera` offers went through `commands()`, where its examples are."""
    assert sorted(names()) == sorted(command.name for command in commands())


@EVERY
def test_every_command_says_what_it_does_with_examples_and_exit_codes(command: Command) -> None:
    """The help of each command has a text, an example at least, and what its exit codes mean."""
    shown = ephemera(*command.name.split(), "--help")
    assert shown.code == 0
    text = " ".join(shown.out.split())
    assert command.help().partition(".")[0] in text
    assert command.examples
    assert all(does in text for does, _ in command.examples)
    assert all(f"{code} {meaning}" in text for code, meaning in command.exit_codes().items())
    assert set(command.exit_codes()) >= {0, 1, 2}


@EVERY
def test_every_parameter_has_help_and_an_environment_twin(command: Command) -> None:
    """`--some-flag` is `EPHEMERA_SOME_FLAG`, for each flag of each command; arguments have one, too."""
    for parameter in parameters_of(command):
        assert parameter.help, parameter.name
        name = parameter.opts[0]
        if name.startswith("-"):
            assert parameter.envvar == "EPHEMERA_" + name.strip("-").upper().replace("-", "_")
        else:
            assert parameter.envvar.startswith("EPHEMERA_")


@EVERY
def test_what_a_machine_may_read_has_json(command: Command) -> None:
    """Every command prints JSON when asked, but for those that serve, and the dashboard, which is JSON."""
    flags = {flag for parameter in parameters_of(command) for flag in parameter.opts}
    assert ("--json" in flags) == (command.name not in ("console", "dashboard", "demo", "serve", "worker"))


@EVERY
def test_every_example_can_be_typed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples in the help are understood as they stand, in a folder that has what they name."""
    (tmp_path / "myservice").mkdir()
    (tmp_path / "myservice" / "keys.py").write_text(
        "from ephemera.keyspace import Catalogue\ncatalogue = Catalogue('example')\n"
    )
    (tmp_path / "myservice" / "jobs.py").write_text(
        "from ephemera.patterns.jobs import Jobs\nfrom myservice.keys import catalogue\n"
        "JOBS = Jobs(catalogue, 'checkpoint:{job_id}', queues=('work',))\n"
    )
    (tmp_path / "secret.txt").write_text("a secret")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for _, line in command.lines():
        words = shlex.split(line.partition(">")[0])
        assert line.startswith(f"ephemera {command.name}")
        given = words[1 + len(command.name.split()) :]
        with parsed(command.name).make_context(command.name, given) as context:
            assert context.command is parsed(command.name)


def test_the_environment_stands_in_for_flags_and_the_command_line_comes_first() -> None:
    """A variable is as good as its flag, and a flag overrules it."""
    environment = {"EPHEMERA_ROLE": "queue", "EPHEMERA_MEMORY": "2gb"}
    assert "maxmemory 2gb\n" in ephemera("server-config", env=environment).out
    assert "maxmemory 1gb\n" in ephemera("server-config", "--memory", "1gb", env=environment).out
    assert "noeviction" in ephemera("server-config", env=environment).out


def test_a_wrong_call_is_told_so() -> None:
    """Unknown commands, flags and values end with code 2 and say what was wrong."""
    for words, told in (
        (["servr-config"], "Did you mean 'server-config'?"),
        (["server-config", "--rolle", "cache"], "--rolle"),
        (["server-config", "--role", "both"], "'both' is not one of"),
        (["server-config"], "Missing option '--role'"),
        (
            ["server-config", "--role", "cache", "--memory", "lots"],
            "--memory: 'lots' is not an amount of at least 1mb",
        ),
        (["acl", "identity", "--for", "nope"], "--for: 'nope' is not one of service, metrics, monitoring"),
        (["acl", "identity", "--user", "a b"], "--user: 'a b' is not printable ASCII"),
        (["worker"], "Missing argument 'NAME'"),
        (["worker", "nosuch"], "no installed package registers 'nosuch'"),
        (["mark", "--url", "http://localhost"], "the URL's scheme is not known"),
    ):
        outcome = ephemera(*words)
        assert outcome.code == 2
        assert told in outcome.said, outcome.err
        assert not outcome.out


@EVERY
def test_every_example_can_be_copied_from_a_narrow_terminal(command: Command) -> None:
    """At 80 columns no line of an example is broken but at a backslash, and together they are the example."""
    shown = ephemera(*command.name.split(), "--help", env={"COLUMNS": "80"})
    lines = [line.strip() for line in shown.out.splitlines()]
    for does, example in command.lines():
        first = lines.index(f"# {does}") + 1
        last = next(place for place in range(first, len(lines)) if not lines[place].endswith("\\"))
        copied = " ".join(line.removesuffix("\\").strip() for line in lines[first : last + 1])
        assert copied == example


def test_a_flag_that_takes_no_value_is_shown_without_one() -> None:
    """`--json`, and `--help` itself, where others say what they take."""
    for words in (["mark"], ["events"], []):
        assert "<bool>" not in ephemera(*words, "--help").out
    assert "--url" in ephemera("mark", "--help").out
    assert "<str>" in ephemera("mark", "--help").out


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_a_reader_who_had_enough_is_no_failure(form: str) -> None:
    """A pipe that is closed at its other end ends a command quietly with code 0, whatever printed."""
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
    """The reference has no empty code span, and no list without anything in it."""
    assert "| `` |" not in reference()
    assert "`[]`" not in reference()


@pytest.mark.parametrize(
    ("default", "told"),
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
def test_a_default_is_told_where_it_can_be_read(default: str, told: str) -> None:
    """Values and new ones of classes as their source says them, constants by what they hold."""
    parsed = ast.parse(default, mode="eval").body
    assert default_shown("tools.reference.source_reader", parsed) == told


def test_the_version_is_told() -> None:
    """`--version` names the package's version and Python's, and does nothing else."""
    outcome = ephemera("--version")
    assert outcome.code == 0
    assert outcome.out.startswith("ephemera 0.")


def test_the_reference_page_is_what_the_commands_say() -> None:
    """docs/cli.md is the present reference; otherwise: make docs."""
    assert CLI_PAGE.read_text(encoding="utf-8") == reference()
