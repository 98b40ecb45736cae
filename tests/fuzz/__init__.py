"""Attacks on the library, each given by a seed: `make fuzz`, or ``python -m fuzz`` in tests."""
