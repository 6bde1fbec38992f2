"""Adapters: one module for each framework or library that existing code plugs into.

`ephemera.adapters.flask` needs the extra `flask`, `ephemera.adapters.django` the extra `django`, and so on.
Each needs only its own extra, and none imports another.
"""
