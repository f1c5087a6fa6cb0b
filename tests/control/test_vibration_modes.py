"""Modes and state-space matrices of a four-bar with springs against NumPy code in the crank angle."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
from scipy.optimize import brentq

import jaxdae as jd
from jaxdae import control as jc
from jaxdae import mechanisms as jm

CRANK, COUPLER, ROCKER, BASE = 0.3, 0.8, 0.6, 0.9
MASSES, GRAVITY = np.array([1.0, 2.0, 1.5]), 9.81
STIFFNESS, REST = np.array([30.0, 20.0, 15.0, 10.0]), np.array([0.5, -0.9, 0.9, 1.6])
DAMPING = np.array([0.2, 0.1, 0.3, 0.2])


def linkage(crank):
    """Returns the angles (3,) and the mass centers (3, 2) of the bodies, for real and complex crank angles."""
    # From the end of the crank to the end of the base.
    x, y = BASE - CRANK * np.cos(crank), -CRANK * np.sin(crank)
    square = x * x + y * y
    along = (square + COUPLER**2 - ROCKER**2) / (2.0 * square)
    height = np.sqrt(COUPLER**2 / square - along**2)
    cx, cy = along * x - height * y, along * y + height * x
    rx, ry = cx - x, cy - y
    angles = np.array([crank, np.arctan(cy / cx), np.pi / 2.0 - np.arctan(rx / ry)])
    px, py = CRANK * np.cos(crank), CRANK * np.sin(crank)
    centers = np.array([[px / 2.0, py / 2.0], [px + cx / 2.0, py + cy / 2.0], [BASE + rx / 2.0, ry / 2.0]])
    return angles, centers


def joints(angles):
    """Returns the angles of the joints crank, coupler, end (rocker against coupler) and rocker."""
    return np.array([angles[0], angles[1] - angles[0], angles[2] - angles[1], angles[2]])


def rates(crank):
    """Returns the derivatives of joint angles, body angles and centers by the crank angle (complex step)."""
    angles, centers = linkage(crank + 1e-30j)
    return tuple(x.imag / 1e-30 for x in (joints(angles), angles, centers))


def torque(crank):
    """Returns dV/dcrank of springs and gravity."""
    angles, _ = linkage(crank)
    turns, _, centers = rates(crank)
    return STIFFNESS * (joints(angles) - REST) @ turns + MASSES * GRAVITY @ centers[:, 1]


@pytest.mark.long
def test_four_bar_with_springs():
    rest = brentq(torque, 0.1, 1.5, xtol=1e-15)
    angles, centers = (x.real for x in linkage(rest))
    turns, spins, velocities = rates(rest)
    inertias = MASSES * np.array([CRANK, COUPLER, ROCKER]) ** 2 / 12.0
    mass = MASSES @ np.sum(velocities**2, axis=1) + inertias @ spins**2
    # Fourth order, h^4 = 1e-12 of fifth derivatives, rounding / h = 1e-12.
    h = 1e-3
    stiffness = (
        8.0 * (torque(rest + h) - torque(rest - h)) - torque(rest + 2 * h) + torque(rest - 2 * h)
    ) / (12.0 * h)
    expected = np.roots([mass, DAMPING @ turns**2, stiffness])

    names = ("crank", "coupler", "rocker")
    bodies = [
        jm.Body(*body[:3], (*body[3], body[4]))
        for body in zip(names, MASSES, inertias, centers, angles, strict=True)
    ]
    crank_end = CRANK * np.array([np.cos(rest), np.sin(rest)])
    ends = centers[2] + ROCKER / 2.0 * np.array([np.cos(angles[2]), np.sin(angles[2])])
    springs = [
        {"stiffness": k, "rest": r, "damping": c} for k, r, c in zip(STIFFNESS, REST, DAMPING, strict=True)
    ]
    pins = [
        jm.Revolute("crank", jm.GROUND, "crank", at=(0.0, 0.0), **springs[0]),
        jm.Revolute("coupler", "crank", "coupler", at=crank_end, **springs[1]),
        jm.Revolute("end", "coupler", "rocker", at=ends, **springs[2]),
        jm.Revolute("rocker", jm.GROUND, "rocker", at=(BASE, 0.0), **springs[3]),
    ]
    motor = [jm.JointForce("motor", "crank", force=0.0, input=0)]
    system, q = jm.planar_mechanism(bodies, pins, motor, gravity=(0.0, -GRAVITY), coordinates=jm.Joints())
    state, u = jd.State(jnp.zeros(()), q, jnp.zeros_like(q)), jnp.zeros((1,))

    model = jc.linearize_equilibrium(system, state, u)
    found = jc.modes(model)
    order = np.argsort(-expected.imag)
    np.testing.assert_allclose(found.eigenvalues, expected[order], rtol=1e-10)
    np.testing.assert_allclose(found.frequency, np.sqrt(stiffness / mass), rtol=1e-10)
    critical = 2.0 * np.sqrt(stiffness * mass)
    np.testing.assert_allclose(found.damping, DAMPING @ turns**2 / critical, rtol=1e-10)
    known = [system.names.coordinates.index(f"{name}.angle") for name in ("crank", "coupler")]
    shape = np.asarray(found.shapes)[known, 0]
    np.testing.assert_allclose(shape[1] / shape[0], turns[1] / turns[0], rtol=1e-11)
    assert np.max(np.abs(found.shapes[:, 0])) == pytest.approx(1.0, rel=1e-14)

    moved = jc.mode_motion(system, state, found, 0, 0.3, frames=9)
    assert moved.t[-1] == pytest.approx(2.0 * np.pi * np.sqrt(mass / stiffness), rel=1e-10)
    places = [system.names.coordinates.index(f"{name}.angle") for name in ("crank", "coupler", "rocker")]
    for row, phase in zip(np.asarray(moved.q)[:, places], 2.0 * np.pi * np.arange(9) / 8.0, strict=True):
        turned = joints(linkage(row[0])[0])
        np.testing.assert_allclose(row, turned[[0, 1, 3]], rtol=0, atol=1e-13)
        # The projection moves by second-order terms.
        np.testing.assert_allclose(
            row - q[jnp.array(places)],
            0.3 * np.cos(phase) * np.real(shape[0] * turns[[0, 1, 3]] / turns[0]),
            rtol=0,
            atol=0.3**2,
        )
    assert np.isnan(jc.mode_motion(system, state, found, 0, 50.0, frames=9).q).any()
    with pytest.raises(ValueError, match="mode must be an index of the 2 modes, got 2"):
        jc.mode_motion(system, state, found, 2, 0.3)

    crank = jc.Coordinates.named(system, "crank.angle")
    matrices, frequencies = jc.state_space(system, state, u, crank), np.array([[0.0, 2.0], [5.0, 7.0]])
    s = 1j * frequencies
    dynamic = mass * s**2 + DAMPING @ turns**2 * s + stiffness
    response = jc.frequency_response(matrices, frequencies)
    np.testing.assert_allclose(response, 1.0 / dynamic[..., None, None], rtol=1e-10)
    linear = scipy.signal.StateSpace(*matrices)
    expected = linear.C @ np.linalg.solve(s[1, 1] * np.eye(2) - linear.A, linear.B) + linear.D
    np.testing.assert_allclose(response[1, 1], expected, rtol=1e-10)

    def varied(s):
        a = jnp.array([[0.0, 1.0, 0.0], [-4.0 - s, -0.3, 0.2], [s, 0.1, -1.5]])
        found = jc.modes(dataclasses.replace(model, a=a, basis=jnp.eye(6)[:, :3]))
        return jnp.stack([found.frequency, found.damping, *jnp.real(found.shapes[:3])])

    # h^2 = 1e-10 of third derivatives of some 1, and rounding / h.
    difference = (varied(0.5 + 1e-5) - varied(0.5 - 1e-5)) / 2e-5
    for slope in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(slope(varied)(0.5), difference, rtol=0, atol=1e-8)


def test_free_motion():
    """A free mass has a double eigenvalue 0, and a single eigenvector."""
    a = jnp.array([[0.0, 1.0], [0.0, 0.0]])
    found = jc.modes(jc.LinearModel(a, jnp.zeros((2, 0)), jnp.eye(2), jnp.eye(2)))
    np.testing.assert_allclose(np.abs(found.eigenvalues), 0.0, atol=1e-15)
    np.testing.assert_allclose(found.shapes, [[1.0, 1.0]], rtol=1e-15)
