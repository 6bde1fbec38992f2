"""The command `python -m tests.soak`: run a soak and print what came back; exits with 1 if some did not."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from tests.soak.run import Soak
from tests.soak.verdict import as_csv, table


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Traffic over the demonstration."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of traffic (10)")
    parser.add_argument("--csv", type=Path, help="a file for the readings of every process over time")
    arguments = parser.parse_args()
    soak = Soak(arguments.minutes * 60, interval=max(1.0, min(10.0, arguments.minutes * 2)))
    try:
        findings = asyncio.run(soak.run())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    if arguments.csv is not None:
        arguments.csv.write_text(as_csv(soak.readings))
    kept = [finding for finding in findings if not finding.holds]
    print(table(findings))
    print(f"{soak.requests} requests, {soak.failed} failed; {len(kept)} of {len(findings)} did not come back")
    return 1 if kept or not soak.requests else 0


if __name__ == "__main__":
    sys.exit(main())
