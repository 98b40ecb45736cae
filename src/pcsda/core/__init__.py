"""The mathematics of pcsda: pure functions on arrays, NumPy and SciPy only."""
