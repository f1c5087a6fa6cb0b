"""The certificate: what passes, what fails, and what it names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
from jaxdae.tuning import RolloutLoss, check_gradients, final, tracking

INTEGRATOR = jaxdae.SemiImplicitEuler(stabilization=jaxdae.Baumgarte(10.0, 10.0))


@jaxdae.tree.pytree
class Chain(jaxdae.System):
    """Point masses on rods, (1,) or (2,) of them, hanging from the origin; an input pushes the last one
    sideways.
    """

    mass: jax.Array
    length: jax.Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.repeat(self.mass, 2))

    def force(self, t, q, v, u):
        weight = (self.mass[:, None] * jnp.array([0.0, -9.81])).reshape(-1)
        return weight if u is None else weight.at[-2].add(u[0])

    def constraint(self, t, q):
        points = q.reshape(-1, 2)
        rods = jnp.diff(points, axis=0, prepend=jnp.zeros((1, 2)))
        return 0.5 * (jnp.sum(rods**2, axis=1) - self.length**2)


def setup(p):
    hanging = p["angle"]
    rods = p["system"].length[:, None] * jnp.stack([jnp.sin(hanging), -jnp.cos(hanging)])
    q = jnp.cumsum(rods, axis=0).reshape(-1)
    return p["system"], INTEGRATOR, jaxdae.State(jnp.asarray(0.0), q, jnp.zeros_like(q)), p.get("controls")


def end(p, trajectory):
    return tracking(trajectory, lambda state: state.q[-2:], jnp.array([0.3, -0.5]), over=final)


def chain(count, **changes):
    return {
        "system": Chain(jnp.linspace(1.0, 1.5, count), jnp.linspace(1.0, 0.7, count)),
        "angle": jnp.asarray(2.5),
    } | changes


@pytest.fixture(scope="module")
def pendulum():
    loss = RolloutLoss(setup, end, dt=0.01, steps=100, save_every=10)
    return check_gradients(loss, chain(1, controls=0.1 * jnp.ones((100, 1))))


@pytest.mark.long
def test_a_good_gradient_passes(pendulum):
    assert pendulum.passed, str(pendulum)
    assert [leaf.path for leaf in pendulum.leaves] == ["angle", "controls", "system.mass", "system.length"]
    for leaf in pendulum.leaves:
        assert leaf.modes_error < 1e-12
        assert leaf.error < 1e-8
    assert (pendulum.not_finite, pendulum.first_bad_step, pendulum.failed) == ((), None, "")
    text = str(pendulum)
    assert "best step" in text
    assert text.endswith("passed")


@pytest.mark.exhaustive
def test_a_pendulum_is_not_chaotic_and_a_double_pendulum_is(pendulum):
    assert pendulum.chaotic is False
    assert pendulum.horizon == pytest.approx(1.0)
    double = check_gradients(
        RolloutLoss(setup, end, dt=0.005, steps=3000, save_every=3000), chain(2), trainable="angle"
    )
    assert double.chaotic is True
    assert double.growth > 1e3
    assert "chaotic: the gradients are exact but useless" in str(double)


def test_a_wrong_derivative_fails():
    @jax.custom_jvp
    def square(x):
        return x**2

    square.defjvp(lambda primals, tangents: (square(*primals), 2.001 * primals[0] * tangents[0]))
    report = check_gradients(
        lambda p: square(p["a"]) + p["b"], {"a": jnp.asarray(3.0), "b": jnp.asarray(1.0)}
    )
    assert not report.passed
    wrong, right = report.leaves
    assert not wrong.passed
    assert wrong.error == pytest.approx(5e-4, rel=1e-3)
    assert right.passed
    assert report.chaotic is None
    assert "FAILS" in str(report)
    assert str(report).endswith("FAILED")


def test_modes_that_part_fail():
    @jax.custom_vjp
    def cube(x):
        return x**3

    cube.defvjp(lambda x: (x**3, x), lambda x, dy: (3.1 * x**2 * dy,))
    with pytest.raises(TypeError, match="custom_vjp"):
        check_gradients(lambda p: cube(p["a"]), {"a": jnp.asarray(1.0)})


def test_differences_know_what_they_are_worth():
    # A large constant takes the digits of the difference; what is allowed grows by what that costs, and not
    # by more.
    report = check_gradients(lambda p: 1e8 + jnp.sin(p["a"]), {"a": jnp.asarray(1.0)})
    (leaf,) = report.leaves
    assert leaf.passed
    assert leaf.error < leaf.allowed
    assert 1e-6 < leaf.allowed < 1e-2


def test_the_leaf_of_a_nan_is_named():
    report = check_gradients(
        lambda p: jnp.sqrt(p["a"] - 1.0) + p["b"], {"a": jnp.asarray(1.0), "b": jnp.asarray(2.0)}
    )
    assert report.not_finite == ("a",)
    assert not report.leaves[0].passed
    assert report.leaves[1].forward == report.leaves[1].reverse != 0.0
    assert "not finite: the derivative with respect to a" in str(report)


def kick(t, state):
    late = jnp.where(jnp.abs(t - 0.12) < 0.002, 0.0, 1.0)
    return jnp.sqrt(late * (state.q[:1] * 0.0 + 1.0))


@pytest.mark.long
def test_the_step_of_a_nan_is_named():
    def with_law(p):
        system, _, state, _ = setup(p)
        return system, INTEGRATOR, state, kick

    report = check_gradients(RolloutLoss(with_law, end, dt=0.01, steps=20), chain(1), trainable="system")
    # Step 12 starts at t = 0.12.
    assert report.first_bad_step == 12
    assert "step 12 (from 0)" in str(report)


@pytest.mark.long
def test_a_rollout_that_fails_is_told():
    def pulled_apart(p):
        system, integrator, state, _ = setup(p)
        return system, integrator, state, jnp.where(jnp.arange(20) == 7, jnp.nan, 0.0)[:, None]

    report = check_gradients(RolloutLoss(pulled_apart, end, dt=0.01, steps=20), chain(1), trainable="angle")
    assert report.failed.startswith("NONFINITE at step 7")
    assert not report.passed


def test_leaves_that_do_not_matter_pass():
    report = check_gradients(lambda p: p["a"] ** 2, {"a": jnp.asarray(2.0), "idle": jnp.zeros(3)})
    assert report.passed
    assert report.leaves[1].forward == report.leaves[1].difference == 0.0
    np.testing.assert_allclose(report.leaves[0].forward ** 2, 64.0)


def test_a_tolerance_is_positive():
    with pytest.raises(ValueError, match="check_gradients: tolerance must be positive, got -1e-06"):
        check_gradients(lambda x: x, 1.0, tolerance=-1e-6)
