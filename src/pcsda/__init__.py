"""Class-specific discriminant analysis: tell one class from the rest of the world."""

__version__ = "0.1.0"
