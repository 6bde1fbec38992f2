"""The command `python -m tests.chaos.campaign`: run a campaign and report whether every guarantee held."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path

from tests.chaos.campaign import REPORT, SYSTEMS
from tests.chaos.campaign.campaign import Outcome
from tests.chaos.campaign.schedule import KINDS

_KINDS = "\n".join(f"  {kind:<10}{what}" for kind, what in KINDS.items())
_EPILOGUE = f"""\
faults:
{_KINDS}

examples:
  python -m tests.chaos.campaign                                  two minutes, all systems, every fault
  python -m tests.chaos.campaign --minutes 30 --report            half an hour; writes {REPORT}
  python -m tests.chaos.campaign --seed 1234 --minutes 30         the faults of that seed, at the same moments
  python -m tests.chaos.campaign --systems league --only kill --only failover

exit code: 0 when everything held, 1 when something did not (the seed is printed), 2 for wrong usage.
"""


def main() -> int:
    """Run what the command line asks for; the result is the exit code."""
    arguments = _parser().parse_args()
    seed = random.randrange(1_000_000) if arguments.seed is None else arguments.seed
    again = _command(arguments, seed)
    from tests.chaos.campaign import (
        report,  # all five services, which whoever asks for help need not wait for
    )
    from tests.chaos.campaign.campaign import Campaign

    print(f"seed {seed}; to have the same faults again: {again}", flush=True)
    campaign = Campaign(
        seed, arguments.minutes * 60, arguments.systems or SYSTEMS, arguments.only or (), tell=_tell
    )
    begun = time.monotonic()
    try:
        outcome = asyncio.run(campaign.run())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except Exception:
        print(f"the campaign itself failed, with seed {seed}; again: {again}", file=sys.stderr)
        raise
    print(report.summary(outcome))
    if arguments.report:
        Path(REPORT).write_text(report.page(outcome, again))
        print(f"wrote {REPORT}")
    return _judged(outcome, again, time.monotonic() - begun)


def _judged(outcome: Outcome, again: str, seconds: float) -> int:
    violations = outcome.ledger.violations
    if not violations:
        print(f"everything held ({seconds:.0f} s)")
        return 0
    print(f"{len(violations)} promises were broken:")
    for violation in violations:
        print(f"  {violation}")
    print(f"seed {outcome.seed}; to have the same faults again: {again}")
    return 1


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def _command(arguments: argparse.Namespace, seed: int) -> str:
    words = ["python -m tests.chaos.campaign", f"--minutes {arguments.minutes:g}", f"--seed {seed}"]
    words += [f"--systems {name}" for name in arguments.systems or ()]
    words += [f"--only {kind}" for kind in arguments.only or ()]
    return " ".join(words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.campaign",
        description="All services under load while everything fails; then what was promised is checked.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long faults go on (default: 2)")
    parser.add_argument("--seed", type=int, help="where all chance comes from (default: another each time)")
    parser.add_argument(
        "--systems",
        action="append",
        choices=SYSTEMS,
        metavar="NAME",
        help="a system; may be repeated (default: all)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=tuple(KINDS),
        metavar="FAULT",
        help="a kind of fault; may be repeated",
    )
    parser.add_argument("--report", action="store_true", help=f"write {REPORT}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
