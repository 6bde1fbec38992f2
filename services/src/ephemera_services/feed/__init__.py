"""A personal feed of clustered insights; see README.md in this folder."""

from typing import TYPE_CHECKING

from ephemera_services._lazy import lazy_exports

if TYPE_CHECKING:
    from ephemera_services.feed.app import create_app
    from ephemera_services.feed.demo_data import seed
    from ephemera_services.feed.keys import catalogue
    from ephemera_services.feed.metrics import Metrics
    from ephemera_services.feed.settings import Settings
    from ephemera_services.feed.worker import open_worker

__all__ = ["Metrics", "Settings", "catalogue", "create_app", "open_worker", "seed"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Metrics": "metrics",
        "Settings": "settings",
        "catalogue": "keys",
        "create_app": "app",
        "open_worker": "worker",
        "seed": "demo_data",
    },
)
