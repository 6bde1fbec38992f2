"""The application for `INSTALLED_APPS`: it declares sessions and limits, and adds `manage.py ephemera`."""

from django.apps import AppConfig
from django.conf import settings


class EphemeraConfig(AppConfig):
    """`INSTALLED_APPS = [..., "ephemera.adapters.django"]`."""

    name = "ephemera.adapters.django"
    label = "ephemera"
    verbose_name = "Ephemera"

    def ready(self) -> None:
        """Declare the sessions, so that documentation, audit and access rules include them."""
        from ephemera.adapters.django._configuration import declared_sessions

        if self.name == settings.SESSION_ENGINE:
            declared_sessions()
