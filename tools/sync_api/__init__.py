"""Writes the types of the synchronous API, `src/ephemera/sync/_bound.pyi`, from the async classes.

    python -m tools.sync_api            regenerate the file
    python -m tools.sync_api --check    fail if it is out of date

The runtime needs no generated code: `ephemera.sync` makes the synchronous form of a class when it is first
used. Type checkers and editors cannot know those, so this file declares them: every accessor, every class
that a pattern's `bind` returns, and every async class that their methods return, with the same signatures
and docstrings. `Awaitable[X]` becomes `X`, `async with` becomes `with`, an async iterator becomes an
iterator, and a loader or handler becomes a plain function.
"""

from tools.sync_api.stub import STUB, accessors, runtimes, stub

__all__ = ["STUB", "accessors", "runtimes", "stub"]
