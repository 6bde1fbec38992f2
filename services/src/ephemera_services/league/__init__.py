"""A football league's site: live matches, predictions, and polling by ETag; see README.md in this folder."""

from typing import TYPE_CHECKING

from ephemera_services._lazy import lazy_exports

if TYPE_CHECKING:
    from ephemera_services.league.app import create_app
    from ephemera_services.league.demo_data import DEMO_ADMINISTRATOR, DEMO_HELPER
    from ephemera_services.league.keys import catalogue
    from ephemera_services.league.settings import Settings

__all__ = ["DEMO_ADMINISTRATOR", "DEMO_HELPER", "Settings", "catalogue", "create_app"]

__getattr__ = lazy_exports(
    __name__,
    {
        "DEMO_ADMINISTRATOR": "demo_data",
        "DEMO_HELPER": "demo_data",
        "Settings": "settings",
        "catalogue": "keys",
        "create_app": "app",
    },
)
