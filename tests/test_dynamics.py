"""Accelerations, multipliers, the blocks of the left inverse, and the targets of the acceleration row."""

import catalogue
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Pendulum, cast, state
from small_systems import Everything, central, everything, everywhere, oscillating, oscillator

import jaxdae as jd

# Most states here are random, to reach all terms.
pytestmark = pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")

SOLVERS = {name: catalogue.SOLVERS[name].solver for name in ("dense_kkt", "schur_complement")}
ROUND_OFF = {"rtol": 1e-12, "atol": 1e-12}
U = jnp.array([0.4, -1.2, 0.3, 0.8])

solvers = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


@jax.jit
def numbers(system, at, u=None):
    """Returns the constraint terms, M and f."""
    return (
        jd.operators.constraint_terms(system, at),
        system.mass_operator(at.q).as_dense(),
        system.force(at.t, at.q, at.v, u),
    )


def by_hand(system, at, u=None, compliance=0.0, target=None):
    """Returns (a, lam, M, J, gamma) with the saddle-point system solved by NumPy."""
    terms, mass, force = numbers(system, at, u)
    mass, jacobian = np.asarray(mass), np.asarray(terms.jacobian)
    size, rows = mass.shape[0], jacobian.shape[0]
    matrix = np.block([[mass, -jacobian.T], [jacobian, np.diag(np.broadcast_to(compliance, (rows,)))]])
    rhs = np.concatenate([force, -terms.bias if target is None else target])
    x = np.linalg.solve(matrix, rhs)
    return x[:size], x[size:], mass, jacobian, np.asarray(terms.bias)


def check(result, expected):
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, **ROUND_OFF)


@solvers
class TestForwardDynamics:
    def test_solves_the_equations_of_motion(self, solver):
        system, at = everything(), everywhere()
        a, lam, mass, jacobian, gamma = by_hand(system, at, U)
        check(jd.forward_dynamics(system, at, U, solver=solver), (a, lam))
        np.testing.assert_allclose(mass @ a, numbers(system, at, U)[2] + jacobian.T @ lam, **ROUND_OFF)
        np.testing.assert_allclose(jacobian @ a, -gamma, **ROUND_OFF)

    def test_without_rows(self, solver):
        system, at = oscillator(), oscillating()
        a, lam = jd.forward_dynamics(system, at, jnp.array([1.0, 2.0]), solver=solver)
        np.testing.assert_allclose(a, [(1.0 - 2.1) / 1.0, (2.0 + 0.6) / 2.0], **ROUND_OFF)
        assert lam.shape == (0,)

    @pytest.mark.parametrize("compliance", [0.5, [0.1, 0.2, 0.3]])
    def test_compliance(self, solver, compliance):
        system, at = everything(), everywhere()
        expected = by_hand(system, at, compliance=np.asarray(compliance))[:2]
        check(jd.forward_dynamics(system, at, solver=solver, compliance=jnp.asarray(compliance)), expected)

    def test_vmap_is_a_loop(self, solver):
        system, at = everything(), everywhere()
        states = [jax.tree.map(lambda x, k=k: k * x, at) for k in (0.5, 1.0, 1.5)]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
        results = jax.jit(jax.vmap(lambda x: jd.forward_dynamics(system, x, U, solver=solver)))(stacked)
        for k, one in enumerate(states):
            check([x[k] for x in results], by_hand(system, one, U)[:2])

    @pytest.mark.exhaustive
    def test_single_precision(self, solver):
        system, at = everything(), everywhere()
        a, lam = jd.forward_dynamics(cast(system, jnp.float32), cast(at, jnp.float32), solver=solver)
        assert a.dtype == lam.dtype == jnp.float32
        np.testing.assert_allclose(
            np.concatenate([a, lam]), np.concatenate(by_hand(system, at)[:2]), rtol=1e-5, atol=1e-5
        )


