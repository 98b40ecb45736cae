"""Attacks on the library, each made of a seed: `make fuzz`, or ``python -m fuzz`` in tests."""
