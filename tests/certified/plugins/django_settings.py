"""A pytest plugin for Django's own tests: the settings and databases that its runner would set up.

The default cache is Django's Redis backend on the server of the run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import django
import pytest
from django.conf import settings
from django.test.utils import setup_databases, setup_test_environment, teardown_databases

BACKEND = "django.core.cache.backends.redis.RedisCache"
_APPS = ("contenttypes", "auth", "sites", "sessions", "messages", "staticfiles")
_MIDDLEWARE = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Configure Django, as its `runtests.py` and its settings for SQLite do."""
    folder = Path.cwd() / "tests"
    sys.path.insert(0, str(folder))
    os.environ["RUNNING_DJANGOS_TEST_SUITE"] = "true"
    settings.configure(
        DATABASES={name: {"ENGINE": "django.db.backends.sqlite3"} for name in ("default", "other")},
        SECRET_KEY="django_tests_secret_key",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        USE_TZ=False,
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in _APPS), "cache", "sessions_tests"],
        MIDDLEWARE=list(_MIDDLEWARE),
        MIGRATION_MODULES={"auth": None, "contenttypes": None, "sessions": None},
        ROOT_URLCONF="urls",
        STATIC_URL="static/",
        SITE_ID=1,
        LANGUAGE_CODE="en",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "DIRS": [str(folder / "templates")],
                "APP_DIRS": True,
            }
        ],
        CACHES={"default": {"BACKEND": BACKEND, "LOCATION": os.environ["CERTIFIED_URL"]}},
    )
    django.setup()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Create the test databases, in memory."""
    setup_test_environment()
    made = setup_databases(verbosity=0, interactive=False)
    session.config.add_cleanup(lambda: teardown_databases(made, verbosity=0))
