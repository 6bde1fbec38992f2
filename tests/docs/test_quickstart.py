"""The quickstart, followed as a reader would: files in an empty folder, terminals, commands in order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGINT
from typing import IO

import pytest

from ephemera.embedded import free_ports
from tests.docs.pages import DOCS, READERS_PLUGINS, ROOT, Block, blocks_of

PAGE = DOCS / "quickstart.md"
_SET = re.compile(r"^((?:[A-Z_]+=\S* )*)(.*)$")  # variables that a command is given, and the command
_READY = 30.0  # seconds that a terminal may take to say what the page shows


def steps_of(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what the page says it prints."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def matches(shown: str, printed: str) -> bool:
    """Whether something was printed as shown, where `...` stands for anything."""
    pattern = ".*".join(map(re.escape, shown.strip("\n").split("...")))
    return re.fullmatch(pattern, printed.strip("\n"), re.DOTALL) is not None


class Reader:
    """Who follows the page, in a folder, with the ports that are free here."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}
        ports = dict(zip(("6390", "8000"), map(str, free_ports(2)), strict=True))
        self._ports = re.compile("|".join(ports)), ports
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        variables = {"PATH": path, "PYTHONWARNINGS": "default", "PYTHONUNBUFFERED": "1", **READERS_PLUGINS}
        self._environment = {**os.environ, **variables}

    def follow(self, block: Block) -> None:
        """Do what a block of the page says."""
        text = self._ports[0].sub(lambda port: self._ports[1][port[0]], block.text)
        word, _, name = block.note.partition(": ")
        if block.language == "python":
            (self.folder / text.partition("\n")[0].removeprefix("# ")).write_text(text)
        elif word == "terminal":
            self._open(name, *steps_of(text)[0])
        elif block.language == "console" and word != "not run":
            if word == "stop":
                self._terminals[name].send_signal(SIGINT)
                assert self._terminals[name].wait(30) == 0
            for command, shown in steps_of(text):
                printed = self._typed(command)
                assert matches(shown, printed), f"$ {command}\n{printed}"

    def _typed(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout

    def _open(self, name: str, command: str, shown: str) -> None:
        """Run a command in a terminal of its own, and wait until it has printed what the page shows.

        What ran in that terminal before is ended.
        """
        if name in self._terminals:
            _end(self._terminals[name])
        log = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
        opened = self._started(command, log)
        self._terminals[name] = opened
        self._stack.callback(_end, opened)
        deadline = time.monotonic() + _READY
        while not matches(shown, said := (self.folder / f"{name}.log").read_text()):
            assert opened.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.02)

    def _started(self, command: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "-c", _SET.sub(r"\1exec \2", command)],
            cwd=self.folder,
            env=self._environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(20)


def console_blocks() -> Iterator[Block]:
    """The blocks of the page, in its order."""
    yield from blocks_of("docs/quickstart.md", PAGE.read_text(encoding="utf-8"))


def test_the_page_can_be_followed(tmp_path: Path) -> None:
    """From an empty folder, every file, terminal and command of the page gives what the page shows."""
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack)
        for block in console_blocks():
            reader.follow(block)


def service() -> str:
    """The source of the page's service."""
    return next(block.text for block in console_blocks() if block.text.startswith("# service.py\n"))


def test_the_service_is_small() -> None:
    """A service with sessions, a cache, a limit and revocation has 40 lines, two of them our imports."""
    lines = [line for line in service().splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 40
    assert len([line for line in lines if re.match(r"(from|import) ephemera\b", line)]) <= 2


MISUSE = """\
from service import profile, login
async def misuse() -> None:
    await profile(7)
    await profile.delete()
    (await profile('ann')).city
    await login('ann')
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with the service, and a module that misuses its functions."""
    (tmp_path / "service.py").write_text(service())
    (tmp_path / "misuse.py").write_text(MISUSE)
    return tmp_path


def checked(command: list[str], folder: Path, **variables: str) -> str:
    """What a type checker says."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.stdout + done.stderr


def test_mypy_knows_the_service(written: Path) -> None:
    """The service passes `mypy --strict`, and mypy sees the signature behind the decorators."""
    # With the settings of the project, which are strict, the cache of `make lint` is used.
    files = [str(written / "service.py"), str(written / "misuse.py")]
    said = checked(["mypy", *files], ROOT, MYPYPATH=str(written))
    assert re.findall(r"(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", said, re.MULTILINE) == [
        ("misuse", "3", "arg-type"),
        ("misuse", "4", "call-arg"),
        ("misuse", "5", "union-attr"),
        ("misuse", "6", "call-arg"),
    ], said


def test_pyright_knows_the_service(written: Path) -> None:
    """The same of pyright, in its strict mode, as an editor on our installed package sees it."""
    (written / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    said = checked(
        ["pyright", "--outputjson", "--pythonpath", sys.executable],
        written,
        PYRIGHT_PYTHON_IGNORE_WARNINGS="1",
    )
    found = [
        (Path(each["file"]).stem, each["range"]["start"]["line"] + 1, each["rule"])
        for each in json.loads(said)["generalDiagnostics"]
    ]
    assert found == [
        ("misuse", 3, "reportArgumentType"),
        ("misuse", 4, "reportCallIssue"),
        ("misuse", 5, "reportOptionalMemberAccess"),
        ("misuse", 6, "reportCallIssue"),
    ], said


def test_what_is_not_as_shown_is_noticed() -> None:
    """The comparison takes `...` for anything, and nothing else."""
    assert matches('{"a":...,"b":2}\n', '{"a":[1,\n2],"b":2}')
    assert not matches('{"a":...,"b":2}\n', '{"a":1,"b":3}')
    assert not matches("ok\n", "ok\nand more")
    assert steps_of("$ one\n1\n2\n$ two\n") == [("one", "1\n2\n"), ("two", "")]
