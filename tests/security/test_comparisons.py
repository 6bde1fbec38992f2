"""Secrets are compared in constant time, or looked up in an index: no `==` of ours can be timed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
SECRET = re.compile(
    r"(^|_)(token|secret|password|digest|signature|hmac|api_key|cookie|credential|mac|otp)s?($|_)",
    re.IGNORECASE,
)
"""Names of what must not be guessed letter by letter."""

ALLOWED = {
    ("systems/slides/accounts.py", "api_keys.c.digest == _digest(key)"): "SQL looks a digest up",
    ("systems/slides/work.py", "shares.c.token == token"): "SQL looks a link up in an index; it is random",
    ("operations/sniffing.py", "look_of(text) in _SECRET_LOOKS"): "what kind of text it looks like",
    ("patterns/cache/flights.py", "claim.holder != flight.token"): "who loads an entry: it opens nothing",
    ("patterns/cache/flights.py", "claim.holder == flight.token"): "the same",
    ("patterns/cache/flights.py", "claim.holder == mine.token"): "the same",
}
"""Comparisons that were looked at, and why they cannot be timed."""


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


def test_no_secret_is_compared_letter_by_letter() -> None:
    """No program of ours compares a token, digest or the like by `==`, but where it was looked at."""
    found = {
        (str(path.relative_to(SOURCES / "ephemera")), text)
        for path in sorted(SOURCES.rglob("*.py"))
        for text in comparisons(path.read_text(encoding="utf-8"))
    }
    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "these are gone, and so should be their exceptions"


def test_tokens_of_services_are_compared_by_digest() -> None:
    """Who checks a token from a header hashes both sides, and compares by hmac.compare_digest."""
    users = [path for path in SOURCES.rglob("*.py") if "compare_digest" in path.read_text(encoding="utf-8")]
    assert {path.name for path in users} >= {"metrics.py", "http_cache_prewarm.py"}
