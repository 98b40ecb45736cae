"""Measurements of the library: how fast it is, and how well it does."""
