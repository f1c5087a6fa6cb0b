"""Rows that are switched off, rows that give way, and the impulse of rows that come on."""

import dataclasses
import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from catalogue import SOLVERS, in_ci
from problems import Pendulum, cast, state
from small_systems import central, everything, everywhere, oscillating, oscillator, without_typechecker

import jaxdae as jd

# `Everything` has four coordinates, two position-level rows and a velocity-level one. Its rows are
# independent.
MASKS = np.array(list(itertools.product([True, False], repeat=3)))
BAUMGARTE = jd.Baumgarte(jnp.asarray(2.0, float), jnp.asarray(3.0, float))
ROUND_OFF = {"rtol": 1e-12, "atol": 1e-12}
# Krylov methods stop at a relative residual of some 1e-12 (see the solvers); the others are direct, or
# iterate to round-off.
ITERATIVE = {"rtol": 1e-9, "atol": 1e-9}


@jax.jit
def compiled_terms(system, at):
    found = jd.operators.constraint_terms(system, at)
    return (
        system.mass_matrix(at.q),
        system.force(at.t, at.q, at.v, None),
        found.jacobian,
        found.bias,
        found.velocity,
    )


def terms(system, at):
    """Returns M, f, J, gamma and [g'; w] as arrays."""
    return tuple(np.asarray(x) for x in compiled_terms(system, at))


@pytest.fixture(scope="module")
def removed():
    """Accelerations and multipliers of the eight systems with rows removed, in NumPy; zeros stand for what is
    not there.
    """
    at = everywhere()
    mass, force, jacobian, bias, velocity = terms(everything(), at)
    target = -bias - 4.0 * velocity - 9.0 * np.append(everything().constraint(at.t, at.q), 0.0)
    a, lam = np.zeros((8, 4)), np.zeros((8, 3))
    for k, mask in enumerate(MASKS):
        rows = jacobian[mask]
        matrix = np.block([[mass, -rows.T], [rows, np.zeros((len(rows), len(rows)))]])
        solution = np.linalg.solve(matrix, np.concatenate([force, target[mask]]))
        a[k], lam[k, mask] = solution[:4], solution[4:]
    return a, lam


@pytest.mark.parametrize(
    "name",
    in_ci(SOLVERS, "schur_complement", "least_squares", "conjugate_gradient"),
)
def test_every_solver_sees_the_system_with_rows_removed(name, removed):
    def dynamics(mask):
        return jd.forward_dynamics(
            jd.Masked(everything(), mask), everywhere(), solver=SOLVERS[name].solver, stabilization=BAUMGARTE
        )

    tolerance = ITERATIVE if SOLVERS[name].iterative else ROUND_OFF
    a, lam = jax.jit(jax.vmap(dynamics))(jnp.asarray(MASKS))
    np.testing.assert_allclose(a, removed[0], **tolerance)
    np.testing.assert_allclose(lam, removed[1], **tolerance)
    if name in ("schur_complement", "dense_kkt"):
        np.testing.assert_array_equal(np.asarray(lam)[~MASKS], 0.0)


@pytest.mark.parametrize("solver", [jd.LeastSquares(), jd.Proximal()], ids=["least_squares", "proximal"])
def test_heavy_and_light_systems_keep_their_rank(solver):
    """With C = 1 in the row that is off, the other one would count as dependent in single precision: J M^-1/2
    is 3e-4 of it.
    """
    for mass in (1e-6, 1e7):
        numbers = (Pendulum(*(jnp.asarray(x, float) for x in (mass, 1.0, 9.81))), state([0.6, -0.8]))
        system, at = cast(numbers, jnp.float32)
        a, lam = jd.forward_dynamics(jd.Masked(Twice(system), jnp.array([True, False])), at, solver=solver)
        # The tension balances the weight along the rod, m g cos(angle); the row is (x^2 + y^2 - L^2) / 2 with
        # L = 1.
        np.testing.assert_allclose(lam, [-mass * 9.81 * 0.8, 0.0], rtol=1e-5)
        np.testing.assert_allclose(a, [-9.81 * 0.48, -9.81 * 0.36], rtol=1e-5)


