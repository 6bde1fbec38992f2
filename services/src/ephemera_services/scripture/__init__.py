"""Scripture content, answers to questions, and events; see README.md in this folder."""

from typing import TYPE_CHECKING

from ephemera_services._lazy import lazy_exports

if TYPE_CHECKING:
    from ephemera_services.runtime import UserCreated
    from ephemera_services.scripture.app import create_app
    from ephemera_services.scripture.importer import ImportOptions, ImportProgress, import_file
    from ephemera_services.scripture.keys import PASSAGES, USERS, catalogue
    from ephemera_services.scripture.settings import Settings
    from ephemera_services.scripture.worker import open_worker

__all__ = [
    "PASSAGES",
    "USERS",
    "ImportOptions",
    "ImportProgress",
    "Settings",
    "UserCreated",
    "catalogue",
    "create_app",
    "import_file",
    "open_worker",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "PASSAGES": "keys",
        "USERS": "keys",
        "ImportOptions": "importer",
        "ImportProgress": "importer",
        "Settings": "settings",
        "UserCreated": "users",
        "catalogue": "keys",
        "create_app": "app",
        "import_file": "importer",
        "open_worker": "worker",
    },
)
