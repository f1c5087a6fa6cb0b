"""Models of common machines: functions that return a mechanism and a start with closed loops."""

from jaxdae.models.parallel_robots import delta, five_bar, stewart
from jaxdae.models.planar_linkages import excavator, jansen_leg, klann_leg, parallel_gripper, scissor_lift
from jaxdae.models.road_vehicles import tire_car
from jaxdae.models.spring_leg import cassie_leg

__all__ = [
    "cassie_leg",
    "delta",
    "excavator",
    "five_bar",
    "jansen_leg",
    "klann_leg",
    "parallel_gripper",
    "scissor_lift",
    "stewart",
    "tire_car",
]
