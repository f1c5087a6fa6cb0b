"""The reference problems of wheeled vehicles in the plane, and what their tests share."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae

FOLDER = pathlib.Path(__file__).parent / "reference" / "vehicles"


def problem(name):
    """Returns parameters and reference values of a problem, and how many digits they are good for."""
    values = json.loads((FOLDER / f"{name}.json").read_text())
    return values["parameters"], values["reference"], values["expected_digits"], values


def within(digits, got, expected):
    """Asserts that numbers agree to so many digits of the largest of them, or of 1."""
    got, expected = np.asarray(got, float), np.asarray(expected, float)
    assert got.shape == expected.shape
    assert np.max(np.abs(got - expected)) <= 10.0**-digits * max(1.0, np.max(np.abs(expected)))


def states_at(system, method, q, v, times, dt, controls=None):
    """Returns states and infos at times (s) that are multiples of the first one."""
    every = round(float(times[0]) / dt)
    steps = round(float(times[-1]) / dt)
    run = jaxdae.rollout(
        system, method, jaxdae.State(0.0, q, v), controls, dt=dt, steps=steps, save_every=every
    )
    jaxdae.raise_if_failed(run.info)
    at = [round(float(t) / dt) // every - 1 for t in times]
    return jax.tree.map(lambda x: x[np.asarray(at)], run)


def central(function, x, step=1e-6):
    """Returns the central difference of a function of one number."""
    return (function(jnp.asarray(x + step)) - function(jnp.asarray(x - step))) / (2.0 * step)