@jd.tree.pytree
class Twice(jd.System):
    """The rows of a system, and once more."""

    system: Any

    def mass_matrix(self, q):
        return self.system.mass_matrix(q)

    def force(self, t, q, v, u):
        return self.system.force(t, q, v, u)

    def constraint(self, t, q):
        return jnp.tile(self.system.constraint(t, q), 2)


def check_derivatives(function, *places):
    """Compares forward and reverse mode with central differences; one compilation for all."""
    compiled = jax.jit(lambda x: (function(x), jax.jacfwd(function)(x), jax.grad(function)(x)))
    for x in places:
        _, forward, reverse = compiled(x)
        difference = central(lambda y: compiled(y)[0], x, 1e-5)
        # The error of the difference: some eps / step of values near 10, and step^2 of third derivatives near
        # 100.
        np.testing.assert_allclose([forward, reverse], difference, rtol=1e-7)
        np.testing.assert_allclose(forward, reverse, rtol=1e-11)


class TestMasked:
    def test_what_is_off_is_zero_and_what_is_on_is_untouched(self):
        at, mask = everywhere(), np.array([True, False, True])
        ours, whole = (
            terms(system, at) for system in (jd.Masked(everything(), jnp.asarray(mask)), everything())
        )
        for x, y in zip(ours[:2], whole[:2], strict=True):
            np.testing.assert_array_equal(x, y)
        for x, y in zip(ours[2:], whole[2:], strict=True):
            np.testing.assert_array_equal(x[mask], y[mask])
            np.testing.assert_array_equal(x[~mask], 0.0)
        assert jd.energy(jd.Masked(everything(), mask), at) == jd.energy(everything(), at)

    def test_numbers_count_as_switches_and_masks_can_be_nested(self, removed):
        @jax.jit
        def nested(first):
            masked = jd.Masked(jd.Masked(everything(), first), jnp.array([1, 1, 0]))
            return jd.forward_dynamics(masked, everywhere(), stabilization=BAUMGARTE)

        first = jnp.array([1.0, 0.0, 2.0])
        (k,) = np.flatnonzero(np.all(MASKS == [True, False, False], axis=1))
        (a, lam), changes = jax.jvp(nested, (first,), (jnp.ones(3),))
        np.testing.assert_allclose(a, removed[0][k], **ROUND_OFF)
        np.testing.assert_allclose(lam, removed[1][k], **ROUND_OFF)
        for change in changes:
            np.testing.assert_array_equal(change, 0.0)

    def test_derivatives(self):
        def total(stiffness):
            system = jd.Masked(
                jd.tree.set_leaf(everything(), "stiffness", stiffness), jnp.array([True, False, True])
            )
            a, lam = jd.forward_dynamics(system, everywhere(), stabilization=BAUMGARTE)
            return jnp.sum(jnp.array([1.0, -2.0, 0.5, 1.5]) * a) + jnp.sum(jnp.cos(lam))

        check_derivatives(total, 2.0)

    def test_names_pass_through(self):
        @jd.tree.pytree
        class Named(type(oscillator())):
            row_names = ("a", "b")
            coordinate_names = ("x", "y")

        masked = jd.Masked(Named(jnp.ones(2), jnp.asarray(1.0)), jnp.ones(0))
        assert (masked.row_names, masked.coordinate_names) == (("a", "b"), ("x", "y"))
        assert jd.Masked(oscillator(), jnp.ones(0)).row_names == ()

    @all_cases(
        ("make", "message"),
        [
            (
                lambda: jd.Masked(everything(), jnp.ones(2, bool)),
                "one entry per constraint row, shape (3,), got shape (2,)",
            ),
            (
                lambda: jd.Masked(everything(), jnp.ones(4, bool)),
                "one entry per constraint row, shape (3,), got shape (4,)",
            ),
            (
                lambda: jd.Masked(everything(), jnp.ones(1, bool)),
                "one entry per constraint row, shape (3,), got shape (1,)",
            ),
            (lambda: jd.Masked(everything(), True), "Masked.active must have one entry per constraint row, "),
            (
                lambda: jd.Masked(oscillator(), jnp.ones(2, bool)),
                "one entry per constraint row, shape (0,), got shape (2,)",
            ),
            (
                lambda: jd.Soft(everything(), jnp.ones(2)),
                "a scalar or have one entry per constraint row, shape (3,), got (2,)",
            ),
        ],
    )
    def test_mistakes(self, make, message):
        at = oscillating() if message.find("(0,)") > 0 else everywhere()
        for use in (
            lambda s: jd.forward_dynamics(s, at),
            lambda s: jd.rollout(s, jd.Projected(jd.ExplicitEuler()), at, dt=0.1, steps=1),
        ):
            with without_typechecker(), pytest.raises(ValueError, match=re.escape(message)):
                use(make())


@pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")
class TestImpulse:
    """v+ = v + M^-1 J^T p on rows that do not move by themselves: `Everything` at rest of its clock,
    frequency 0.
    """

    def found(self):
        system = dataclasses.replace(everything(), frequency=jnp.asarray(0.0))
        at = state(everywhere().q, everywhere().v)
        v, p = jax.jit(jax.vmap(lambda mask: jd.constraint_impulse(system, at, mask)))(jnp.asarray(MASKS))
        return system, at, np.asarray(v), np.asarray(p)

    def test_momentum_along_the_manifold_is_kept_and_energy_lost(self):
        system, at, v, p = self.found()
        mass, _, jacobian, *_ = terms(system, at)
        for mask, after, impulse in zip(MASKS, v, p, strict=True):
            rows, change = jacobian[mask], after - np.asarray(at.v)
            np.testing.assert_allclose(rows @ after, 0.0, rtol=0, atol=1e-14)
            np.testing.assert_allclose(mass @ change, rows.T @ impulse[mask], rtol=0, atol=1e-14)
            null = np.linalg.svd(rows)[2][len(rows) :] if len(rows) else np.eye(4)
            np.testing.assert_allclose(null @ mass @ change, 0.0, rtol=0, atol=1e-14)
            lost = system.kinetic_energy(at.q, at.v) - system.kinetic_energy(at.q, jnp.asarray(after))
            np.testing.assert_allclose(lost, change @ mass @ change / 2, rtol=0, atol=1e-14)
            assert lost >= 0.0
        # More rows, more loss; none, none.
        np.testing.assert_array_equal(v[-1], at.v)
        np.testing.assert_array_equal(p[-1], 0.0)

    def test_rows_that_move_are_followed(self):
        at = everywhere()
        v, _ = jd.constraint_impulse(everything(), at)
        *_, before = terms(everything(), at)
        *_, after = terms(everything(), jd.State(at.t, at.q, v))
        assert np.min(np.abs(before)) > 0.1
        np.testing.assert_allclose(after, 0.0, rtol=0, atol=1e-14)

    @pytest.mark.long
    def test_soft_rows_take_no_part(self):
        soft = jd.Soft(everything(), jnp.array([0.0, 0.1, 0.0]))
        ours = jd.constraint_impulse(soft, everywhere())
        theirs = jd.constraint_impulse(everything(), everywhere(), jnp.array([True, False, True]))
        for x, y in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(x, y, **ROUND_OFF)

    @pytest.mark.long
    def test_derivative(self):
        def total(x):
            at = jd.State(everywhere().t, everywhere().q + x, everywhere().v)
            v, p = jd.constraint_impulse(everything(), at, jnp.array([True, False, True]))
            return jnp.sum(v) + p[0]

        check_derivatives(total, 0.0)


def swing(angle=1.2, mass=1.3):
    system = Pendulum(*(jnp.asarray(x, float) for x in (mass, 1.0, 9.81)))
    return system, state([np.sin(angle), -np.cos(angle)])


