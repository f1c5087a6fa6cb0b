"""Wheeled vehicles: constructors, twist and wheel-rate maps, wheel conflicts, odometry and terrain."""

from jaxdae.geometry.terrain import Cylinder, HeightMap, Hills, Plane, Terrain
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
from jaxdae.vehicles.height_loads import HeightLoads
from jaxdae.vehicles.least_slip import LeastSlip
from jaxdae.vehicles.load_transfer import LoadTransfer
from jaxdae.vehicles.maps import (
    body_twist,
    integrate_twist,
    odometry_covariance,
    steering_angles,
    wheel_noise,
    wheel_rates,
)
from jaxdae.vehicles.overconstraint import (
    EquivalentBicycle,
    IndependentRows,
    LeastResidual,
    WheelReport,
    vehicle_twist,
)
from jaxdae.vehicles.placement import TerrainReport, place_on_terrain, terrain_report
from jaxdae.vehicles.rocker_bogie_rover import ROVER_SUSPENSION, ROVER_WHEELS, rocker_bogie
from jaxdae.vehicles.tire_loads import LoadReport
from jaxdae.vehicles.tire_slips import TireSlip, tire_slip
from jaxdae.vehicles.two_wheels import Segway, segway
from jaxdae.vehicles.wheel_layout import Wheels, wheels, wheels_of
from jaxdae.vehicles.whipple import BicycleParameters, LinearBicycle, linear_bicycle, whipple_bicycle

__all__ = [
    "ROVER_SUSPENSION",
    "ROVER_WHEELS",
    "BicycleParameters",
    "Cylinder",
    "DynamicSingleTrack",
    "EquivalentBicycle",
    "HeightLoads",
    "HeightMap",
    "Hills",
    "IndependentRows",
    "KinematicSingleTrack",
    "KinematicSingleTrackTrailer",
    "LeastResidual",
    "LeastSlip",
    "LinearBicycle",
    "LoadReport",
    "LoadTransfer",
    "Plane",
    "Segway",
    "Terrain",
    "TerrainReport",
    "TireSlip",
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
    "linear_bicycle",
    "mecanum",
    "odometry_covariance",
    "omni",
    "place_on_terrain",
    "rocker_bogie",
    "segway",
    "skid_steer",
    "steering_angles",
    "terrain_report",
    "tire_slip",
    "to_commonroad",
    "truck_and_trailers",
    "vehicle_twist",
    "wheel_loads",
    "wheel_noise",
    "wheel_rates",
    "wheels",
    "wheels_of",
    "whipple_bicycle",
]
