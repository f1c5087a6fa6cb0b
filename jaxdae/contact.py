"""Contact with Coulomb friction: a step for systems in contact, shapes, and the contact problem alone."""

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
from jaxdae.integrators.touching import ContactInfo, Touching
from jaxdae.mechanisms.contacts.contact_elements import Pair
from jaxdae.systems.contacts import FunctionContacts

__all__ = [
    "Box",
    "Capsule",
    "ContactInfo",
    "ContactNewton",
    "ContactProblem",
    "ConvexMesh",
    "Cylinder",
    "Disc",
    "Ellipsoid",
    "FunctionContacts",
    "GaussSeidel",
    "InteriorPoint",
    "Line",
    "Pair",
    "PlanarCapsule",
    "Plane",
    "Polygon",
    "Robust",
    "Sphere",
    "Touching",
    "solve",
]
