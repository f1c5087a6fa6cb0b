"""Foundations: pytree dataclasses, user functions, parameter requirements, suggestions, atomic writes."""
