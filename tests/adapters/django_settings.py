"""Settings of a Django site, for all tests of a process: Django takes them once."""

from __future__ import annotations

import django
from django.conf import settings

SITE = {"URL": "redis://127.0.0.1:1", "LIMITS": {"site": ("1000/minute", "address")}}
"""The setting `EPHEMERA`; tests give it a server."""

settings.configure(
    SECRET_KEY="for tests",
    ALLOWED_HOSTS=["*"],
    USE_TZ=True,
    ROOT_URLCONF="tests.adapters.django_site",
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:site?mode=memory&cache=shared"}
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "django.contrib.sessions",
        "ephemera.adapters.django",
    ],
    MIDDLEWARE=[
        "ephemera.adapters.django.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "tests.adapters.django_site.user_in_header",
        "ephemera.adapters.django.LimitMiddleware",
    ],
    SESSION_ENGINE="ephemera.adapters.django",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    EPHEMERA=SITE,
)
django.setup()
