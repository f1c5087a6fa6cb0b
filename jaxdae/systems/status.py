"""Failures at run time, as integer codes in compiled programs.

A compiled, batched program cannot raise an error. Every step of every world therefore carries a `Status`. A
world whose status is not `OK` freezes at its last good state while the others continue. `raise_if_failed`
turns the codes into an exception on the host.
"""

from __future__ import annotations

import enum
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.compile.layout import local


class Status(enum.IntEnum):
    """The outcome of a step, one integer per world."""

    OK = 0
    NONFINITE = 1
    NOT_CONVERGED = 2
    SINGULAR = 3
    INCONSISTENT_START = 4
    STEP_BUDGET = 5
    CONFLICTING_ROWS = 6
    UNSTABLE = 7
    OUT_OF_RANGE = 8
    OFF_TERRAIN = 9
    TWO_CONTACTS = 10
    TOO_MANY_CONTACTS = 11
    UNREACHABLE = 12

    @property
    def meaning(self) -> str:
        """The meaning of the code, and its usual causes."""
        return _MEANINGS[self]


_MEANINGS = {
    Status.OK: "the step succeeded",
    Status.NONFINITE: (
        "the step produced NaN or infinity; usual causes: a time step too long for the gains or springs, a "
        "singular"
        " configuration, redundant constraints with a solver that needs full rank, or a non-finite input"
    ),
    Status.NOT_CONVERGED: (
        "an iteration did not reach its tolerance in the given number of iterations; usual causes: a time "
        "step too long,"
        " or a start far from the constraint manifold"
    ),
    Status.SINGULAR: (
        "the velocity of a first-order system or an embedded mechanism is not unique; usual causes: "
        "redundant constraints with a solver that needs full rank, a singular configuration at a step or "
        "within it, such as a steering angle of 90 degrees, or a motion "
        "that neither rows nor drives determine; or the motor positions given to forward_kinematics do not "
        "determine the pose, because there are too few of them"
    ),
    Status.INCONSISTENT_START: (
        "the start state violates the constraints; usual causes: a guess that initialize(system, q) has "
        "not closed "
        "yet, or one that it cannot"
        " close: lengths that cannot close the loop, coordinates held fixed at values that prevent closing, "
        "a guess on the wrong side of a"
        " singularity"
    ),
    Status.STEP_BUDGET: (
        "the adaptive integration reached max_steps, or the step size underflowed, before the end of the "
        "interval, or rollout_until made all its steps without an event; usual causes: tolerances that the "
        "precision cannot meet, a stiff spring or gain, a force that jumps or becomes NaN just after the "
        "last good state, a singular configuration, max_steps too small for the interval, or an event that "
        "does not occur"
    ),
    Status.CONFLICTING_ROWS: (
        "the constraint rows contradict each other, or leave no motion although motion is requested; usual "
        "causes: wheels whose axes do not meet in one point, a motion prescribed twice, more hard rows "
        "than velocities. "
        "diagnose(system, state) names the blocking rows"
    ),
    Status.UNSTABLE: (
        "the time step is beyond the stability limit of an explicit method, so that errors grow instead of "
        "decaying; usual causes: smooth friction that holds a joint, a stiff damper or spring, or large "
        "gains of a controller or of Baumgarte feedback. jaxdae.stable_step(system, state, integrator) "
        "returns the largest stable step"
    ),
    Status.OUT_OF_RANGE: (
        "a parameter is outside its valid range; usual causes: a lower limit above "
        "the upper one, a negative"
        " tolerance, a restitution above zero in ContactStepping, "
        "mass, damping or compliance, a direction without length 1, or a parameter that was "
        "fitted without bounds; or an angle"
        " in space that a relation, spring, servo or tendon depends on came near half a turn, where "
        "absolute coordinates lose full turns:"
        " use joint coordinates, which count turns; or a prescribed motion jumped and opened its joint: "
        "make the motion continuous, or"
        " use a method that closes joints, such as Projected"
    ),
    Status.OFF_TERRAIN: (
        "a wheel is outside the terrain; usual causes: a vehicle that drove over the edge of a height map "
        "or of a cylinder, or a start outside the terrain. jaxdae.vehicles.terrain_report names the wheels"
    ),
    Status.TWO_CONTACTS: (
        "a wheel touches the terrain at more than one point, because the terrain curves more than the "
        "wheel or has a step; usual causes: a hollow or a step narrower than the wheel, a coarse or noisy "
        "height map, or a "
        "radius too large."
        " jaxdae.vehicles.terrain_report names the wheels"
    ),
    Status.TOO_MANY_CONTACTS: (
        "more contacts close in a step than most=... allows; usual causes: a body that lands flat, "
        "or several bodies that land at once. Increase most, or omit it"
    ),
    Status.UNREACHABLE: (
        "no pose near the path from the start reaches all targets of inverse kinematics; the result is a "
        "closest pose; usual causes: a target outside the workspace or beyond joint limits, targets that "
        "contradict each other, or a start on another branch"
    ),
}


def first_failure(status: Any, *later: Any) -> Any:
    """Return the first of several statuses () that is not OK, or OK if all are OK."""
    for found in later:
        status = jnp.where(status == Status.OK, found, status)
    return status.astype(jnp.int32)


class SimulationError(RuntimeError):
    """A simulation failed; the message names the first step, the world and the cause."""


def raise_if_failed(info: Any) -> None:
    """Raise an error if any step of any world failed. Call it on the host, with concrete arrays.

    It reads the status on the devices of this process only.

    Args:
        info: a `StepInfo`, a `Trajectory` (its `info` is read), or any object with an integer `status` of
            shape (), (time,), (world,) or (world, time).

    Raises:
        SimulationError: with the first failed entry, its world and the meaning of its status.
        TypeError: `info` has no status, or it is a tracer (inside `jit`, read the status instead).
    """
    info = getattr(info, "info", info)
    if not hasattr(info, "status"):
        raise TypeError(f"raise_if_failed: expected a StepInfo or Trajectory, got {type(info).__name__}")
    if isinstance(info.status, Tracer):
        raise TypeError("raise_if_failed needs concrete values: call it outside jit, vmap and grad")
    status = local(info.status)
    failed = np.argwhere(status != Status.OK)
    if failed.size == 0 and status.ndim > 0:
        return
    if status.ndim == 0:
        if status == Status.OK:
            return
        code, place = Status(int(status)), ""
    else:
        first = failed[np.argmin(failed[:, -1])]
        code = Status(int(status[tuple(first)]))
        world = f" of world {int(first[0])}" if status.ndim == 2 else ""
        worlds = len(np.unique(failed[:, 0])) if status.ndim == 2 else 0
        count = f"; {worlds} of {status.shape[0]} worlds failed" if status.ndim == 2 else ""
        place = f" at entry {int(first[-1])}{world}{count}"
    raise SimulationError(f"{code.name}{place}: {code.meaning}")
