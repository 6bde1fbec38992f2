"""Type checks against classes of packages that need an extra, without importing them."""

from __future__ import annotations

import sys


def is_instance(value: object, package: str, name: str) -> bool:
    """Whether a value is of a class in a package; if nothing has imported the package, it cannot be."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))
