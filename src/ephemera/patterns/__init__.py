"""Patterns: what a service does with its expendable data, each declared once and safe under fire."""
