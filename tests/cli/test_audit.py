"""`ephemera audit`: its output and exit codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, fixed
from tests.cli.commands import ephemera
from tests.operations.audit_fixtures import KEYS, stock

SHOP = "tests.operations.audit_fixtures:catalogue"
pictures = Catalogue("pictures")
FAMILY = pictures.value("revoked:family:{family}", str, lifetime=fixed(hours=1), purpose="x")
SECRET = "s3cr3t-wörd"


@pytest.fixture
def shop() -> Iterator[Valkey]:
    """A server with a password, a key of every keyspace, and some deviations."""
    with embedded.valkey(password=SECRET) as server:
        asyncio.run(stock(server.url))
        for number in range(12):
            server.ask("SET", f"order:x:{number}", "1")
        server.ask("PERSIST", "session:s3cret")
        yield server


def test_the_report_has_all_parts(shop: Valkey) -> None:
    """Servers, keyspaces, undeclared shapes, streams, findings and impact are shown."""
    outcome = ephemera("audit", "--url", shop.url, "--catalogue", SHOP)
    assert outcome.code == 0
    software = "valkey" if "valkey_version" in str(shop.ask("INFO", "server")) else "redis"
    for message in (
        "shop on 1 server: 21 names (all of 21 keys)",
        software,
        "profile:{user_id}",
        "order:x:{x_id}",
        "string │ order:x:",
        "events:all",
        "session:{session_id}: 1 key without a TTL, declared 1 h sliding",
        "The audit raised keyspace_hits",
    ):
        assert message in outcome.out, message


def test_any_server_is_audited_without_a_catalogue(shop: Valkey) -> None:
    """Every key is undeclared then; nothing of what looks like a secret is shown."""
    outcome = ephemera("audit", "--url", shop.url)
    assert outcome.code == 0
    assert "no catalogue on 1 server" in outcome.out
    assert "21 undeclared keys" in outcome.out
    assert "Declared keyspaces" not in outcome.out
    assert "s3cret" not in outcome.out


def test_the_json_report_is_complete(shop: Valkey) -> None:
    """JSON has every keyspace, finding and figure; stderr is empty without a terminal."""
    outcome = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, "--json")
    report = json.loads(outcome.out)
    assert report["coverage"]["names"] == KEYS + 12
    assert len(report["keyspaces"]) == KEYS
    assert {"unknown", "no-ttl"} <= {finding["kind"] for finding in report["findings"]}
    assert outcome.err == ""


def test_neither_passwords_nor_sensitive_keys_are_printed(shop: Valkey) -> None:
    """The server's password, sensitive ids and values are in no form of the report."""
    for form in ([], ["--json"]):
        outcome = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, *form)
        assert SECRET not in outcome.out + outcome.err
        assert "s3cret" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0),
        (["--fail-on", "unknown"], 1),
        (["--fail-on", "wrong-type", "--fail-on", "undecodable,big-key"], 0),
        (["--fail-on", "wrong-type,no-ttl"], 1),
        (["--fail-on", "problems"], 1),
        (["--fail-on", "any"], 1),
        (["--fail-on", "memory-full"], 0),
    ],
)
def test_the_exit_code_follows_fail_on(shop: Valkey, words: list[str], code: int) -> None:
    """It is 1 when a kind of --fail-on was found, and 0 otherwise."""
    assert ephemera("audit", "--url", shop.url, "--catalogue", SHOP, *words).code == code


def test_every_option_can_come_from_the_environment(shop: Valkey) -> None:
    """Options with several values are separated by spaces."""
    environment = {
        "EPHEMERA_URL": shop.url,
        "EPHEMERA_CATALOGUE": f"{SHOP} tests.cli.other_keys:catalogue",
        "EPHEMERA_FAIL_ON": "wrong-type unknown",
        "EPHEMERA_SAMPLE": "0",
        "EPHEMERA_JSON": "1",
    }
    outcome = ephemera("audit", env=environment)
    report = json.loads(outcome.out)
    assert outcome.code == 0
    assert report["catalogues"] == ["shop", "orders"]
    assert report["impact"]["lookups"] == 0


def test_a_printed_cursor_resumes_the_audit(shop: Valkey) -> None:
    """The cursor in the report resumes the audit."""
    flat = [str(part) for number in range(5000) for part in (f"seen:{number}", 1)]
    shop.ask("MSET", *flat)
    first = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, "--budget", "0.001ms")
    assert "Not seen: the names after the cursor" in first.out
    cursor = first.out.partition("Resume with --cursor ")[2].split()[0]
    second = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, "--cursor", cursor)
    assert "Not seen: the names before the cursor" in second.out
    assert "Continue with" not in second.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--budget", "soon"], 2, "'soon' is not a duration above 0"),
        (["--fail-on", "unkown"], 2, "unkown is not a kind of finding"),
        (["--cursor", "12"], 2, "start again without it"),
        (["--sample", "-1"], 2, "greater than or equal to 0"),
        (["--catalogue", "nowhere:catalogue"], 2, "cannot be imported"),
    ],
)
def test_wrong_usage_has_an_error_message(shop: Valkey, words: list[str], code: int, message: str) -> None:
    """Each mistake has its message and its exit code."""
    outcome = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, *words)
    assert outcome.code == code
    assert message in outcome.said


def test_an_unreachable_server_is_a_one_line_error() -> None:
    """There is no traceback and no report, but advice."""
    outcome = ephemera("audit", "--url", "redis://127.0.0.1:1", "--catalogue", SHOP)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("ephemera: 127.0.0.1:1: cannot connect")
    assert outcome.err.count("\n") == 1


def test_a_key_is_shown_unchanged() -> None:
    """A key with `:family:`, which rich would render as an emoji, is shown unchanged."""
    with embedded.valkey() as server:
        server.ask("SET", "revoked:family:1", "x")
        outcome = ephemera("audit", "--url", server.url, "--catalogue", "tests.cli.test_audit:pictures")
    assert outcome.code == 0
    assert "revoked:family:{family}: 1 key without a TTL" in outcome.out
    assert "👪" not in outcome.out
