"""Common parts of steps with contact: rows, contact problems, tolerances and reports."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import offers
from jaxdae.contact_problem import ContactProblem, solve
from jaxdae.contact_problem.contact_law import accepted_residual
from jaxdae.dynamics.stabilization import PositionProjection
from jaxdae.integrators.contact_selection import Selection
from jaxdae.integrators.integrator import StepInfo
from jaxdae.integrators.method import Method
from jaxdae.saddle_point.derivative import solve as solve_bilateral
from jaxdae.systems.contacts import Touch, touch_of
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import Linearization
from jaxdae.systems.status import Status
from jaxdae.systems.system import AnySystem, State, default_tolerance
from jaxdae.systems.tolerances import shortest_scale
from jaxdae.typing import Count, Leaf, Scalar

_LARGEST_TURN = 0.5
"""The largest relative change of a contact row in a step that counts as a turn of the bodies."""


@pytree
class Rows:
    """The rows at one configuration, and their velocities without contact forces.

    Attributes:
        touch: gaps and rows.
        responses: velocities Y (nv, n) due to unit impulses.
        multipliers: loop impulses (nc, n) due to unit impulses.
        delassus: D (n, n).
        free: velocities of the rows without contact forces (n,).
        kicked: velocities (nv,) due to impulses at the start of the step, not contained in `free`.
    """

    touch: Touch
    responses: Leaf
    multipliers: Leaf
    delassus: Leaf
    free: Leaf
    kicked: Leaf

    def without_kick(self, dt: Any) -> Rows:
        """Return the rows with their gaps without the impulses at the start of the step."""
        gap = self.touch.gap - dt * self.touch.normals(self.touch.rows @ self.kicked)
        return dataclasses.replace(self, touch=dataclasses.replace(self.touch, gap=gap))


@pytree
class Kick:
    """The impulses at the start of a step.

    Attributes:
        impulses: p_0 / 2 (n,), or p_0 for inner methods of first order, in N s.
        rows: the rows at the start (n, nv).
        responses: Y_0 (nv, n).
        others: velocities (nv,) due to the impulses of contacts that are not selected for the step.
    """

    impulses: Leaf
    rows: Leaf
    responses: Leaf
    others: Leaf

    @classmethod
    def of(cls, selection: Selection, impulses: Array, rows: Array, responses: Array) -> Kick:
        """Return the impulses of selected contacts, from the impulses and responses of all candidates."""
        own, own_responses = selection.rows(impulses), selection.rows(responses.T).T
        others = jnp.zeros(responses.shape[:1], responses.dtype)
        if selection.chosen is not None:
            others = responses @ impulses - own_responses @ own
        return cls(own, rows, own_responses, others)

    def velocities(self, rows: Array, responses: Array) -> Array:
        """Return Y p_0 / 2 (nv,) for rows that turned with the bodies, otherwise Y_0 p_0 / 2, plus `others`.

        Rows j_0 and j differ by |j - j_0|^2 = j Y + j_0 Y_0 - 2 j_0 Y in the metric of the constraint
        manifold.

        Args:
            rows: the rows at the end (n, nv).
            responses: Y (nv, n).
        """
        end, start, mixed = (
            jnp.sum(row * response.T, axis=1)
            for row, response in ((rows, responses), (self.rows, self.responses), (self.rows, responses))
        )
        turned = end + start - 2.0 * mixed <= _LARGEST_TURN**2 * end
        return jnp.where(turned, responses, self.responses) @ self.impulses + self.others


@pytree
class ContactInfo(StepInfo):
    """Report of a step with m contacts, k joint limits or other one-sided rows, and f rows of dry friction.

    Attributes:
        impulse: impulse of each contact in its axes (m, 1 + tangents), in N s.
        force: mean force of each contact over the step in its axes (m, 1 + tangents), in N: impulse / dt.
        gap: gap of each contact (m,) at the end of the step, in m.
        slip: tangential velocity of each contact (m, tangents) at the end of the step, in m/s.
        limit_impulse: impulse of each one-sided row (k,), non-negative, in N s or N m s.
        limit_gap: distance of each one-sided row from its bound (k,) at the end of the step, in m or rad.
        dry_impulse: impulse of each dry-friction row (f,), in N s or N m s.
        row_forces: mean force of every row over the step (n,), in N or N m: the contacts in their axes, then
            the one-sided rows, then dry friction.
        residual: largest residual () of the contact law in the step; see `contact.solve`.

    `a` and `lam` contain the effect of the mean forces of the rows, also of impacts.
    """

    impulse: Leaf
    force: Leaf
    gap: Leaf
    slip: Leaf
    limit_impulse: Leaf
    limit_gap: Leaf
    dry_impulse: Leaf
    row_forces: Leaf
    residual: Leaf


class ContactMethod(Method):
    """Base class of steps with contact, without fields; `Touching` documents the fields."""

    contacts: Any
    contact_solver: Any
    smoothing: Leaf
    penetration: Leaf
    tolerance: Leaf
    most: int | None

    @property
    def resolves_contacts(self) -> bool:
        """Whether steps apply contact forces: True."""
        return True

    def requirements(self) -> Any:
        """Yield the conditions on the common fields; see `jaxdae.base.requirements`."""
        yield (
            self.contacts is None or offers(self.contacts, "touch"),
            "contacts must be contacts of a system, such as FunctionContacts(...), or None",
        )
        yield (
            offers(self.contact_solver, "solve"),
            "contact_solver must be a contact solver, such as Robust()",
        )
        yield (
            self.smoothing is None or self.smoothing > 0,
            "smoothing must be positive, or None for the exact law",
        )
        yield self.penetration is None or self.penetration > 0, "penetration must be positive"
        yield self.tolerance is None or self.tolerance > 0, "tolerance must be positive"
        yield self.most is None or self.most >= 1, "most must be at least 1, or None for all contacts"

    def touch(self, at: Evaluation) -> Touch:
        """Return the rows at an evaluation.

        Raises:
            ValueError: the system has no contacts, joint limits or dry friction.
        """
        return touch_of(self.contacts, at, type(self).__name__)

    def zero_touch(self, system: AnySystem, state: State) -> Touch:
        """Return the rows at a start with all numbers zero, for the memory.

        Raises:
            TypeError: the system is of first order.
            ValueError: the system has no contacts, joint limits or dry friction.
        """
        if system.first_order:
            raise TypeError(
                f"{type(self).__name__} needs a system with masses; contacts of first-order systems have no "
                "impulses"
            )
        shapes = jax.eval_shape(lambda: self.touch(system.evaluate(state.t, state.q)))
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def status(self, system: AnySystem, start: Touch, left: Array, residual: Scalar) -> Count:
        """Return INCONSISTENT_START for penetrating starts, NOT_CONVERGED for large residuals, or OK.

        Gaps `left` by the last step are not held against the start: one pass of the position stage leaves
        penetrations of second order in the displacements.
        """
        deepest = default_penetration(system, start) if self.penetration is None else self.penetration
        tolerance = self.largest_residual(residual.dtype)
        converged: Any = jnp.where(residual <= tolerance, Status.OK, Status.NOT_CONVERGED)
        separate: Any = jnp.where(
            jnp.any(start.gap < jnp.minimum(left, 0.0) - deepest), Status.INCONSISTENT_START, converged
        )
        return separate.astype(jnp.int32)

    def largest_residual(self, dtype: Any) -> Any:
        """Return the largest residual of the contact law that counts as converged."""
        if self.tolerance is not None:
            return self.tolerance
        return accepted_residual(dtype)

    def impulses(
        self,
        rows: Rows,
        wanted: Array,
        guess: Array,
        bounds: Array,
        smoothing: Any,
        active: Any = None,
    ) -> tuple[Array, Scalar]:
        """Return the impulses (n,) of one stage, and the residual.

        Args:
            rows: the rows.
            wanted: rates or displacements of the rows (n,) without these impulses.
            guess: impulses (n,).
            bounds: largest impulse of each dry-friction row (f,).
            smoothing: kappa, or None.
            active: (m + k,), whether contacts and one-sided rows take part; None for all.
        """
        problem = ContactProblem(
            (rows.delassus + rows.delassus.T) / 2.0,
            wanted,
            rows.touch.friction,
            bound=bounds,
            smoothing=smoothing,
            tangents=rows.touch.tangents,
        )
        if active is not None:
            problem, guess = problem.masked(active), jnp.where(problem.taking_part(active), guess, 0.0)
        return solve(self.contact_solver, problem, guess)


def gap_units(system: AnySystem, touch: Touch) -> Array:
    """Return the units of tolerances of gaps (m + k,): the characteristic length, at most 1 m, or 1 rad."""
    in_rad = np.asarray([*(False,) * touch.sizes[0], *touch.angular], bool)
    units: Any = jnp.where(in_rad, 1.0, shortest_scale(system, touch.gap.dtype))
    return units


def default_penetration(system: AnySystem, touch: Touch) -> Array:
    """Return 1e-3 min(L, 1 m) with the characteristic length L, and 1e-3 rad for angles (m + k,)."""
    return 1e-3 * gap_units(system, touch)


def closed_gaps(system: AnySystem, touch: Touch) -> tuple[Array, Array]:
    """Return the gaps (m + k,) up to which rows count as closed after stage 1.

    The first is round-off: bodies that lie on each other fall alike in the contact-free step, and the sign of
    their gap is random. The second is the tolerance of the system.
    """
    unit, dtype = gap_units(system, touch), touch.gap.dtype
    return float(jnp.finfo(dtype).eps) ** 0.6 * unit, default_tolerance(dtype) * unit


def closed_loops(projection: PositionProjection, at: Evaluation, here: Linearization) -> Evaluation:
    """Return the terms with closed loops, with a linearization of the step at other coordinates.

    Velocity-level and soft rows need factors of their own.
    """
    rows = at.position.shape[0]
    if not rows:
        return at
    shared = here.jacobian.shape[0] == rows and here.compliance is None
    return projection.projected(at, None, here if shared else None)


def responses_at(at: Linearization, touch: Touch) -> tuple[Array, Array]:
    """Return Y (nv, n) and L (nc, n): velocities and loop impulses due to unit impulses of the rows."""
    none = jnp.zeros((at.jacobian.shape[0],), touch.rows.dtype)

    def response(row: Array) -> tuple[Array, Array]:
        return solve_bilateral(at.factors, at.mass, at.jacobian, at.compliance, row, none)

    return jax.vmap(response, out_axes=1)(touch.rows)


def report(info: StepInfo, touch: Touch, impulses: Array, v: Array, residual: Scalar, dt: Any) -> ContactInfo:
    """Return the report of a step.

    Args:
        info: the common part of the report.
        touch: the rows at the end.
        impulses: p (n,), in N s.
        v: velocities at the end (nv,).
        residual: residual of the contact law.
        dt: the step in s.
    """
    of_contacts, of_limits, of_dry = touch.split(impulses)
    return ContactInfo(
        **info.common(),
        impulse=of_contacts,
        force=of_contacts / dt,
        gap=touch.gap[: len(of_contacts)],
        slip=touch.split(touch.velocity(v))[0][:, 1:],
        limit_impulse=of_limits,
        limit_gap=touch.gap[len(of_contacts) :],
        dry_impulse=of_dry,
        row_forces=impulses / dt,
        residual=residual,
    )
