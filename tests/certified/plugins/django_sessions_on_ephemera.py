"""A pytest plugin that has Django's tests of its cache session engine test our session engine."""

from __future__ import annotations

import os

import pytest
from django.conf import settings

from ephemera.adapters.django import SessionStore


def pytest_configure(config: pytest.Config) -> None:
    """Name the server of our sessions."""
    settings.EPHEMERA = {"URL": os.environ["CERTIFIED_URL"]}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Replace the engine of the tests."""
    if (cls := getattr(item, "cls", None)) is not None and hasattr(cls, "backend"):
        cls.backend = SessionStore