class TestSignAndUnits:
    """The constraint force is +J^T lam."""

    system = Pendulum(
        mass=jnp.asarray(2.0, float), length=jnp.asarray(0.5, float), gravity=jnp.asarray(9.81, float)
    )

    def test_hanging_at_rest(self):
        a, lam = jd.forward_dynamics(self.system, state([0.0, -0.5]))
        np.testing.assert_allclose(a, [0.0, 0.0], rtol=0, atol=1e-15)
        # J = q, so that the force on the mass is q lam: upward, of size m g.
        np.testing.assert_allclose(lam, [-2.0 * 9.81 / 0.5], rtol=1e-15)

    def test_centripetal_force(self):
        a, lam = jd.forward_dynamics(self.system, state([0.0, -0.5], [3.0, 0.0]))
        np.testing.assert_allclose(a, [0.0, 3.0**2 / 0.5], rtol=0, atol=1e-14)
        np.testing.assert_allclose(-0.5 * lam, [2.0 * (9.81 + 3.0**2 / 0.5)], rtol=1e-14)


class TestInverseDynamics:
    def test_is_zero_for_the_motion_itself(self):
        system, at = everything(), everywhere()
        a, lam = jd.forward_dynamics(system, at, U)
        np.testing.assert_allclose(
            jd.inverse_dynamics(system, at, a, lam, U), np.zeros(4), rtol=0, atol=1e-13
        )

    def test_is_the_force_that_was_left_out(self):
        system, at = everything(), everywhere()
        a, lam = jd.forward_dynamics(system, at, U)
        np.testing.assert_allclose(jd.inverse_dynamics(system, at, a, lam), U, **ROUND_OFF)
        jacobian = numbers(system, at)[0].jacobian
        np.testing.assert_allclose(jd.inverse_dynamics(system, at, a, u=U), jacobian.T @ lam, **ROUND_OFF)


@solvers
class TestKKTInverse:
    def test_blocks(self, solver):
        system, at = everything(), everywhere()
        blocks = jax.jit(lambda x: jd.operators.kkt_inverse(system, x, solver=solver))(at)
        a, lam, mass, jacobian, gamma = by_hand(system, at, U)
        f = np.asarray(numbers(system, at, U)[2])
        L11, L12, L21, L22 = (np.asarray(x) for x in (blocks.L11, blocks.L12, blocks.L21, blocks.L22))
        delassus = jacobian @ np.linalg.solve(mass, jacobian.T)
        identities = {
            "a = L11 f - L12 gamma": (L11 @ f - L12 @ gamma, a),
            "lam = L21 f - L22 gamma": (L21 @ f - L22 @ gamma, lam),
            "J L11 = 0": (jacobian @ L11, np.zeros((3, 4))),
            "J L12 = I": (jacobian @ L12, np.eye(3)),
            "L11 symmetric": (L11, L11.T),
            "L21 = -L12^T": (L21, -L12.T),
            "L22 (J M^-1 J^T) = I": (L22 @ delassus, np.eye(3)),
            "L11 M + L12 J = I: a left inverse": (L11 @ mass + L12 @ jacobian, np.eye(4)),
            "L21 M + L22 J = 0": (L21 @ mass + L22 @ jacobian, np.zeros((3, 4))),
            "L11 M L11 = L11: a projector": (L11 @ mass @ L11, L11),
        }
        for name, (left, right) in identities.items():
            np.testing.assert_allclose(left, right, **ROUND_OFF, err_msg=name)
        assert np.linalg.matrix_rank(L11, tol=1e-10) == 1  # the mobility

    def test_without_rows(self, solver):
        blocks = jd.operators.kkt_inverse(oscillator(), oscillating(), solver=solver)
        np.testing.assert_allclose(blocks.L11, np.diag([1.0, 0.5]), **ROUND_OFF)
        assert (blocks.L12.shape, blocks.L21.shape, blocks.L22.shape) == ((2, 0), (0, 2), (0, 0))


