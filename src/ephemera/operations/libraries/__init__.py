"""Libraries: which other library wrote a key, what it is for, and what to know about it.

    found = identify(b"celery-task-meta-7c9e6679", "string")
    print(found.library.name, found.keys.role)

*How.* A library is a declaration (`LIBRARIES`): the names of its keys with their types, role and purpose, its
known hazards, and what to change first. A key belongs to it if its name and its type fit. Names that many
programs use (`queue:*`, `retry`) count only where a key was found that no other program would write, or where
the content tells (`session:*`, `lock:*`). A queue with a name of your own is known by its messages.

*Add one.* Add a `Library` to `_jobs.py` or `_web.py`, and a function to `tests/operations/library_writers.py`
that writes its keys, best by the library itself.
"""

from ephemera.operations.libraries._jobs import JOB_LIBRARIES
from ephemera.operations.libraries._matcher import (
    Identified,
    SeenKey,
    confirmed,
    exact_names,
    identify,
    identify_shape,
    library_of,
    needs_content,
    signs_of,
)
from ephemera.operations.libraries._signature import KeySignature, Library
from ephemera.operations.libraries._web import WEB_LIBRARIES

LIBRARIES: tuple[Library, ...] = (*JOB_LIBRARIES, *WEB_LIBRARIES)
"""Every library that is recognized."""

__all__ = [
    "JOB_LIBRARIES",
    "LIBRARIES",
    "Identified",
    "KeySignature",
    "Library",
    "SeenKey",
    "confirmed",
    "exact_names",
    "identify",
    "identify_shape",
    "library_of",
    "needs_content",
    "signs_of",
]
