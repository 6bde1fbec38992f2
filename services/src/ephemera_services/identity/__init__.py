"""Accounts, tokens and profiles for a family of services; see README.md here."""
