"""The command `ephemera`: what an operator does with a catalogue and a server.

All commands keep to these rules, and `tests/cli` holds them to it:

- exit code 0: done; 1: it failed, or it found something; 2: it was called wrongly;
- every flag has an environment twin, `--some-flag` is `EPHEMERA_SOME_FLAG`;
- results go to stdout, everything else to stderr, and what a machine may read has `--json`;
- an error is one line that says what to do, and no secret is ever printed.
"""

import importlib.util

if importlib.util.find_spec("typer") is None or importlib.util.find_spec("rich") is None:
    raise SystemExit(
        "ephemera: the command line is an extra of its own: pip install '/path/to/ephemera[cli]'"
    )

from ephemera.cli import _acl as acl
from ephemera.cli import _audit as audit
from ephemera.cli import _catalogue as catalogue
from ephemera.cli import _console as console
from ephemera.cli import _dashboard as dashboard
from ephemera.cli import _demo as demo
from ephemera.cli import _doctor as doctor
from ephemera.cli import _events as events
from ephemera.cli import _infer as infer
from ephemera.cli import _jobs as jobs
from ephemera.cli import _locks as locks
from ephemera.cli import _mark as mark
from ephemera.cli import _serve as serve
from ephemera.cli import _server_config as server_config
from ephemera.cli import _worker as worker
from ephemera.cli._application import app, main

COMMANDS = (
    catalogue.COMMAND,
    audit.COMMAND,
    doctor.COMMAND,
    dashboard.COMMAND,
    infer.COMMAND,
    acl.COMMAND,
    server_config.COMMAND,
    mark.COMMAND,
    locks.COMMAND,
    *events.COMMANDS,
    *jobs.COMMANDS,
    worker.COMMAND,
    serve.COMMAND,
    console.COMMAND,
    demo.COMMAND,
)
"""Every command, in the order of the help."""

for _command in COMMANDS:
    _command.add_to(app)

__all__ = ["COMMANDS", "app", "main"]
