"""One method of each family moves a loop in joint coordinates as well as in absolute ones: to its order, with
the loop closed.
"""

import catalogue
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm

pytestmark = pytest.mark.long

TIME = 0.24


@pytest.fixture(scope="module")
def loop():
    """A four-bar in joint coordinates, a consistent start, and the angles of its joints after a while by
    absolute coordinates.
    """
    bodies = [
        jm.Body("crank", 1.0, 0.1, pose=(0.0, 0.5, np.pi / 2)),
        jm.Body("coupler", 1.5, 0.3, pose=(1.0, 1.25, 0.2)),
        jm.Body("rocker", 1.0, 0.2, pose=(2.0, 0.75, np.pi / 2)),
    ]
    joints = [
        jm.Revolute("A", jm.GROUND, "crank", at=(0.0, 0.0), damping=0.05),
        jm.Revolute("B", "crank", "coupler", at=(0.0, 1.0)),
        jm.Revolute("C", "coupler", "rocker", at=(2.0, 1.5)),
        jm.Revolute("D", "rocker", jm.GROUND, at=(2.0, 0.0)),
    ]
    description = jm.Description(bodies=bodies, joints=joints, gravity=(0.0, -9.81))
    system, q = jm.mechanism(description, jm.Joints())
    start, _ = jd.initialize(system, q, jnp.full((3,), 0.4))
    other, _ = jm.mechanism(description)
    method, steps = jd.Projected(jd.RungeKutta.rk4()), 480
    exact = jd.rollout(
        other, method, jm.to_absolute(system, start), dt=TIME / steps, steps=steps, save_every=steps
    )
    jd.raise_if_failed(exact.info)
    end = jax.tree.map(lambda x: x[-1], exact.state)
    return system, start, jm.to_joints(system, end)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=() if x in ("rk4", "rattle", "generalized_alpha") else pytest.mark.exhaustive)
        for x in catalogue.first(catalogue.METHODS)
    ],
)
def test_a_loop_moves_to_the_order_of_the_method(loop, name):
    system, start, exact = loop
    row = catalogue.METHODS[name]
    method = row.integrator if row.closed else jd.Projected(row.integrator)
    errors = []
    for steps in (12, 24):
        # As many steps in both runs: one program.
        found = jd.rollout(system, method, start, dt=TIME / steps, steps=24)
        found = jax.tree.map(lambda x, n=steps: x[:n], (found.state, found.info))
        jd.raise_if_failed(found[1])
        assert float(jnp.max(found[1].violation)) < 1e-9
        errors.append(float(jnp.max(jnp.abs(found[0].q[-1] - exact.q))))
    assert errors[1] < 2e-2
    # To 0.4 of an order, where rounding errors and those of the reference do not count.
    assert errors[1] < 2.0 ** (0.4 - row.order) * errors[0] + 1e-10, errors
