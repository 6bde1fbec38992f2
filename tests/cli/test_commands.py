"""The output and exit code of each command, on real servers where needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemera import embedded, sync
from ephemera.embedded import Valkey
from ephemera.keyspace import SERVER_IDENTITY
from tests.cli.commands import ephemera

SHOP = "tests.cli.shop_keys:catalogue"
SECRET = "s3cr3t-wörd"


@pytest.fixture(scope="module")
def marked() -> Iterator[Valkey]:
    """A server with a password that tests here mark in turn."""
    with embedded.valkey(password=SECRET) as running:
        yield running


def test_catalogue_shows_the_same_in_each_format() -> None:
    """The table, the Markdown and the JSON contain every pattern, purpose and field."""
    table, markdown = ephemera("catalogue", SHOP), ephemera("catalogue", SHOP, "--format", "markdown")
    message = json.loads(ephemera("catalogue", SHOP, "--json").out)
    assert message == json.loads(ephemera("catalogue", SHOP, "--format", "json").out)
    assert message["keyspaces"][0]["pattern"] == "session:{session_id}"
    for shown in (table.out, markdown.out):
        for space in message["keyspaces"]:
            assert space["pattern"] in shown
            assert space["purpose"] in shown
            assert all(field["name"] in shown for field in space["fields"])


def test_acl_prints_one_line_and_warns_without_a_password() -> None:
    """Without a password the rest of the line is complete, and stderr says how to add one."""
    outcome = ephemera("acl", SHOP, "--user", "demo-service")
    assert outcome.out.startswith("user demo-service reset on ~cache:profile:* ")
    assert outcome.out.count("\n") == 1
    assert "demo-service has no password yet" in outcome.err


def test_acl_reads_a_password_from_a_file_and_never_shows_it(tmp_path: Path) -> None:
    """The rules contain the password's digest; the user is the catalogue's name by default."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    outcome = ephemera("acl", SHOP, "--password-file", str(tmp_path / "secret"), "--json")
    rules = json.loads(outcome.out)
    assert rules["user"] == "shop"
    assert f"#{hashlib.sha256(SECRET.encode()).hexdigest()}" in rules["line"].split()
    assert SECRET not in outcome.out + outcome.err
    assert outcome.err == ""
    (tmp_path / "empty").write_text("\n")
    assert ephemera("acl", SHOP, "--password-file", str(tmp_path / "empty")).code == 2
    assert ephemera("acl", SHOP, "--user", "two words").code == 2


def test_server_config_is_the_same_as_text_and_json() -> None:
    """The file's settings are those of the JSON."""
    file = ephemera("server-config", "--role", "queue").out
    settings = json.loads(ephemera("server-config", "--role", "queue", "--json").out)
    lines = [line for line in file.splitlines() if line and not line.startswith("#")]
    assert lines == [f"{name} {value}" for name, value in settings.items()]


def test_mark_writes_shows_and_refuses(marked: Valkey) -> None:
    """An unmarked server is marked, another mark is refused until forced; no password is shown."""
    look = ephemera("mark", "--url", marked.url)
    assert (look.code, look.out) == (0, f"127.0.0.1:{marked.port} has no mark\n")
    first = ephemera("mark", "--url", marked.url, "--name", "graph")
    assert first.out == f"127.0.0.1:{marked.port} is marked as 'graph' now, it had no mark\n"
    assert ephemera("mark", "--url", marked.url, "--name", "graph").code == 0
    other = ephemera("mark", "--url", marked.url, "--name", "slides-cache")
    assert (other.code, other.out) == (1, "")
    assert other.err.count("\n") == 1
    assert f"127.0.0.1:{marked.port} is marked as 'graph', not as 'slides-cache'" in other.err
    forced = ephemera("mark", "--url", marked.url, "--name", "slides-cache", "--force", "--json")
    assert json.loads(forced.out) == {
        "address": f"127.0.0.1:{marked.port}",
        "mark": "slides-cache",
        "before": "graph",
        "modules": [],
    }
    assert "'slides-cache'" in ephemera("mark", "--url", marked.url).out
    wrong = ephemera("mark", "--url", marked.url, "--name", "two words")
    assert wrong.code == 2
    assert "--name: 'two words' is not a name of at most 64 letters" in wrong.said
    assert not any(SECRET in shown.out + shown.err for shown in (look, first, other, forced))


def test_mark_reports_an_unreachable_server(marked: Valkey) -> None:
    """A wrong password and an unreachable server are one line each, with code 1, without the secret."""
    for url in (f"redis://:wrong-{SECRET[:6]}@127.0.0.1:{marked.port}", "redis://:s3cr3t@127.0.0.1:1"):
        outcome = ephemera("mark", "--url", url)
        assert outcome.code == 1
        assert outcome.err.startswith("ephemera: 127.0.0.1:")
        assert outcome.err.count("\n") == 1
        assert "s3cr3t" not in outcome.err


def test_forcing_needs_a_name(server: embedded.Valkey) -> None:
    """Replacing a mark without a new name is wrong usage."""
    outcome = ephemera("mark", "--url", server.url, "--force")
    assert outcome.code == 2
    assert "--name" in outcome.err


def test_a_mark_is_for_a_whole_cluster(cluster: embedded.Cluster) -> None:
    """A cluster has one mark, found through any node."""
    assert ephemera("mark", "--url", cluster.url, "--name", "cli-cluster", "--force").code == 0
    assert "is marked as 'cli-cluster'" in ephemera("mark", "--url", cluster.url).out
    assert ephemera("mark", "--url", cluster.url, "--name", "other").code == 1
    with sync.connect(cluster.url, identity="cli-cluster") as store:
        store.call("DEL", SERVER_IDENTITY.key())
