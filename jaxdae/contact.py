"""Contact with Coulomb friction: a step, shapes, outputs, and the contact problem alone."""

from jaxdae.contact_problem import (
    ContactNewton,
    ContactProblem,
    GaussSeidel,
    InteriorPoint,
    Robust,
    solve,
)
from jaxdae.geometry.shapes import (
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    Disc,
    Ellipsoid,
    Line,
    PlanarCapsule,
    Plane,
    Polygon,
    Sphere,
)
from jaxdae.integrators.contact_method import ContactInfo
from jaxdae.integrators.contact_stepping import ContactStepping
from jaxdae.integrators.touching import Touching
from jaxdae.mechanisms.contacts.contact_elements import Pair
from jaxdae.mechanisms.contacts.contact_outputs import ContactForce, Gap, Slip
from jaxdae.systems.contacts import FunctionContacts

__all__ = [
    "Box",
    "Capsule",
    "ContactForce",
    "ContactInfo",
    "ContactNewton",
    "ContactProblem",
    "ContactStepping",
    "ConvexMesh",
    "Cylinder",
    "Disc",
    "Ellipsoid",
    "FunctionContacts",
    "Gap",
    "GaussSeidel",
    "InteriorPoint",
    "Line",
    "Pair",
    "PlanarCapsule",
    "Plane",
    "Polygon",
    "Robust",
    "Slip",
    "Sphere",
    "Touching",
    "solve",
]
