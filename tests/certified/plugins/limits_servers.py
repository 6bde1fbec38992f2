"""A pytest plugin for the tests of limits: the servers that its compose file would start run already."""

from __future__ import annotations

import pytest


class RunningServices:
    """Stands for the plugin that talks to Docker."""

    def start(self, *_names: str) -> None:
        """Do nothing: it runs."""

    def wait_for_service(self, *_args: object) -> None:
        """Do nothing: it is ready."""


@pytest.fixture(scope="session")
def docker_services() -> RunningServices:
    """What the conftest of limits builds on."""
    return RunningServices()
