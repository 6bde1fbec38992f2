"""Ours against the peers, in one process and one run: `python -m bench`, or `make bench`."""
