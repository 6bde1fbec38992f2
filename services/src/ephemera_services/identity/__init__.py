"""Accounts, tokens and profiles for a family of services; see README.md in this folder."""

from typing import TYPE_CHECKING

from ephemera_services._lazy import lazy_exports

if TYPE_CHECKING:
    from ephemera_services.identity.app import create_app
    from ephemera_services.identity.demo_data import DEMO_USERS, seed
    from ephemera_services.identity.keys import catalogue
    from ephemera_services.identity.settings import Settings

__all__ = ["DEMO_USERS", "Settings", "catalogue", "create_app", "seed"]

__getattr__ = lazy_exports(
    __name__,
    {
        "DEMO_USERS": "demo_data",
        "Settings": "settings",
        "catalogue": "keys",
        "create_app": "app",
        "seed": "demo_data",
    },
)
