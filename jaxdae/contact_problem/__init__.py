"""Solvers of the contact problem: Signorini contact, Coulomb friction, one-sided rows, dry friction."""

from jaxdae.contact_problem.contact_derivative import solve
from jaxdae.contact_problem.contact_interface import ContactProblem, ContactSolver, RowGroups
from jaxdae.contact_problem.contact_law import law, residual
from jaxdae.contact_problem.contact_newton import ContactNewton
from jaxdae.contact_problem.gauss_seidel import GaussSeidel
from jaxdae.contact_problem.interior_point import InteriorPoint
from jaxdae.contact_problem.robust import Robust

__all__ = [
    "ContactNewton",
    "ContactProblem",
    "ContactSolver",
    "GaussSeidel",
    "InteriorPoint",
    "Robust",
    "RowGroups",
    "law",
    "residual",
    "solve",
]
