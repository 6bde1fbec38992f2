"""Five complete services built on `ephemera-data`, and a demonstration that runs all of them."""

SERVICES = ("feed", "identity", "league", "scripture", "slides")
"""The names of the services, as `ephemera serve NAME` takes them."""

__all__ = ["SERVICES"]
