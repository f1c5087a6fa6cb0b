"""The actuators of MJCF as forces with inputs.

With the length L = gear q and the rate V = gear q' of what it moves, an actuator makes the force

    F = clip((g0 + g1 L + g2 V) clip(u) + b0 + b1 L + b2 V),      gear F along the coordinate,

which `Actuator` of `jaxdae.mechanisms.spatial` is: motors, position and velocity servos, general ones with affine gain and bias. Those on
balls, free bodies and sites are wrenches along their gear, without feedback. On a fixed tendon L and V are its length and rate times the
gear. Input k is control k of MuJoCo.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.mechanisms import GROUND
from jaxdae.robots.graph import quaternion_matrix


def actuators(
    mujoco: Any,
    model: Any,
    names: Sequence[str],
    joints: Sequence[str],
    bodies: Sequence[str],
    ends: Callable[[int], tuple[str, str]],
    tendons: Mapping[int, tuple[tuple[str, ...], tuple[float, ...]]],
) -> tuple[list[Any], list[tuple[str, int]]]:
    """Returns the forces of all actuators, and what was left out with the numbers of the actuators.

    Args:
        mujoco: the module.
        model: compiled.
        names: of the actuators.
        joints: the names of joints.
        bodies: the names of bodies.
        ends: returns the links that a joint connects, by its number.
        tendons: the joints and their coefficients of fixed tendons, by their numbers.
    """
    made: list[Any] = []
    unused: list[tuple[str, int]] = []
    kinds, gains, biases, dynamics = mujoco.mjtTrn, mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtDyn
    all_off = int(model.opt.disableflags) & int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
    for k, inputs in enumerate(_controls(model)):
        gain_kind, bias_kind = int(model.actuator_gaintype[k]), int(model.actuator_biastype[k])
        transmission, at = int(model.actuator_trntype[k]), int(model.actuator_trnid[k][0])
        known = gain_kind in (gains.mjGAIN_FIXED, gains.mjGAIN_AFFINE) and bias_kind in (biases.mjBIAS_NONE, biases.mjBIAS_AFFINE)
        if all_off or int(model.opt.disableactuator) >> int(model.actuator_group[k]) & 1:
            unused.append(("actuator that is disabled", k))
            continue
        if int(model.actuator_dyntype[k]) != dynamics.mjDYN_NONE:
            unused.append(("actuator with activation", k))
            continue
        if not known or len(inputs) != 1 or model.actuator_plugin[k] >= 0:
            unused.append(("actuator that is a muscle, a plugin or has several controls", k))
            continue
        at_input = inputs[0]
        gain = np.array(model.actuator_gainprm[k][:3], float) * ([1.0, 1.0, 1.0] if gain_kind == gains.mjGAIN_AFFINE else [1.0, 0.0, 0.0])
        bias = np.array(model.actuator_biasprm[k][:3], float) * float(bias_kind == biases.mjBIAS_AFFINE)
        gear = np.array(model.actuator_gear[k], float)
        for table in ("actuator_damping", "actuator_dampingpoly", "actuator_armature", "actuator_delay"):
            if np.any(getattr(model, table, np.zeros(model.nu))[k]):
                unused.append((table.replace("_", " "), k))
        if transmission in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT):
            kind = int(model.jnt_type[at])
            if kind in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
                made.append(_servo(model, k, at_input, names[k], joints[at], gear[0], gain, bias))
                continue
            parent, child = ends(at)
            free = kind == mujoco.mjtJoint.mjJNT_FREE
            force, torque = (gear[:3], gear[3:]) if free else (np.zeros(3), gear[:3])
            turned = transmission == kinds.mjTRN_JOINT
            place, axes = np.zeros(3), np.eye(3)
        elif transmission == kinds.mjTRN_SITE and int(model.actuator_trnid[k][1]) < 0:
            parent, child, free = GROUND, bodies[model.site_bodyid[at]], False
            axes, place = quaternion_matrix(model.site_quat[at]), np.array(model.site_pos[at])
            force, torque, turned = axes @ gear[:3], axes @ gear[3:], True
        elif transmission == kinds.mjTRN_TENDON and at in tendons:
            # What is passive of the tendon is an element of its own.
            pulled = js.Tendon(
                names[k], *tendons[at], slack_from=0.0, slack_to=0.0, input=at_input, ratio=float(gear[0]), gain=gain, bias=bias
            )
            made.append(dataclasses.replace(pulled, **_bounds(model, k, at_input)))
            continue
        elif transmission == kinds.mjTRN_TENDON:
            unused.append(("actuator on a spatial tendon", k))
            continue
        else:
            unused.append((f"actuator on a {kinds(transmission).name.removeprefix('mjTRN_').lower()}", k))
            continue
        if not turned:
            unused.append(("actuator of a ball or a free joint in the axes of its parent", k))
            continue
        if np.any(gain[1:]) or np.any(bias):
            unused.append(("actuator with feedback that is on no hinge or slide", k))
            continue
        if model.actuator_ctrllimited[at_input] or model.actuator_forcelimited[k]:
            unused.append(("ctrlrange or forcerange of an actuator that is on no hinge or slide", k))
        if np.any(force):
            made.append(js.Force(f"{names[k]} force", child, point=place, input=at_input, direction=gain[0] * force, body_frame=not free))
        if np.any(torque):
            none = np.zeros(3)
            made.append(js.Torque(f"{names[k]} torque", parent, child, none, input=at_input, direction=gain[0] * torque, body_frame=True))
    return made, unused


def _controls(model: Any) -> list[range]:
    """Returns the numbers of the controls of each actuator; before MuJoCo 4 each has its own."""
    count = len(model.actuator_trntype)
    first, several = getattr(model, "actuator_ctrladr", range(count)), getattr(model, "actuator_ctrlnum", [1] * count)
    return [range(int(start), int(start) + int(size)) for start, size in zip(first, several, strict=True)]


def control_names(model: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of all controls: those of the actuators, numbered where one has several.

    Args:
        model: compiled.
        names: of the actuators.
    """
    found = []
    for name, inputs in zip(names, _controls(model), strict=True):
        found += [name] if len(inputs) == 1 else [f"{name}.{k}" for k in range(len(inputs))]
    return tuple(found)


def _servo(model: Any, k: int, at_input: int, name: str, joint: str, gear: float, gain: np.ndarray, bias: np.ndarray) -> js.Actuator:
    """Returns the actuator of a hinge or a slide."""
    return js.Actuator(name, joint, input=at_input, ratio=float(gear), gain=gain, bias=bias, **_bounds(model, k, at_input))


def _bounds(model: Any, k: int, at_input: int) -> dict[str, Any]:
    """Returns the bounds of an actuator by the names of their fields."""
    found: dict[str, Any] = {}
    for what, number, limited, table in (
        ("force", k, model.actuator_forcelimited, model.actuator_forcerange),
        ("input", at_input, model.actuator_ctrllimited, model.actuator_ctrlrange),
    ):
        if limited[number]:
            found |= dict(zip((f"least_{what}", f"most_{what}"), map(float, table[number]), strict=True))
    return found
