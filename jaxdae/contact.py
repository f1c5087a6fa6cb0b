"""Contact with Coulomb friction: a step for systems in contact, and the contact problem on its own."""

from jaxdae.contact_problem import (
    ContactNewton,
    ContactProblem,
    GaussSeidel,
    InteriorPoint,
    Robust,
    solve,
)
from jaxdae.integrators.touching import ContactInfo, Touching
from jaxdae.systems.contacts import FunctionContacts

__all__ = [
    "ContactInfo",
    "ContactNewton",
    "ContactProblem",
    "FunctionContacts",
    "GaussSeidel",
    "InteriorPoint",
    "Robust",
    "Touching",
    "solve",
]
