"""Foundations: frozen dataclasses as pytrees, user functions, parameter requirements, suggestions, atomic writes."""
