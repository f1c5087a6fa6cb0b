"""Mechanisms of bodies, joints and forces."""

from jaxdae.mechanisms import spatial
from jaxdae.mechanisms.bodies import Body, DescriptionWarning, Rotor, SpatialBody
from jaxdae.mechanisms.build import Description, mechanism, planar_mechanism, spatial_mechanism
from jaxdae.mechanisms.conversion import to_absolute, to_joints
from jaxdae.mechanisms.coordinates.absolute import Absolute
from jaxdae.mechanisms.coordinates.joints import Joints
from jaxdae.mechanisms.embedded import Embedded, EmbeddedMechanism
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.first_order import KinematicMechanism, kinematic_mechanism
from jaxdae.mechanisms.forces.planar import Drag, Force, JointForce, LinearSpring, Motor, Torque, TorsionalSpring
from jaxdae.mechanisms.forces.tendon import Tendon
from jaxdae.mechanisms.forces.tires import BrushTire, LinearTire, MagicFormulaTire, ViscousTire, brush_forces, magic_formula
from jaxdae.mechanisms.joint_reactions import Reactions, reactions
from jaxdae.mechanisms.joints.drives import JointRate, SlipAngle, SlipRatio, Speed, SpinRate, YawRate
from jaxdae.mechanisms.joints.planar import Gear, PointOnLine, Prismatic, RackAndPinion, Revolute, Rod, Skate, Weld
from jaxdae.mechanisms.joints.prescribed import PrescribedMotion
from jaxdae.mechanisms.joints.relation import Relation, TendonRelation
from jaxdae.mechanisms.joints.wheels import MecanumWheel, OmniWheel, Wheel
from jaxdae.mechanisms.kinds import GROUND
from jaxdae.mechanisms.motions import Polynomial, Sinusoid
from jaxdae.mechanisms.space import PLANE, SPACE

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
