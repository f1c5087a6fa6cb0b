"""Adaptive rollouts where they are easily wrong: rows that conflict, and the times of inputs under
differentiation.
"""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import state

import jaxdae as jd

TSIT5 = diffrax.Tsit5()
LEAST_SQUARES = jd.LeastSquares()


@jd.tree.pytree
class Point(jd.System):
    """A unit mass on a line, pushed by its input."""

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(q) if u is None else u


@jd.tree.pytree
class Cart(jd.KinematicSystem):
    """A point that is told its speed, which a row lets it have."""

    def rate(self, t, x, u):
        return jnp.stack([u[0], -u[0]])

    def constraint(self, t, x):
        return x[1:] + 0.5 * x[:1]


@jd.tree.pytree
class Torn(Point):
    """The same, held at two speeds that part at t = 1/2."""

    def velocity_constraint(self, t, q, v):
        return v[0] - 1.0 - jnp.stack([jnp.zeros_like(t), jnp.maximum(t - 0.5, 0.0)])


TIMES = jnp.array([0.2, 0.5, 0.6, 0.9])


@pytest.mark.long
@pytest.mark.parametrize(
    "goes", ["across the times", pytest.param("from time to time", marks=pytest.mark.exhaustive)]
)
def test_velocities_that_break_the_rows_are_no_success(goes):
    """The projection leaves the mean of both speeds, which is neither."""
    method, start = jd.diffrax.Adaptive(1e-6, 1e-6, solver=LEAST_SQUARES, method=TSIT5), state([0.0], [1.0])
    if goes == "across the times":
        found = jd.diffrax.adaptive_rollout(Torn(), method, start, times=TIMES).info.status
    else:
        found = jd.rollout(Torn(), method, start, dt=0.1, steps=9).info.status[np.array([1, 4, 5, 8])]
    np.testing.assert_array_equal(
        found, [jd.Status.OK, jd.Status.OK, jd.Status.NOT_CONVERGED, jd.Status.NOT_CONVERGED]
    )


@pytest.mark.long
def test_derivatives_by_the_times_at_which_inputs_jump():
    """What follows a jump moves with it: x = sum of parabolas, differentiated in closed form."""
    inputs = jnp.array([1.0, -2.0, 0.5, 4.0])

    def places(times):
        return jd.diffrax.adaptive_rollout(
            Point(), jd.diffrax.Adaptive(method=TSIT5), state([0.3], [0.1]), inputs[:, None], times=times
        ).state.q[:, 0]

    def exact(times):
        x, v, before, found = 0.3, 0.1, 0.0, []
        for t, a in zip(times, inputs, strict=True):
            h = t - before
            x, v, before = x + v * h + 0.5 * a * h**2, v + a * h, t
            found.append(x)
        return jnp.stack(found)

    weights = jnp.array([0.7, -1.3, 0.4, 1.1])

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def weighted(times):
        found = places(times)
        return weights @ found, found

    (_, value), derivative = weighted(TIMES)
    np.testing.assert_allclose(value, exact(TIMES), rtol=1e-12)
    np.testing.assert_allclose(derivative, weights @ jax.jacfwd(exact)(TIMES), rtol=1e-10, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("system", "start"),
    [
        pytest.param(Point(), state([0.3], [0.1]), id="forces"),
        pytest.param(Cart(), state([0.0, 0.0], [0.0, 0.0]), id="speeds", marks=pytest.mark.exhaustive),
    ],
)
def test_an_entry_has_the_input_that_was_held_until_then(system, start):
    """At a time of a jump the acceleration, or the velocity of a system of first order, is that before it, as
    in `rollout`.
    """
    inputs, method = jnp.array([[1.0], [-2.0], [4.0]]), jd.diffrax.Adaptive(method=TSIT5)
    stepped = jd.rollout(system, method, start, inputs, dt=0.1)
    found = jd.diffrax.adaptive_rollout(system, method, start, inputs, times=stepped.state.t)
    np.testing.assert_array_equal(found.info.status, jd.Status.OK)
    for name in ("q", "v"):
        np.testing.assert_allclose(
            getattr(found.state, name), getattr(stepped.state, name), rtol=1e-12, atol=1e-14
        )
    for name in ("a", "lam"):
        np.testing.assert_allclose(
            getattr(found.info, name), getattr(stepped.info, name), rtol=1e-12, atol=1e-14
        )


@pytest.mark.long
def test_the_start_is_reached_without_a_step():
    """No step of the first interval is accepted, for its input is NaN; the entry of the start has nothing to
    do with it.
    """
    method, start, inputs = (
        jd.diffrax.Adaptive(method=TSIT5),
        state([0.3], [0.1]),
        jnp.array([[1.0], [jnp.nan], [1.0]]),
    )
    found = jd.diffrax.adaptive_rollout(
        Point(), method, start, inputs, times=jnp.array([0.0, 0.2, 0.5]), max_steps=64
    )
    assert int(found.info.status[0]) == jd.Status.OK
    assert jd.Status.OK not in found.info.status[1:]
    for name in ("t", "q", "v"):
        np.testing.assert_array_equal(getattr(found.state, name)[0], getattr(start, name))
    np.testing.assert_array_equal(found.info.a[0], inputs[0])


@jd.tree.pytree
class Fighting(Cart):
    """The same, with wheels that roll at two speeds each."""

    def velocity_constraint(self, t, x, xdot):
        return jnp.concatenate([xdot, xdot - 1.0])


@pytest.mark.long
@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(jd.SchurComplement(), id="full rank", marks=pytest.mark.exhaustive),
        pytest.param(LEAST_SQUARES, id="any rank"),
    ],
)
def test_rows_that_fight_at_the_start_are_told_as_in_a_rollout(solver):
    method, start, inputs = (
        jd.diffrax.Adaptive(solver=solver, method=TSIT5),
        state([0.0, 0.0], [0.0, 0.0]),
        jnp.ones((4, 1)),
    )
    expected = jd.rollout(Fighting(), method, start, inputs, dt=0.1).info.status
    assert expected[0] not in (jd.Status.OK, jd.Status.STEP_BUDGET)
    found = jd.diffrax.adaptive_rollout(Fighting(), method, start, inputs[0], times=TIMES).info.status
    np.testing.assert_array_equal(found, expected)


@pytest.mark.long
def test_starts_and_times_that_are_no_numbers_are_told_and_cost_no_step():
    """As in `rollout`; a force that does not know of the velocity stays finite where that is not."""

    def found(v, times):
        return jd.diffrax.adaptive_rollout(
            Point(), jd.diffrax.Adaptive(method=TSIT5), jd.State(v[1], v[1:], v[:1]), times=times
        ).info

    bad = jnp.array([[jnp.nan, 0.0], [0.1, jnp.nan], [jnp.inf, 0.0], [0.1, 0.0], [0.1, 0.0], [0.1, 0.0]])
    times = jnp.stack([TIMES, TIMES, TIMES, TIMES[::-1], TIMES.at[1].set(jnp.nan), TIMES])
    info = jax.jit(jax.vmap(found))(bad, times)
    names = ["NONFINITE"] * 3 + ["OUT_OF_RANGE"] * 2 + ["OK"]
    np.testing.assert_array_equal(info.status, [[jd.Status[name]] * 4 for name in names])
    np.testing.assert_array_equal(info.iterations[:5], 0)
    with pytest.raises(ValueError, match="times must be increasing and finite"):
        found(bad[5], TIMES.at[-1].set(jnp.inf))
