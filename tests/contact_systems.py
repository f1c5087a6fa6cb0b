"""Systems with contacts: balls and blocks in the plane, mechanisms in space with points on planes."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.contact import FunctionContacts
from jaxdae.mechanisms import spatial as js

G = 9.81


@jd.tree.pytree
class Body(jd.System):
    """A rigid body in the plane with coordinates (x, z, angle) in a uniform field of gravity."""

    mass: Any
    inertia: Any
    gravity: Any

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.mass, self.mass, self.inertia]))

    def force(self, t, q, v, u):
        return self.mass * jnp.append(self.gravity, 0.0)


def body(inertia, gravity):
    return Body(jnp.asarray(1.0), jnp.asarray(inertia), jnp.asarray(gravity))


@jd.tree.pytree
class Round:
    """The gap and the slip of a ball with its radius as a number: balls and blocks share one program."""

    radius: Any

    def gap(self, t, q):
        return q[1:2] - self.radius

    def slip(self, t, q, v):
        return (v[0] - self.radius * v[2])[None, None]


def rolling(radius, friction, restitution):
    """Return the contact of a ball with the ground z = 0; a block slides on it with a radius of 0."""
    shape = Round(jnp.asarray(radius, float))
    return FunctionContacts(
        gap=shape.gap,
        slip=shape.slip,
        friction=jnp.asarray([friction]),
        restitution=jnp.asarray([restitution]),
        tangents=1,
    )


def ball(radius, friction, restitution, gravity=G):
    """Return a solid ball of 1 kg above the ground z = 0, and its contact."""
    inertia = 0.4 * radius**2 if radius else 1.0
    return body(inertia, [0.0, -gravity]), rolling(radius, friction, restitution)


def block(angle, friction):
    """Return a block of 1 kg on an incline, with x downhill and z normal, and its contact."""
    return body(1.0, [G * np.sin(angle), -G * np.cos(angle)]), rolling(0.0, friction, 0.0)


def points_on_plane(mechanism, name, points, normal, offset, friction):
    """Return contacts of body points (m, 3) with the fixed plane normal . x = offset, and their places."""
    index = mechanism.body_names.index(name)
    points, normal = jnp.asarray(points, float), jnp.asarray(normal, float)
    first = jnp.cross(normal, jnp.asarray([normal[1], normal[2], normal[0]]))
    first /= jnp.linalg.norm(first)
    second = jnp.cross(normal, first)

    def frame(q):
        f = mechanism.frames(q)
        rotation = [[getattr(f, f"r{i}{j}")[index] for j in (1, 2, 3)] for i in (1, 2, 3)]
        return jnp.stack([f.x[index], f.y[index], f.z[index]]), jnp.asarray(rotation)

    def places(q):
        center, rotation = frame(q)
        return center + points @ rotation.T

    def slip(t, q, v):
        twist, (center, rotation) = mechanism.twists(q, v), frame(q)
        linear = jnp.stack([twist.x[index], twist.y[index], twist.z[index]])
        angular = rotation @ jnp.stack([twist.wx[index], twist.wy[index], twist.wz[index]])
        velocity = linear + jnp.cross(angular, places(q) - center)
        return jnp.stack([velocity @ first, velocity @ second], axis=-1)

    mu = jnp.full(len(points), friction)
    return FunctionContacts(lambda t, q: places(q) @ normal - offset, slip, mu), places


def thrown_box(friction, corners, gravity=(0.0, 0.0, -G), height=0.1, quaternion=(1.0, 0.0, 0.0, 0.0)):
    """Return a cube of 1 kg and 0.2 m, its coordinates, and contacts of its corners with the ground."""
    quaternion = tuple(np.asarray(quaternion) / np.linalg.norm(quaternion))
    cube = js.Body("box", 1.0, (2.0 / 3.0 * 0.01,) * 3, place=(0.0, 0.0, height), quaternion=quaternion)
    mechanism, q = jm.spatial_mechanism([cube], [], gravity=gravity, coordinates=jm.Absolute())
    signs = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in ((-1, 1) if corners == "all" else (-1,))]
    contacts, _ = points_on_plane(mechanism, "box", 0.1 * np.asarray(signs), (0.0, 0.0, 1.0), 0.0, friction)
    return mechanism, q, contacts


def four_bar(coordinates, friction):
    """Return a four-bar in space, its coordinates, the contact of a coupler point with a wall 30 mm ahead of it,
    and the place of this point.
    """
    a, b, c, d = map(np.asarray, ([0, 0, 0.0], [0.08, 0, 0.289], [0.5, 0, 0.45], [0.5, 0, 0.0]))

    def rod(name, p, r, mass):
        along = r - p
        inertia = mass * along @ along / 12.0
        half = np.arctan2(-along[2], along[0]) / 2.0
        return js.Body(
            name,
            mass,
            (0.01 * inertia + 1e-5, inertia, inertia),
            place=tuple((p + r) / 2.0),
            quaternion=(np.cos(half), 0.0, np.sin(half), 0.0),
        )

    bodies = [rod("crank", a, b, 1.0), rod("coupler", b, c, 1.5), rod("rocker", d, c, 1.0)]
    pairs = [
        ("ground", "crank", a),
        ("crank", "coupler", b),
        ("coupler", "rocker", c),
        ("ground", "rocker", d),
    ]
    joints = [
        js.Revolute(f"{one}-{other}", one, other, axis=(0.0, 1.0, 0.0), at=tuple(at))
        for one, other, at in pairs
    ]
    mechanism, q = jm.spatial_mechanism(bodies, joints, coordinates=coordinates)
    half = np.arctan2(-(c - b)[2], (c - b)[0])
    wall = (b + c)[0] / 2.0 + 0.05 * np.cos(half) + 0.2 * np.sin(half) + 0.03
    contacts, places = points_on_plane(
        mechanism, "coupler", [(0.05, 0.0, 0.2)], (-1.0, 0.0, 0.0), -wall, friction
    )
    return mechanism, q, contacts, places
