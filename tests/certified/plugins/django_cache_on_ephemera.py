"""A pytest plugin that puts our cache backend in place of Django's, with the serializer that it has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.conf import settings

from ephemera.adapters.django import RedisCache


def pytest_configure(config: pytest.Config) -> None:
    """Put ours in place of the class, by its path: the settings of the tests name it."""
    module: Any = import_module("django.core.cache.backends.redis")
    module.RedisCache = RedisCache
    settings.CACHES["default"]["OPTIONS"] = {"serializer": "pickle"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Expect the error of Django's other backends where Django's Redis backend raises that of redis-py."""
    if (cls := getattr(item, "cls", None)) is not None and hasattr(cls, "incr_decr_type_error"):
        cls.incr_decr_type_error = TypeError
