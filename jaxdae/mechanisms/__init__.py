"""Mechanisms of bodies, joints and forces."""

from jaxdae.mechanisms import spatial
from jaxdae.mechanisms.build_mechanism import Description, mechanism, planar_mechanism, spatial_mechanism
from jaxdae.mechanisms.conversion import to_absolute, to_joints
from jaxdae.mechanisms.coordinates.absolute import Absolute
from jaxdae.mechanisms.coordinates.joint_coordinates import Joints
from jaxdae.mechanisms.describe.bodies import Body, DescriptionWarning, Rotor, SpatialBody
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.motions import Polynomial, Sinusoid
from jaxdae.mechanisms.describe.plane_and_space import PLANE, SPACE
from jaxdae.mechanisms.embedded import Embedded, EmbeddedMechanism
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.first_order import KinematicMechanism, kinematic_mechanism
from jaxdae.mechanisms.forces.planar_forces import (
    Drag,
    Force,
    JointForce,
    LinearSpring,
    Motor,
    Torque,
    TorsionalSpring,
)
from jaxdae.mechanisms.forces.planar_tires import (
    BrushTire,
    LinearTire,
    MagicFormulaTire,
    ViscousTire,
    brush_forces,
    magic_formula,
)
from jaxdae.mechanisms.forces.tendon import Tendon
from jaxdae.mechanisms.joint_reactions import Reactions, reactions
from jaxdae.mechanisms.joints.drives import JointRate, SlipAngle, SlipRatio, Speed, SpinRate, YawRate
from jaxdae.mechanisms.joints.planar_joints import (
    Gear,
    PointOnLine,
    Prismatic,
    RackAndPinion,
    Revolute,
    Rod,
    Skate,
    Weld,
)
from jaxdae.mechanisms.joints.planar_prescribed import PrescribedMotion
from jaxdae.mechanisms.joints.planar_wheels import MecanumWheel, OmniWheel, Wheel
from jaxdae.mechanisms.joints.relation_elements import Relation, TendonRelation

__all__ = [
    "GROUND",
    "PLANE",
    "SPACE",
    "Absolute",
    "Body",
    "BrushTire",
    "Description",
    "DescriptionWarning",
    "Drag",
    "Embedded",
    "EmbeddedMechanism",
    "Force",
    "Gear",
    "JointForce",
    "JointRate",
    "Joints",
    "KinematicMechanism",
    "LinearSpring",
    "LinearTire",
    "MagicFormulaTire",
    "MecanumWheel",
    "Mechanism",
    "Motor",
    "OmniWheel",
    "PointOnLine",
    "Polynomial",
    "PrescribedMotion",
    "Prismatic",
    "RackAndPinion",
    "Reactions",
    "Relation",
    "Revolute",
    "Rod",
    "Rotor",
    "Sinusoid",
    "Skate",
    "SlipAngle",
    "SlipRatio",
    "SpatialBody",
    "Speed",
    "SpinRate",
    "Tendon",
    "TendonRelation",
    "Torque",
    "TorsionalSpring",
    "ViscousTire",
    "Weld",
    "Wheel",
    "YawRate",
    "brush_forces",
    "kinematic_mechanism",
    "magic_formula",
    "mechanism",
    "planar_mechanism",
    "reactions",
    "spatial",
    "spatial_mechanism",
    "to_absolute",
    "to_joints",
]
