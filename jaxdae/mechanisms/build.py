"""From named bodies, joints and forces to stacked arrays.

Names become index tuples (structure), numbers become leaves. Places given in the world at the start pose are moved into the frames of
both bodies here, so that the mechanism itself knows body frames only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.functions import as_pytree
from jaxdae.mechanisms import forces as force_groups
from jaxdae.mechanisms import joints as joint_groups
from jaxdae.mechanisms import specs
from jaxdae.mechanisms.check import check_specs
from jaxdae.mechanisms.mechanism import Mechanism


def planar_mechanism(
    bodies: Sequence[specs.Body],
    joints: Sequence[specs.Joint],
    forces: Sequence[specs.ForceElement] = (),
    *,
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, Any]:
    """Returns a planar mechanism and its start pose.

    Args:
        bodies: at least one `Body`.
        joints: `Revolute`, `Prismatic`, `Weld`, `Rod`, `PointOnLine`, `Gear`, `PrescribedMotion`.
        forces: `LinearSpring`, `TorsionalSpring`, `Torque`, `Force`, `JointForce`.
        gravity: (2,) in m/s^2.

    Returns:
        The `Mechanism`, and q (3 n,): the start poses stacked. Close the loops of a rough pose with `initialize`.

    Raises:
        ValueError: every mistake at once: unknown or repeated names, missing places, non-positive masses.
        TypeError: things in the lists that are no bodies, joints or forces.

    Differentiable with respect to every number in the specs.
    """
    check_specs(bodies, joints, forces, gravity)
    builder = _Builder(bodies, joints)
    groups: dict[str, list[Any]] = {}
    for spec in joints:
        key, element = builder.joint(spec)
        groups.setdefault(key, []).append(element)
    elements: dict[str, list[Any]] = {}
    for spec in forces:
        key, element = builder.force(spec)
        elements.setdefault(key, []).append(element)
    inputs = [k for element in elements.values() for one in element for k in one.inputs]
    mechanism = Mechanism(
        body_names=tuple(body.name for body in bodies),
        n_inputs=max(inputs, default=-1) + 1,
        mass=jnp.stack([_float(body.mass) for body in bodies]),
        inertia=jnp.stack([_float(body.inertia) for body in bodies]),
        gravity=_vector(gravity),
        # Sorted, because JAX sorts the keys of a dictionary whenever it rebuilds one, and rows follow the order of the groups.
        joints={key: _stack(groups[key]) for key in sorted(groups)},
        forces={key: _stack(elements[key]) for key in sorted(elements)},
    )
    return mechanism, jnp.concatenate([_vector(body.pose) for body in bodies])


def _float(x: Any) -> Any:
    return jnp.asarray(x, jnp.result_type(float))


def _vector(x: Any) -> Any:
    return jnp.stack([_float(entry) for entry in x])


def _unit(axis: Any) -> Any:
    axis = _vector(axis)
    return axis / jnp.linalg.norm(axis)


def _stack(elements: list[Any]) -> Any:
    """Returns one group from single elements: leaves stacked, names and indices joined."""
    kind = type(elements[0])
    static = [f.name for f in dataclasses.fields(kind) if f.metadata.get("static")]
    plain = [dataclasses.replace(e, **dict.fromkeys(static, ())) for e in elements]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *plain)
    return dataclasses.replace(stacked, **{name: sum((getattr(e, name) for e in elements), ()) for name in static})


class _Builder:
    """Turns one spec after the other into one element of a group; checked specs only."""

    def __init__(self, bodies: Sequence[specs.Body], joints: Sequence[specs.Joint]) -> None:
        self.index = {body.name: k for k, body in enumerate(bodies)} | {specs.GROUND: len(bodies)}
        self.pose = {body.name: _vector(body.pose) for body in bodies} | {specs.GROUND: jnp.zeros(3, jnp.result_type(float))}
        self.joints = {joint.name: joint for joint in joints}
        self.motions: dict[str, list[Any]] = {}
        self.damped = {kind: any(_nonzero(j.damping) for j in joints if isinstance(j, kind)) for kind in (specs.Revolute, specs.Prismatic)}

    # Places.

    def body_vector(self, body: str, vector: Any) -> Any:
        """Returns world components at the start pose in the body's frame."""
        angle = self.pose[body][2]
        c, s, vector = jnp.cos(angle), jnp.sin(angle), _vector(vector)
        return jnp.stack([c * vector[0] + s * vector[1], -s * vector[0] + c * vector[1]])

    def body_point(self, body: str, at: Any) -> Any:
        """Returns a world place at the start pose in the body's frame."""
        return self.body_vector(body, _vector(at) - self.pose[body][:2])

    def world_point(self, body: str, point: Any) -> Any:
        """Returns a body place in the world at the start pose."""
        x, y, angle = self.pose[body]
        c, s = jnp.cos(angle), jnp.sin(angle)
        return jnp.stack([x + c * point[0] - s * point[1], y + s * point[0] + c * point[1]])

    def place(self, body: str, at: Any, point: Any) -> Any:
        return self.body_point(body, at) if point is None else _vector(point)

    def points(self, spec: Any) -> dict[str, Any]:
        at_a = getattr(spec, "at_a", None) if hasattr(spec, "at_a") else spec.at
        at_b = getattr(spec, "at_b", None) if hasattr(spec, "at_b") else spec.at
        return {
            "point_a": self.place(spec.a, at_a, spec.point_a),
            "point_b": self.place(spec.b, at_b, spec.point_b),
        }

    def axis(self, spec: Any) -> Any:
        axis = _unit(spec.axis)
        return self.body_vector(spec.a, axis) if spec.at is not None else axis

    def angle(self, a: str, b: str) -> Any:
        return self.pose[b][2] - self.pose[a][2]

    def distance(self, spec: Any, points: dict[str, Any]) -> Any:
        ends = self.world_point(spec.b, points["point_b"]) - self.world_point(spec.a, points["point_a"])
        square = jnp.sum(ends**2)
        apart = square > 0.0  # The root has no derivative at zero; there it is taken as zero.
        return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)

    def common(self, spec: Any, a: str, b: str) -> dict[str, Any]:
        return {"names": (spec.name,), "a": (self.index[a],), "b": (self.index[b],)}

    # Joints.

    def joint(self, spec: Any) -> tuple[str, Any]:
        """Returns the key of the group and the element."""
        return _JOINTS[type(spec)](self, spec)

    def revolute(self, spec: specs.Revolute) -> tuple[str, Any]:
        damping = _float(spec.damping) if self.damped[specs.Revolute] else None
        return "revolute", joint_groups.Revolute(**self.common(spec, spec.a, spec.b), **self.points(spec), damping=damping)

    def prismatic(self, spec: specs.Prismatic) -> tuple[str, Any]:
        damping = _float(spec.damping) if self.damped[specs.Prismatic] else None
        return "prismatic", joint_groups.Prismatic(
            **self.common(spec, spec.a, spec.b),
            **self.points(spec),
            axis=self.axis(spec),
            angle=self.angle(spec.a, spec.b),
            damping=damping,
        )

    def weld(self, spec: specs.Weld) -> tuple[str, Any]:
        return "weld", joint_groups.Weld(**self.common(spec, spec.a, spec.b), **self.points(spec), angle=self.angle(spec.a, spec.b))

    def rod(self, spec: specs.Rod) -> tuple[str, Any]:
        points = self.points(spec)
        length = self.distance(spec, points) if spec.length is None else _float(spec.length)
        return "rod", joint_groups.Rod(**self.common(spec, spec.a, spec.b), **points, length=length)

    def point_on_line(self, spec: specs.PointOnLine) -> tuple[str, Any]:
        return "point_on_line", joint_groups.PointOnLine(**self.common(spec, spec.a, spec.b), **self.points(spec), axis=self.axis(spec))

    def gear(self, spec: specs.Gear) -> tuple[str, Any]:
        ratio = _float(spec.ratio)
        offset = self.pose[spec.b][2] - ratio * self.pose[spec.a][2]
        return "gear", joint_groups.Gear(**self.common(spec, spec.a, spec.b), ratio=ratio, offset=offset)

    def slide(self, joint: specs.Prismatic) -> dict[str, Any]:
        return {**self.points(joint), "axis": self.axis(joint)}

    def prescribed(self, spec: specs.PrescribedMotion) -> tuple[str, Any]:
        joint: Any = self.joints[spec.joint]
        # A plain function is structure: it has no leaves.
        motion = jax.tree.map(_float, as_pytree(spec.motion, f"joint {spec.name!r}: motion"))
        common = self.common(spec, joint.a, joint.b)
        if isinstance(joint, specs.Revolute):
            key = self.motion_key("prescribed_angle", motion)
            return key, joint_groups.PrescribedAngle(**common, offset=self.angle(joint.a, joint.b), motion=motion)
        places = self.slide(joint)
        start = self.world_point(joint.b, places["point_b"]) - self.world_point(joint.a, places["point_a"])
        offset = jnp.sum(self.body_vector(joint.a, start) * places["axis"])
        key = self.motion_key("prescribed_slide", motion)
        return key, joint_groups.PrescribedSlide(**common, **places, offset=offset, motion=motion)

    def motion_key(self, kind: str, motion: Any) -> str:
        """Returns the key of the group that a motion joins: motions of one structure are stacked, others are groups of their own."""
        shape = (jax.tree.structure(motion), [leaf.shape for leaf in jax.tree.leaves(motion)])
        known = self.motions.setdefault(f"{kind}_{type(motion).__name__.lower()}", [])
        if shape not in known:
            known.append(shape)
        number = known.index(shape)
        return f"{kind}_{type(motion).__name__.lower()}" + (f"_{number + 1}" if number else "")

    # Forces.

    def force(self, spec: Any) -> tuple[str, Any]:
        """Returns the key of the group and the element."""
        return _FORCES[type(spec)](self, spec)

    def inputs(self, spec: Any) -> tuple[int, ...]:
        return (-1 if spec.input is None else spec.input,)

    def linear_spring(self, spec: specs.LinearSpring) -> tuple[str, Any]:
        points = self.points(spec)
        rest = self.distance(spec, points) if spec.rest_length is None else _float(spec.rest_length)
        return "linear_spring", force_groups.LinearSpring(
            **self.common(spec, spec.a, spec.b),
            inputs=(-1,),
            **points,
            stiffness=_float(spec.stiffness),
            damping=_float(spec.damping),
            rest_length=rest,
        )

    def torsional_spring(self, spec: specs.TorsionalSpring) -> tuple[str, Any]:
        rest = self.angle(spec.a, spec.b) if spec.rest_angle is None else _float(spec.rest_angle)
        return "torsional_spring", force_groups.TorsionalSpring(
            **self.common(spec, spec.a, spec.b),
            inputs=(-1,),
            stiffness=_float(spec.stiffness),
            damping=_float(spec.damping),
            rest_angle=rest,
        )

    def torque(self, spec: specs.Torque) -> tuple[str, Any]:
        return "torque", force_groups.Torque(
            **self.common(spec, spec.a, spec.b),
            inputs=self.inputs(spec),
            torque=_float(spec.torque),
            gain=_float(spec.gain),
        )

    def point_force(self, spec: specs.Force) -> tuple[str, Any]:
        key, group = ("body_force", force_groups.BodyForce) if spec.body_frame else ("world_force", force_groups.WorldForce)
        return key, group(
            **self.common(spec, specs.GROUND, spec.body),
            inputs=self.inputs(spec),
            point=self.place(spec.body, spec.at, spec.point),
            force=_vector(spec.force),
            direction=_vector(spec.direction),
        )

    def joint_force(self, spec: specs.JointForce) -> tuple[str, Any]:
        joint: Any = self.joints[spec.joint]
        common = {**self.common(spec, joint.a, joint.b), "inputs": self.inputs(spec), "gain": _float(spec.gain)}
        if isinstance(joint, specs.Revolute):
            return "torque", force_groups.Torque(**common, torque=_float(spec.force))
        return "slide_force", force_groups.SlideForce(**common, **self.slide(joint), force=_float(spec.force))


def _nonzero(x: Any) -> bool:
    return isinstance(x, Tracer) or bool(np.any(np.asarray(x) != 0.0))


_JOINTS: dict[type, Callable[[_Builder, Any], tuple[str, Any]]] = {
    specs.Revolute: _Builder.revolute,
    specs.Prismatic: _Builder.prismatic,
    specs.Weld: _Builder.weld,
    specs.Rod: _Builder.rod,
    specs.PointOnLine: _Builder.point_on_line,
    specs.Gear: _Builder.gear,
    specs.PrescribedMotion: _Builder.prescribed,
}

_FORCES: dict[type, Callable[[_Builder, Any], tuple[str, Any]]] = {
    specs.LinearSpring: _Builder.linear_spring,
    specs.TorsionalSpring: _Builder.torsional_spring,
    specs.Torque: _Builder.torque,
    specs.Force: _Builder.point_force,
    specs.JointForce: _Builder.joint_force,
}
