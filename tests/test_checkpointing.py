"""What reverse mode keeps is a choice: the same gradient, for less time or less memory."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from jax.interpreters import ad

import jaxdae as jd
import jaxdae.vehicles as jv

STEPS = 60
METHOD = jd.Projected(jd.RungeKutta.rk4())


def loss(numbers, keep, segment=None):
    mechanism, start = numbers.build()
    end = jd.rollout(
        mechanism, METHOD, start, dt=2e-3, steps=STEPS, save_every=STEPS, keep=keep, segment=segment
    ).state
    return end.q[-1, 2] + jnp.sum(end.v[-1] ** 2)


def at():
    return problems.CrankRocker(rates=jnp.full(9, 0.1))


@functools.cache
def reverse(keep, segment=None):
    """Returns the compiled gradient, and its value."""
    compiled = jax.jit(jax.grad(functools.partial(loss, keep=keep, segment=segment))).lower(at()).compile()
    return compiled, compiled(at())


def assert_round_off(x, y):
    for name, a, b in zip(jd.tree.leaf_paths(x), jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.exhaustive
def test_gradients_of_a_pendulum_do_not_depend_on_it():
    start = jd.State(jnp.zeros(()), jnp.array([0.6, -0.8]), jnp.zeros(2))

    def end(gravity, keep, segment):
        system = problems.Pendulum(jnp.asarray(1.3), jnp.asarray(1.0), gravity)
        method = jd.Projected(jd.SemiImplicitEuler())
        return jd.rollout(
            system, method, start, dt=1e-2, steps=20, save_every=20, keep=keep, segment=segment
        ).state.q[-1, 0]

    kept, lean, short = jax.jit(
        lambda x: [
            jax.grad(end)(x, *how)
            for how in ((jd.Keep.STATES, None), (jd.Keep.FACTORS, None), (jd.Keep.FACTORS, 5))
        ]
    )(9.81)
    np.testing.assert_allclose([lean, short], kept, rtol=1e-11)
    assert abs(kept) > 1e-3


def kept_a_step(step, start):
    """Returns how many numbers reverse mode keeps of every step of a loop of a user's own."""

    def end(start):
        return jnp.sum(jax.lax.scan(lambda state, _: (step(state), None), start, None, length=7)[0].q)

    # What the loop stacks up is all that it keeps; nothing else of a state has 7 numbers.
    loop = next(
        eqn
        for eqn in jax.make_jaxpr(jax.grad(lambda q: end(jd.State(start.t, q, start.v))))(start.q).eqns
        if eqn.primitive.name == "scan"
    )
    return sum(x.aval.size // 7 for x in loop.outvars if x.aval.shape[:1] == (7,))


@pytest.mark.long
def test_loops_of_a_user_keep_what_began_a_step():
    car, u, x = jv.KinematicSingleTrack(2.5), jnp.array([0.1, 0.2]), jnp.array([0.0, 0.0, 0.2, 3.0, 0.1])
    moving = jd.State(jnp.zeros(()), x, jnp.zeros(5))
    assert kept_a_step(lambda state: jd.Kinematic.rk4().step(car, state, (), u, 0.1)[0], moving) == 5

    def euler(state):
        return jd.State(state.t, state.q + 0.1 * jd.kinematic_velocity(car, state, u)[0], state.v)

    assert kept_a_step(euler, moving) == 5
    pendulum = problems.Pendulum(jnp.asarray(1.3), jnp.asarray(1.0), jnp.asarray(9.81))
    hanging = jd.State(jnp.zeros(()), jnp.array([0.6, -0.8]), jnp.zeros(2))
    assert (
        kept_a_step(lambda state: jd.RungeKutta.rk4().step(pendulum, state, (), None, 1e-2)[0], hanging) == 4
    )


def test_parameters_of_other_primitives_may_have_any_name():
    """JAX hands the parameters of every primitive to the policy by name; a loop of Equinox in a batch has one
    that is called `prim`.
    """
    twice = jax.extend.core.Primitive("twice")
    twice.def_impl(lambda x, prim: prim * x)
    twice.def_abstract_eval(lambda x, prim: x)
    ad.primitive_jvps[twice] = lambda x, dx, prim: (twice.bind(*x, prim=prim), prim * dx[0])
    for keep in jd.Keep:
        assert jax.grad(keep.applied(lambda x: jnp.sin(twice.bind(x, prim=2.0))))(0.3) == 2.0 * jnp.cos(0.6)


@pytest.mark.long
@pytest.mark.parametrize("segment", [None, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_gradients_do_not_depend_on_it(segment):
    assert_round_off(reverse(jd.Keep.FACTORS, segment)[1], reverse(jd.Keep.STATES)[1])


@pytest.mark.exhaustive
def test_forward_mode_is_the_same():
    direction = problems.CrankRocker(**{name: jnp.ones_like(x) for name, x in vars(at()).items()})
    forward = jax.jit(lambda x, dx: jax.jvp(functools.partial(loss, keep=jd.Keep.FACTORS), (x,), (dx,))[1])(
        jax.tree.map(jnp.asarray, at()), direction
    )
    gradient = reverse(jd.Keep.FACTORS)[1]
    np.testing.assert_allclose(sum(jnp.sum(x) for x in jax.tree.leaves(gradient)), forward, rtol=1e-11)


@pytest.mark.long
def test_factors_take_four_kilobytes_a_step():
    sizes = {keep: reverse(keep)[0].memory_analysis().temp_size_in_bytes / STEPS for keep in jd.Keep}
    # Six inverse factors of eight rows, and four pairs of accelerations and multipliers, beside the state.
    assert 6 * 64 * 8 <= sizes[jd.Keep.FACTORS] - sizes[jd.Keep.STATES] <= 4096
