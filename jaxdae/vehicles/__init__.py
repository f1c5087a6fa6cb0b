"""Wheeled vehicles: terrains, how vehicles stand on them, and descriptions of some."""

from jaxdae.geometry.terrain import Cylinder, HeightMap, Hills, Plane, Terrain
from jaxdae.vehicles.least_slip import LeastSlip
from jaxdae.vehicles.placement import TerrainReport, place_on_terrain, terrain_report
from jaxdae.vehicles.rover import ROVER_SUSPENSION, ROVER_WHEELS, rocker_bogie
from jaxdae.vehicles.whipple import BicycleParameters, LinearBicycle, linear_bicycle, whipple_bicycle

__all__ = [
    "ROVER_SUSPENSION",
    "ROVER_WHEELS",
    "BicycleParameters",
    "Cylinder",
    "HeightMap",
    "Hills",
    "LeastSlip",
    "LinearBicycle",
    "Plane",
    "Terrain",
    "TerrainReport",
    "linear_bicycle",
    "place_on_terrain",
    "rocker_bogie",
    "terrain_report",
    "whipple_bicycle",
]
