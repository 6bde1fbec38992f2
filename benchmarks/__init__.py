"""Ephemera and its peers, measured in one process and one run: `python -m benchmarks`, or `make bench`."""
