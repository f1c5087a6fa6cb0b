"""Wheeled vehicles in the plane: constructors, maps between twists and wheel rates, overconstrained wheels, odometry, tire curves."""

from jaxdae.vehicles.commonroad import (
    DynamicSingleTrack,
    KinematicSingleTrack,
    KinematicSingleTrackTrailer,
    axle_loads,
    from_commonroad,
    limited_inputs,
    to_commonroad,
    wheel_loads,
)
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
from jaxdae.vehicles.layout import Wheels, wheels, wheels_of
from jaxdae.vehicles.maps import body_twist, integrate_twist, odometry_covariance, steering_angles, wheel_noise, wheel_rates
from jaxdae.vehicles.overconstraint import EquivalentBicycle, IndependentRows, LeastResidual, WheelReport, vehicle_twist
from jaxdae.vehicles.segway import Segway

__all__ = [
    "DynamicSingleTrack",
    "EquivalentBicycle",
    "IndependentRows",
    "KinematicSingleTrack",
    "KinematicSingleTrackTrailer",
    "LeastResidual",
    "Segway",
    "WheelReport",
    "Wheels",
    "ackermann",
    "ackermann_angles",
    "axle_loads",
    "bicycle",
    "body_twist",
    "differential_drive",
    "from_commonroad",
    "integrate_twist",
    "limited_inputs",
    "mecanum",
    "odometry_covariance",
    "omni",
    "skid_steer",
    "steering_angles",
    "to_commonroad",
    "truck_and_trailers",
    "vehicle_twist",
    "wheel_loads",
    "wheel_noise",
    "wheel_rates",
    "wheels",
    "wheels_of",
]
