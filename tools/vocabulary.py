"""`make lint`: words that the project does not use, because the field has a better one.

Of tests and benchmarks, the names of functions and classes and the docstrings are read: what they send and
store may be any text.

A word stays possible where it is another word: `nobody` is a Unix user, and decision 18 lists what was
replaced. Add to `ALLOWED` only with such a reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = {
    r"(?<!un)told": "notified, said, or: knows",
    r"untold": "unpublished",
    r"nobody|no-one": "no one, or name who",
    r"somebody": "someone, or name who",
    r"anew|afresh": "again; regenerate, reload",
    r"let(s|ting)? go of?": "release, discard",
    r"whoever|whomever": "any caller, the holder that, ...",
    r"mend(s|ed|ing)?": "fix",
    r"(?<!round[ -])trips?(?!wire)": "round trip",
    r"in hand": "pending",
    r"in vain": "without success, or: for nothing",
    r"for[ -]ever": "forever",
    r"everybody": "everyone",
    r"of (its|their) own accord": "by itself, automatically",
    r"comes? along": "arrives, appears",
    r"bur(y|ied)|burial": "dead letter",
    r"take[ns]? off": "claim the load",
    r"watchtower": "watcher",
    r"at work": "running",
    r"replac(e|es|ing)( [^\s.;:,]+){1,5} by": "replace ... with",
    r"(?<![^,] )also (when|if|where|while|after)": "even when",
    r"so many": "this many, a number of, or: too many",
    r"(?<![^a-z`)] )meanwhile": "in the meantime, since, until then; Meanwhile only begins a sentence",
    r"thereof|therein|herein|hitherto|amiss|aught|naught": "plain words",
    r"shall": "must, is to, or the present tense",
    r"wish(es|ed)?": "request, load request",
    r"(?<!a second )(?<!seconds )apart(?! from)": "separately; distinguish; when offline",
    r"(?<=[,;(] )also (on|in|inside|of|by|those|from|at|as|across|with|for|after|before|that|an?|one)": (
        "including, or even"
    ),
    r"(?<=[,;(] )also (several|new|long|later|what|over|below)": "including, or even",
}
"""What to avoid, as regular expressions, and what to write."""
ALLOWED = {
    "src/ephemera/embedded/_postgresql.py": {"nobody"},
    "docs/security.md": {"nobody"},
    "docs/proof/security.md": {"nobody"},
    "docs/adapters/django.md": {"nobody"},
    "docs/adapters/flask.md": {"nobody"},
    "docs/decisions/0018-layout-and-vocabulary.md": {"*"},
    "services/src/ephemera_services/slides/pdf_text.py": {"apart"},  # a distance on a page
    "tests/defects/test_sec1_embedded_servers.py": {"nobody"},
    "tests/embedded/owners.py": {"nobody"},
}
"""Words that a file may have, because there they mean something else; `*`: all."""
_READ_WHOLE = (
    "src/**/*",
    "services/src/**/*",
    "docs/**/*",
    "examples/**/*",
    "tools/**/*",
    "deploy/**/*",
    "*.md",
)
_NAMES_AND_DOCSTRINGS = ("tests/**/*.py", "benchmarks/**/*.py")
_SUFFIXES = {".py", ".pyi", ".md", ".lua", ".html", ".js", ".css", ".toml"}
_SKIPPED = re.compile(r"tools/vocabulary\.py$|tests/services/test_(league|slides|scripture|feed)")
_ROUND_TRIP = re.compile(r"[Rr]ound[ #*]+trip")
_FORMS = [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), use) for word, use in WORDS.items()]
_EXPRESSION = re.compile("|".join(form.pattern for form, _ in _FORMS), re.IGNORECASE)


def files() -> Iterator[Path]:
    """What is read by users or contributors."""
    for pattern in (*_READ_WHOLE, *_NAMES_AND_DOCSTRINGS):
        for path in sorted(ROOT.glob(pattern)):
            if path.suffix in _SUFFIXES and path.is_file() and not _SKIPPED.search(str(path)):
                yield path


def text_of(path: Path) -> str:
    """What of a file is looked at."""
    text = path.read_text(encoding="utf-8")
    return (
        text if path.relative_to(ROOT).parts[0] not in {"tests", "benchmarks"} else names_and_docstrings(text)
    )


def names_and_docstrings(source: str) -> str:
    """The names of functions and classes, and the docstrings, each on its line; other lines are empty."""
    lines = source.split("\n")
    shown = [""] * len(lines)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            shown[node.lineno - 1] = node.name.replace("_", " ")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            first, end = node.lineno - 1, node.end_lineno or node.lineno
            shown[first:end] = lines[first:end]
    return "\n".join(shown)


def found_in(text: str, allowed: set[str]) -> Iterator[tuple[int, str, str]]:
    """The line, the word and what to write; line breaks count as blanks, so `round` may end a line."""
    if "*" in allowed:
        return
    joined = _ROUND_TRIP.sub(lambda found: found[0].replace("trip", "    "), text.replace("\n", " "))
    for match in _EXPRESSION.finditer(joined):
        if match[0].lower() not in allowed:
            better = next(use for form, use in _FORMS if form.match(joined, match.start()))
            yield text.count("\n", 0, match.start()) + 1, match[0], better


def main() -> int:
    """Print each finding with the word to use; 1 when there is one."""
    count = 0
    for path in files():
        name = str(path.relative_to(ROOT))
        for line, word, better in found_in(text_of(path), ALLOWED.get(name, set())):
            sys.stdout.write(f"{name}:{line}: {word!r}: write {better}\n")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
