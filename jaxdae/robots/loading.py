"""Any robot file by its ending, and states by the names of joints."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.values import hint
from jaxdae.robots.model import Robot
from jaxdae.robots.source import RobotFileError
from jaxdae.robots.urdf import load_urdf
from jaxdae.system import State
from jaxdae.typing import Coordinates

_READERS = {".urdf": load_urdf}
_BASES = ("fixed", "floating")


def load(path: str | os.PathLike[str], base: str = "fixed", *, strict: bool = False, gravity: Any = (0.0, 0.0, -9.81)) -> Robot:
    """Returns the robot of a file: (description, start, report).

    The description is that of a hand-written mechanism: `jm.mechanism(description, jm.Joints())`. Joints have the names of the file, bodies
    those of links; links that are welded together are one body. With all joint coordinates at zero the links are where the file puts them,
    the root link at the origin of the world. Damping and friction of joints are those of the file. Mimic joints are rows (`Relation`).

    Args:
        path: a URDF file, ending in ".urdf".
        base: "fixed" where the root link stands, "floating" where it is a free body.
        strict: whether elements of the file that are not used are an error; they are in `report.ignored` otherwise. Pictures of links
            (`visual`, `collision`, `material`) never are.
        gravity: (3,) in m/s^2.

    Raises:
        RobotFileError: a ValueError that lists everything that is wrong with the file, each with its line.
        ValueError: another ending, or another base.
    """
    path = pathlib.Path(path)
    if path.suffix not in _READERS:
        raise ValueError(f"load: {path.name!r} must be a robot file that ends in {' or '.join(_READERS)}")
    if base not in _BASES:
        raise ValueError(f"load: base must be 'fixed' or 'floating', got {base!r}")
    found = _READERS[path.suffix](path, base, gravity)
    unused = [one for one in found.report.ignored if one.what not in ("visual", "collision", "material")]
    if strict and unused:
        raise RobotFileError(
            [f"{path}:{one.line}: <{one.what}> is not used ({one.count} times); strict=False reads the rest" for one in unused]
        )
    return found


def joint_state(mechanism: Mechanism, q: Coordinates, positions: Mapping[str, Any], rates: Mapping[str, Any] | None = None) -> State:
    """Returns a state at t = 0 of a mechanism in joint coordinates, by the names of joints with one coordinate.

    Args:
        mechanism: as `jm.mechanism(description, jm.Joints())` returns it.
        q: the coordinates of all that is not named, such as the second that `jm.mechanism` returns (nq,).
        positions: in rad and m, such as `robot.start`.
        rates: in rad/s and m/s; zero where not named.

    Raises:
        ValueError: a joint that has no coordinate of its own.

    Differentiable with respect to positions and rates.
    """
    names = mechanism.names
    in_q = {name.rsplit(".", 1)[0]: k for k, name in enumerate(names.coordinates) if name.endswith((".angle", ".slide"))}
    in_v = {name.rsplit(".", 1)[0]: k for k, name in enumerate(names.velocities) if name.endswith((".angle_rate", ".slide_rate"))}
    for what, given, known in (("positions", positions, in_q), ("rates", rates or {}, in_v)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"joint_state: {what} of {unknown[0]!r}, which is no joint with one coordinate{hint(unknown[0], list(known))}")
    v = jnp.zeros((len(names.velocities),), q.dtype)
    for name, value in positions.items():
        q = q.at[in_q[name]].set(value)
    for name, value in (rates or {}).items():
        v = v.at[in_v[name]].set(value)
    return State(jnp.zeros((), q.dtype), q, v)