EULER = jd.Projected(jd.SemiImplicitEuler())


@jd.tree.pytree
class Window:
    """On from one time to another, by the clock; or, with `below`, wherever y is lower than that."""

    start: Any
    end: Any
    below: Any = jnp.inf

    def __call__(self, t, q):
        return ((t >= self.start) & (t < self.end) & (q[1] < self.below))[None]


class TestRollouts:
    dt, steps = 0.01, 60

    def run(self, active, states=None):
        system, at = swing()
        states = jax.tree.map(lambda x: jnp.stack([x] * 3), at) if states is None else states
        masked = jd.Masked(system, active)
        in_axes = (jd.tree.batch_axes(masked, "active"), None, 0, None)
        return jd.batch_rollout(masked, EULER, states, dt=self.dt, steps=self.steps, in_axes=in_axes)

    @pytest.mark.long
    def test_all_on_all_off_and_nothing_compiles_for_another_mask(self):
        from test_trajectory import counted_compilations

        run = self.run(jnp.array([[True], [False], [True]]))
        system, at = swing()
        on = jd.rollout(system, EULER, at, dt=self.dt, steps=self.steps)
        np.testing.assert_allclose(run.state.q[0], on.state.q, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(run.info.lam[0], on.info.lam, rtol=1e-11)
        # Free fall by the symplectic Euler method: v_n = -g n h, y_n = y_0 - g h^2 n (n + 1) / 2.
        n = np.arange(1, self.steps + 1)
        np.testing.assert_allclose(
            run.state.q[1, :, 1], at.q[1] - 9.81 * self.dt**2 * n * (n + 1) / 2, rtol=1e-12
        )
        np.testing.assert_array_equal(run.info.lam[1], 0.0)
        with counted_compilations() as events:
            other = self.run(jnp.array([[False], [False], [True]]))
        assert not events
        np.testing.assert_array_equal(other.state.q[0], run.state.q[1])

    @pytest.mark.long
    def test_by_time_and_by_place(self):
        """A rod that breaks at 0.1 s; one that is put on there and takes the radial velocity; one that holds
        below -0.6 m only.
        """
        law = Window(
            jnp.array([0.0, 0.095, 0.0]),
            jnp.array([0.095, jnp.inf, jnp.inf]),
            jnp.array([jnp.inf, jnp.inf, -0.6]),
        )
        run = self.run(law)
        jd.raise_if_failed(run)
        lam, q, v = (np.asarray(x) for x in (run.info.lam[..., 0], run.state.q, run.state.v))
        length = np.linalg.norm(q, axis=-1)
        # Entry k is the state at (k + 1) h, with the multiplier of the step before: step 10 starts at 0.1 s.
        np.testing.assert_allclose(length[0, :9], 1.0, rtol=1e-14)
        assert np.all(lam[0, 1:10] != 0.0)
        np.testing.assert_array_equal(lam[0, 10:], 0.0)
        np.testing.assert_allclose(v[0, 10:, 0], v[0, 9, 0], rtol=1e-13)
        np.testing.assert_array_equal(lam[1, :10], 0.0)
        assert np.all(lam[1, 10:] != 0.0)
        # The rod is put on 4 cm off: the three corrections of a step leave 4e-2 times the cube of that, those
        # of the next two the rest.
        np.testing.assert_allclose(length[1, 9], 1.0, rtol=0, atol=1e-5)
        np.testing.assert_allclose(length[1, 12:], 1.0, rtol=1e-12)
        np.testing.assert_allclose(np.sum(q * v, axis=-1)[1, 9:], 0.0, rtol=0, atol=1e-13)
        assert np.all((lam[2, 1:] != 0.0) == (q[2, :-1, 1] < -0.6))
        assert 5 < np.sum(lam[2] != 0.0) < self.steps - 5

    @pytest.mark.long
    def test_a_broken_world_leaves_the_others_alone(self):
        masks = jnp.array([[True], [False], [True]])
        _, at = swing()
        states = jax.tree.map(lambda x: jnp.stack([x] * 3), at)
        spoiled = jd.State(states.t, states.q.at[0, 1].set(jnp.nan), states.v)
        broken, whole = self.run(masks, states=spoiled), self.run(masks)
        np.testing.assert_array_equal(broken.info.status[0], jd.Status.NONFINITE)
        for x, y in zip(jax.tree.leaves(broken), jax.tree.leaves(whole), strict=True):
            np.testing.assert_array_equal(x[1:], y[1:])

    @pytest.mark.long
    def test_single_precision_and_a_batch_of_one(self):
        system, at = cast(swing(), jnp.float32)
        masked = jd.Masked(system, jnp.array([[True]]))
        axes = (jd.tree.batch_axes(masked, "active"), None, None, None)
        run = jd.batch_rollout(masked, EULER, at, dt=self.dt, steps=self.steps, in_axes=axes)
        assert run.state.q.dtype == run.info.lam.dtype == jnp.float32
        double = self.run(jnp.ones((3, 1), bool)).state.q[0]
        # Sixty steps, each rounded by 6e-8 of positions near 1 m and velocities up to 3 m/s.
        np.testing.assert_allclose(run.state.q[0], double, rtol=0, atol=2e-5)
        assert np.max(run.info.violation) <= 2.5e-7


@pytest.fixture(scope="module")
def soft_rods():
    """A pendulum on a soft rod, for several (C, alpha, beta) at once."""
    system, at = swing()
    softness = jnp.array([0.0, 1e-4, 2e-4, 0.02, 0.02])
    alpha, beta = jnp.array([0.0, 0.0, 0.0, 0.0, 1.5]), jnp.array([0.0, 0.0, 0.0, 6.0, 6.0])
    soft = jd.Soft(system, softness)
    integrator = jd.Projected(jd.RungeKutta.rk4(stabilization=jd.Baumgarte(alpha, beta)))
    axes = (
        jd.tree.batch_axes(soft, "softness"),
        jd.tree.batch_axes(integrator, "integrator.stabilization"),
        None,
        None,
    )
    run = jd.batch_rollout(soft, integrator, at, dt=0.005, steps=200, in_axes=axes)
    jd.raise_if_failed(run)
    return system, at, softness, alpha, beta, run


class TestSoft:
    C = np.array([0.3, 0.05, 0.2])

    def soft(self, softness):
        soft = jd.Soft(everything(), jnp.broadcast_to(jnp.asarray(softness, float), (3,)))
        return jd.forward_dynamics(soft, everywhere(), stabilization=BAUMGARTE)

    def terms(self):
        """Returns M, f, J and the target of the acceleration row."""
        at = everywhere()
        mass, force, jacobian, bias, velocity = terms(everything(), at)
        return (
            mass,
            force,
            jacobian,
            -bias - 4.0 * velocity - 9.0 * np.append(everything().constraint(at.t, at.q), 0.0),
        )

    def test_is_the_compliance_block(self):
        mass, force, jacobian, target = self.terms()
        expected = np.linalg.solve(
            np.block([[mass, -jacobian.T], [jacobian, np.diag(self.C)]]), np.concatenate([force, target])
        )
        np.testing.assert_allclose(np.concatenate(self.soft(self.C)), expected, **ROUND_OFF)
        scalar, rows = jd.Soft(everything(), jnp.asarray(0.1)), jd.Soft(everything(), jnp.full(3, 0.1))
        np.testing.assert_array_equal(
            scalar.compliance(everywhere().t, everywhere().q), rows.compliance(everywhere().t, everywhere().q)
        )

    def test_hard_in_the_limit_linearly_and_exactly_at_zero(self):
        hard = np.concatenate(jd.forward_dynamics(everything(), everywhere(), stabilization=BAUMGARTE))
        np.testing.assert_allclose(np.concatenate(self.soft(0.0)), hard, **ROUND_OFF)
        sizes = np.array([1e-2, 1e-3, 1e-4, 1e-5])
        errors = [np.max(np.abs(np.concatenate(self.soft(size)) - hard)) for size in sizes]
        # The ratio of neighbours is 10 up to the next order, C over the smallest eigenvalue of the Delassus
        # matrix (about 0.4).
        np.testing.assert_allclose(np.array(errors[1:-1]) / errors[2:], 10.0, rtol=0.03)

    def test_free_in_the_other_limit(self):
        a, lam = self.soft(1e9)
        mass, force, *_ = terms(everything(), everywhere())
        np.testing.assert_allclose(a, np.linalg.solve(mass, force), rtol=1e-7)
        np.testing.assert_allclose(lam, 0.0, rtol=0, atol=1e-7)

    def test_derivative_with_respect_to_the_softness(self):
        # At zero the difference reaches to negative C: the equations do not mind.
        check_derivatives(lambda c: jnp.sum(jnp.concatenate(self.soft(c)) * jnp.arange(1.0, 8.0)), 0.0, 0.2)

    def test_masked_and_soft_at_once(self):
        mask = np.array([True, False, True])
        mass, force, jacobian, target = self.terms()
        rows = jacobian[mask]
        matrix = np.block([[mass, -rows.T], [rows, np.diag(self.C[mask])]])
        expected = np.insert(np.linalg.solve(matrix, np.concatenate([force, target[mask]])), 5, 0.0)
        for system in (
            jd.Masked(jd.Soft(everything(), self.C), mask),
            jd.Soft(jd.Masked(everything(), mask), self.C),
        ):
            found = jd.forward_dynamics(system, everywhere(), stabilization=BAUMGARTE)
            np.testing.assert_allclose(np.concatenate(found), expected, **ROUND_OFF)

    @pytest.mark.long
    def test_a_soft_rollout_becomes_the_hard_one(self, soft_rods):
        """g'' = -C lam: the rod stretches by C times the integral of the tension twice, linearly in C."""
        *_, run = soft_rods
        assert np.max(run.info.violation[0]) < 1e-15
        once, twice = (np.max(np.abs(run.state.q[k] - run.state.q[0])) for k in (1, 2))
        # After 1 s the rod is longer by about C m g t^2 = 1.3e-3 m; the next order is that much smaller
        # again.
        assert 1e-4 < once < 5e-3
        np.testing.assert_allclose(twice / once, 2.0, rtol=1e-2)

    @pytest.mark.long
    def test_the_energy_of_a_soft_row(self, soft_rods):
        """E + (g'^2 + beta^2 g^2) / (2 C) is constant without damping, and falls by 2 alpha g'^2 / C with it."""
        system, at, softness, alpha, beta, run = soft_rods
        q, v = np.asarray(run.state.q), np.asarray(run.state.v)
        g, rate = (np.sum(q**2, axis=-1) - 1.0) / 2, np.sum(q * v, axis=-1)
        energy = 1.3 * (np.sum(v**2, axis=-1) / 2 + 9.81 * q[..., 1])
        c, damping, stiffness = (np.asarray(x)[:, None] for x in (softness, alpha, beta))
        total = energy[1:] + (rate**2 + stiffness**2 * g**2)[1:] / (2 * c[1:])
        # RK4: (h omega)^4 with omega up to 10/s is 6e-6 of energies near 10 J, over five periods.
        start = float(jd.energy(system, at))
        np.testing.assert_allclose(energy[0], start, rtol=0, atol=1e-4)
        np.testing.assert_allclose(total[:3], start, rtol=0, atol=1e-4)
        power = 2 * damping[4] * rate[4] ** 2 / c[4]
        lost = np.concatenate([[0.0], np.cumsum((power[1:] + power[:-1]) / 2) * 0.005])
        # By the trapezoidal rule, (h omega)^2 / 12 = 2e-4 of some 2 J.
        np.testing.assert_allclose(total[3] + lost, total[3, 0], rtol=0, atol=2e-3)
        assert lost[-1] > 0.1
        assert np.all(np.diff(total[3]) <= 1e-9)
