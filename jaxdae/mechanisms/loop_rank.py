"""Whether rows of loops are dependent, from the numerical rank of J at the start pose.

The count of `overconstrained` knows the numbers of rows and freedoms only. Special geometry can make rows
dependent although the count leaves freedoms. Four parallel rods between two bodies in space have rank 3, and
so have four legs of a table that stands on a plane.

Loops that share no joint are examined separately. J is computed in absolute coordinates, joint by joint, so
that each joint type is compiled once per process. Lengths are divided by the largest lever arm L in J, and
rows by their length, so that singular values do not depend on units. Singular values below
`default_tolerance` of the largest count as zero, as in the default solver for dependent rows.

The loops are closed first, by Levenberg-Marquardt steps with the damping |r|. They converge quadratically
also if rows are dependent at the solution.

A rank that is lost at the start alone also counts, such as the rank of a flat parallelogram. Solvers that
need full rank return NaN there. Whether the rank returns next to the start depends on the branch of the
motion, which the start velocity and the forces choose: four parallel cranks with ball joints regain it if
their plate turns, and not if it translates. `jaxdae.dynamics.nearby_mobility` treats all branches.

References:
    N. Yamashita, M. Fukushima, "On the rate of convergence of the Levenberg-Marquardt method", Computing
    Suppl. 15 (2001).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.mechanisms.coordinates.absolute import absolute_form
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.plane_and_space import PLANE, SPACE, Plane, Space
from jaxdae.systems.system import default_tolerance

_LARGEST = 600
"""The largest number of rows of loops that share joints. Beyond it, a step of the dense solver for dependent
rows takes seconds, and only the count decides."""

_STEPS = 50

_PAIRS = {space.name: absolute_form(space, ("a", "b"), ()) for space in (PLANE, SPACE)}
"""The coordinates of two bodies; these objects are keys of compiled functions."""


class PlacedJoint(NamedTuple):
    """A joint with its numbers as arrays, and the names of its bodies."""

    a: str
    b: str
    element: Any


def have_dependent_rows(
    space: Plane | Space, loops: Sequence[Sequence[PlacedJoint]], poses: Mapping[str, Any]
) -> bool:
    """Return whether rows are dependent at the start pose with closed loops.

    Return False if numbers are traced, or if the loops cannot be closed.

    Args:
        space: the plane or space.
        loops: the joints with position-level rows, for each set of loops that share joints.
        poses: the absolute coordinates of each body and of the ground at the start, (3,) or (7,).
    """
    numbers = [joint.element for joints in loops for joint in joints], dict(poses)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(numbers)):
        return False
    with jax.ensure_compile_time_eval():
        return any(
            _are_dependent(_Loops(space, joints, poses))
            for joints in loops
            if sum(len(joint.element.rows) for joint in joints) <= _LARGEST
        )


def _are_dependent(loops: _Loops) -> bool:
    jacobian = loops.closed_jacobian()
    if jacobian is None:
        return False
    values = np.linalg.svd(jacobian, compute_uv=False)
    least = default_tolerance(jnp.result_type(float)) * np.max(values, initial=0.0)
    return int(np.sum(values > least)) < len(jacobian)


class _Loops:
    """The rows of joints of loops, as functions of the poses of their bodies."""

    def __init__(self, space: Plane | Space, joints: Sequence[PlacedJoint], poses: Mapping[str, Any]) -> None:
        self.pair = _PAIRS[space.name]
        self.width = len(self.pair.velocity_names) // 2
        self.joints = [joint._replace(element=_without_names(joint.element)) for joint in joints]
        names = dict.fromkeys(name for joint in joints for name in (joint.a, joint.b))
        self.start = {name: np.asarray(poses[name]) for name in names}
        self.bodies = [name for name in names if name != GROUND]
        by_place, by_angle = np.split(
            np.abs(self._rows(self.start)[1]).reshape(-1, self.width), [space.dimension], axis=1
        )
        # Rows in rad have no place entries. Their size, 1, does not count as an arm.
        in_m = np.any(by_place > 0.0, axis=1)
        arm = np.max(by_angle[in_m], initial=0.0) / max(np.max(by_place), np.finfo(float).tiny)
        self.sizes = np.where(np.arange(self.width) < space.dimension, arm if arm > 0.0 else 1.0, 1.0)

    def closed_jacobian(self) -> np.ndarray | None:
        """Return J (m, width bodies) at the configuration with closed loops near the start.

        Displacements are in units of L, and rows have length 1. Return None if the steps do not converge.
        """
        precision = float(jnp.finfo(jnp.result_type(float)).eps) ** 0.6
        poses = self.start
        for _ in range(_STEPS):
            residual, jacobian = self._rows(poses)
            jacobian = jacobian * np.tile(self.sizes, len(self.bodies))
            lengths = np.linalg.norm(jacobian, axis=1)
            lengths = np.where(lengths > 0.0, lengths, 1.0)
            residual, jacobian = residual / lengths, jacobian / lengths[:, None]
            size = np.linalg.norm(residual)
            if size <= precision:
                return jacobian
            normal = jacobian @ jacobian.T + size * np.eye(len(residual))
            steps = (-jacobian.T @ np.linalg.solve(normal, residual)).reshape(-1, self.width) * self.sizes
            poses = poses | {
                name: np.asarray(_moved(self.pair, poses[name], step))
                for name, step in zip(self.bodies, steps, strict=True)
            }
        return None

    def _rows(self, poses: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the residuals (m,) and J (m, width bodies) without columns of the ground."""
        places = {name: k for k, name in enumerate(self.bodies)} | {GROUND: len(self.bodies)}
        residuals, rows = [], []
        for joint in self.joints:
            residual, jacobian = _rows_of(self.pair, joint.element, poses[joint.a], poses[joint.b])
            row = np.zeros((len(residual), len(places), self.width))
            row[:, places[joint.a]], row[:, places[joint.b]] = np.split(np.asarray(jacobian), 2, axis=1)
            residuals.append(np.asarray(residual))
            rows.append(row[:, :-1].reshape(len(residual), -1))
        return np.concatenate(residuals), np.concatenate(rows)


def _without_names(element: Any) -> Any:
    """Return an element without its static fields, so that all joints of a type compile once."""
    static = [field.name for field in dataclasses.fields(element) if field.metadata.get("static")]
    return dataclasses.replace(element, **dict.fromkeys(static, ()))


@partial(jax.jit, static_argnums=0)
def _rows_of(pair: Any, element: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Return the residuals (r,) of a joint and their derivatives (r, 2 width) by the twists of a and b."""
    q = jnp.concatenate([a, b])

    def residual(xi: Any) -> Any:
        frames = pair.locate(pair.retract(q, xi))
        ends = (jax.tree.map(lambda x, k=k: x[k], frames) for k in range(2))
        return jnp.stack(element.residual(*ends, jnp.zeros((), q.dtype)))

    still = jnp.zeros((len(pair.velocity_names),), q.dtype)
    return residual(still), jax.jacfwd(residual)(still)


@partial(jax.jit, static_argnums=0)
def _moved(pair: Any, pose: Any, step: Any) -> Any:
    """Return the pose of a body after a displacement."""
    return pair.retract(pose, step.astype(pose.dtype))
