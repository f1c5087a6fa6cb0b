"""Implicit methods on a chain of 64 m, with corrections by the saddle-point solver: they converge, and to
what the dense matrix finds.

What such a chain is hard for is told in `jaxdae.linalg.newton`: positions of 64 m are rounded by 7e-15 m,
which multipliers see 1e3 times larger.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import cast, state

import jaxdae as jd
from jaxdae import mechanisms as jm

LINKS = 64
METHODS = {
    kind.__name__: kind
    for kind in (
        jd.GeneralizedAlpha,
        jd.BackwardEuler,
        jd.DiscreteEulerLagrange,
        jd.RadauIIA,
    )
}


@functools.partial(jax.jit, static_argnames="steps")
def rolled(system, method, start, dt, steps):
    return jd.rollout(system, method, start, dt=dt, steps=steps)


@pytest.fixture(scope="module")
def chain():
    """Links of 1 m and 1 kg, let go from the horizontal 0.8 s ago: the fastest turns by 8 rad/s."""
    bodies = [jm.Body(f"b{k}", 1.0, 0.1, (k + 0.5, 0.0, 0.0)) for k in range(LINKS)]
    names = [jm.GROUND, *(body.name for body in bodies)]
    joints = [
        jm.Revolute(f"p{k}", *pair, at=(float(k), 0.0)) for k, pair in enumerate(itertools.pairwise(names))
    ]
    system, q = jm.planar_mechanism(bodies, joints)
    end = jax.jit(lambda x: jd.rollout(system, jd.Rattle(), x, dt=2e-3, steps=400, save_every=400))(state(q))
    return system, jax.tree.map(lambda x: x[-1], end.state)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=() if x in ("GeneralizedAlpha", "RadauIIA") else pytest.mark.exhaustive)
        for x in METHODS
    ],
)
def test_converges_to_the_root_of_the_dense_matrix(chain, name):
    """In steps of 0.01 s, 0.08 rad of the fastest link, and with the counts that are the default."""
    system, start = chain
    dense, sparse = (
        rolled(system, METHODS[name](newton=newton), start, 0.01, 2)
        for newton in (dataclasses.replace(METHODS[name]().newton, iterations=10), jd.SaddlePointNewton())
    )
    assert list(sparse.info.status) == list(dense.info.status) == [jd.Status.OK] * 2
    # A tenth of the last correction that counts as converged, 4e-10, is left in the velocities of a step.
    np.testing.assert_allclose(sparse.state.v, dense.state.v, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(sparse.state.q, dense.state.q, rtol=0.0, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param("GeneralizedAlpha", jnp.float32, marks=pytest.mark.exhaustive),
        pytest.param("RadauIIA", jnp.float64, marks=pytest.mark.exhaustive),
        ("RadauIIA", jnp.float32),
    ],
)
def test_rounding_is_not_taken_for_an_iteration_that_fails(chain, name, dtype):
    """In short steps, where nothing else is left after the first few corrections."""
    method = METHODS[name](newton=jd.SaddlePointNewton())
    end = rolled(*cast((*chain[:1], method, *chain[1:]), dtype), jnp.asarray(1e-3, dtype), 50)
    assert np.all(np.asarray(end.info.status) == jd.Status.OK)
    assert np.max(end.info.violation) <= 8 * LINKS * jnp.finfo(dtype).eps


@pytest.mark.long
def test_counts_its_corrections(chain):
    """One digit each, from 0.1 m/s at the first guess: six are not enough for nine digits."""
    system, start = chain
    method = jd.GeneralizedAlpha(newton=jd.SaddlePointNewton(iterations=6))
    assert rolled(system, method, start, 0.01, 1).info.status[0] == jd.Status.NOT_CONVERGED
