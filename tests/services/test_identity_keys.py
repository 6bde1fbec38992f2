"""What identity keeps in Redis is what its design says, documented, and what an audit finds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ephemera.embedded import Valkey
from ephemera.operations.audit import audit
from ephemera.operations.documentation import as_markdown
from ephemera_services.identity import catalogue
from tests.cli.commands import ephemera
from tests.services.identity_users import QUICK, UNLIMITED, administrator, newcomer
from tests.services.services import Served, serving

PAGE = Path(__file__).parents[2] / "docs" / "services" / "identity.md"
LEEWAY = 60
"""Seconds by which a mark outlives its token, because a verifier accepts it a little longer."""


@pytest.mark.parametrize(
    ("pattern", "kind", "seconds"),
    [
        ("session:{user_id}:{sid}", "value", 3600),
        ("blacklist:access:{jti}", "flag", 900 + LEEWAY),
        ("blacklist:refresh:{jti}", "flag", 7 * 86_400 + LEEWAY),
        ("cache:profile:{user_id}", "value", 300),
        ("rate:{subject}:{endpoint}:{yyyyMMddHH}", "counter", 3600),
    ],
)
def test_the_designs_keys_are_declared_as_designed(pattern: str, kind: str, seconds: int) -> None:
    """Each key of the design's table has its pattern, kind and longest life."""
    (space,) = [each for each in catalogue if each.pattern == pattern]
    assert space.kind == kind
    assert space.lifetime.milliseconds == seconds * 1000


def test_the_page_is_made_from_the_catalogue() -> None:
    """docs/services/identity.md is what `ephemera catalogue identity --format markdown` prints."""
    assert PAGE.read_text(encoding="utf-8") == as_markdown(catalogue)
    assert ephemera("catalogue", "identity", "--format", "markdown").out == as_markdown(catalogue)


def test_an_audit_of_a_server_it_has_worked_on_finds_nothing_wrong(
    identity: Served, valkey: Valkey, places: dict[str, str], tmp_path: Path
) -> None:
    """After all kinds of work: nothing unknown, endless, of a wrong type, too long-lived or unreadable."""
    _work(identity)
    windows = {"EPHEMERA_IDENTITY_WINDOWS": "sliding"}
    with serving("identity", tmp_path, **places, **QUICK, **UNLIMITED, **windows) as sliding:
        _work(sliding)
    report = asyncio.run(audit(valkey.url, [catalogue]))
    wrong = {"unknown", "no-ttl", "wrong-type", "ttl-above-policy", "undecodable", "big-key", "misplaced"}
    assert [finding for finding in report.findings if finding.kind in wrong] == []
    assert report.unknown.keys == 0
    seen = {space.pattern for space in report.keyspaces if space.keys}
    assert seen == {space.pattern for space in catalogue if space.kind != "channel"} - {
        "loading:cache:profile:{user_id}",  # there only while a profile is loaded
        *("rate_denied", "sliding_rate_denied", "rate_sign_in_denied"),  # no request is denied
    }
    shown = ephemera(
        *("audit", "--url", valkey.url, "--catalogue", "identity", "--fail-on", ",".join(sorted(wrong)))
    )
    assert shown.code == 0, shown.out


def _work(served: Served) -> None:
    """Leave something in every space: sign in, read, change, upload, refresh, sign out, revoke."""
    root, ann, bob = administrator(served), newcomer(served), newcomer(served)
    for email in (ann.email, "nobody@example.com"):  # from a known and from an unknown address
        served.client.post("/auth/login", json={"email": email, "password": "not the one"})
    ann.profile()
    ann.ask("PUT", f"/api/profiles/{ann.id}", json={"first_name": "A", "last_name": "B"})
    ann.profile()
    ann.ask("POST", "/api/documents/upload", files={"file": ("a.txt", b"text", "text/plain")})
    ann.refresh()
    bob.ask("POST", "/auth/logout")
    carl = newcomer(served)
    root.ask("PUT", f"/admin/users/{carl.id}/role", json={"role": "admin"})
