"""Energy account of a simulation: energies and the work of forces without a potential, updated every step.

The stored energy is the kinetic energy plus the potential energy of gravity and springs. The work of all
other forces (motors, inputs, given forces and torques, dampers, friction, tires, prescribed motions) is the
integral of their power. In each step, two-point Gauss quadrature evaluates this integral, with the input held
over the step. A cubic Hermite interpolant through both ends of the step gives the states at the Gauss points.
The error of the work is O(dt^4). The work of a constant torque about a hinge or of a constant force along a
slide is exact up to round-off.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import control
from jaxdae.app.config.config_elements import described
from jaxdae.app.config.schema import Config
from jaxdae.app.model import config_laws, driven_forces
from jaxdae.app.model.build import sample, with_numbers
from jaxdae.base.dataclass import pytree, static
from jaxdae.integrators import StepInfo
from jaxdae.integrators.method import PointWrapping, roles_of
from jaxdae.integrators.tangent_rates import tangent_rate
from jaxdae.mechanisms.forces.force_bases import Driven
from jaxdae.mechanisms.forces.spatial_forces import CoordinateForce

_GAUSS = (0.5 - 3.0**0.5 / 6.0, 0.5 + 3.0**0.5 / 6.0)  # nodes on the step; both have weight 1/2
_BOUND = 1e30  # J, within the range of single precision
ROUND_OFF = 1e5
_SOURCES = (*driven_forces.NUMBERS, "force")  # types of forces without a potential that do not dissipate


@pytree
class Account:
    """Energies of one world since its start, in J.

    Attributes:
        first: stored energy at the start.
        work: work since the start.
        rest: round-off error of `work`, subtracted in the next step (compensated summation).
        error: largest |E - E(0) - work| after any step.
        kinetic: largest kinetic energy.
        potential: smallest and largest potential energy (2,).
        exchanged: smallest and largest work (2,).
    """

    first: Any
    work: Any
    rest: Any
    error: Any
    kinetic: Any
    potential: Any
    exchanged: Any


@pytree
class AccountedInfo(StepInfo):
    """Step report with the energy account at the end of the step."""

    account: Account


@pytree
class Accounted(PointWrapping):
    """Integrator whose memory also holds the energy account.

    Attributes:
        integrator: the inner method.
        works: whether anything without a potential acts (static).
        moving: whether constraints depend on time (static); their work requires the multipliers.
    """

    integrator: Any
    works: bool = static(default=True)
    moving: bool = static(default=True)

    def init(self, system: Any, state: Any) -> Any:
        """Return the memory of the inner integrator and an account that starts at the state."""
        kinetic, potential = energies(system, state)
        zero = jnp.zeros_like(kinetic)
        twice = jnp.stack([potential, potential])
        begun = Account(kinetic + potential, zero, zero, zero, kinetic, twice, jnp.stack([zero, zero]))
        return self.integrator.init(system, state), begun

    def advance(
        self, system: Any, point: Any, memory: Any, u: Any, dt: Any
    ) -> tuple[Any, Any, AccountedInfo]:
        """Return the point after dt, the new memory and the step report."""
        inner, account = memory
        new, inner, info = self.inner.advance(system, point, inner, u, dt)
        gained = (
            self._work(system, point.state, new.state, u, dt) if self.works else jnp.zeros_like(account.work)
        )
        account = _updated(account, gained, *energies(system, new.state))
        return new, (inner, account), AccountedInfo(**vars(info), account=account)

    def _work(self, system: Any, start: Any, end: Any, u: Any, dt: Any) -> Any:
        """Return the work in J over the step between two states."""
        way = system.difference(start.q, end.q)
        slopes = dt * start.v, dt * tangent_rate(system, start.q, way, end.v)
        roles = roles_of(self.integrator)

        def multipliers(x: Any) -> Any:
            given = {"solver": roles.solver, "stabilization": roles.stabilization}
            return jaxdae.forward_dynamics(system, x, u, **given)[1]

        solve = multipliers if self.moving else None
        powers = [power(system, _between(system, start, way, slopes, dt, s), u, solve) for s in _GAUSS]
        return 0.5 * dt * (powers[0] + powers[1])


def _between(system: Any, start: Any, way: Any, slopes: Any, dt: Any, s: float) -> Any:
    """Return the state at the fraction s of a step, by cubic Hermite interpolation of the tangent step."""
    m0, m1 = slopes
    xi = s * (1.0 - s) ** 2 * m0 + s**2 * (3.0 - 2.0 * s) * way - s**2 * (1.0 - s) * m1
    rate = (1.0 - s) * (1.0 - 3.0 * s) * m0 + 6.0 * s * (1.0 - s) * way + s * (3.0 * s - 2.0) * m1
    q, v = system.retract(start.q, xi), rate / dt
    if not system.flat:
        zero, one = jnp.zeros_like(dt), jnp.ones_like(dt)
        v = jax.jvp(lambda r: system.difference(q, system.retract(start.q, xi + r * v)), (zero,), (one,))[1]
    return jaxdae.State(start.t + s * dt, q, v)


def _updated(account: Account, gained: Any, kinetic: Any, potential: Any) -> Account:
    """Return the account after a step, given the work of the step and the energies at its end."""
    gained = gained - account.rest
    work = account.work + gained
    error = jnp.abs(kinetic + potential - account.first - work)
    updated = Account(
        first=account.first,
        work=work,
        rest=(work - account.work) - gained,
        error=jnp.maximum(account.error, error),
        kinetic=jnp.maximum(account.kinetic, kinetic),
        potential=_widened(account.potential, potential),
        exchanged=_widened(account.exchanged, work),
    )
    return jax.tree.map(_bounded, updated)


def _bounded(x: Any) -> Any:
    """Clip energies to finite values: a non-finite memory would stop a world whose state is finite."""
    return jnp.clip(jnp.nan_to_num(x, nan=_BOUND, posinf=_BOUND, neginf=-_BOUND), -_BOUND, _BOUND)


def _widened(span: Any, value: Any) -> Any:
    return jnp.stack([jnp.minimum(span[0], value), jnp.maximum(span[1], value)])


def energies(system: Any, state: Any) -> tuple[Any, Any]:
    """Return the kinetic energy and the potential energy of gravity and springs, both in J."""
    return system.kinetic_energy(state.q, state.v), _passive(system).potential_energy(state.t, state.q)


def _passive(system: Any) -> Any:
    """Return the mechanism without motors, inputs or given forces; the springs of joint forces remain."""
    forces: dict[str, Any] = {}
    for key, group in system.forces.items():
        if not isinstance(group, Driven):
            forces[key] = group
        elif isinstance(group, CoordinateForce) and group.stiffness is not None:
            forces[key] = dataclasses.replace(group, force=jnp.zeros_like(group.force))
    return dataclasses.replace(system, forces=forces)


def power(system: Any, state: Any, u: Any, solve: Callable[[Any], Any] | None) -> Any:
    """Return the power in W that enters a mechanism from all sources except its potential.

    Forces contribute v . f + dV/dt. Time-dependent constraints contribute -lam . [dg/dt; w(t, q, 0)]. If M
    depends on q, as with the inertia of motors, f includes the inertial force at constant v. The rate of
    the kinetic energy at constant v cancels the power of this force.

    Args:
        system: the mechanism.
        state: time (s), coordinates and velocities.
        u: the input, or None.
        solve: function that returns the multipliers at a state; None if no constraint depends on time.
    """
    t, q, v = state.t, state.q, state.v
    force = system.force(t, q, v, jnp.zeros(system.n_inputs or 0, q.dtype) if u is None else u)
    passive = _passive(system)

    def stored(s: Any) -> Any:
        moved = system.retract(q, s * v)
        return passive.potential_energy(t + s, moved) + system.kinetic_energy(moved, v)

    zero, one = jnp.zeros_like(t), jnp.ones_like(t)
    of_forces = v @ force + jax.jvp(stored, (zero,), (one,))[1]
    if solve is None:
        return of_forces
    moving = jax.jvp(lambda s: system.constraint(t + s, q), (zero,), (one,))[1]
    moving = jnp.concatenate([moving, system.velocity_constraint(t, q, jnp.zeros_like(v))])
    return of_forces - solve(state) @ moving


def accounted(integrator: Any, config: Config) -> Any:
    """Add an energy account inside the control law of an integrator, or of the tree of its leaf axes.

    First-order mechanisms have no mass and no energy, and contact, limits and dry friction dissipate energy
    that the account does not know. Their integrators are returned unchanged.
    """
    steps_with_contact = jaxdae.contact.Touching | jaxdae.contact.ContactStepping
    if config.mechanism.order == "first" or isinstance(integrator, steps_with_contact):
        return integrator
    if isinstance(integrator, config_laws.Remembering | control.Sampled):
        return dataclasses.replace(integrator, integrator=accounted(integrator.integrator, config))
    return Accounted(integrator, works=does_work(config), moving=_has_moving_constraints(config))


def account_of(integrator: Any, memory: Any) -> Account | None:
    """Return the account in the memory of an integrator, or None if the integrator has no account."""
    if isinstance(integrator, config_laws.Remembering):
        return account_of(integrator.integrator, memory)
    if isinstance(integrator, control.Sampled):
        return account_of(integrator.integrator, memory[0])
    return memory[1] if isinstance(integrator, Accounted) else None


def relative_error(account: Account, precision: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the balance error relative to the exchanged energy, and this energy in J, both (world,).

    The exchanged energy is the maximum of the largest kinetic energy, the range of the potential energy and
    the range of the work. The denominator also includes a round-off term, `ROUND_OFF` eps times the largest
    energy, because a mechanism at rest exchanges no energy.
    """
    first, error, kinetic, potential, work = (
        np.asarray(x, float)
        for x in (account.first, account.error, account.kinetic, account.potential, account.exchanged)
    )
    exchanged = np.maximum.reduce([kinetic, potential[:, 1] - potential[:, 0], work[:, 1] - work[:, 0]])
    largest = np.maximum.reduce([np.abs(first), kinetic, *np.abs(potential).T, *np.abs(work).T])
    denominator = exchanged + ROUND_OFF * float(np.finfo(precision).eps) * largest
    return error / np.where(denominator > 0.0, denominator, 1.0), exchanged


def does_work(config: Config) -> bool:
    """Return whether anything without a potential acts: actuators, dissipation, prescribed motions."""
    if config.mechanism.order == "first":
        return False
    locations, samples = sample(config)
    # Use the value of largest magnitude over all worlds: friction may act in a single world.
    largest = [float(column[np.argmax(np.abs(column))]) for column in samples]
    values = with_numbers(config.model_dump(), locations, largest)
    mechanism = values["mechanism"]
    elements = (*mechanism["joints"], *mechanism["forces"])
    return bool(config_laws.driven_names(values)) or any(
        each["type"] in _SOURCES or not described(each, mechanism["space"]).conserves_energy
        for each in elements
    )


def _has_moving_constraints(config: Config) -> bool:
    return any(getattr(joint, "motion", None) is not None for joint in config.mechanism.joints)
