"""Derivatives of rollouts: reverse mode = forward mode = central differences = published sensitivities.

Central differences are of order 8, sum_k w_k (f(x + k e) - f(x - k e)) / e for k = 1..4, with e = 3e-3 max(1, |x|):
the truncation error, e^8 f^(9) / 630, is below 1e-16 of f for parameters on whose own scale f varies, and
round-off, eps f / e, gives 1e-13 of f. Derivatives smaller than f by a factor of 1e4 are still resolved to
1e-9; the bound is 1e-7.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

import jaxdae as jd

DT = 1e-3
PROJECTED = jd.Projected(jd.RungeKutta.rk4())
WEIGHTS = np.arange(1.0, 10.0)
NODES = (4 / 5, -1 / 5, 4 / 105, -1 / 280)


def end_value(trajectory):
    """Returns a number that depends on all positions and velocities at the end, each in its own way."""
    return WEIGHTS @ trajectory.state.q[-1] + 0.1 * (WEIGHTS[::-1] @ trajectory.state.v[-1])


def directions(tree, under=""):
    """Returns (name, unit tangent) for every scalar of a pytree, or of its part `under` a name."""
    leaves, structure = jax.tree.flatten(tree)
    found = []
    for k, (name, leaf) in enumerate(zip(jd.tree.leaf_paths(tree), leaves, strict=True)):
        for entry in np.ndindex(leaf.shape) if name.startswith(under) else ():
            tangents = [jnp.zeros_like(x) for x in leaves]
            tangents[k] = tangents[k].at[entry].set(1.0)
            found.append((f"{name}{list(entry) or ''}", jax.tree.unflatten(structure, tangents)))
    return found


def along(tree, tangent):
    """Returns the inner product of a gradient with a tangent."""
    return float(sum(jnp.vdot(x, y) for x, y in pairs(tree, tangent)))


def pairs(*trees):
    return zip(*(jax.tree.leaves(tree) for tree in trees), strict=True)


def central_difference(function, at, tangent, step):
    """Returns the derivative of a function along a tangent, by differences of order 8; a pytree like its
    value.
    """

    def value(shift):
        return function(jax.tree.map(lambda x, dx: x + shift * dx, at, tangent))

    terms = [
        jax.tree.map(
            lambda ahead, behind, w=w: w * (ahead - behind) / step, value(k * step), value(-k * step)
        )
        for k, w in enumerate(NODES, start=1)
    ]
    return jax.tree.map(lambda *x: np.asarray(sum(x)), *terms)


def unit_step(at, tangent):
    """Returns 3e-3 max(1, |x|) of the scalar x that a unit tangent changes."""
    (size,) = (float(jnp.abs(x[dx != 0.0]).item()) for x, dx in pairs(at, tangent) if jnp.any(dx != 0.0))
    return 3e-3 * max(1.0, size)


def check_derivatives(loss, gradient, at, tangents):
    """Asserts reverse = forward = central difference along every (name, tangent, step)."""
    value, forward = jax.jit(loss), jax.jit(lambda x, dx: jax.jvp(loss, (x,), (dx,))[1])
    reverse = gradient(at)
    for name, tangent, step in tangents:
        by_reverse, by_forward = along(reverse, tangent), float(forward(at, tangent))
        # Both modes apply one linear map, and differ by the round-off of 1000 products with matrices near the
        # identity.
        np.testing.assert_allclose(
            by_reverse, by_forward, rtol=1e-11, err_msg=f"{name}: reverse and forward mode"
        )
        by_difference = central_difference(value, at, tangent, step)
        np.testing.assert_allclose(
            by_reverse, by_difference, rtol=1e-7, err_msg=f"{name}: reverse mode and differences"
        )


# The crank-rocker: 1000 steps with the default settings, then 1000 steps with Baumgarte feedback alone.


def crank_rocker():
    """Returns the nominal numbers, driven and moving, as arrays."""
    moving = jnp.zeros(9).at[2].set(0.7)
    return jax.tree.map(lambda x: jnp.asarray(x, float), problems.CrankRocker(torque=0.5, rates=moving))


def default_loss(at, *, steps=1000, segment=None):
    """Returns the end value of the default rollout; `at`: numbers of the mechanism and a sequence of inputs
    (torques).
    """
    mechanism, start = at["numbers"].build()
    trajectory = jd.rollout(
        mechanism, PROJECTED, start, at["controls"], dt=DT, steps=steps, save_every=steps, segment=segment
    )
    return end_value(trajectory)


default_gradient = jax.jit(jax.grad(default_loss))


@pytest.mark.long
def test_crank_rocker_gradients():
    """With respect to lengths, masses, gravity, torque, start velocities, and a sequence of motor torques."""
    rng = np.random.default_rng(1)
    at = {"numbers": crank_rocker(), "controls": jnp.asarray(rng.normal(size=(1000, 1)))}
    still = jax.tree.map(jnp.zeros_like, at)
    single = ("ground", "crank", "coupler", "rocker", "mass", "gravity", "torque")
    tangents = [(n, dx, unit_step(at, dx)) for name in single for n, dx in directions(at, f"numbers.{name}")]
    assert len(tangents) == 9
    rates = dataclasses.replace(still["numbers"], rates=jnp.asarray(rng.normal(size=9)))
    tangents.append(("rates", {**still, "numbers": rates}, 1e-2))
    tangents.append(("controls", {**still, "controls": jnp.asarray(rng.normal(size=(1000, 1)))}, 1e-2))
    check_derivatives(default_loss, default_gradient, at, tangents)


def baumgarte_loss(at):
    """Returns the end value with Baumgarte feedback and no projection, from a start off the manifold."""
    mechanism, start = at["numbers"].build()
    method = jd.RungeKutta.rk4(stabilization=jd.Baumgarte(**at["gains"]))
    start = dataclasses.replace(start, q=start.q + at["offset"], v=start.v + at["rate_offset"])
    return end_value(
        jd.rollout(mechanism, method, start, dt=DT, steps=1000, save_every=1000, start_tolerance=jnp.inf)
    )


@pytest.mark.exhaustive
def test_baumgarte_gradients():
    """With respect to the gains as well. On the manifold these do nothing, so the loop starts open by some
    centimeters.
    """
    rng = np.random.default_rng(2)
    at = {
        "numbers": crank_rocker(),
        "gains": {"alpha": jnp.asarray(5.0), "beta": jnp.asarray(6.0)},
        "offset": jnp.asarray(1e-2 * rng.normal(size=9)),
        "rate_offset": jnp.asarray(1e-1 * rng.normal(size=9)),
    }
    tangents = [(name, dx, unit_step(at, dx)) for name, dx in directions(at, "gains")]
    assert len(tangents) == 2
    everything = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), at)
    tangents.append(("all together", everything, 1e-3))
    check_derivatives(baumgarte_loss, jax.jit(jax.grad(baumgarte_loss)), at, tangents)


@pytest.fixture(scope="module")
def long_gradients():
    """The compiled gradient of 10000 steps of a pendulum, without and with segments of 100. The method has one
    stage, which is least to compile.
    """

    def loss(system, segment):
        start, method = problems.state([0.6, -0.8]), jd.Projected(jd.SemiImplicitEuler())
        end = jd.rollout(system, method, start, dt=DT, steps=10_000, save_every=10_000, segment=segment).state
        return jnp.sum(jnp.array([1.0, 2.0]) * end.q[-1] + end.v[-1] ** 2)

    at = problems.pendulum("iftomm_a01_pendulum")
    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    return at, {segment: gradient.lower(at, segment).compile() for segment in (None, 100)}


def temporary(compiled):
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.long
def test_reverse_mode_stores_the_start_of_each_step(long_gradients):
    """The step is rematerialized from its start state: time, four numbers and two counters are stored, not the
    intermediate values of the step.
    """
    assert temporary(long_gradients[1][None]) <= 128 * 10_000


@pytest.mark.long
def test_segments_keep_the_gradient_and_save_memory(long_gradients):
    at, compiled = long_gradients
    plain, segmented = (compiled[segment](at) for segment in (None, 100))
    for x, y in pairs(plain, segmented):
        # The same products in the same order; only the compiler may fuse them differently, in each of 10000
        # steps.
        np.testing.assert_allclose(y, x, rtol=1e-11)
    # 100 starts of segments and 100 states of one segment against 10000 states: a factor of 50, less what is
    # kept besides.
    assert 5 * temporary(compiled[100]) <= temporary(compiled[None])


# Published sensitivities.


def jacobian_by_reverse_mode(function, at, size):
    """Returns the derivatives of a vector of that size as a pytree like `at`, row by row from one compiled
    program.
    """
    pull = jax.jit(lambda x, row: jax.vjp(function, x)[1](row)[0])
    rows = [pull(at, row) for row in np.eye(size)]
    return jax.tree.map(lambda *x: np.stack(x), *rows)


@pytest.mark.exhaustive
def test_sensitivities_of_andrews_mechanism():
    """End state by motor torque, stiffness, rest length, mass and inertia; the start values are fixed. In
    forward mode, all at once.

    None of the five numbers appears in the constraints, so that the start stays consistent. RK4 with 3000
    steps has the state right to 1e-10 and these derivatives to 1e-7, the references to about 1e-8.
    """
    reference, parameters = problems.reference("ivptest_andrews"), problems.andrews_parameters()
    published = reference.file["sensitivities"]["by_parameter"]

    def end(varied):
        system = problems.AndrewsAngles({**parameters, **varied})
        trajectory = jd.rollout(system, PROJECTED, reference.start(), dt=1e-5, steps=3000, save_every=3000)
        return jnp.concatenate([trajectory.state.q[-1], trajectory.state.v[-1]])

    columns = jax.jit(jax.jacfwd(end))({name: parameters[name] for name in published})
    assert columns.keys() == published.keys()
    for name, column in columns.items():
        expected = published[name]["dq"] + published[name]["dv"]
        np.testing.assert_allclose(column, expected, rtol=1e-6, err_msg=name)


@pytest.mark.long
def test_sensitivities_of_the_double_pendulum():
    """Positions after 2 s by masses, lengths, gravity, start angles and start rates; angles are held where
    lengths vary.
    """
    published = problems.reference("double_pendulum").file["sensitivities"]

    def end(x):
        length = jnp.stack([x["L1"], x["L2"]])
        system = problems.DoublePendulum(jnp.stack([x["m1"], x["m2"]]), length, x["g"])
        angles, rates = (jnp.stack([x[f"{name}1_0"], x[f"{name}2_0"]]) for name in ("theta", "omega"))
        start = problems.double_pendulum_state(length, angles, rates)
        return jd.rollout(system, PROJECTED, start, dt=1e-3, steps=2000, save_every=2000).state.q[-1]

    at = {"m1": 1.0, "m2": 1.0, "L1": 1.0, "L2": 1.0, "g": 9.81}
    at |= {"theta1_0": np.pi / 2, "theta2_0": np.pi / 2, "omega1_0": 0.0, "omega2_0": 0.0}
    rows = jacobian_by_reverse_mode(end, jax.tree.map(jnp.asarray, at), 4)
    assert rows.keys() == published["d_by"].keys()
    for name, column in rows.items():
        np.testing.assert_allclose(column, published["d_by"][name], rtol=1e-6, err_msg=name)


@pytest.mark.exhaustive
def test_sensitivities_of_the_pendulum():
    """End state after 10 s by length and gravity; with the length the start moves, (-L, 0)."""
    published = problems.reference("iftomm_a01_pendulum").file["sensitivities"]["by_parameter"]

    def end(x):
        system = problems.Pendulum(jnp.ones(()), x["L"], x["g"])
        start = problems.state(jnp.stack([-x["L"], jnp.zeros(())]))
        trajectory = jd.rollout(system, PROJECTED, start, dt=2e-3, steps=5000, save_every=5000)
        return jnp.concatenate([trajectory.state.q[-1], trajectory.state.v[-1]])

    rows = jacobian_by_reverse_mode(end, {"L": jnp.asarray(1.0), "g": jnp.asarray(9.81)}, 4)
    for name, column in rows.items():
        expected = published[name]["dq"] + published[name]["dv"]
        np.testing.assert_allclose(column, expected, rtol=1e-6, err_msg=name)


# Second derivatives, against the same differences of the gradient. These have the round-off 8 eps |gradient|
# / step, about 1e-12 of the largest entry of the gradient.


def check_second_derivative(found, expected, gradient):
    size = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(gradient))
    for x, y in pairs(found, expected):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-12 * size)


@pytest.mark.long
def test_hessian():
    """Of 20 steps of a projected pendulum with Baumgarte feedback, every entry."""

    def loss(at):
        system = problems.Pendulum(at["mass"], at["length"], at["gravity"])
        # Positions on the manifold, because the projection converges to round-off only from nearby;
        # velocities off it, so that the feedback acts in the first step.
        start = problems.state(
            at["length"] * jnp.stack([jnp.sin(at["angle"]), -jnp.cos(at["angle"])]), at["v"]
        )
        method = jd.Projected(jd.SemiImplicitEuler(stabilization=jd.Baumgarte(at["alpha"], at["beta"])))
        end = jd.rollout(system, method, start, dt=1e-2, steps=20, save_every=20).state
        return jnp.sum(end.q[-1] * jnp.array([1.0, 2.0]) + end.v[-1] ** 2)

    at = {
        "mass": 1.3,
        "length": 0.9,
        "gravity": 9.81,
        "alpha": 4.0,
        "beta": 5.0,
        "angle": 1.0,
        "v": [0.3, 1.0],
    }
    at = {name: jnp.asarray(x, float) for name, x in at.items()}
    hessian, gradient = jax.jit(jax.hessian(loss))(at), jax.jit(jax.grad(loss))
    matrix = []
    for _, tangent in directions(at):
        column = {
            name: sum(np.tensordot(h, dx, axes=dx.ndim) for h, dx in pairs(row, tangent))
            for name, row in hessian.items()
        }
        check_second_derivative(column, central_difference(gradient, at, tangent, 3e-3), gradient(at))
        matrix.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(column)]))
    np.testing.assert_allclose(matrix, np.transpose(matrix), rtol=0.0, atol=1e-11 * np.max(np.abs(matrix)))


@pytest.mark.exhaustive
def test_hessian_vector_product_of_the_crank_rocker():
    """Forward over reverse through 20 steps of a mechanism, along a direction that mixes all numbers."""

    def loss(numbers):
        mechanism, start = numbers.build()
        method = jd.Projected(jd.SemiImplicitEuler())
        return end_value(jd.rollout(mechanism, method, start, jnp.ones((20, 1)), dt=DT, save_every=20))

    at, rng = crank_rocker(), np.random.default_rng(3)
    tangent = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), at)
    both = jax.jit(lambda x, dx: jax.jvp(jax.grad(loss), (x,), (dx,)))
    gradient, product = both(at, tangent)
    check_second_derivative(
        product, central_difference(lambda x: both(x, tangent)[0], at, tangent, 1e-3), gradient
    )


# Places where derivatives go wrong: rest, exact closure, failed worlds.


def all_finite(tree):
    return all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(tree))


@pytest.mark.long
def test_gradient_at_rest():
    """A pendulum that hangs still: every derivative is finite, and those that are zero by symmetry are
    exactly zero.
    """

    def loss(system, start):
        end = jd.rollout(system, PROJECTED, start, dt=1e-2, steps=50, save_every=50).state
        return end.q[-1, 0] + end.q[-1, 1] + jnp.sum(end.v[-1])

    system, start = problems.pendulum("iftomm_a01_pendulum"), problems.state([0.0, -1.0])
    by_system, by_start = jax.jit(jax.grad(loss, argnums=(0, 1)))(system, start)
    assert all_finite((by_system, by_start))
    # The place of a hanging bob is (0, -L), whatever its weight.
    np.testing.assert_allclose(by_system.length, -1.0, rtol=1e-12)
    np.testing.assert_allclose([by_system.gravity, by_system.mass], 0.0, rtol=0, atol=1e-13)
    # A start above the bob's circle is projected down: radial directions do nothing.
    np.testing.assert_allclose([by_start.q[1], by_start.v[1]], 0.0, rtol=0, atol=1e-13)
    # The small swing, x'' = -g x.
    omega, duration = np.sqrt(9.81), 0.5
    swing = np.array([np.cos(omega * duration) - omega * np.sin(omega * duration)])
    # RK4 with h omega = 0.03 over 50 steps.
    np.testing.assert_allclose(by_start.q[0], swing[0], rtol=1e-6)


@pytest.mark.long
def test_gradient_of_a_mechanism_at_rest():
    """The crank-rocker without weight, torque or motion, its loop closed exactly: nothing moves, all
    derivatives are finite.
    """
    still = dataclasses.replace(
        crank_rocker(), gravity=jnp.zeros(()), torque=jnp.zeros(()), rates=jnp.zeros(9)
    )
    at = {"numbers": still, "controls": jnp.zeros((1000, 1))}
    gradient = default_gradient(at)
    assert all_finite(gradient)
    # Without forces no mass has an effect, and a mechanism that is lifted without weight stays where it is.
    np.testing.assert_allclose(gradient["numbers"].mass, 0.0, rtol=0, atol=1e-12)
    # Its lengths have the effect that they have on the start.
    of_start = jax.jit(jax.grad(lambda numbers: WEIGHTS @ numbers.build()[1].q))(still)
    for name in ("ground", "crank", "coupler", "rocker"):
        np.testing.assert_allclose(getattr(gradient["numbers"], name), getattr(of_start, name), rtol=1e-9)


@jd.tree.pytree
class DrivenPendulum(problems.Pendulum):
    """The pendulum with a horizontal force u[0] on the bob."""

    def force(self, t, q, v, u):
        return super().force(t, q, v, u).at[0].add(u[0])


QUICK = jd.Projected(jd.SemiImplicitEuler())
END = np.array([1.0, 2.0])


@jax.jit
def worlds_gradient(system, start, controls, counted):
    """Returns the gradient by the shared system of a sum over the counted worlds (a mask), and the status of
    all.
    """

    def loss(shared):
        # Starts that break the constraint pass, so that their steps fail.
        axes = {"in_axes": (None, None, 0, 0), "start_tolerance": jnp.inf}
        trajectory = jd.batch_rollout(shared, QUICK, start, controls, dt=1e-2, save_every=20, **axes)
        places = jnp.where(counted[:, None], trajectory.state.q[:, -1], 0.0)
        return jnp.sum(places @ END), trajectory.info.status[:, -1]

    return jax.grad(loss, has_aux=True)(system)


@pytest.fixture(scope="module")
def worlds():
    """The shared system, three starts, inputs, and the gradient of the first and the last world, all three
    being well.
    """
    nominal = problems.pendulum("iftomm_a01_pendulum")
    system = DrivenPendulum(nominal.mass, nominal.length, nominal.gravity)
    angles = np.array([0.3, 1.0, 1.7])
    start = jd.State(
        jnp.zeros(3), jnp.asarray(np.stack([np.sin(angles), -np.cos(angles)], axis=1)), jnp.zeros((3, 2))
    )
    controls = jnp.asarray(np.random.default_rng(4).normal(size=(3, 20, 1)))
    gradient, status = worlds_gradient(system, start, controls, np.array([True, False, True]))
    np.testing.assert_array_equal(status, jd.Status.OK)
    return system, start, controls, np.array(jax.tree.leaves(gradient))


EXACT = {"rtol": 1e-12, "atol": 1e-15}
"""The good worlds compute the same numbers, whatever the failed one does."""


@pytest.mark.long
def test_a_failed_world_does_not_disturb_the_gradient(worlds):
    """Shared parameters get the gradients of the good worlds, and that of the failed one up to its last good
    state.
    """
    system, start, controls, good = worlds
    gradient, status = worlds_gradient(system, start, controls.at[1, 7:].set(jnp.nan), np.ones(3, bool))
    np.testing.assert_array_equal(status, [jd.Status.OK, jd.Status.NONFINITE, jd.Status.OK])

    @jax.jit
    @jax.grad
    def seven_steps(system):
        end = jd.rollout(
            system, QUICK, problems.state(start.q[1]), controls[1, :7], dt=1e-2, save_every=7
        ).state
        return end.q[-1] @ END

    until_then = np.array(jax.tree.leaves(seven_steps(system)))
    # One world and three are compiled differently, hence round-off of a few steps.
    np.testing.assert_allclose(jax.tree.leaves(gradient), good + until_then, rtol=1e-11, atol=1e-14)
    assert np.max(np.abs(until_then)) > 1e-3


@pytest.mark.long
def test_a_world_that_starts_nonfinite_does_not_disturb_the_gradient(worlds):
    """A NaN start has no good state; a loss that leaves the world out is free of it, and so is its gradient."""
    system, start, controls, good = worlds
    broken = dataclasses.replace(start, q=start.q.at[1].set(jnp.nan))
    gradient, status = worlds_gradient(system, broken, controls, np.array([True, False, True]))
    np.testing.assert_array_equal(status, [jd.Status.OK, jd.Status.NONFINITE, jd.Status.OK])
    np.testing.assert_allclose(jax.tree.leaves(gradient), good, **EXACT)


@pytest.mark.long
def test_a_singular_world_does_not_disturb_the_gradient(worlds):
    """A bob at the pivot has J = 0, where the solve breaks down in the middle of the linear algebra; it stays
    where it is.
    """
    system, start, controls, good = worlds
    singular = dataclasses.replace(start, q=start.q.at[1].set(0.0))
    gradient, status = worlds_gradient(system, singular, controls, np.ones(3, bool))
    np.testing.assert_array_equal(status, [jd.Status.OK, jd.Status.NONFINITE, jd.Status.OK])
    np.testing.assert_allclose(jax.tree.leaves(gradient), good, **EXACT)
