"""What an editor shows for a name: the language server of pyright is asked, as an editor asks it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HEAD = """\
from datetime import timedelta

from msgspec import Struct

from ephemera import Cache, Catalogue, Locks, RateLimits, Sessions, Store, connect, fixed, sliding
from ephemera import sliding_window, sync
from ephemera.adapters import flask
from ephemera.web.fastapi import Ephemera


class Session(Struct):
    user_id: str


catalogue = Catalogue("shop")
VALUE = catalogue.value("v:{id}", int, lifetime=fixed(hours=1), purpose="x")
HASH = catalogue.hash("h:{id}", Session, lifetime=fixed(hours=1), purpose="x")
SESSIONS = Sessions(catalogue, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24))
CACHE = Cache(catalogue, "c:{id}", int, fresh=timedelta(1), purpose="x")
LOCKS = Locks(catalogue, "l:{id}", lease=timedelta(seconds=9), purpose="x")
RULE = sliding_window("rule", 1, per=timedelta(1))
LIMITS = RateLimits(catalogue, "limits", RULE)
eph = Ephemera("redis://localhost", catalogue, sessions=SESSIONS)
flask_eph = flask.Ephemera("redis://localhost", catalogue)


def look(store: Store) -> None:
"""
INDENT = "    "
NAMES = [
    "connect",
    "sync.connect",
    "store.call",
    "store.run",
    "store.subscribe",
    "store.track",
    "store.client",
    "store.stats",
    "store.catalogues",
    "store[VALUE].get",
    "store[VALUE].put",
    "store[HASH].update",
    "store[SESSIONS].create",
    "store[SESSIONS].end_all",
    "store[SESSIONS].lifetime",
    "store[SESSIONS].stats",
    "store[CACHE].get_or_load",
    "store[LOCKS].hold",
    "store[LIMITS].check",
    "RULE.on",
    "catalogue.value",
    "eph.limit",
    "eph.cached",
    "eph.signed_in",
    "eph.optional",
    "eph.lifespan",
    "flask_eph.limit",
    "flask_eph.page",
    "flask_eph.end_sessions",
    "flask_eph.store",
]


class Editor:
    """A client of the language server, with one file open."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path) -> None:
        self._process = process
        self._uri = file.as_uri()
        self._last = 0
        folder = {"uri": file.parent.as_uri(), "name": "shop"}
        able = {"workspace": {"configuration": True}}
        self.request("initialize", processId=None, capabilities=able, workspaceFolders=[folder])
        self._send(method="initialized", params={})
        text = {"uri": self._uri, "languageId": "python", "version": 1, "text": file.read_text()}
        self._send(method="textDocument/didOpen", params={"textDocument": text})

    def hover(self, line: int, character: int) -> str:
        """What is shown at a place."""
        place = {"line": line, "character": character}
        shown = self.request("textDocument/hover", textDocument={"uri": self._uri}, position=place)
        return str((shown or {}).get("contents", {}).get("value", ""))

    def request(self, method: str, **params: Any) -> Any:
        """Ask the server, and answer what it asks in the meantime."""
        self._last += 1
        self._send(id=self._last, method=method, params=params)
        while True:
            message = self._receive()
            if "method" not in message and message.get("id") == self._last:
                return message.get("result")
            if "method" in message and "id" in message:
                self._send(id=message["id"], result=_answer(message))

    def _send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(self._process.stdout.read(length))


def _answer(message: Any) -> Any:
    """The settings that the server asks for: which Python has our package."""
    if message["method"] != "workspace/configuration":
        return None
    items = message["params"]["items"]
    return [{"pythonPath": sys.executable} if each.get("section") == "python" else {} for each in items]


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """An editor with a service of a few lines, which ends with the names to look at."""
    file = tmp_path_factory.mktemp("shop") / "service.py"
    file.write_text(HEAD + "\n".join(INDENT + name for name in NAMES))
    command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        yield Editor(process, file)
        process.kill()


@pytest.mark.parametrize("name", NAMES)
def test_an_editor_shows_what_it_is_for(editor: Editor, name: str) -> None:
    """Below the signature is a text."""
    line = HEAD.count("\n") + NAMES.index(name)
    shown = editor.hover(line, len(INDENT + name) - 1)
    assert len(shown.partition("\n\n")[2]) > 15, shown
