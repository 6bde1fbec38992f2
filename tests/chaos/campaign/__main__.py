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
  python -m tests.chaos.campaign                                  two minutes, all services, every fault
  python -m tests.chaos.campaign --minutes 30 --report            half an hour; writes {REPORT}
  python -m tests.chaos.campaign --seed 1234 --minutes 30         the faults of that seed, at the same times
  python -m tests.chaos.campaign --systems league --only kill --only failover

exit code: 0 when all guarantees held, 1 when one was violated (the seed is printed), 2 for wrong usage.
"""


def main() -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args()
    seed = random.randrange(1_000_000) if arguments.seed is None else arguments.seed
    again = _command(arguments, seed)
    from tests.chaos.campaign import (
        report,  # imports all five services, which --help need not wait for
    )
    from tests.chaos.campaign.campaign import Campaign

    print(f"seed {seed}; to repeat it: {again}", flush=True)
    campaign = Campaign(
        seed, arguments.minutes * 60, arguments.systems or SYSTEMS, arguments.only or (), log=_log
    )
    began = time.monotonic()
    try:
        outcome = asyncio.run(campaign.run())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except Exception:
        print(f"the campaign itself failed; to repeat it: {again}", file=sys.stderr)
        raise
    print(report.summary(outcome))
    if arguments.report:
        Path(REPORT).write_text(report.page(outcome, again))
        print(f"wrote {REPORT}")
    return _print_verdict(outcome, again, time.monotonic() - began)


def _print_verdict(outcome: Outcome, again: str, seconds: float) -> int:
    violations = outcome.ledger.violations
    if not violations:
        print(f"all guarantees held ({seconds:.0f} s)")
        return 0
    print(f"{len(violations)} guarantees were violated:")
    for violation in violations:
        print(f"  {violation}")
    print(f"seed {outcome.seed}; to repeat it: {again}")
    return 1


def _log(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def _command(arguments: argparse.Namespace, seed: int) -> str:
    words = ["python -m tests.chaos.campaign", f"--minutes {arguments.minutes:g}", f"--seed {seed}"]
    words += [f"--systems {name}" for name in arguments.systems or ()]
    words += [f"--only {kind}" for kind in arguments.only or ()]
    return " ".join(words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.campaign",
        description="Run all services under load while everything fails; then check their guarantees.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="duration of the faults (default: 2)")
    parser.add_argument("--seed", type=int, help="seed of all random choices (default: random)")
    parser.add_argument(
        "--systems",
        action="append",
        choices=SYSTEMS,
        metavar="NAME",
        help="a service; may be repeated (default: all)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=tuple(KINDS),
        metavar="FAULT",
        help="a kind of fault; may be repeated (default: all)",
    )
    parser.add_argument("--report", action="store_true", help=f"write {REPORT}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
