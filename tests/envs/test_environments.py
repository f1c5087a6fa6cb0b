"""Environments: episodes begin and end as told, failed worlds say so, nothing recompiles, gradients are those
of differences.
"""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import envs
from jaxdae.vehicles import KinematicSingleTrack

KEY = jax.random.key(0)
WORLDS = 4


@pytest.fixture(scope="module")
def reach():
    """A cart and a pole, with automatic reset and randomized masses, stepped in many worlds; episodes of
    three actions.
    """
    task = dataclasses.replace(envs.cart_pole(), limit=3, steps=1)
    environment = envs.AutoReset(envs.Environment(task))
    keys = jax.random.split(KEY, WORLDS)
    masses = {("mass", "inertia"): envs.Factor(0.5, 2.0)}
    params = jax.vmap(lambda key: envs.sample_params(key, task.system, masses))(keys)
    return (
        task,
        params,
        jax.jit(jax.vmap(environment.reset))(keys, params),
        jax.jit(jax.vmap(environment.step)),
    )


@pytest.mark.long
def test_episodes_begin_anew_and_nothing_compiles_twice(reach):
    task, params, (state, observation), step = reach
    assert not [x for x in jax.tree.leaves((state, observation)) if x.weak_type]
    first, actions = state, 0.5 * jnp.ones((WORLDS, 1))
    for count in range(1, 5):
        found = step(jax.random.split(jax.random.fold_in(KEY, count), WORLDS), state, actions, params)
        assert jax.tree.structure(found.state) == jax.tree.structure(state)
        np.testing.assert_array_equal(found.truncated, count == 3)
        assert not np.any(found.terminated)
        np.testing.assert_array_equal(found.state.count, count % 3)
        same = np.all(np.asarray(found.observation) == np.asarray(found.final_observation), axis=1)
        np.testing.assert_array_equal(same, count != 3)
        state = found.state
    assert step._cache_size() == 1
    assert not [x for x in jax.tree.leaves(found) if x.weak_type]
    # The new episodes begin at places of their own, and time begins with them.
    assert np.all(np.asarray(first.state.q[:, 0]) != np.asarray(state.state.q[:, 0]))
    np.testing.assert_allclose(state.state.t, task.dt * task.steps, rtol=1e-12)


@pytest.mark.long
def test_masses_are_drawn_together_and_matter(reach):
    task, params, (state, _), step = reach
    mass, inertia = np.asarray(params["mass"]), np.asarray(params["inertia"])
    factors = mass / np.asarray(task.system.mass)
    np.testing.assert_allclose(factors, inertia / np.asarray(task.system.inertia), rtol=1e-12)
    assert np.all((factors >= 0.5) & (factors <= 2.0))
    assert np.ptp(factors, axis=0).min() > 0.01
    same = jax.tree.map(lambda x: jnp.repeat(x[:1], WORLDS, axis=0), state)
    speeds = step(jax.random.split(KEY, WORLDS), same, jnp.ones((WORLDS, 1)), params).state.state.v[:, 0]
    assert np.ptp(np.asarray(speeds)) > 0.05 * np.abs(np.asarray(speeds)).max()


def test_a_mass_given_as_a_whole_number_may_be_any():
    car = KinematicSingleTrack(2)
    assert float(envs.with_params(car, {"wheelbase": 2.6}).wheelbase) == 2.6
    drawn = envs.sample_params(KEY, car, {"wheelbase": envs.Factor(0.8, 0.9)})
    assert 1.6 <= float(drawn["wheelbase"]) <= 1.8


