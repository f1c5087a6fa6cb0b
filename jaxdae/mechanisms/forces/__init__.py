"""The types of forces, one class each."""
