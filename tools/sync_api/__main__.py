"""`python -m tools.sync_api`."""

import sys

from tools.sync_api import STUB, stub


def main(arguments: list[str]) -> int:
    """Write the file, or check it; returns the exit status."""
    text = stub()
    if "--check" not in arguments:
        STUB.write_text(text, encoding="utf-8")
        return 0
    if STUB.exists() and STUB.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{STUB.name} is out of date; run: python -m tools.sync_api\n")
    return 1


sys.exit(main(sys.argv[1:]))
