"""Slides: an AI presentation service that survives dead workers; see README.md."""
