"""`manage.py ephemera`: the sessions of a user, and the command line for the server of the settings.

manage.py ephemera sessions 42          a user's sessions, by primary key
manage.py ephemera sign-out 42          end them all
manage.py ephemera audit                any command of `ephemera`
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import get_resolver

from ephemera.adapters.django._configuration import setting, stored_sessions

_CATALOGUE = "ephemera.adapters.django:catalogue"


class Command(BaseCommand):
    """Sessions of a user, and every command of `ephemera` for this project's server and catalogue."""

    help = "sessions USER, sign-out USER, or any command of `ephemera`: audit, doctor, catalogue, acl ..."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the command and its arguments as they are."""
        parser.add_argument("command", help="sessions, sign-out, or a command of `ephemera`")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")

    def handle(self, *_: Any, command: str, arguments: list[str], **_options: Any) -> None:
        """Run it."""
        own = {"sessions": self._sessions, "sign-out": self._sign_out}.get(command)
        if own is None:
            self._command_line([command, *arguments])
        elif len(arguments) != 1:
            raise CommandError(f"{command} takes the primary key of a user: manage.py ephemera {command} 42")
        else:
            own(arguments[0])

    def _sessions(self, user: str) -> None:
        for each in stored_sessions().of_user(user):
            self.stdout.write(f"{each.id}  until {each.ends:%Y-%m-%d %H:%M} UTC")

    def _sign_out(self, user: str) -> None:
        self.stdout.write(f"{stored_sessions().end_all(user)} sessions ended")

    def _command_line(self, arguments: list[str]) -> None:
        """Run `ephemera` in this process, whose settings and catalogue it needs."""
        _ = get_resolver().url_patterns  # imports the views, which declare their limits
        defaults = {"EPHEMERA_URL": setting("URL"), "EPHEMERA_CATALOGUE": _CATALOGUE}
        added = {name: value for name, value in defaults.items() if name not in os.environ}
        os.environ.update(added)
        before, sys.argv = sys.argv, ["ephemera", *arguments]
        try:
            import_module("ephemera.cli").main()  # above this layer: found when it is asked for
        finally:
            sys.argv = before
            for name in added:
                del os.environ[name]
