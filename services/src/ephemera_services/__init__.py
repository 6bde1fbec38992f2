"""Complete services on Ephemera's public API, and the few pieces that they share; see README.md here."""
