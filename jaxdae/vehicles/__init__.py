"""Wheeled vehicles in the plane: constructors, maps between twists and wheel rates, overconstrained wheels, odometry, tire curves."""

from jaxdae.vehicles.constructors import (
    ackermann,
    ackermann_angles,
    bicycle,
    differential_drive,
    mecanum,
    omni,
    skid_steer,
    truck_and_trailers,
)

__all__ = [
    "ackermann",
    "ackermann_angles",
    "bicycle",
    "differential_drive",
    "mecanum",
    "omni",
    "skid_steer",
    "truck_and_trailers",
]
