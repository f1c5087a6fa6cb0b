"""Coulomb friction in `Switching`: contacts that are open, stick, or slide.

Contact k has a normal row, whose residual g_k >= 0 is the gap, and a slip row, whose residual c_k is the slip
velocity. Its multipliers (lam_n, lam_t) satisfy

    0 <= lam_n  perp  g >= 0,         |lam_t| <= r = bound + mu lam_n,     |c| lam_t = -r c.

While a contact

- *is open*, no row is active. It closes where g = 0 and g' < 0, by an impact.
- *sticks*, both rows are active. It slides against lam_t where |lam_t| = r, and opens where lam_n = 0.
- *slides* with sigma = sign(c), the normal row is active, and the friction -sigma r acts along the slip row
  (`systems.sliding_rows`). Where c = 0 it sticks if |lam_t| <= r, and else slides against lam_t. It opens
  where lam_n = 0.

The margin of a mode is the quantity that vanishes where the mode ends. Where slip ends, a projection of the
velocities removes the error of the located instant.

*Impacts.* The impulses p of all closed contacts satisfy the same law for the velocities after the impact,
with Newton's restitution c_n+ = -e c_n- of the contact that closes. They solve the contact problem of
`jaxdae.contact_problem` on the manifold of the other rows. For one contact in the plane this is the closed
form p = -D^-1 (c + e c_n- e_n) where it lies in the cone, and otherwise p_t = -sigma mu p_n,
p_n = -(1 + e) c_n- / (D_nn - sigma mu D_nt). Dry friction without normal force does not act in impacts. As in
`Touching`, a contact does not rebound if its flight 2 e |c_n-| / |c_n'| would be shorter than the step. So an
infinite sequence of bounces ends at rest.

*Modes after an event.* A contact that separates is open. A contact with slip slides; the others stick. Then
the multipliers decide: contacts that pull open, and contacts that stick outside of their cones slide against
lam_t. This repeats for each contact.

References:
    F. Pfeiffer, C. Glocker, "Multibody Dynamics with Unilateral Contacts", Wiley (1996), chapters 5 and 8.
    R. I. Leine, H. Nijmeijer, "Dynamics and Bifurcations of Non-Smooth Mechanical Systems", Springer (2004).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import not_negative
from jaxdae.contact_problem import ContactNewton, ContactProblem, solve
from jaxdae.contact_problem.contact_law import accepted_residual
from jaxdae.dynamics.impulse import constraint_impulse
from jaxdae.dynamics.stabilization import PositionProjection
from jaxdae.saddle_point.derivative import solve as solve_bilateral
from jaxdae.systems.linearization import linearize_at
from jaxdae.systems.masks import Masked, hard_rows
from jaxdae.systems.sliding_rows import SlidingRows
from jaxdae.systems.status import Status
from jaxdae.systems.system import AnySystem, State, velocity_residual
from jaxdae.systems.tolerances import shortest_scale
from jaxdae.typing import Count, Leaf, Rows, Velocity

_ITERATIONS = 20
"""Largest number of Newton iterations for the impulses of an impact."""


@pytree
class CoulombFriction:
    """Law of m contacts and joints with Coulomb friction, for `Switching`; see the module.

    Rows that belong to no contact are bilateral, and the law does not switch them. The first mode of a
    contact follows from the rows that are active at the start: with an active normal row it slides if it has
    slip, else it sticks.

    Attributes:
        normal: for each contact, the row of its gap, a position-level row in m; None for a joint, whose
            friction has a constant bound (static).
        slip: for each contact, the row of its slip velocity, a velocity-level row (static).
        friction: mu, (m,) or a scalar.
        restitution: e, (m,) or a scalar, from 0 to 1.
        bound: friction force without normal force, (m,) or a scalar, in N or N m.
        direction: set by `Switching`: the signs of the slip velocities of sliding contacts (m,).
    """

    normal: tuple[int | None, ...] = static()
    slip: tuple[int, ...] = static()
    friction: Leaf = 0.0
    restitution: Leaf = 0.0
    bound: Leaf = 0.0
    direction: Leaf = ()

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield not_negative(self.friction), "friction must not be negative"
        yield not_negative(self.bound), "bound must not be negative"
        yield not_negative(self.restitution), "restitution must not be negative"
        yield self.restitution <= 1, "restitution must be at most 1"

    def begun(self, system: AnySystem, state: State, active: Any) -> tuple[CoulombFriction, Any]:
        """Return the law with the directions at the start, and the active rows (nc,).

        Raises:
            TypeError: a first-order system.
            ValueError: contacts without two rows of their own, of the position and velocity level.
        """
        if system.first_order:
            raise TypeError(
                "CoulombFriction needs a system with masses; first-order systems have no contact forces"
            )
        ng, nc = system.sizes(state.q).ng, active.shape[0]
        if len(self.normal) != len(self.slip) or not self.slip:
            raise ValueError(
                "CoulombFriction: normal and slip must name one row for each contact (normal: None for a "
                f"joint), got {self.normal} and {self.slip}"
            )
        for n, t in zip(self.normal, self.slip, strict=True):
            if not (n is None or 0 <= n < ng) or not ng <= t < nc:
                raise ValueError(
                    f"CoulombFriction: each normal must be a position-level row (below {ng}) and each slip "
                    f"a velocity-level row ({ng} to {nc - 1}), got the rows {n} and {t}"
                )
        named = [n for n in (*self.normal, *self.slip) if n is not None]
        if len(set(named)) < len(named):
            raise ValueError(
                f"CoulombFriction: contacts must not share rows, got {self.normal} and {self.slip}; two "
                "slip rows per contact (in space) are not supported, use jaxdae.contact.Touching"
            )
        return self._by_slip(system, state, active, self._closed(active))

    # The law of `Switching`.

    def __call__(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Any:
        """Return the rows that are to be active (nc,)."""
        closed, sticks = self._closed(active), active[self._slips]
        normal, tangential, bound = self._forces(lam)
        gap, approach, slip = self._rates(system, state)
        noise = _noise(lam)
        ends = jnp.where(closed, normal < -noise, (gap <= 0.0) & (approach < 0.0)) & self._supported
        slides = self.direction * slip < -_slip_noise(system, state)
        ends_slip = jnp.where(sticks, jnp.abs(tangential) > bound + noise, slides)
        return active ^ self._in_rows(jnp.zeros_like(active), ends, ends_slip)

    def leaving(self, lam: Rows, active: Any) -> CoulombFriction:
        """Return the law for margins of a step with the multipliers lam (nc,) at its end.

        The direction of contacts that stick is the sign of their friction at the end. The margin is then
        linear in lam_t, where |lam_t| has a kink at zero.
        """
        sign = jnp.sign(jax.lax.stop_gradient(lam[self._slips]))
        return dataclasses.replace(self, direction=jnp.where(active[self._slips], sign, self.direction))

    def margin(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Rows:
        """Return the quantities that vanish where the modes end (nc,), in the rows that switch."""
        normal, tangential, bound = self._forces(lam)
        gap, _, slip = self._rates(system, state)
        slides: Any = jnp.where(self.direction == 0.0, 1.0, self.direction * slip)
        of_slip = jnp.where(active[self._slips], bound - self.direction * tangential, slides)
        of_normal = jnp.where(self._closed(active), normal, gap)
        return self._in_rows(jnp.ones_like(lam), of_normal, of_slip)

    # The system in a mode, and the next mode.

    def sliding(self, system: Masked, solver: Any) -> SlidingRows:
        """Return the system with the active rows and the friction of sliding contacts."""
        mu, bound = self._per_contact(self.friction), self._per_contact(self.bound)
        return SlidingRows(system, self.direction, mu, bound, solver, self.slip, self.normal)

    def switched(
        self,
        system: AnySystem,
        state: State,
        active: Any,
        flips: Any,
        dynamics: Callable[[State, CoulombFriction, Any], tuple[Velocity, Rows]],
        solver: Any,
        dt: Any,
    ) -> tuple[State, Rows, CoulombFriction, Any, Count]:
        """Return state, impulses (nc,), law, active rows and status after an event.

        Args:
            system: the system with all of its rows.
            state: the state at the event.
            active: the active rows before the event (nc,).
            flips: the rows that switch (nc,).
            dynamics: function (state, law, active) -> accelerations (nv,) and multipliers (nc,), with the
                friction of sliding contacts.
            solver: a saddle-point solver.
            dt: the length of the step in s.
        """
        slips, before = self._slips, active
        active = active ^ flips
        closed = self._closed(active)
        # Contacts that leave their cone are examined below, together with those that stop sliding.
        leaves = flips[slips] & before[slips]
        active = active.at[slips].set((active[slips] | leaves) & closed)
        at = PositionProjection(solver=solver).project(Masked(system, active), state)
        at = State(state.t, at.q, state.v)
        closing = closed & ~self._closed(before)
        struck = jnp.any(closing)
        # Several closed contacts may have dependent rows, so that an impact must not activate all of them.
        rows = jnp.where(struck, before, active)
        v, p = constraint_impulse(system, at, rows, solver=solver)
        residual: Any = jnp.zeros((), state.v.dtype)
        if self._supported.any():
            rebounds = closing & self._rebounds(system, at, dynamics(at, self, before)[0], dt)
            impact = self._impact(system, at, active, rebounds, solver)
            v, p, residual = jax.tree.map(lambda x, y: jnp.where(struck, x, y), impact, (v, p, residual))
        new = State(state.t, at.q, v)
        failed: Any = jnp.where(
            residual <= accepted_residual(residual.dtype), Status.OK, Status.NOT_CONVERGED
        )
        still = jax.lax.stop_gradient(new)
        law, modes = self._settled(system, still, active, closed, leaves, dynamics)
        return new, p, law, modes, failed.astype(jnp.int32)

    def _rebounds(self, system: AnySystem, state: State, a: Velocity, dt: Any) -> Any:
        """Return whether the flight after an impact of each contact is longer than the step (m,)."""

        def rates(s: Any) -> Array:
            moved = State(state.t + s, system.retract(state.q, s * state.v), state.v + s * a)
            return self._rates(system, moved)[1]

        rate, change = jax.jvp(rates, (jnp.zeros_like(dt),), (jnp.ones_like(dt),))
        return -2.0 * self._per_contact(self.restitution) * rate > -change * dt

    def _settled(
        self, system: AnySystem, state: State, active: Any, closed: Any, leaves: Any, dynamics: Any
    ) -> tuple[CoulombFriction, Any]:
        """Return the law and the active rows that the velocities and multipliers select."""
        separating = self._rates(system, state)[1] > _slip_noise(system, state)
        law, active = self._by_slip(system, state, active, closed & ~(separating & self._supported))

        def examined(_: Any, mode: Any) -> Any:
            law, active, leaves = mode
            lam = dynamics(state, law, active)[1]
            normal, tangential, bound = law._forces(lam)
            pulls = law._closed(active) & (normal < -_noise(lam)) & self._supported
            slides = active[law._slips] & ((jnp.abs(tangential) > bound + _noise(lam)) | leaves)
            active = active & ~self._in_rows(jnp.zeros_like(active), pulls, slides | pulls)
            direction: Any = jnp.where(slides, -jnp.sign(tangential), law.direction)
            law = dataclasses.replace(law, direction=jnp.where(pulls, 0.0, direction))
            return law, active, jnp.zeros_like(leaves)

        mode = jax.lax.stop_gradient((law, active, leaves))
        return jax.lax.fori_loop(0, len(self.slip), examined, mode)[:2]

    def _by_slip(
        self, system: AnySystem, state: State, active: Any, closed: Any
    ) -> tuple[CoulombFriction, Any]:
        """Return the law and the active rows in which closed contacts slide if they have slip."""
        slip = self._rates(system, state)[2]
        slides = closed & (jnp.abs(slip) > _slip_noise(system, state))
        direction = jax.lax.stop_gradient(jnp.where(slides, jnp.sign(slip), 0.0))
        return dataclasses.replace(self, direction=direction), self._in_rows(active, closed, closed & ~slides)

    def _impact(
        self, system: AnySystem, state: State, active: Any, rebounds: Any, solver: Any
    ) -> tuple[Velocity, Rows, Array]:
        """Return velocities and impulses (nc,) after an impact, and the residual of the contact problem."""
        contacts = np.flatnonzero(self._supported)
        rows = np.asarray([(self.normal[k], self.slip[k]) for k in contacts], int).reshape(-1)
        others = active.at[np.concatenate([rows, self._slips])].set(False)
        full = system.evaluate(state.t, state.q, state.v)
        at = linearize_at(hard_rows(Masked(system, others).around(full)), solver)
        directions = full.jacobian.as_dense()[rows]
        none = jnp.zeros((at.jacobian.shape[0],), directions.dtype)

        def response(row: Array) -> tuple[Array, Array]:
            return solve_bilateral(at.factors, at.mass, at.jacobian, at.compliance, row, none)

        responses, loops = jax.vmap(response, out_axes=1)(directions)
        delassus = directions @ responses
        before = full.velocity[rows].reshape(-1, 2)
        e = jnp.where(rebounds, self._per_contact(self.restitution), 0.0)[contacts]
        wanted = before.at[:, 0].add(e * jnp.minimum(before[:, 0], 0.0)).reshape(-1)
        problem = ContactProblem(
            (delassus + delassus.T) / 2.0, wanted, self._per_contact(self.friction)[contacts], tangents=1
        )
        solver = ContactNewton(_ITERATIONS)
        p, residual = solve(solver, problem.masked(self._closed(active)[contacts]))
        return state.v + responses @ p, (loops @ p).at[rows].add(p), residual

    # Quantities of the contacts.

    @property
    def _slips(self) -> np.ndarray:
        return np.asarray(self.slip)

    @property
    def _supported(self) -> np.ndarray:
        """Whether each contact has a normal row (m,)."""
        return np.asarray([n is not None for n in self.normal])

    def _per_contact(self, value: Any) -> Array:
        value = jnp.asarray(value)
        if value.shape not in ((), (len(self.slip),)):
            raise ValueError(
                f"CoulombFriction: friction, restitution and bound must be scalars or have one entry per "
                f"contact, shape ({len(self.slip)},), got {value.shape}"
            )
        return jnp.broadcast_to(value, (len(self.slip),))

    def _of_normals(self, rows: Any, without: Any) -> Any:
        """Return the entries of the normal rows (m,), and a constant for joints."""
        return jnp.stack([jnp.asarray(without, rows.dtype) if n is None else rows[n] for n in self.normal])

    def _closed(self, active: Any) -> Any:
        return self._of_normals(active, True)

    def _forces(self, lam: Rows) -> tuple[Array, Array, Array]:
        """Return normal forces, tangential forces and bounds r of the tangential forces (m,)."""
        normal = self._of_normals(lam, 0.0)
        return (
            normal,
            lam[self._slips],
            self._per_contact(self.bound) + self._per_contact(self.friction) * normal,
        )

    def _rates(self, system: AnySystem, state: State) -> tuple[Array, Array, Array]:
        """Return gaps, their rates and slip velocities (m,)."""
        gap, rates = system.constraint(state.t, state.q), velocity_residual(system, state)
        return self._of_normals(gap, 1.0), self._of_normals(rates, 0.0), rates[self._slips]

    def _in_rows(self, rows: Any, of_normals: Any, of_slips: Any) -> Any:
        """Return an array (nc,) with the given entries in the rows of the contacts."""
        normals = np.asarray([n for n in self.normal if n is not None], int)
        return rows.at[normals].set(of_normals[self._supported]).at[self._slips].set(of_slips)


def _noise(lam: Rows) -> Array:
    """Return the size of rounding errors of multipliers ()."""
    return 64.0 * float(jnp.finfo(lam.dtype).eps) * jnp.max(jnp.abs(lam))


def _slip_noise(system: AnySystem, state: State) -> Array:
    """Return the size of rounding errors of slip velocities (), for contacts without slip."""
    size: Any = shortest_scale(system, state.v.dtype) + jnp.max(jnp.abs(state.v))
    return float(jnp.finfo(state.v.dtype).eps) ** 0.75 * size
