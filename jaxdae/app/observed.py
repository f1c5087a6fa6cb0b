"""What a run saves of its states beyond themselves: accelerations, multipliers, energies, and the poses of bodies; compiled."""

from typing import Any

import jax
import jax.numpy as jnp

import jaxdae
from jaxdae import mechanisms
from jaxdae.app import laws, naming
from jaxdae.app.account import energies
from jaxdae.integrators.method import roles_of


def observe(axes: Any, system: Any, integrator: Any, saved: Any, dt: Any) -> dict[str, Any]:
    """Returns what a report shows of saved states with the memories of their laws (world, time, ...)."""

    def one(s: Any, i: Any, at: Any) -> dict[str, Any]:
        x, memory = at
        roles = roles_of(i)
        u = laws.input_of(i, x, memory, dt)
        if s.first_order:
            return _observe_velocities(s, x, u, roles.solver)
        a, lam = jaxdae.forward_dynamics(s, x, u, solver=roles.solver, stabilization=roles.stabilization)
        kinetic, potential = energies(s, x)
        more = ({} if naming.is_absolute(s) else _bodies(s, x)) | ({} if u is None else {"u": u})
        return more | {
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
    # Worlds last, one instant after the other, as in a rollout: no bit of a world depends on how many there are beside it.
    last = jax.tree.map(lambda axis: None if axis is None else -1, axes, is_leaf=lambda x: x is None)
    given: Any = (system, integrator)
    turned = jax.tree.map(lambda axis, x: x if axis is None else jnp.moveaxis(x, 0, -1), axes, given, is_leaf=lambda x: x is None)
    over_worlds = jax.vmap(one, in_axes=(*last, -1), out_axes=-1)
    found = jax.lax.map(lambda at: over_worlds(turned[0], turned[1], at), jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), saved))
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), found)


def _observe_velocities(system: Any, state: Any, u: Any, solver: Any) -> dict[str, Any]:
    """Returns what a report shows of a mechanism of first order: nothing has a mass, and what would need one is zero."""
    v, lam = jaxdae.kinematic_velocity(system, state, u, solver=solver)
    moving, none = jaxdae.State(state.t, state.q, v), jnp.zeros_like(state.t)
    bodies = {} if naming.is_absolute(system) else _bodies(system.mechanism, moving)
    return bodies | {
        "q": state.q,
        "v": v,
        "a": jnp.zeros_like(v),
        "lam": lam,
        "kinetic_energy": none,
        "potential_energy": none,
    }


def _bodies(system: Any, state: Any) -> dict[str, Any]:
    """Returns poses and twists of all bodies but rotors (body, ...), as absolute coordinates have them."""
    absolute = mechanisms.to_absolute(system, state)
    # Rotors come last, with one number each.
    count, rotors = len(system.body_names) - len(system.rotors), len(system.rotors)
    return {name: x[: x.shape[0] - rotors].reshape(count, -1) for name, x in (("pose", absolute.q), ("twist", absolute.v))}
