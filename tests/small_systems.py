"""Systems made for the tests: small, with every kind of term, and nothing that is zero by accident."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
from problems import state

import jaxdae as jd


@jd.tree.pytree(kw_only=True)
class Everything(jd.System):
    """All kinds of terms at once: a full mass matrix, inputs, rows that move with time, one of them
    nonholonomic; mobility 1.
    """

    mass: Any
    stiffness: Any
    damping: Any
    radius: Any
    frequency: Any

    def mass_matrix(self, q):
        s = jnp.stack([jnp.sin(q[0]), jnp.cos(q[1]), 0.3 * q[2], jnp.full_like(q[0], 0.2)])
        return jnp.diag(self.mass) + s[:, None] * s[None, :]

    def force(self, t, q, v, u):
        f = -self.stiffness * q - self.damping * v + jnp.roll(v, 1) * v + jnp.sin(self.frequency * t)
        return f if u is None else f + u

    def constraint(self, t, q):
        radius = self.radius + 0.1 * jnp.sin(self.frequency * t)
        return jnp.stack(
            [
                0.5 * (q[0] ** 2 + q[1] ** 2 - radius**2),
                q[2] - 0.3 * jnp.sin(q[0] * q[3] + self.frequency * t),
            ]
        )

    def velocity_constraint(self, t, q, v):
        return jnp.stack([v[3] + jnp.cos(q[0]) * v[1] - 0.2 * v[2] + 0.1 * t * q[2]])

    def potential_energy(self, t, q):
        return 0.5 * self.stiffness * jnp.sum(q**2)


def everything() -> Everything:
    return Everything(
        mass=jnp.array([1.0, 1.3, 0.7, 2.0]),
        stiffness=jnp.asarray(2.0, float),
        damping=jnp.asarray(0.3, float),
        radius=jnp.asarray(1.1, float),
        frequency=jnp.asarray(1.7, float),
    )


def everywhere() -> jd.State:
    """A state of `Everything` where no row is satisfied and nothing is zero."""
    return state([0.6, 0.8, 0.2, -0.4], [0.5, -0.3, 0.7, 0.2], 0.3)


@functools.cache
def consistent() -> jd.State:
    """A state of `Everything` on the constraint manifold, to round-off."""
    return jd.initialize(everything(), everywhere().q, everywhere().v, t=everywhere().t)[0]


@jd.tree.pytree
class Oscillator(jd.System):
    """Two masses on springs to the origin, without constraints."""

    mass: Any
    stiffness: Any

    def mass_matrix(self, q):
        return jnp.diag(self.mass)

    def force(self, t, q, v, u):
        return -self.stiffness * q if u is None else u - self.stiffness * q

    def potential_energy(self, t, q):
        return 0.5 * self.stiffness * jnp.sum(q**2)


def oscillator() -> Oscillator:
    return Oscillator(mass=jnp.array([1.0, 2.0]), stiffness=jnp.asarray(3.0, float))


def oscillating() -> jd.State:
    return state([0.7, -0.2], [0.1, 0.4])


@jd.tree.pytree(kw_only=True)
class Wheels(jd.System):
    """Two flywheels linked by r1 sin(a) - r2 sin(b) = 0.1 sin(t), with a spring on the first; in angles, q =
    (a, b).
    """

    inertia: Any
    radius: Any
    stiffness: Any

    def mass_matrix(self, q):
        return jnp.diag(self.inertia)

    def force(self, t, q, v, u):
        return self.rotated_force(*self.cosines_and_sines(q), v)

    def constraint(self, t, q):
        _, sines = self.cosines_and_sines(q)
        return jnp.stack([self.radius[0] * sines[0] - self.radius[1] * sines[1] - 0.1 * jnp.sin(t)])

    def cosines_and_sines(self, q):
        return jnp.cos(q), jnp.sin(q)

    def rotated_force(self, cosines, sines, v):
        return -self.stiffness * sines * jnp.array([1.0, 0.0]) - 0.1 * cosines * v


@jd.tree.pytree(kw_only=True)
class WheelsOnCircles(Wheels):
    """The same with q = (cos a, sin a, cos b, sin b): four coordinates, two velocities, and a `retract` that
    rotates.
    """

    def cosines_and_sines(self, q):
        pairs = q.reshape(2, 2)
        return pairs[:, 0], pairs[:, 1]

    def retract(self, q, xi):
        (c, s), (dc, ds) = self.cosines_and_sines(q), (jnp.cos(xi), jnp.sin(xi))
        return jnp.stack([c * dc - s * ds, s * dc + c * ds], axis=1).reshape(-1)

    def difference(self, q0, q1):
        (c0, s0), (c1, s1) = self.cosines_and_sines(q0), self.cosines_and_sines(q1)
        return jnp.arctan2(s1 * c0 - c1 * s0, c1 * c0 + s1 * s0)


def wheels() -> tuple[Wheels, WheelsOnCircles]:
    numbers = {
        "inertia": jnp.array([0.8, 1.7]),
        "radius": jnp.array([1.0, 1.5]),
        "stiffness": jnp.asarray(4.0, float),
    }
    return Wheels(**numbers), WheelsOnCircles(**numbers)


def wheels_states(angles: Any, rates: Any, t: float) -> tuple[jd.State, jd.State]:
    """Returns the same state in both coordinates."""
    angles = np.asarray(angles)
    circles = np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(-1)
    return state(angles, rates, t), state(circles, rates, t)


@contextlib.contextmanager
def without_typechecker() -> Iterator[None]:
    """Switches the type checks of the test suite off, so that the messages are those that users get."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def central(function: Any, x: Any, step: float = 1e-6) -> Any:
    """Returns the central difference of a function of a scalar; its error is of order step^2 and eps / step,
    both near 1e-11.
    """
    above, below = function(x + step), function(x - step)
    return jax.tree.map(lambda a, b: (a - b) / (2.0 * step), above, below)
