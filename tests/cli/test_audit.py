"""`ephemera audit`: what it prints, and how it ends."""

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
    """A server with a password, a key of every space, and some that are not as declared."""
    with embedded.valkey(password=SECRET) as server:
        asyncio.run(stock(server.url))
        for number in range(12):
            server.ask("SET", f"order:x:{number}", "1")
        server.ask("PERSIST", "session:s3cret")
        yield server


def test_the_report_for_people_has_all_parts(shop: Valkey) -> None:
    """Servers, spaces, unknown shapes, streams, findings, and what looking has done, in words and figures."""
    outcome = ephemera("audit", "--url", shop.url, "--catalogue", SHOP)
    assert outcome.code == 0
    software = "valkey" if "valkey_version" in str(shop.ask("INFO", "server")) else "redis"
    for told in (
        "shop on 1 server: 21 names (all of 21 keys)",
        software,
        "profile:{user_id}",
        "order:x:{x_id}",
        "string │ order:x:",
        "events:all",
        "session:{session_id}: 1 key without a TTL, declared 1 h sliding",
        "The audit raised keyspace_hits",
    ):
        assert told in outcome.out, told


def test_the_report_for_machines_is_complete(shop: Valkey) -> None:
    """JSON has every space, finding and figure; stderr stays silent when nobody watches."""
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
def test_the_exit_code_tells_what_was_asked_for(shop: Valkey, words: list[str], code: int) -> None:
    """It is 1 when a kind of --fail-on was found, and 0 otherwise."""
    assert ephemera("audit", "--url", shop.url, "--catalogue", SHOP, *words).code == code


def test_the_environment_may_say_everything(shop: Valkey) -> None:
    """Every flag may come from the environment, those with several values separated by spaces."""
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


def test_a_budget_and_a_cursor_go_round_by_the_command_line(shop: Valkey) -> None:
    """What the report says to continue with continues."""
    flat = [str(part) for number in range(5000) for part in (f"seen:{number}", 1)]
    shop.ask("MSET", *flat)
    first = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, "--budget", "0.001ms")
    assert "Not seen: the names after the cursor" in first.out
    cursor = first.out.partition("Resume with --cursor ")[2].split()[0]
    second = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, "--cursor", cursor)
    assert "Not seen: the names before the cursor" in second.out
    assert "Continue with" not in second.out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--budget", "soon"], 2, "'soon' is not a duration above 0"),
        (["--fail-on", "unkown"], 2, "unkown is not a kind of finding"),
        (["--cursor", "12"], 2, "start again without it"),
        (["--sample", "-1"], 2, "greater than or equal to 0"),
        (["--catalogue", "nowhere:catalogue"], 2, "cannot be imported"),
    ],
)
def test_wrong_calls_say_what_is_wrong(shop: Valkey, words: list[str], code: int, told: str) -> None:
    """Each mistake has its line and its exit code."""
    outcome = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, *words)
    assert outcome.code == code
    assert told in outcome.said


def test_a_server_that_is_away_is_one_line() -> None:
    """No trace, no report: what is wrong and what to do."""
    outcome = ephemera("audit", "--url", "redis://127.0.0.1:1", "--catalogue", SHOP)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("ephemera: 127.0.0.1:1: cannot connect")
    assert outcome.err.count("\n") == 1


def test_a_key_is_shown_as_it_is() -> None:
    """What rich would take for a picture's name, `:family:`, stays what it is wherever a key is told."""
    with embedded.valkey() as server:
        server.ask("SET", "revoked:family:1", "x")
        outcome = ephemera("audit", "--url", server.url, "--catalogue", "tests.cli.test_audit:pictures")
    assert outcome.code == 0
    assert "revoked:family:{family}: 1 key without a TTL" in outcome.out
    assert "👪" not in outcome.out
