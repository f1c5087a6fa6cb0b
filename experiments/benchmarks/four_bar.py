"""The crank-rocker four-bar of all benchmarks: one closed loop, one degree of freedom, no damping.

Ground 2 m, crank 1 m, coupler 2.5 m, rocker 2 m, in the x-y plane with gravity along -y. Uniform rods: mass =
length in kg, inertia = mass length^2 / 12. It starts from rest with the crank at 1 rad from the ground line
A-D; the coupler joint C lies left of the ray from the crank tip B to the rocker foot D.
"""

from typing import Any

import numpy as np

from jaxdae.mechanisms import GROUND, Absolute, Body, Mechanism, Revolute, planar_mechanism

CRANK, COUPLER, ROCKER, GROUND_LINK = 1.0, 2.5, 2.0, 2.0  # m
GRAVITY = 9.81  # m/s^2
START_ANGLE = 1.0  # rad
TURN_IN_1_S = -2.1812300736  # rad, crank angle after 1 s minus START_ANGLE, from the high-accuracy reference


def link_angles(crank_angle):
    """Return the angles (rad) of crank, coupler and rocker to the ground line, on the start branch.

    Args:
        crank_angle: Crank angle or angles, rad.

    Returns:
        Array (..., 3); the coupler points from B to C, the rocker from D to C.
    """
    crank_angle = np.asarray(crank_angle, float)
    tip = CRANK * np.stack([np.cos(crank_angle), np.sin(crank_angle)], -1)
    ray = np.array([GROUND_LINK, 0.0]) - tip
    diagonal = np.linalg.norm(ray, axis=-1)
    along = (diagonal**2 + COUPLER**2 - ROCKER**2) / (2 * diagonal)
    across = np.sqrt(COUPLER**2 - along**2)
    to_ray = np.arctan2(ray[..., 1], ray[..., 0])
    coupler_angle = to_ray + np.arctan2(across, along)
    rocker_angle = to_ray + np.arctan2(across, along - diagonal)
    return np.stack([crank_angle, coupler_angle, rocker_angle], -1)


def poses(crank_angle):
    """Return the poses (x, y, theta) of crank, coupler and rocker (m, rad), (..., 9), with closed loop."""
    angles = link_angles(crank_angle)
    half = 0.5 * np.array([CRANK, COUPLER, ROCKER])
    x, y = half * np.cos(angles), half * np.sin(angles)
    x[..., 1] += 2 * x[..., 0]
    y[..., 1] += 2 * y[..., 0]
    x[..., 2] += GROUND_LINK
    return np.stack([x, y, angles], -1).reshape(*angles.shape[:-1], 9)


def start_angles(worlds: int):
    """Return the start angles (rad) of a batch: the nominal angle, then angles up to 0.05 rad ahead."""
    return START_ANGLE + np.linspace(0.0, 0.05, worlds)


def loop_opening(q):
    """Return the largest distance (m) between the two points of any joint, for poses q (..., 9)."""
    q = np.asarray(q, float).reshape(-1, 3, 3)
    center = q[..., :2]
    arm = (
        0.5 * np.array([[CRANK], [COUPLER], [ROCKER]]) * np.stack([np.cos(q[..., 2]), np.sin(q[..., 2])], -1)
    )
    tail, tip = center - arm, center + arm
    ground = np.array([GROUND_LINK, 0.0])
    gaps = [tail[:, 0], tip[:, 0] - tail[:, 1], tip[:, 1] - tip[:, 2], tail[:, 2] - ground]
    return max(float(np.linalg.norm(gap, axis=-1).max()) for gap in gaps)


def four_bar(crank_angle: float = START_ANGLE, coordinates: Any = Absolute()) -> tuple[Mechanism, np.ndarray]:
    """Return the mechanism and its start, by default three stacked poses (x, y, theta) in m and rad."""
    pose = poses(crank_angle).reshape(3, 3)
    lengths = {"crank": CRANK, "coupler": COUPLER, "rocker": ROCKER}
    bodies = [
        Body(name, mass=length, inertia=length**3 / 12, pose=tuple(map(float, at)))
        for (name, length), at in zip(lengths.items(), pose, strict=True)
    ]
    joints = [
        Revolute("A", GROUND, "crank", point_a=(0.0, 0.0), point_b=(-CRANK / 2, 0.0)),
        Revolute("B", "crank", "coupler", point_a=(CRANK / 2, 0.0), point_b=(-COUPLER / 2, 0.0)),
        Revolute("C", "coupler", "rocker", point_a=(COUPLER / 2, 0.0), point_b=(ROCKER / 2, 0.0)),
        Revolute("D", GROUND, "rocker", point_a=(GROUND_LINK, 0.0), point_b=(-ROCKER / 2, 0.0)),
    ]
    return planar_mechanism(bodies, joints, gravity=(0.0, -GRAVITY), coordinates=coordinates)
