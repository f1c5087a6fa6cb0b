"""Coordinates of a mechanism: absolute coordinates and joint coordinates."""
