"""Mechanisms that switch, and their motions in closed form.

A *string* goes slack where its tension vanishes, and jerks when its ball returns to the circle. A *block*
rocks on its two lower corners. A *bead* meets rows that come and go by the clock; all of its motion is
quadratic in time.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae as jd

MASS, LENGTH, GRAVITY = 1.3, 0.8, 9.81  # of the string
ANGLE = 1.9  # where its ball starts, in rad from below
# Of the bead: the directions of its rows, its acceleration and its start velocity.
N = np.array([0.6, 0.8])
T = np.array([-0.8, 0.6])
FALL = np.array([0.3, -9.81])
THROW = np.array([1.0, 3.0])


def numbers(*values):
    return tuple(jnp.asarray(x, float) for x in values)


@jd.tree.pytree
class String(jd.System):
    """A ball on a string; the row is the elongation, to first order."""

    mass: Any
    length: Any
    gravity: Any

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.stack([jnp.zeros_like(self.mass), -self.mass * self.gravity])

    def constraint(self, t, q):
        return (jnp.sum(q**2) - self.length**2)[None] / (2.0 * self.length)

    def potential_energy(self, t, q):
        return self.mass * self.gravity * q[1]


def flight(speed):
    """Returns when the string goes slack and taut, the impulse and the energy lost, by the closed form.

    v^2 = rest + 2 g L cos phi on the circle. The tension m (v^2 / L + g cos phi) vanishes at cos phi = -rest
    / (3 g L). With x0 there, x0 v = 0 and v^2 = g y0, so that |x0 + v t - g t^2 / 2|^2 - L^2 = t^3 (g^2 t / 4
    - g v_y): taut again at t = 4 v_y / g.
    """
    rest = speed**2 - 2 * GRAVITY * LENGTH * np.cos(ANGLE)
    phi = np.arccos(-rest / (3 * GRAVITY * LENGTH))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = (phi - ANGLE) / 2
    between = (phi + ANGLE)[..., None] / 2 + half[..., None] * nodes
    slack = half * np.sum(
        weights * LENGTH / np.sqrt(rest[..., None] + 2 * GRAVITY * LENGTH * np.cos(between)), axis=-1
    )
    v = np.sqrt(-GRAVITY * LENGTH * np.cos(phi))[..., None] * np.stack([np.cos(phi), np.sin(phi)], axis=-1)
    t = (4 * v[..., 1] / GRAVITY)[..., None]
    fall = np.array([0.0, GRAVITY])
    x = LENGTH * np.stack([np.sin(phi), -np.cos(phi)], axis=-1) + v * t - fall * t**2 / 2
    radial = np.sum((v - fall * t) * x, axis=-1) / LENGTH
    return {
        "slack": slack,
        "taut": slack + t[..., 0],
        "impulse": -MASS * radial,
        "loss": MASS * radial**2 / 2,
    }


def impact(z):
    """Returns the impulse -m v_r at the instant of |x| = L, and that instant, of a ball in flight from z = (x, v)."""
    x, v, t, fall = z[:2], z[2:], 0.0, np.array([0.0, GRAVITY])
    for _ in range(30):
        moved, rate = x + v * t - fall * t**2 / 2, v - fall * t
        t = t - (moved @ moved - LENGTH**2) / (2 * moved @ rate)
    return np.array([-MASS * moved @ rate / LENGTH, t])


@jd.tree.pytree
class Block(jd.System):
    """A rectangle of half width a and half height b, q = (x, y, angle): rows are the heights of its lower
    corners, and their slip.
    """

    a: Any
    b: Any
    gravity: Any

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([jnp.ones_like(self.a)] * 2 + [(self.a**2 + self.b**2) / 3.0]))

    def force(self, t, q, v, u):
        return jnp.stack([jnp.zeros_like(self.a), -self.gravity, jnp.zeros_like(self.a)])

    def corners(self, q):
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        side = jnp.stack([-self.a, self.a])
        return jnp.stack([q[0] + c * side + s * self.b, q[1] + s * side - c * self.b])

    def constraint(self, t, q):
        return self.corners(q)[1]

    def velocity_constraint(self, t, q, v):
        return jax.jvp(self.corners, (q,), (v,))[1][0]

    def potential_energy(self, t, q):
        return self.gravity * q[1]


@jd.tree.pytree
class Bead(jd.System):
    """A mass in the plane, with rows that take its velocity along given directions."""

    directions: Any
    gravity: Any

    def mass_matrix(self, q):
        return 2.0 * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return 2.0 * self.gravity

    def velocity_constraint(self, t, q, v):
        return self.directions @ v


def guided(on, off, end):
    """Returns place and velocity at the end, and the impulse at `on`: free, along T between the two times,
    free.
    """
    x, v = THROW * on + FALL * on**2 / 2, THROW + FALL * on
    impulse = -2.0 * N @ v
    v, a, t = T * (T @ v), T * (T @ FALL), off - on
    x, v = x + v * t + a * t**2 / 2, v + a * t
    t = end - off
    return np.concatenate([x + v * t + FALL * t**2 / 2, v + FALL * t, [impulse]])
