"""Benchmarks: how fast the library is, and how well it works."""