class TestTargets:
    """What the stabilizations make of the acceleration row, away from the manifold."""

    alpha, beta = 3.0, 5.0

    def test_baumgarte_is_a_damped_oscillator(self):
        system, at = everything(), everywhere()
        terms, _, _ = numbers(system, at)
        a, lam = jd.forward_dynamics(system, at, U, stabilization=jd.Baumgarte(self.alpha, self.beta))
        second = terms.jacobian @ a + terms.bias
        g = jnp.append(terms.position, 0.0)
        np.testing.assert_allclose(
            second + 2.0 * self.alpha * terms.velocity + self.beta**2 * g, np.zeros(3), rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(
            jd.inverse_dynamics(system, at, a, lam, U), np.zeros(4), rtol=0, atol=1e-12
        )

    def test_baumgarte_decays_as_the_oscillator_does(self):
        # Critically damped: g(t) = (g0 + (g0' + alpha g0) t) exp(-alpha t), w(t) = w0 exp(-2 alpha t). RK4
        # with 2 ms leaves about 1e-11.
        system, at = everything(), everywhere()
        integrator = jd.RungeKutta.rk4(stabilization=jd.Baumgarte(self.alpha, self.alpha))
        counts = {"steps": 250, "save_every": 250, "start_tolerance": jnp.inf}
        moved = jax.tree.map(lambda x: x[0], jd.rollout(system, integrator, at, dt=2e-3, **counts).state)
        start, end = (numbers(system, x)[0] for x in (at, moved))
        t, decay = 0.5, np.exp(-0.5 * self.alpha)
        g0, rate = start.position, start.velocity[:2]
        np.testing.assert_allclose(
            end.position, (g0 + (rate + self.alpha * g0) * t) * decay, rtol=0, atol=1e-9
        )
        np.testing.assert_allclose(end.velocity[2], start.velocity[2] * decay**2, rtol=0, atol=1e-9)

    def test_multiplier_feedback_adds_to_the_multiplier(self):
        system, at = everything(), everywhere()
        terms, _, _ = numbers(system, at)
        a, lam, mass, jacobian, _ = by_hand(system, at, U)
        feedback = self.alpha * np.append(terms.position, 0.0) + self.beta * terms.velocity
        pushed = jd.forward_dynamics(
            system, at, U, stabilization=jd.textbook.MultiplierFeedback(self.alpha, self.beta)
        )
        check(pushed, (a - np.linalg.solve(mass, jacobian.T @ feedback), lam - feedback))

    @pytest.mark.parametrize(
        "stabilization", [jd.Baumgarte(3.0, 5.0), jd.textbook.MultiplierFeedback(3.0, 5.0)]
    )
    def test_nothing_happens_on_the_manifold(self, stabilization):
        system = Pendulum(*(jnp.asarray(x, float) for x in (1.0, 1.0, 9.81)))
        at = state([0.6, -0.8], [0.8, 0.6])
        check(jd.forward_dynamics(system, at, stabilization=stabilization), jd.forward_dynamics(system, at))

    @pytest.mark.parametrize(
        "stabilization", [jd.Baumgarte(3.0, 5.0), jd.textbook.MultiplierFeedback(3.0, 5.0)]
    )
    def test_nothing_happens_without_rows(self, stabilization):
        system, at = oscillator(), oscillating()
        check(jd.forward_dynamics(system, at, stabilization=stabilization), jd.forward_dynamics(system, at))


@pytest.mark.long
@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(solver, id=name, marks=() if name == "schur_complement" else pytest.mark.exhaustive)
        for name, solver in SOLVERS.items()
    ],
)
def test_derivative_in_every_direction(solver):
    """Forward, reverse and central difference along one line through all leaves: system, state, input, gains,
    compliance.
    """
    at = everywhere()
    arguments = (
        everything(),
        at,
        U,
        jd.textbook.MultiplierFeedback(jnp.asarray(3.0, float), jnp.asarray(5.0, float)),
        jnp.full(3, 0.1),
    )
    direction = jax.tree.map(
        lambda x: jnp.cos(1.0 + jnp.arange(x.size, dtype=float)).reshape(x.shape), arguments
    )
    weights = jnp.arange(1.0, 8.0)

    def objective(arguments):
        system, x, u, stabilization, compliance = arguments
        result = jd.forward_dynamics(
            system, x, u, solver=solver, stabilization=stabilization, compliance=compliance
        )
        return jnp.sum(weights * jnp.concatenate(result))

    @jax.jit
    def derivatives(s):
        moved = jax.tree.map(lambda x, dx: x + s * dx, arguments, direction)
        value, forward = jax.jvp(objective, (moved,), (direction,))
        gradient = jax.grad(objective)(moved)
        assert isinstance(gradient[0], Everything)
        products = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
        return value, forward, sum(jnp.sum(x * y) for x, y in products)

    _, forward, reverse = derivatives(0.0)
    np.testing.assert_allclose(reverse, forward, rtol=1e-12)
    np.testing.assert_allclose(forward, central(derivatives, 0.0)[0], rtol=1e-8)