@pytest.mark.long
def test_a_world_that_fails_is_terminated_and_says_why(reach):
    """An action that is NaN in one world of many: the others are as they were, and neither reward nor
    observation is NaN.
    """
    task, params, (state, _), step = reach
    keys = jax.random.split(KEY, WORLDS)
    good = step(keys, state, jnp.zeros((WORLDS, 1)), params)
    bad = step(keys, state, jnp.zeros((WORLDS, 1)).at[1].set(jnp.nan), params)
    np.testing.assert_array_equal(bad.terminated, [False, True, False, False])
    np.testing.assert_array_equal(bad.status, [0, int(jd.Status.NONFINITE), 0, 0])
    assert not np.any(bad.truncated)
    assert float(bad.reward[1]) == task.failure
    others = np.array([0, 2, 3])
    for got, expected in zip(jax.tree.leaves(bad), jax.tree.leaves(good), strict=True):
        np.testing.assert_array_equal(np.asarray(got)[others], np.asarray(expected)[others])
    floats = [x for x in jax.tree.leaves(bad) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert all(np.all(np.isfinite(x)) for x in floats)
    # The failed world has begun anew, and is well.
    assert int(bad.state.status[1]) == 0
    assert int(bad.state.count[1]) == 0


@pytest.mark.long
def test_the_gradient_of_a_return_is_that_of_differences():
    """Through two actions, for actions and a mass; central differences of step h are off by h^2 and by eps /
    h.
    """
    task = dataclasses.replace(envs.cart_pole(), steps=1)
    environment = envs.Environment(task)
    state, _ = environment.reset(KEY)

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def both(actions, mass):
        def act(at, action):
            found = environment.step(KEY, at, action, {"mass": mass})
            return found.state, found.reward

        return 1e4 * (jnp.sum(jax.lax.scan(act, state, actions)[1]) - 2.0)

    actions, mass, h = jnp.asarray([[0.3], [-0.2]]), jnp.asarray(task.system.mass), 1e-5
    got = both(actions, mass)[1]
    for k, given in enumerate((actions, mass)):
        for index in np.ndindex(given.shape):
            ends = [[actions, mass] for _ in range(2)]
            for end, sign in zip(ends, (1.0, -1.0), strict=True):
                end[k] = given.at[index].add(sign * h)
            difference = (both(*ends[0])[0] - both(*ends[1])[0]) / (2.0 * h)
            np.testing.assert_allclose(got[k][index], difference, rtol=1e-6, atol=1e-6)
    # Where the world fails, the derivative is finite and zero.
    failed = both(actions.at[0, 0].set(jnp.nan), mass)[1][0]
    np.testing.assert_array_equal(failed, 0.0)


@pytest.mark.long
def test_pools_of_starts_and_broken_starts():
    task = envs.parking()
    pool = envs.StartPool.drawn(task, KEY, 3)
    pooled = envs.Environment(dataclasses.replace(task, reset=pool))
    starts = {float(pooled.reset(key)[0].state.q[0]) for key in jax.random.split(KEY, 12)}
    assert starts == set(np.asarray(pool.starts.state.q)[:, 0].tolist())
    # A cart beside its rail does not move, and tells why.
    cart = envs.cart_pole()
    start = cart.reset(KEY, cart.system)
    off = envs.Start(dataclasses.replace(start.state, q=start.state.q.at[1].add(0.1)))
    broken = envs.Environment(dataclasses.replace(cart, reset=lambda key, system: off))
    state, observation = broken.reset(KEY)
    assert int(state.status) == jd.Status.INCONSISTENT_START
    assert np.all(np.isfinite(observation))


@pytest.mark.long
def test_a_controller_between_policy_and_motors():
    """An action may be what a law is told, which is evaluated in every step: here a spring that holds the
    cart where it is told to be.
    """

    @jd.tree.pytree
    class Spring:
        place: jax.Array

        def __call__(self, t, state):
            return 400.0 * (self.place - state.q[:1]) - 40.0 * state.v[:1]

    task = dataclasses.replace(
        envs.cart_pole(), control=lambda action: Spring(action), steps=200, terminated=envs.never
    )
    environment = envs.Environment(task)
    found = jax.jit(environment.step)(KEY, environment.reset(KEY)[0], jnp.asarray([0.5]))
    # The pole has fallen meanwhile; its weight moves the cart by some millimeters.
    np.testing.assert_allclose(found.observation[0], 0.5, rtol=0, atol=0.03)
    assert not found.terminated


def test_mistakes_are_named():
    task = envs.cart_pole()
    environment = envs.Environment(task)
    state, _ = jax.eval_shape(environment.reset, KEY)
    with pytest.raises(TypeError, match=r"expected a jaxdae\.envs\.Task"):
        envs.Environment(task.system).reset(KEY)
    with pytest.raises(
        ValueError,
        match=r"steps must be a positive integer, got 0; limit must be a positive integer or None, got 1.5",
    ):
        envs.Environment(dataclasses.replace(task, steps=0, limit=1.5)).reset(KEY)
    with pytest.raises(TypeError, match="observe must be functions"):
        envs.Environment(dataclasses.replace(task, observe=None)).reset(KEY)
    with pytest.raises(TypeError, match=r"must return a jaxdae\.envs\.Start"):
        envs.Environment(dataclasses.replace(task, reset=lambda key, system: 1.0)).reset(KEY)
    with pytest.raises(
        ValueError, match=r"no 'masses' in Mechanism.*'gravity' must have shape \(2,\), got \(3,\)"
    ):
        environment.reset(KEY, {"masses": 1.0, "gravity": jnp.zeros(3)})
    with pytest.raises(ValueError, match="'joints' is not a leaf"):
        environment.reset(KEY, {"joints": 1.0})
    with pytest.raises(ValueError, match=r"action must have shape \(1,\), got \(2,\)"):
        jax.eval_shape(environment.step, KEY, state, jnp.zeros(2))
    for part, message in (("reward", "must return a single number"), ("observe", "must return a vector")):
        wrong = envs.Environment(dataclasses.replace(task, **{part: lambda *given: jnp.zeros((2, 2))}))
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(wrong.step, KEY, state, jnp.zeros(1))
    with pytest.raises(ValueError, match="mass named twice"):
        envs.sample_params(
            KEY, task.system, {"mass": envs.Factor(1.0, 2.0), ("mass", "inertia"): envs.Factor(1.0, 2.0)}
        )
    with pytest.raises(ValueError, match="no 'weight' in"):
        envs.sample_params(KEY, task.system, {"weight": envs.Factor(1.0, 2.0)})
    with pytest.raises(ValueError, match=r"low must not be above high for mass, got 1\.2 and 0\.8"):
        envs.sample_params(KEY, task.system, {"mass": envs.Factor(1.2, 0.8)})
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        envs.StartPool.drawn(task, KEY, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    "make",
    [
        envs.five_bar_reach,
        pytest.param(envs.delta_pick, marks=pytest.mark.exhaustive),
        envs.parking,
        pytest.param(envs.rover_drive, marks=pytest.mark.exhaustive),
    ],
    ids=lambda make: make.__name__,
)
def test_tasks_start_closed_and_observe_what_they_say(make):
    """Starts need no `initialize`: they satisfy their constraints to round-off, in every one of many worlds,
    and stay there.
    """
    task = make()
    environment = envs.Environment(task)
    keys = jax.random.split(KEY, 3)

    @jax.jit
    @jax.vmap
    def begun(key):
        at, observation = environment.reset(key)
        rows = task.system.constraint(at.state.t, at.state.q)
        return at, observation, jnp.max(jnp.abs(rows), initial=0.0)

    states, observations, open_by = begun(keys)
    np.testing.assert_array_equal(states.status, 0)
    assert float(jnp.max(open_by)) < 1e-10  # the rover stands by Newton's iterations
    sizes = {"five_bar_reach": 10, "delta_pick": 15, "parking": 8, "rover_drive": 12}
    assert observations.shape == (3, sizes[make.__name__])
    found = jax.jit(jax.vmap(environment.step))(keys, states, jnp.zeros((3, task.actions)))
    np.testing.assert_array_equal(found.status, 0)
    assert not np.any(found.terminated)


@pytest.mark.exhaustive
def test_cassie_stands_and_falls():
    """Four worlds for 0.8 s with no feedback: the reward stays finite, and the episode is over where it says."""
    pytest.importorskip("mujoco", reason="its compiler reads MJCF")
    task = envs.cassie_stand(str(pathlib.Path(__file__).parents[1] / "reference" / "models" / "cassie.xml"))
    environment = envs.Environment(task)

    @jax.jit
    def episode(key, action):
        def act(at, _):
            found = environment.step(key, at, action)
            return found.state, (found.reward, found.terminated, found.status, found.state.state.q[:3])

        begun, observation = environment.reset(key)
        return begun, observation, jax.lax.scan(act, begun, length=80)[1]

    # One world after the other: the program of a batch takes longer to compile than four of them to run.
    actions = jnp.zeros((4, 10)).at[3, jnp.asarray([3, 8])].set(0.2)  # knees
    worlds = [episode(*given) for given in zip(jax.random.split(KEY, 4), actions, strict=True)]
    begun, observation, seen = jax.tree.map(lambda *x: np.stack(x), *worlds)
    np.testing.assert_array_equal(begun.status, 0)
    assert observation.shape == (4, 64)
    reward, terminated, status, place = (np.swapaxes(x, 0, 1) for x in seen)
    assert np.all(np.isfinite(reward))
    off = np.linalg.norm(place - begun.state.q[:, :3], axis=-1)
    np.testing.assert_array_equal(terminated, (off > 0.15) | (status != 0))
    # Without motors that answer, all of them fall; those that only the push disturbs do so by leaving their
    # place.
    np.testing.assert_array_equal(status[:, :3], 0)
    assert np.all(terminated[-1])
    assert np.all(terminated[:50] == 0)


def test_rectangles_are_apart_as_their_corners_say():
    """Parallel cars, and one across whose corner meets the side of a parked one."""
    from jaxdae.envs.tasks.car import gaps

    # On the goal: from the rear end at -0.9 m to the front at 3.5 m, the others end at -2.4 m and begin at
    # 5.2 m.
    np.testing.assert_allclose(gaps(jnp.zeros(5)), [1.5, 1.7], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        gaps(jnp.asarray([-4.6, 3.0, 0.0, 0.0, 0.0]))[0], 3.0 - 1.8, rtol=0, atol=1e-12
    )
    # At right angles, the rear end 0.9 m below the axle and the parked car up to 0.9 m.
    np.testing.assert_allclose(
        gaps(jnp.asarray([7.4, 2.0, 0.0, 0.0, np.pi / 2]))[1], 2.0 - 0.9 - 0.9, rtol=0, atol=1e-12
    )
