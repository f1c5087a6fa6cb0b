"""MJCF fixed tendons: lengths that are weighted sums of joint coordinates, L = sum of coef q.

Springs (`stiffness`, slack within `springlength`), `damping` and dry friction (`frictionloss`, smooth here)
act along fixed tendons. Actuators can pull on them (`jaxdae.robots.mjcf_actuators`). An equality `tendon`
enforces L - L0 = p(L_other - L0_other), with the lengths L0 in the pose of the file. Spatial tendons, which
run over sites and around geoms, are not supported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import jaxdae.mechanisms.spatial as js

Fixed = dict[int, tuple[tuple[str, ...], tuple[float, ...]]]
"""The joints of fixed tendons and their coefficients, by tendon index."""


def fixed_tendons(mujoco: Any, model: Any, joints: list[str]) -> Fixed:
    """Return the fixed tendons of a compiled model.

    Args:
        mujoco: the module.
        model: compiled model.
        joints: names of the joints.
    """
    found: Fixed = {}
    for k in range(model.ntendon):
        first = int(model.tendon_adr[k])
        over = range(first, first + int(model.tendon_num[k]))
        if all(int(model.wrap_type[one]) == mujoco.mjtWrap.mjWRAP_JOINT for one in over):
            names = tuple(joints[int(model.wrap_objid[one])] for one in over)
            found[k] = names, tuple(float(model.wrap_prm[one]) for one in over)
    return found


def passive(model: Any, names: list[str], tendons: Fixed) -> tuple[list[js.Tendon], list[tuple[str, int]]]:
    """Return the passive forces along tendons, and the unsupported properties with their tendon indices.

    Args:
        model: compiled model.
        names: names of the tendons.
        tendons: the fixed tendons.
    """
    made, unused = [], []
    for k in range(model.ntendon):
        if k not in tendons:
            unused.append(("spatial tendon", k))
            continue
        for table, what in (
            ("tendon_stiffnesspoly", "stiffness polynomial of a tendon"),
            ("tendon_dampingpoly", "damping polynomial of a tendon"),
            ("tendon_springyield", "springyield of a tendon"),
            ("tendon_armature", "armature of a tendon"),
            ("tendon_limited", "range of a tendon"),
            ("tendon_actfrclimited", "actuatorfrcrange of a tendon"),
        ):
            if np.any(getattr(model, table, np.zeros(model.ntendon))[k]):
                unused.append((what, k))
        stiffness, damping, friction = (
            float(table[k])
            for table in (model.tendon_stiffness, model.tendon_damping, model.tendon_frictionloss)
        )
        if stiffness or damping or friction:
            slack_from, slack_to = map(float, model.tendon_lengthspring[k])
            numbers = {"stiffness": stiffness, "damping": damping, "friction": friction}
            made.append(js.Tendon(names[k], *tendons[k], slack_from=slack_from, slack_to=slack_to, **numbers))
    return made, unused


def relation(
    model: Any, name: str, first: int, second: int, data: np.ndarray, tendons: Fixed
) -> js.TendonRelation | None:
    """Return an equality between tendons; None if one of them is not fixed.

    Args:
        model: compiled model.
        name: name of the equality.
        first: index of the follower tendon.
        second: index of the driver tendon, -1 for none.
        data: data of the equality, which begin with the polynomial coefficients.
        tendons: the fixed tendons.
    """
    if first not in tendons or (second >= 0 and second not in tendons):
        return None
    others, other_weights = tendons[second] if second >= 0 else ((), (1.0,))
    coefficients = tuple(float(c) for c in np.trim_zeros(data[: 5 if second >= 0 else 1], "b")) or (0.0,)
    lengths = (float(model.tendon_length0[k]) if k >= 0 else None for k in (first, second))
    return js.TendonRelation(name, *tendons[first], others, other_weights, coefficients, *lengths)
