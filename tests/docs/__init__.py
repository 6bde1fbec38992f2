"""The documentation is true: its programs run, its links lead somewhere, and nothing public is missing."""
