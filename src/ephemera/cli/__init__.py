"""The command line: `ephemera`, for operating catalogues and servers.

All commands follow these rules, and `tests/cli` checks them:

- exit code 0: success; 1: failure, or something was found; 2: wrong usage;
- every option has an environment variable, `--some-flag` is `EPHEMERA_SOME_FLAG`;
- results go to stdout, everything else to stderr, and machine-readable results have `--json`;
- an error is one line that says what to do, and no secret is ever printed.

Installed packages add commands, catalogues, jobs and workers by entry point (`_plugins`). A command is a
`Command` around a function whose parameters are annotated with `flag(...)`.
"""

import importlib.util

if importlib.util.find_spec("typer") is None or importlib.util.find_spec("rich") is None:
    raise SystemExit("ephemera: the command line needs an extra: pip install 'ephemera-data[cli]'")

from ephemera.cli._catalogue_lookup import load_catalogue, load_jobs
from ephemera.cli._command import AsJson, CatalogueArgument, CatalogueFlag, Command, Url, flag, run
from ephemera.cli._job_flags import DatabaseUrl, JobsArgument, QueueUrl, address, refusal
from ephemera.cli._logs import JsonFormatter, configure_logs
from ephemera.cli._main import commands, create_app, main
from ephemera.cli._ports import check_free, is_loopback
from ephemera.cli._worker import RunWorker, WorkerOptions, run_jobs

__all__ = [
    "AsJson",
    "CatalogueArgument",
    "CatalogueFlag",
    "Command",
    "DatabaseUrl",
    "JobsArgument",
    "JsonFormatter",
    "QueueUrl",
    "RunWorker",
    "Url",
    "WorkerOptions",
    "address",
    "check_free",
    "commands",
    "configure_logs",
    "create_app",
    "flag",
    "is_loopback",
    "load_catalogue",
    "load_jobs",
    "main",
    "refusal",
    "run",
    "run_jobs",
]
