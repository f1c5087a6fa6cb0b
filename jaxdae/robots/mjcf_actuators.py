"""MJCF actuators as forces with inputs.

Let L = gear q be the length and V = gear q' the rate of the transmission. An actuator applies the force

    F = clip((g0 + g1 L + g2 V) clip(u) + b0 + b1 L + b2 V),      gear F along the coordinate.

This is the `Actuator` of `jaxdae.mechanisms.spatial`: motors, position and velocity servos, and general
actuators with affine gain and bias. Actuators on balls, free bodies and sites are wrenches along their gear,
without feedback. On a fixed tendon, L and V are its length and rate times the gear. Input k is control k of
MuJoCo.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.mechanisms import GROUND
from jaxdae.robots.robot_graph import quaternion_matrix

_UNREAD = ("actuator_damping", "actuator_dampingpoly", "actuator_armature", "actuator_delay")
"""Unsupported tables of a model; older versions of MuJoCo lack some of them."""


def actuators(
    mujoco: Any,
    model: Any,
    names: Sequence[str],
    joints: Sequence[str],
    bodies: Sequence[str],
    ends: Callable[[int], tuple[str, str]],
    tendons: Mapping[int, tuple[tuple[str, ...], tuple[float, ...]]],
) -> tuple[list[Any], list[tuple[str, int]]]:
    """Return the forces of all actuators, and the unsupported properties with the indices of their actuators.

    Args:
        mujoco: the module.
        model: compiled model.
        names: names of the actuators.
        joints: names of the joints.
        bodies: names of the bodies.
        ends: function that returns the links that a joint connects, by joint index.
        tendons: joints and coefficients of the fixed tendons, by tendon index.
    """
    reader = _Reader(mujoco, model, names, joints, bodies, ends, tendons)
    for k, inputs in enumerate(_controls(model)):
        reason = _refusal(mujoco, model, k, inputs)
        if reason:
            reader.unused.append((reason, k))
        else:
            reader.read(_law(mujoco, model, k, inputs[0]))
    return reader.made, reader.unused


@dataclasses.dataclass(frozen=True)
class _Law:
    """The force law of an actuator, see the module: its index, input index, gear (6,), g (3,) and b (3,)."""

    number: int
    input: int
    gear: np.ndarray
    gain: np.ndarray
    bias: np.ndarray


def _refusal(mujoco: Any, model: Any, k: int, inputs: Sequence[int]) -> str:
    """Return the reason why an actuator is not supported; empty if it is supported."""
    gains, biases = mujoco.mjtGain, mujoco.mjtBias
    all_off = int(model.opt.disableflags) & int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
    if all_off or int(model.opt.disableactuator) >> int(model.actuator_group[k]) & 1:
        return "disabled actuator"
    if int(model.actuator_dyntype[k]) != mujoco.mjtDyn.mjDYN_NONE:
        return "actuator with activation"
    linear = int(model.actuator_gaintype[k]) in (gains.mjGAIN_FIXED, gains.mjGAIN_AFFINE)
    linear = linear and int(model.actuator_biastype[k]) in (biases.mjBIAS_NONE, biases.mjBIAS_AFFINE)
    if not linear or len(inputs) != 1 or model.actuator_plugin[k] >= 0:
        return "muscle, plugin or actuator with several controls"
    return ""


def _law(mujoco: Any, model: Any, k: int, at_input: int) -> _Law:
    """Return the law of an actuator with constant gain and bias, or affine in length and rate."""
    is_affine = int(model.actuator_gaintype[k]) == mujoco.mjtGain.mjGAIN_AFFINE
    gain = np.array(model.actuator_gainprm[k][:3], float) * (
        [1.0, 1.0, 1.0] if is_affine else [1.0, 0.0, 0.0]
    )
    bias = np.array(model.actuator_biasprm[k][:3], float) * float(
        int(model.actuator_biastype[k]) == mujoco.mjtBias.mjBIAS_AFFINE
    )
    return _Law(k, at_input, np.array(model.actuator_gear[k], float), gain, bias)


@dataclasses.dataclass
class _Reader:
    """Conversion of actuators to forces by transmission; the first fields are arguments of `actuators`."""

    mujoco: Any
    model: Any
    names: Sequence[str]
    joints: Sequence[str]
    bodies: Sequence[str]
    ends: Callable[[int], tuple[str, str]]
    tendons: Mapping[int, tuple[tuple[str, ...], tuple[float, ...]]]
    made: list[Any] = dataclasses.field(default_factory=list)
    unused: list[tuple[str, int]] = dataclasses.field(default_factory=list)

    def read(self, law: _Law) -> None:
        """Add the forces of an actuator, and record its unsupported properties."""
        model, kinds, k = self.model, self.mujoco.mjtTrn, law.number
        for table in _UNREAD:
            if np.any(getattr(model, table, np.zeros(model.nu))[k]):
                self.unused.append((table.replace("_", " "), k))
        transmission, (at, beside) = int(model.actuator_trntype[k]), map(int, model.actuator_trnid[k])
        if transmission in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT):
            self._on_joint(law, at, in_parent=transmission == kinds.mjTRN_JOINTINPARENT)
        elif transmission == kinds.mjTRN_SITE and beside < 0:
            axes = quaternion_matrix(model.site_quat[at])
            body = int(model.site_bodyid[at])
            self._wrench(
                law,
                (GROUND, self.bodies[body]),
                np.array(model.site_pos[at]),
                axes @ law.gear[:3],
                axes @ law.gear[3:],
            )
        elif transmission == kinds.mjTRN_TENDON:
            self._on_tendon(law, at)
        else:
            self.unused.append(
                (f"actuator on a {kinds(transmission).name.removeprefix('mjTRN_').lower()}", k)
            )

    def _on_joint(self, law: _Law, at: int, *, in_parent: bool) -> None:
        kind, kinds = int(self.model.jnt_type[at]), self.mujoco.mjtJoint
        if kind in (kinds.mjJNT_HINGE, kinds.mjJNT_SLIDE):
            self.made.append(
                js.Actuator(
                    self.names[law.number], self.joints[at], ratio=float(law.gear[0]), **self._numbers(law)
                )
            )
        elif in_parent:
            self.unused.append(("actuator of a ball or a free joint in the axes of its parent", law.number))
        elif kind == kinds.mjJNT_FREE:
            self._wrench(law, self.ends(at), np.zeros(3), law.gear[:3], law.gear[3:], force_in_world=True)
        else:
            self._wrench(law, self.ends(at), np.zeros(3), np.zeros(3), law.gear[:3])

    def _on_tendon(self, law: _Law, at: int) -> None:
        if at not in self.tendons:
            self.unused.append(("actuator on a spatial tendon", law.number))
            return
        # The passive forces of the tendon are a separate element.
        ratio = float(law.gear[0])
        self.made.append(
            js.Tendon(self.names[law.number], *self.tendons[at], ratio=ratio, **self._numbers(law))
        )

    def _numbers(self, law: _Law) -> dict[str, Any]:
        """Return input, gain, bias and bounds of an actuator by field name."""
        found: dict[str, Any] = {"input": law.input, "gain": law.gain, "bias": law.bias}
        for what, number, limited, table in (
            ("force", law.number, self.model.actuator_forcelimited, self.model.actuator_forcerange),
            ("input", law.input, self.model.actuator_ctrllimited, self.model.actuator_ctrlrange),
        ):
            if limited[number]:
                found |= dict(zip((f"least_{what}", f"most_{what}"), map(float, table[number]), strict=True))
        return found

    def _wrench(
        self,
        law: _Law,
        ends: tuple[str, str],
        place: np.ndarray,
        force: np.ndarray,
        torque: np.ndarray,
        *,
        force_in_world: bool = False,
    ) -> None:
        """Add force and torque per unit input (without gain) at a point of the second body, in its axes."""
        model, name, (parent, child) = self.model, self.names[law.number], ends
        if np.any(law.gain[1:]) or np.any(law.bias):
            self.unused.append(("actuator with feedback that is not on a hinge or slide", law.number))
            return
        if model.actuator_ctrllimited[law.input] or model.actuator_forcelimited[law.number]:
            self.unused.append(
                ("ctrlrange or forcerange of an actuator that is not on a hinge or slide", law.number)
            )
        push, turn = law.gain[0] * force, law.gain[0] * torque
        if np.any(force):
            self.made.append(
                js.Force(
                    f"{name} force",
                    child,
                    point=place,
                    input=law.input,
                    direction=push,
                    body_frame=not force_in_world,
                )
            )
        if np.any(torque):
            self.made.append(
                js.Torque(
                    f"{name} torque",
                    parent,
                    child,
                    np.zeros(3),
                    input=law.input,
                    direction=turn,
                    body_frame=True,
                )
            )


def _controls(model: Any) -> list[range]:
    """Return the control indices of each actuator; before MuJoCo 4 each actuator has one control."""
    count = len(model.actuator_trntype)
    first, several = (
        getattr(model, "actuator_ctrladr", range(count)),
        getattr(model, "actuator_ctrlnum", [1] * count),
    )
    return [range(int(start), int(start) + int(size)) for start, size in zip(first, several, strict=True)]


def control_names(model: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of all controls: the actuator names, numbered for actuators with several controls.

    Args:
        model: compiled model.
        names: names of the actuators.
    """
    found = []
    for name, inputs in zip(names, _controls(model), strict=True):
        found += [name] if len(inputs) == 1 else [f"{name}.{k}" for k in range(len(inputs))]
    return tuple(found)
