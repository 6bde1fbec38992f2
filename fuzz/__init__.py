"""Fuzzing: `python -m fuzz` sends what nobody should send, for as long as it may, and says what broke."""
