"""Mechanical systems with constraints, and their linearization at a state."""
