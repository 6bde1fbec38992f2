"""Presentations from topics and documents, written by jobs; see README.md in this folder."""

from typing import TYPE_CHECKING

from ephemera_services._lazy import lazy_exports

if TYPE_CHECKING:
    from ephemera_services.slides.app import create_app
    from ephemera_services.slides.demo_data import DEMO_DOCUMENT
    from ephemera_services.slides.jobs import JOBS
    from ephemera_services.slides.keys import DEFAULT_QUEUES, catalogue
    from ephemera_services.slides.settings import Settings

__all__ = ["DEFAULT_QUEUES", "DEMO_DOCUMENT", "JOBS", "Settings", "catalogue", "create_app"]

__getattr__ = lazy_exports(
    __name__,
    {
        "DEFAULT_QUEUES": "keys",
        "DEMO_DOCUMENT": "demo_data",
        "JOBS": "jobs",
        "Settings": "settings",
        "catalogue": "keys",
        "create_app": "app",
    },
)
