"""`make lint`: words that the project does not use, because the field has a better one.

A word stays possible where it is another word: `nobody` is a Unix user, and decision 18 lists what was
replaced. Add to `ALLOWED` only with such a reason.
"""

from __future__ import annotations

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
}
"""What to avoid, as regular expressions, and what to write."""
ALLOWED = {
    "src/ephemera/embedded/_postgresql.py": {"nobody"},
    "docs/security.md": {"nobody"},
    "docs/adapters/django.md": {"nobody"},
    "docs/adapters/flask.md": {"nobody"},
    "docs/decisions/0018-layout-and-vocabulary.md": {"*"},
}
"""Words that a file may have, because there they mean something else; `*`: all."""
_LOOKED_AT = ("src/**/*", "services/src/**/*", "docs/**/*", "examples/**/*", "tools/**/*", "*.md")
_SUFFIXES = {".py", ".pyi", ".md", ".lua", ".html", ".js", ".css", ".toml"}
_ROUND_TRIP = re.compile(r"[Rr]ound[ #*]+trip")
_EXPRESSION = re.compile("|".join(rf"\b(?:{word})\b" for word in WORDS), re.IGNORECASE)


def files() -> Iterator[Path]:
    """What is read by users or contributors."""
    for pattern in _LOOKED_AT:
        for path in sorted(ROOT.glob(pattern)):
            if path.suffix in _SUFFIXES and path != Path(__file__) and path.is_file():
                yield path


def found_in(text: str, allowed: set[str]) -> Iterator[tuple[int, str]]:
    """The line and the word of each finding; line breaks count as blanks, so `round` may end a line."""
    if "*" in allowed:
        return
    joined = _ROUND_TRIP.sub(lambda found: found[0].replace("trip", "    "), text.replace("\n", " "))
    for match in _EXPRESSION.finditer(joined):
        if match[0].lower() not in allowed:
            yield text.count("\n", 0, match.start()) + 1, match[0]


def main() -> int:
    """Print each finding with the word to use; 1 when there is one."""
    count = 0
    for path in files():
        name = str(path.relative_to(ROOT))
        for line, word in found_in(path.read_text(encoding="utf-8"), ALLOWED.get(name, set())):
            better = next(use for form, use in WORDS.items() if re.fullmatch(form, word, re.IGNORECASE))
            sys.stdout.write(f"{name}:{line}: {word!r}: write {better}\n")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
