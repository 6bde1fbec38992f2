"""Secrets are compared in constant time, or looked up in an index: no `==` of ours can be timed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src", ROOT / "services" / "src")
SECRET = re.compile(
    r"(^|_)(token|secret|password|digest|signature|hmac|api_key|cookie|credential|mac|otp)s?($|_)",
    re.IGNORECASE,
)
"""Names of what must not be guessed letter by letter."""

ALLOWED = {
    ("ephemera/wire/_client.py", "target.credentials != Credentials()"): "whether there are any",
    (
        "ephemera/adapters/django/_sessions.py",
        "settings.SESSION_COOKIE_NAME in response.cookies",
    ): "the name of a cookie",
    ("ephemera_services/identity/revocation_feed.py", "digest not in known"): "digests that are public",
    ("ephemera_services/scripture/revocations.py", "digest not in self._ended"): "the same",
    (
        "ephemera_services/runtime/credentials.py",
        "'\\x00' in password.get_secret_value()",
    ): "a search",
    ("ephemera_services/slides/api_keys.py", "api_keys.c.digest == _digest(key)"): "SQL looks a digest up",
    (
        "ephemera_services/identity/user_locks.py",
        "password_version not in (None, user.password_version)",
    ): "a number",
    ("ephemera_services/identity/accounts.py", "users.c.password_version == version"): "the same",
    (
        "ephemera_services/identity/account_changes.py",
        "mail_tokens.c.digest == digest_of(code)",
    ): "SQL looks a digest up",
    (
        "ephemera_services/slides/accounts.py",
        "c.password_hash == password_hash",
    ): "SQL compares two of its own hashes",
    ("ephemera_services/slides/workspace.py", "shares.c.token == token"): "SQL looks a random link up",
    (
        "ephemera/patterns/http_cache/_resource.py",
        "sha256(content).hexdigest() != page.pointer",
    ): "a checksum",
    (
        "ephemera_services/league/page_objects.py",
        "digest in self._recent",
    ): "names of pages, which are public",
    ("ephemera/patterns/cache/_load_coordinator.py", "claim.holder != load.token"): "it grants nothing",
    ("ephemera/patterns/cache/_load_coordinator.py", "claim.holder == load.token"): "the same",
    ("ephemera/patterns/cache/_load_coordinator.py", "claim.holder == mine.token"): "the same",
}
"""Reviewed comparisons, and why timing them reveals nothing."""


def _named(node: ast.expr) -> str:
    """The name that says what a value is; empty for constants and calls that give a number."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    if isinstance(node, ast.Await):
        return _named(node.value)
    if isinstance(node, ast.Call):
        called = _named(node.func)
        return called if called in ("digest", "hexdigest", "reveal", "get_secret_value") else ""
    return ""


def comparisons(source: str) -> list[str]:
    """The `==`, `!=` and `in` of a program of which a side has a secret's name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        equal = [isinstance(each, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for each in node.ops]
        if any(isinstance(side, ast.Constant) and side.value is None for side in sides):
            continue
        secret = [SECRET.search(_named(side)) or _named(side) in ("reveal", "hexdigest") for side in sides]
        if any(equal) and any(secret):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "naive",
    [
        "if token == expected: pass",
        "ok = form.password != row['password']",
        "ok = hashlib.sha256(x).digest() == kept",
        "ok = given == settings.api_key",
        "ok = secret.reveal() == text",
    ],
)
def test_the_review_finds_naive_comparisons(naive: str) -> None:
    """What a hurried reader would write is found."""
    assert comparisons(naive)


def _sources() -> dict[str, str]:
    """Return the library's and the services' modules, by path."""
    return {
        str(path.relative_to(source)): path.read_text(encoding="utf-8")
        for source in SOURCES
        for path in sorted(source.rglob("*.py"))
    }


def test_no_secret_is_compared_letter_by_letter() -> None:
    """No module compares a token, digest or the like by `==`, except the reviewed ones."""
    found = {(path, text) for path, source in _sources().items() for text in comparisons(source)}
    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "these are gone, and so should be their exceptions"


def test_tokens_in_headers_are_compared_by_digest() -> None:
    """A module that checks a token from a header compares digests by hmac.compare_digest."""
    users = {path for path, source in _sources().items() if "compare_digest" in source}
    assert users >= {"ephemera/web/_endpoints.py", "ephemera_services/runtime/bearer_tokens.py"}
