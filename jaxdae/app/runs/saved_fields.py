"""Compute derived quantities of saved states: accelerations, multipliers, energies and poses of bodies."""

from typing import Any

import jax
import jax.numpy as jnp

import jaxdae
from jaxdae import mechanisms
from jaxdae.app.model import config_laws, coordinate_names
from jaxdae.app.runs.energy_account import energies
from jaxdae.integrators.method import roles_of
from jaxdae.vehicles.tire_slips import tire_slip, tires_with_slip


def observe(axes: Any, system: Any, integrator: Any, saved: Any, dt: Any) -> dict[str, Any]:
    """Return the reported quantities of saved states (world, time, ...).

    Args:
        axes: the batch axes of the system and the integrator.
        system: the system.
        integrator: the integrator.
        saved: states, memories of laws, and forces of contact rows or None.
        dt: the step in s.
    """

    def one(s: Any, i: Any, at: Any) -> dict[str, Any]:
        x, memory, forces = at
        roles = roles_of(i)
        u = config_laws.input_of(i, x, memory, dt)
        if s.first_order:
            return _observe_velocities(s, x, u, roles.solver)
        touch = s.evaluate(x.t, x.q).touch
        tau = None if touch is None or forces is None else touch.rows.T @ forces
        a, lam = jaxdae.forward_dynamics(
            s, x, u, solver=roles.solver, stabilization=roles.stabilization, tau=tau
        )
        kinetic, potential = energies(s, x)
        more = ({} if coordinate_names.is_absolute(s) else _bodies(s, x)) | ({} if u is None else {"u": u})
        return (more | _touching(s, touch, x) | _slips(s, x)) | {
            "q": x.q,
            "v": x.v,
            "a": a,
            "lam": lam,
            "kinetic_energy": kinetic,
            "potential_energy": potential,
        }

    if saved[0].t.shape[0] == 1:
        over_time = jax.vmap(one, in_axes=(None, None, 0))
        return jax.vmap(over_time, in_axes=(*axes, 0))(system, integrator, saved)
    # Put the batch axis last and loop over time, as in a rollout. The bits of a world then do not depend on
    # the batch size.
    last = jax.tree.map(lambda axis: None if axis is None else -1, axes, is_leaf=lambda x: x is None)
    given: Any = (system, integrator)
    turned = jax.tree.map(
        lambda axis, x: x if axis is None else jnp.moveaxis(x, 0, -1),
        axes,
        given,
        is_leaf=lambda x: x is None,
    )
    over_worlds = jax.vmap(one, in_axes=(*last, -1), out_axes=-1)
    found = jax.lax.map(
        lambda at: over_worlds(turned[0], turned[1], at),
        jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), saved),
    )
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), found)


def contact_forces(system: Any, info: Any, dt: Any) -> dict[str, Any]:
    """Return the mean forces of contacts, joint limits and dry friction from step reports (world, time, ...).

    They begin with NaN for the start, where no step ends.
    """
    found: dict[str, Any] = {}
    if system.first_order:
        return found
    if system.contacts is not None:
        found["contact_force"] = info.force
    if system.joint_limits is not None:
        found["limit_force"] = info.limit_impulse / dt
    if system.joint_friction is not None:
        found["friction_force"] = info.dry_impulse / dt
    return {name: jnp.concatenate([jnp.full_like(x[:, :1], jnp.nan), x], axis=1) for name, x in found.items()}


def _touching(system: Any, touch: Any, state: Any) -> dict[str, Any]:
    """Return gaps and slips of contacts (contact, ...), and the gaps of joint limits (limit,)."""
    found: dict[str, Any] = {}
    if touch is None:
        return found
    contacts = touch.sizes[0]
    if system.contacts is not None:
        slip = touch.split(touch.velocity(state.v))[0][:, 1:]
        found |= {"contact_gap": touch.gap[:contacts], "contact_slip": slip}
    if system.joint_limits is not None:
        found["limit_gap"] = touch.gap[contacts:]
    return found


def _slips(system: Any, state: Any) -> dict[str, Any]:
    """Return slip ratios and slip angles (tire,) of the tires, if the mechanism has planar tires."""
    if not tires_with_slip(system):
        return {}
    found = tire_slip(system, state)
    return {"slip_ratio": found.ratio, "slip_angle": found.angle}


def _observe_velocities(system: Any, state: Any, u: Any, solver: Any) -> dict[str, Any]:
    """Return the reported quantities of a first-order mechanism; quantities that need a mass are zero."""
    v, lam = jaxdae.kinematic_velocity(system, state, u, solver=solver)
    moving, none = jaxdae.State(state.t, state.q, v), jnp.zeros_like(state.t)
    bodies = {} if coordinate_names.is_absolute(system) else _bodies(system.mechanism, moving)
    return bodies | {
        "q": state.q,
        "v": v,
        "a": jnp.zeros_like(v),
        "lam": lam,
        "kinetic_energy": none,
        "potential_energy": none,
    }


def _bodies(system: Any, state: Any) -> dict[str, Any]:
    """Return poses and twists (body, ...) of all bodies except rotors, as in absolute coordinates."""
    absolute = mechanisms.to_absolute(system, state)
    # Rotors come last, with one entry each.
    count, rotors = len(system.body_names) - len(system.rotors), len(system.rotors)
    return {
        name: x[: x.shape[0] - rotors].reshape(count, -1)
        for name, x in (("pose", absolute.q), ("twist", absolute.v))
    }
