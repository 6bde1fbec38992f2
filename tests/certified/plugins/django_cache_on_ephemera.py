"""A pytest plugin that puts our cache backend in place of Django's.

`CERTIFIED_SERIALIZER` is the serializer; Django's own backend has pickle.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings

from ephemera.adapters.django import RedisCache


def pytest_configure(config: pytest.Config) -> None:
    """Put ours in place of the class, by its path: the settings of the tests name it."""
    module: Any = import_module("django.core.cache.backends.redis")
    module.RedisCache = RedisCache
    settings.CACHES["default"]["OPTIONS"] = {"serializer": os.environ["CERTIFIED_SERIALIZER"]}
