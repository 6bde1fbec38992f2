"""A personal feed of clustered insights; see README.md in this folder."""

from typing import TYPE_CHECKING

from ephemera_services._lazy import lazy_exports

if TYPE_CHECKING:
    from ephemera_services.feed.app import create_app
    from ephemera_services.feed.demo_data import DEMO_CHANNELS, demo_news, seed
    from ephemera_services.feed.keys import catalogue
    from ephemera_services.feed.metrics import Metrics
    from ephemera_services.feed.settings import Settings
    from ephemera_services.feed.worker import open_worker

__all__ = [
    "DEMO_CHANNELS",
    "Metrics",
    "Settings",
    "catalogue",
    "create_app",
    "demo_news",
    "open_worker",
    "seed",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "DEMO_CHANNELS": "demo_data",
        "Metrics": "metrics",
        "Settings": "settings",
        "catalogue": "keys",
        "create_app": "app",
        "demo_news": "demo_data",
        "open_worker": "worker",
        "seed": "demo_data",
    },
)
