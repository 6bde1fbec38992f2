"""The code that is mutated, and the tests that execute it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SERVICES = "services/src/ephemera_services"
_ACCESS = (
    "runtime/credentials.py", "runtime/sign_in_attempts.py", "runtime/bearer_tokens.py",
    "runtime/limited_process.py", "runtime/open_streams.py", "runtime/outbound_requests.py",
    "runtime/pending_sign_outs.py", "identity/access.py", "identity/account_changes.py",
    "identity/account_routes.py", "identity/accounts.py", "identity/admin_routes.py",
    "identity/auth_routes.py", "identity/revocation_feed.py", "identity/sign_ins.py",
    "identity/signing_keys.py", "identity/token_routes.py", "identity/token_status.py",
    "identity/user_locks.py", "slides/access.py", "slides/account_routes.py", "slides/accounts.py",
    "slides/api_keys.py", "slides/operator_routes.py", "scripture/access.py", "scripture/users.py",
    "scripture/revocations.py", "league/access.py", "league/accounts.py", "league/administration/editor.py",
    "league/administration/live_control.py", "league/administration/people_routes.py", "feed/access.py",
)  # fmt: skip

GROUPS: dict[str, tuple[int, tuple[str, ...]]] = {
    "wire": (20, ("src/ephemera/wire/*.py",)),
    "keyspace": (15, ("src/ephemera/keyspace/*.py",)),
    "patterns": (
        25,
        ("src/ephemera/patterns/*.py", "src/ephemera/patterns/*/*.py", "src/ephemera/adapters/lang*/*.py"),
    ),
    "scripts": (
        15,
        (
            "src/ephemera/keyspace/lua/*.lua",
            "src/ephemera/patterns/**/lua/*.lua",
            "src/ephemera/adapters/lang*/lua/*.lua",
        ),
    ),
    "web": (12, ("src/ephemera/web/*.py",)),
    "access": (13, tuple(f"{_SERVICES}/{name}" for name in _ACCESS)),
}
"""The groups of code: how many of a hundred mutants each gets, and its files."""

_FOLDERS = "keyspace wire blocking sync web patterns adapters defects traps operations fuzz security"
_IN_PROCESS = ("tests/services/test_*_upkeep.py", "tests/services/test_passwords.py")
_UNTRACEABLE = (  # their signals interrupt the tracer, too
    "tests/defects/test_core1_interrupted_calls.py",
    "tests/sync/test_interruptions.py",
)
_ACCESS_TESTS = {
    "identity": (
        *("identity", "identity_revocation", "identity_tokens", "identity_traps"),
        *("identity_without_redis", "identity_secrets", "identity_limits"),
        *("identity_admin", "identity_accounts", "identity_mail"),
    ),
    "slides": ("slides_access", "slides"),
    "scripture": ("scripture", "scripture_limits", "scripture_answers", "scripture_key_set"),
    "league": ("league", "league_votes", "league_admin", "league_admin_control"),
    "feed": ("feed", "feed_settings"),
    "runtime": ("identity", "league", "slides_access", "slides_uploads", "outbound_requests"),
}


def files(group: str) -> Iterator[str]:
    """The files of a group, from the root."""
    for glob in GROUPS[group][1]:
        for path in sorted(ROOT.glob(glob)):
            # A simulation chooses the planner's settings.
            if path.name != "_simulation.py" and _has_functions(path):
                yield path.relative_to(ROOT).as_posix()


def _has_functions(path: Path) -> bool:
    """Whether a file has behaviour: an `__init__.py` may only re-export what others define."""
    if path.name != "__init__.py":
        return True
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))


def traced() -> list[str]:
    """The files of tests that execute such code."""
    globs = [f"tests/{folder}/test_*.py" for folder in _FOLDERS.split()]
    return [path for path in _present([*globs, *_IN_PROCESS]) if path not in _UNTRACEABLE]


def of_services(path: str) -> list[str]:
    """The files of tests that concern a file of a service, which they run in processes of its own."""
    if not path.startswith(_SERVICES):
        return []
    service = path.removeprefix(f"{_SERVICES}/").partition("/")[0]
    return [f"tests/services/test_{name}.py" for name in _ACCESS_TESTS[service]]


def _present(globs: list[str]) -> list[str]:
    found = [path.relative_to(ROOT).as_posix() for glob in globs for path in sorted(ROOT.glob(glob))]
    return list(dict.fromkeys(found))
