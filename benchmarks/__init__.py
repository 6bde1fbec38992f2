"""Ours against the peers, in one process and one run: `python -m benchmarks`, or `make bench`."""
