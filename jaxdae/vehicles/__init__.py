"""Wheeled vehicles: terrains, and how vehicles stand on them."""

from jaxdae.geometry.terrain import Cylinder, HeightMap, Hills, Plane, Terrain

__all__ = ["Cylinder", "HeightMap", "Hills", "Plane", "Terrain"]
