"""The contract of integrators: a new method is one more row of `catalogue.METHODS`. Orders of accuracy are in
`test_accuracy_orders`.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from catalogue import METHODS, POSITIONS, VELOCITIES, distinct, every, first, in_ci, leaders
from problems import Pendulum, cast, state
from small_systems import (
    central,
    consistent,
    everything,
    everywhere,
    oscillating,
    oscillator,
    wheels,
    wheels_states,
)

import jaxdae as jd
from jaxdae.control import VelocityStepping
from jaxdae.systems.system import velocity_residual

STABILIZATIONS = {"none": jd.NoStabilization(), "baumgarte": jd.Baumgarte(2.0, 3.0)}
DT = 0.01
ROUND_OFF = {"rtol": 1e-13, "atol": 1e-13}


def step(integrator, system, at, u, dt):
    """One step, not compiled as a whole: the dynamics inside are, once for all methods, and the rest is
    little.
    """
    return integrator.step(system, at, integrator.init(system, at), u, dt)


compiled_step = jax.jit(step)
dynamics = jax.jit(
    lambda system, at, u, stabilization: jd.forward_dynamics(system, at, u, stabilization=stabilization)
)


def pendulum():
    return Pendulum(*(jnp.asarray(x, float) for x in (1.3, 1.0, 9.81))), state([0.6, -0.8], [1.2, 0.9])


def leaves(tree):
    return dict(zip(jd.tree.leaf_paths(tree), jax.tree.leaves(tree), strict=True))


def build(name, stabilization, projected=False):
    """Returns a method that lets constraints drift, with both roles filled or not."""
    integrator = dataclasses.replace(METHODS[name].integrator, stabilization=stabilization)
    return jd.Projected(integrator) if projected else integrator


def check_shapes_and_dtypes(integrator, dtype, rows):
    system, at = (everything(), everywhere()) if rows else (oscillator(), oscillating())
    system, at = cast((system, at), dtype)
    new, memory, info = jax.eval_shape(step, integrator, system, at, None, DT)
    before = jax.eval_shape(integrator.init, system, at)
    assert jax.tree.structure(memory) == jax.tree.structure(before)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(memory)] == [
        (x.shape, x.dtype) for x in jax.tree.leaves(before)
    ]
    size = at.v.shape
    assert {name: (x.shape, x.dtype) for name, x in leaves((new, info)).items()} == {
        "0.t": ((), dtype),
        "0.q": (size, dtype),
        "0.v": (size, dtype),
        "1.a": (size, dtype),
        "1.lam": ((rows,), dtype),
        "1.violation": ((), dtype),
        "1.velocity_violation": ((), dtype),
        "1.iterations": ((), jnp.int32),
        "1.status": ((), jnp.int32),
    }


def check_report(integrator, stabilization):
    """Returns the report after a step, which must be true; what it says of the start and of the end is
    computed again.
    """
    system, at = pendulum()
    new, _, info = compiled_step(integrator, system, at, None, DT)
    a, lam = dynamics(system, at, None, stabilization)
    np.testing.assert_allclose(info.a, a, **ROUND_OFF)
    np.testing.assert_allclose(info.lam, lam, **ROUND_OFF)
    np.testing.assert_allclose(new.t, DT, rtol=1e-15)
    np.testing.assert_allclose(info.violation, np.abs(system.constraint(new.t, new.q)[0]), rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        info.velocity_violation, np.abs(velocity_residual(system, new)[0]), rtol=0, atol=1e-15
    )
    assert info.status == jd.Status.OK
    return info


DIFFERENT = {name: METHODS[name] for name in distinct()}
drifting_leaders = pytest.mark.parametrize("name", first(DIFFERENT, lambda method: not method.closed))
closed_leaders = pytest.mark.parametrize("name", leaders(DIFFERENT, lambda method: method.closed))
each_type = all_cases(("dtype", "rows"), [(jnp.float32, 3), (jnp.float64, 0)], ids=["float32", "no_rows"])

both_or_neither = pytest.mark.parametrize(
    ("stabilization", "projected"),
    [(STABILIZATIONS["none"], False), (STABILIZATIONS["baumgarte"], True)],
    ids=["neither", "both"],
)
each_combination = all_cases(
    ("stabilization", "projected"), list(itertools.product(STABILIZATIONS.values(), (False, True)))
)


class TestRoles:
    """Compile with neither stabilization nor projection, and with both. `TestMethods` has the stabilization
    alone, `test_accuracy_orders` the projection alone.
    """

    @drifting_leaders
    @each_type
    @each_combination
    def test_shapes_and_dtypes(self, name, stabilization, projected, dtype, rows):
        check_shapes_and_dtypes(build(name, stabilization, projected), dtype, rows)

    @drifting_leaders
    @both_or_neither
    def test_the_report_is_true(self, name, stabilization, projected):
        info = check_report(build(name, stabilization, projected), stabilization)
        assert info.iterations == (3 if projected else 0)
        if projected:
            assert info.violation <= 2e-16
            assert info.velocity_violation <= 1e-15
        else:
            assert 1e-16 < info.violation < 1e-3


@each_type
def test_shapes_and_dtypes_of_the_velocity_level_stepper(dtype, rows):
    # Its accelerations and multipliers are means over the step: what else it must do is in
    # `control/test_velocity_stepping`.
    check_shapes_and_dtypes(VelocityStepping(), dtype, rows)
    check_shapes_and_dtypes(jd.Projected(VelocityStepping()), dtype, rows)


class TestEveryMethodWithoutFeedback:
    @pytest.mark.parametrize(
        "name",
        in_ci(every(DIFFERENT, lambda method: method.closed), "rattle", "radau_iia", "half_explicit4"),
    )
    @each_type
    def test_shapes_and_dtypes(self, name, dtype, rows):
        check_shapes_and_dtypes(METHODS[name].integrator, dtype, rows)
        check_shapes_and_dtypes(jd.Projected(METHODS[name].integrator), dtype, rows)

    @closed_leaders
    def test_the_report_is_true(self, name):
        info = check_report(METHODS[name].integrator, STABILIZATIONS["none"])
        assert (info.violation <= 4e-16) == (POSITIONS in METHODS[name].closed)
        assert (info.velocity_violation <= 1e-14) == (VELOCITIES in METHODS[name].closed)
        assert (info.iterations > 0) == METHODS[name].implicit

    @pytest.mark.parametrize(
        "name",
        in_ci([*first(DIFFERENT, lambda method: method.closed), "shake"], "rattle", "half_explicit4"),
    )
    def test_projected(self, name):
        info = check_report(jd.Projected(METHODS[name].integrator), STABILIZATIONS["none"])
        assert info.violation <= 4e-16
        assert info.velocity_violation <= 1e-15

    @pytest.mark.parametrize(
        "name",
        in_ci(
            every(DIFFERENT, lambda method: method.closed), "rattle", "implicit_midpoint", "half_explicit4"
        ),
    )
    def test_jit_is_eager_and_rows_may_be_missing(self, name):
        # The iterations end where round-off lets them, not at the last bit.
        system, at = oscillator(), oscillating()
        compiled, eager = (
            compiled_step(METHODS[name].integrator, system, at, None, DT),
            step(METHODS[name].integrator, system, at, None, DT),
        )
        for key, x in leaves(eager).items():
            np.testing.assert_allclose(leaves(compiled)[key], x, rtol=1e-12, atol=1e-12, err_msg=key)
        assert eager[2].violation == eager[2].velocity_violation == 0.0
        assert eager[2].lam.shape == (0,)
        # Against a method of order five: what is left is the local error of a single step.
        accurate, _, _ = step(jd.RungeKutta.dormand_prince5(), system, at, None, DT)
        bound = {1: DT**2, 2: DT**3, 5: 1e-10}.get(METHODS[name].order, 1e-8)
        difference = max(np.max(np.abs(eager[0].q - accurate.q)), np.max(np.abs(eager[0].v - accurate.v)))
        assert difference <= 20.0 * bound


@drifting_leaders
class TestEveryMethod:
    """With both roles filled."""

    def test_jit_is_eager(self, name):
        integrator, (system, at) = build(name, STABILIZATIONS["baumgarte"], True), pendulum()
        compiled, eager = (
            compiled_step(integrator, system, at, None, DT),
            step(integrator, system, at, None, DT),
        )
        for key, x in leaves(eager).items():
            np.testing.assert_allclose(leaves(compiled)[key], x, **ROUND_OFF, err_msg=key)

    def test_without_rows_nothing_is_stabilized_or_projected(self, name):
        system, at = oscillator(), oscillating()
        new, _, info = step(build(name, STABILIZATIONS["baumgarte"], True), system, at, None, DT)
        bare, _, _ = step(METHODS[name].integrator, system, at, None, DT)
        for key, x in leaves(new).items():
            np.testing.assert_allclose(x, leaves(bare)[key], **ROUND_OFF)
        assert info.violation == info.velocity_violation == 0.0
        assert info.lam.shape == (0,)


def law(t, at):
    """A feedback law that sees everything: time, positions and velocities."""
    return jnp.sin(3.0 * t) - at.q * jnp.roll(at.v, 1)


class TestMethods:
    """Each step against its formula, in NumPy, on a system with every kind of term and a feedback law."""

    def derivative(self, t, q, v):
        system = everything()
        at = state(q, v, t)
        a, lam = dynamics(system, at, law(at.t, at), jd.Baumgarte(2.0, 3.0))
        return np.asarray(a), np.asarray(lam)

    def run(self, name):
        new, _, info = step(
            build(name, jd.Baumgarte(2.0, 3.0)), everything(), everywhere(), jax.tree_util.Partial(law), 0.1
        )
        return new, info

    def check(self, new, q, v):
        np.testing.assert_allclose(new.q, q, **ROUND_OFF)
        np.testing.assert_allclose(new.v, v, **ROUND_OFF)
        np.testing.assert_allclose(new.t, 0.4, rtol=1e-15)

    def start(self):
        at = everywhere()
        return float(at.t), np.asarray(at.q), np.asarray(at.v)

    def test_euler(self):
        (t, q, v), h = self.start(), 0.1
        a, _ = self.derivative(t, q, v)
        self.check(self.run("explicit_euler")[0], q + h * v, v + h * a)
        self.check(self.run("semi_implicit_euler")[0], q + h * (v + h * a), v + h * a)

    def test_taylor(self):
        (t, q, v), h = self.start(), 0.1
        a, _ = self.derivative(t, q, v)
        self.check(self.run("lecture_taylor")[0], q + h * v + 0.5 * h**2 * a, v + h * a)
        jerk = central(lambda s: self.derivative(t + s, q + s * v, v + s * a)[0], 0.0)
        new, _ = self.run("taylor")
        np.testing.assert_allclose(new.q, q + h * v + 0.5 * h**2 * a, **ROUND_OFF)
        np.testing.assert_allclose(new.v, v + h * a + 0.5 * h**2 * jerk, rtol=0.0, atol=1e-10)

    @all_cases("name", every(METHODS, lambda method: method.family == "runge_kutta"))
    def test_runge_kutta(self, name):
        (t, q, v), h = self.start(), 0.1
        tableau = METHODS[name].integrator.tableau
        vs, accelerations = [], []
        for row, c in zip(tableau.a, tableau.c, strict=True):
            qi = q + h * sum((x * y for x, y in zip(row, vs, strict=True)), np.zeros(4))
            vi = v + h * sum((x * y for x, y in zip(row, accelerations, strict=True)), np.zeros(4))
            vs.append(vi)
            accelerations.append(self.derivative(t + c * h, qi, vi)[0])
        new, info = self.run(name)
        self.check(new, q + h * np.dot(tableau.b, vs), v + h * np.dot(tableau.b, accelerations))
        np.testing.assert_allclose(info.a, accelerations[0], **ROUND_OFF)

    def test_an_array_is_held_over_the_step(self):
        system, at = oscillator(), oscillating()
        u = jnp.array([1.0, -2.0])
        held, _, _ = step(jd.RungeKutta.rk4(), system, at, u, DT)
        constant, _, _ = step(
            jd.RungeKutta.rk4(), system, at, jax.tree_util.Partial(lambda u, t, at: u, u), DT
        )
        np.testing.assert_allclose(held.v, constant.v, **ROUND_OFF)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "make",
        [
            jd.SemiImplicitEuler,
            pytest.param(jd.textbook.Taylor, marks=pytest.mark.exhaustive),
            jd.RungeKutta.rk4,
        ],
    )
    def test_positions_move_by_retraction(self, make):
        results = []
        for system, at in zip(wheels(), wheels_states((0.4, -0.9), (1.3, 0.6), 0.7), strict=True):
            results.append(step(jd.Projected(make()), system, at, None, DT)[0])
        pairs = results[1].q.reshape(2, 2)
        np.testing.assert_allclose(jnp.sum(pairs**2, axis=1), 1.0, rtol=1e-15)
        np.testing.assert_allclose(jnp.arctan2(pairs[:, 1], pairs[:, 0]), results[0].q, **ROUND_OFF)
        np.testing.assert_allclose(results[1].v, results[0].v, rtol=1e-12, atol=1e-12)


class TestProjected:
    @pytest.mark.long
    def test_is_the_step_and_then_the_projection(self):
        system, at = everything(), consistent()
        for position in (
            jd.PositionProjection(origin=jd.Origin.PREVIOUS),
            jd.textbook.LinearPositionProjection(),
            None,
        ):
            projection = jd.Projection(position)
            new, _, info = step(jd.Projected(jd.RungeKutta.heun(), projection), system, at, None, DT)
            estimate, _, inner = step(jd.RungeKutta.heun(), system, at, None, DT)
            expected = projection.project(system, estimate, at)
            for x, y in zip(jax.tree.leaves(new), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(x, y, **ROUND_OFF)
            np.testing.assert_allclose(info.lam, inner.lam, **ROUND_OFF)
            assert info.iterations == (3 if isinstance(position, jd.PositionProjection) else 0)
            assert info.status == jd.Status.OK

    @pytest.mark.parametrize("tolerance", [0.0, 1e-30])
    def test_says_when_it_has_not_converged(self, tolerance):
        # One correction leaves second order, some 1e-8.
        system, at = pendulum()
        projection = jd.Projection(jd.PositionProjection(iterations=1, tolerance=tolerance))
        _, _, info = step(jd.Projected(jd.ExplicitEuler(), projection), system, at, None, DT)
        assert info.violation > 1e-12
        assert info.status == jd.Status.NOT_CONVERGED

    def test_keeps_the_status_of_the_method(self):
        @jd.tree.pytree
        class Failing(jd.ExplicitEuler):
            def step(self, system, at, memory, u, dt):
                new, memory, info = super().step(system, at, memory, u, dt)
                return (
                    new,
                    memory,
                    dataclasses.replace(info, status=jnp.asarray(jd.Status.SINGULAR, jnp.int32)),
                )

        system, at = pendulum()
        loose = jd.Projection(jd.PositionProjection(iterations=1, tolerance=0.0))
        for projection in (jd.Projection(), loose, jd.Projection(jd.textbook.LinearPositionProjection())):
            _, _, info = step(jd.Projected(Failing(), projection), system, at, None, DT)
            assert info.status == jd.Status.SINGULAR

    def test_can_be_nested(self):
        system, at = pendulum()
        once = jd.Projected(jd.ExplicitEuler(), jd.Projection(velocity=None))
        twice, _, info = step(jd.Projected(once, jd.Projection(position=None)), system, at, None, DT)
        both, _, _ = step(jd.Projected(jd.ExplicitEuler()), system, at, None, DT)
        np.testing.assert_allclose(twice.v, both.v, **ROUND_OFF)
        assert info.velocity_violation < 1e-15


class TestTableau:
    def test_any_tableau_will_do(self):
        # Kutta's 3/8 rule against the classical method: both of order 4, so that they differ by O(h^5).
        third = 1.0 / 3.0
        rule = jd.Tableau(
            a=((), (third,), (-third, 1.0), (1.0, -1.0, 1.0)),
            b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
            c=(0.0, third, 2.0 * third, 1.0),
        )
        system, at = pendulum()
        ours, _, _ = step(jd.RungeKutta(rule), system, at, None, DT)
        classical, _, _ = step(jd.RungeKutta.rk4(), system, at, None, DT)
        difference = np.max(np.abs(ours.v - classical.v))
        assert 0.0 < difference < 10.0 * DT**4

    def test_explicit_euler_is_a_tableau(self):
        system, at = pendulum()
        ours, _, _ = step(jd.RungeKutta(jd.Tableau(a=((),), b=(1.0,), c=(0.0,))), system, at, None, DT)
        euler, _, _ = step(jd.ExplicitEuler(), system, at, None, DT)
        np.testing.assert_allclose(ours.v, euler.v, **ROUND_OFF)

    @all_cases(
        ("numbers", "message"),
        [
            ({"a": (), "b": (), "c": ()}, "need the same number of stages, at least 1; got 0, 0 and 0"),
            (
                {"a": ((), (0.5,)), "b": (1.0,), "c": (0.0,)},
                "need the same number of stages, at least 1; got 2, 1 and 1",
            ),
            (
                {"a": ((0.5,),), "b": (1.0,), "c": (0.5,)},
                r"row 0 of a must have 0 entries \(explicit method\), got 1",
            ),
            (
                {"a": ((), (0.5,)), "b": (0.0, 1.0), "c": (0.0, 0.4)},
                r"c\[1\] = 0.4 must equal the sum of a\[1\] = 0.5",
            ),
            ({"a": ((), (0.5,)), "b": (0.5, 1.0), "c": (0.0, 0.5)}, "the weights b sum to 1.5, expected 1"),
        ],
    )
    def test_mistakes(self, numbers, message):
        with pytest.raises(ValueError, match=message):
            jd.Tableau(**numbers)
