"""Ephemera: the expendable data layer of a Python service."""
