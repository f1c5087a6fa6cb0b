"""Wheels on terrain as joints: published problems to their digits, planes, gradients, and what ends a rollout."""

import functools

import jax
import numpy as np
import pytest
from terrain_references import PROBLEMS, file

import jaxdae as jd

KKT = jd.DenseKKT()


@functools.partial(jax.jit, static_argnames="method")
def stepped(system, state, method, dt):
    return method.step(system, state, (), None, dt)[0]


# Steps over the whole time of the file: the error of fourth order is below its digits. Rows drift by no more.
STEPS = {
    "disk_steady_circle": 6000,
    "disk_transient": 6000,
    "wheel_on_sine_road": 6000,
    "wheel_in_trough": 4000,
    "ball_turntable_flat": 20000,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "disk_transient" else [pytest.mark.long]) for name in STEPS])
def test_problems_to_their_digits(name):
    problem, steps = PROBLEMS[name](), STEPS[name]
    method = (jd.RungeKutta if problem.system.flat else jd.RungeKuttaMuntheKaas).rk4(solver=KKT)
    state, h = problem.start, problem.t[-1] / steps
    entries = np.rint(problem.t / h).astype(int)
    np.testing.assert_allclose(entries * h, problem.t, rtol=1e-12)
    mechanism = getattr(problem.system, "system", problem.system)
    found = []
    for k in range(1, steps + 1):
        state = stepped(problem.system, state, method, h)
        if k in entries:
            found.append(problem.seen(mechanism, state))
    digits = min(file(name)["expected_digits"].values())
    size = np.maximum(1.0, np.max(np.abs(problem.expected)))
    np.testing.assert_allclose(found, problem.expected, rtol=0.0, atol=10.0**-digits * size)
    assert int(mechanism.condition(state.t, state.q)) == jd.Status.OK
