"""Django, with a database and a server for its tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from ephemera.adapters.django import store
from ephemera.adapters.django._configuration import close_store
from ephemera.embedded import Valkey
from tests import isolation
from tests.adapters import django_settings
from tests.conftest import running_server
from tests.server_choice import ClusterAsServer


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Valkey | ClusterAsServer]:
    """A server of their own: adapters keep connections open, and other tests count those of theirs."""
    yield from running_server(request)


@pytest.fixture(scope="session")
def _database() -> Iterator[None]:
    """The tables of Django's own applications."""
    call_command("migrate", verbosity=0)
    yield
    connections.close_all()


@pytest.fixture
def django_store(server: Any, _database: None) -> Iterator[Any]:
    """The store of Django's process, on an empty server; closed at the end."""
    with override_settings(EPHEMERA={**django_settings.SITE, "URL": server.url}):
        isolation.empty_shared_servers()
        yield store()
        close_store()
