"""Calibration: geometry and encoder offsets from measured poses, masses and friction from motor efforts.

`geometric_parameters` and `dynamic_parameters` define the corrections, `measured_efforts` the residuals of
efforts, and `calibration_fit` contains the mathematics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.suggestions import join_first
from jaxdae.kinematics.calibration_fit import Calibration, fitted
from jaxdae.kinematics.closed_chains import check_poses, problem_of
from jaxdae.kinematics.dynamic_parameters import calibration_parameters, sizes_of
from jaxdae.kinematics.geometric_parameters import XYZ, check_entries, encoder_offset
from jaxdae.kinematics.least_squares_on_loops import tolerance
from jaxdae.kinematics.measured_efforts import MeasuredEfforts, characteristic_rate
from jaxdae.kinematics.targets import JointTarget, PoseTarget, coordinate_indices, stacked_targets
from jaxdae.mechanisms import Mechanism
from jaxdae.systems.system import State, check_mechanism

Measurement = PoseTarget | JointTarget | MeasuredEfforts


def calibrate(
    mechanism: Mechanism,
    actuated: Mapping[str, Any],
    measured: Measurement | Sequence[Measurement],
    start: State | jax.Array,
    parameters: Sequence[str],
    *,
    offsets: Sequence[str] = (),
    standard_deviation: Any = None,
    robust: bool = True,
    held_out: Any = None,
    condition: float = 1e4,
) -> Calibration:
    """Return parameters and encoder offsets of a mechanism, fitted to measured poses and motor efforts.

    Args:
        mechanism: the nominal mechanism. In joint coordinates, the motors drive coordinates.
        actuated: encoder readings (n,) in rad or m by the names of coordinates, or of joints with one
            coordinate. They determine the pose.
        measured: one or several targets, whose values are stacked along a first axis: positions (n, 3) and
            quaternions (n, 4) in space, (n, 2) and (n,) in the plane, values (n,) of a `JointTarget`. The
            field `point` is not stacked. `MeasuredEfforts` contains the efforts of the motors in `actuated`.
        start: a state or coordinates (nq,) with closed loops on the branch of the poses.
        parameters: fields of joints, such as "joints.rod1.length", or single entries of their corrections,
            such as "joints.rod1.point_a.x". The correction of a point is a vector in the frame of its body in
            m. The correction of axes is a rotation vector in rad in the axes of the joint. The correction of
            a direction is a rotation vector in the frame of its body, or an angle in the plane. With
            `MeasuredEfforts` also "bodies.arm.mass", "bodies.arm.inertia", "bodies.arm.center" (the center of
            mass in the frame of the body), "gravity", and numbers of joints and forces, such as
            "joints.hinge.damping". The correction of a matrix has the entries xx, yy, zz, yz, xz and xy.
        offsets: the motors whose encoders have an unknown offset.
        standard_deviation: standard deviations of the measured numbers (m,) or () in m, rad, N m and N, up to
            a common factor. By default the characteristic sizes of these units.
        robust: whether large residuals have smaller weights (Huber); False for least squares.
        held_out: whether each pose (n,) is excluded from the fit, to test the result.
        condition: the largest ratio of the singular values of identifiable directions.

    Raises:
        TypeError: `mechanism` is a wrapper or a first-order mechanism.
        ValueError: unknown names, parameters without a correction or without an effect on the measurements,
            or shapes that do not fit; rows of velocity level, as in `forward_kinematics`.

    The nominal mechanism determines the identifiable directions. The result is the correction of minimum
    norm, with lengths divided by the characteristic length, and other units by their characteristic sizes.
    Corrections have no bounds, so poor data may return a negative mass, whose status in a rollout is
    OUT_OF_RANGE. The program is compiled once per shape, and `jax.vmap` calibrates many mechanisms at once.
    The fit does not support reverse mode.

    Example:
        >>> tool = kinematics.PoseTarget("platform", position=positions)
        >>> found = kinematics.calibrate(robot, {"motor1": angles}, tool, start, ["joints.rod1.length"])
    """
    check_mechanism(mechanism)
    check_poses("calibrate", mechanism)
    targets = (measured,) if isinstance(measured, Measurement) else tuple(measured)
    if not targets:
        raise ValueError("measured: give at least one PoseTarget, JointTarget or MeasuredEfforts")
    logs = [target for target in targets if isinstance(target, MeasuredEfforts)]
    chosen = (
        *calibration_parameters(mechanism, parameters, bool(logs)),
        *(encoder_offset(mechanism, tuple(actuated), name) for name in offsets),
    )
    check_entries(chosen)
    _check_names(mechanism, actuated, targets, chosen)
    poses = stacked_targets("actuated and measured", mechanism, (JointTarget(actuated), *targets))
    count = jax.tree.leaves(poses)[0].shape[:1]
    first = jax.tree.map(lambda x: x[0], poses)
    labels = [
        (k, unit, row if isinstance(one, MeasuredEfforts) else 0)
        for k, one in enumerate(first[1:])
        for row, unit in enumerate(one.checked(mechanism).units(mechanism))
    ]
    same = jnp.array([[one == other for other in labels] for one in labels])
    rate = characteristic_rate(mechanism, [one for one in poses if isinstance(one, MeasuredEfforts)])
    sizes = sizes_of(mechanism, [unit for _, unit, _ in labels], rate)
    scale = sizes_of(mechanism, [unit for one in chosen for unit in (one.unit,) * one.size], rate)
    smallest = tolerance(mechanism.dtype) * sizes
    if standard_deviation is not None:
        given = jnp.asarray(standard_deviation, mechanism.dtype)
        if given.shape not in ((), sizes.shape):
            raise ValueError(f"standard_deviation must have shape () or {sizes.shape}, got {given.shape}")
        sizes = jnp.broadcast_to(given, sizes.shape)
    held = jnp.zeros(count, bool) if held_out is None else jnp.asarray(held_out, bool)
    if held.shape != count:
        raise ValueError(f"held_out must have shape {count}, got {held.shape}")
    q = problem_of(mechanism, first[0], start, {}, None).start
    return fitted(mechanism, poses, q, sizes, smallest / sizes, same, held, scale, condition, chosen, robust)


def _check_names(mechanism: Mechanism, actuated: Any, targets: Sequence[Any], chosen: Sequence[Any]) -> None:
    """Raise ValueError if efforts are not those of `actuated`, or a coordinate is a place of a center."""
    encoders = coordinate_indices("actuated", mechanism, actuated)
    for log in targets:
        if isinstance(log, MeasuredEfforts) and set(log.places(mechanism)) != set(encoders):
            raise ValueError(
                f"MeasuredEfforts must have the motors in actuated, {join_first(actuated)}, got "
                f"{join_first(log.efforts)}"
            )
    values = [name for target in targets if isinstance(target, JointTarget) for name in target.values]
    origins = {f"{one.leaf}.{axis}" for one in chosen if one.form == "center" for axis in XYZ}
    places = (*encoders, *coordinate_indices("measured", mechanism, values))
    moved = [name for k in places if (name := mechanism.names.coordinates[k]) in origins]
    if moved:
        raise ValueError(
            f"parameters: the coordinate {moved[0]!r} is a place of the center of mass; measure a point of "
            "the body with PoseTarget, or remove the center"
        )
