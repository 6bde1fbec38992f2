"""The settings of the shop; what Ephemera needs is marked."""

import os
from pathlib import Path

SECRET_KEY = os.environ.get("SECRET_KEY", "only on your own machine")
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
USE_TZ = True
ROOT_URLCONF = "shop"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", Path(__file__).parent / "shop.sqlite3"),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "ephemera.adapters.django",  # declares the sessions, and adds `manage.py ephemera`
]
MIDDLEWARE = [
    "ephemera.adapters.django.SessionMiddleware",  # in place of Django's
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "ephemera.adapters.django.LimitMiddleware",  # the limits below, for every view
]
SESSION_ENGINE = "ephemera.adapters.django"  # Ephemera's sessions
EPHEMERA = {
    "URL": os.environ.get("REDIS_URL", "redis://127.0.0.1"),
    "LIMITS": {"site": ("600/minute", "user")},
}
