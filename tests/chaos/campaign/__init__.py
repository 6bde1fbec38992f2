"""The fault campaign: all five services under load while everything around them fails, and what must hold."""

SYSTEMS = ("identity", "slides", "scripture", "feed", "league")
REPORT = "docs/proof/faults.md"
