"""The terms that follow from what a user writes, against difference quotients, hand-written formulas and
other coordinates.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from problems import cast, state
from small_systems import (
    Oscillator,
    central,
    everything,
    everywhere,
    oscillating,
    oscillator,
    wheels,
    wheels_states,
    without_typechecker,
)

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.systems.system import velocity_residual

ROUND_OFF = {"rtol": 1e-13, "atol": 1e-13}
# Central differences with step 1e-6 of functions of order 1: truncation and round-off are both near 1e-10.
DIFFERENCE = {"rtol": 0.0, "atol": 1e-9}

terms_of = jax.jit(jd.operators.constraint_terms)


class TestDerivedTerms:
    def test_jacobian_is_the_derivative_of_the_rows(self):
        system, at = everything(), everywhere()
        terms = terms_of(system, at)
        of_g = jax.jit(lambda xi: system.constraint(at.t, at.q + xi))
        of_w = jax.jit(lambda dv: system.velocity_constraint(at.t, at.q, at.v + dv))
        for k, direction in enumerate(np.eye(4)):
            np.testing.assert_allclose(
                terms.jacobian[:2, k], central(lambda s, d=direction: of_g(s * d), 0.0), **DIFFERENCE
            )
            np.testing.assert_allclose(
                terms.jacobian[2:, k], central(lambda s, d=direction: of_w(s * d), 0.0), **DIFFERENCE
            )

    def test_rate_is_the_derivative_along_the_motion(self):
        system, at = everything(), everywhere()
        terms = terms_of(system, at)
        along = jax.jit(lambda s: system.constraint(at.t + s, at.q + s * at.v))
        np.testing.assert_allclose(terms.velocity[:2], central(along, 0.0), **DIFFERENCE)
        np.testing.assert_allclose(
            terms.velocity[2:], system.velocity_constraint(at.t, at.q, at.v), **ROUND_OFF
        )
        np.testing.assert_allclose(terms.position, system.constraint(at.t, at.q), **ROUND_OFF)

    def test_rows_twice_differentiated_are_jacobian_times_acceleration_plus_bias(self):
        # Along any curve, g'' and w' are J a + gamma, explicit time dependence and all.
        system, at = everything(), everywhere()
        a = jnp.array([0.3, -0.8, 1.1, 0.4])

        @jax.jit
        def rates(s):
            t, q, v = at.t + s, at.q + s * at.v + 0.5 * s**2 * a, at.v + s * a
            return velocity_residual(system, jd.State(t, q, v))

        terms = terms_of(system, at)
        np.testing.assert_allclose(terms.jacobian @ a + terms.bias, central(rates, 0.0), **DIFFERENCE)
        exact = jax.jvp(rates, (0.0,), (1.0,))[1]
        np.testing.assert_allclose(terms.jacobian @ a + terms.bias, exact, **ROUND_OFF)

    def test_explicit_time_dependence_is_in_the_bias(self):
        # At rest, what is left of gamma are the explicit time derivatives: of the radius 0.1 sin(w t), and of
        # the sine in the second row.
        system = everything()
        at = state([0.6, 0.8, 0.2, -0.4], t=0.3)
        w, t, r = 1.7, 0.3, 1.1
        radius, rate, bend = r + 0.1 * np.sin(w * t), 0.1 * w * np.cos(w * t), -0.1 * w**2 * np.sin(w * t)
        expected = [-(rate**2) - radius * bend, 0.3 * w**2 * np.sin(0.6 * -0.4 + w * t), 0.1 * 0.2]
        np.testing.assert_allclose(terms_of(system, at).bias, expected, **ROUND_OFF)

    def test_single_precision(self):
        terms = terms_of(cast(everything(), jnp.float32), cast(everywhere(), jnp.float32))
        exact = terms_of(everything(), everywhere())
        for x, y in zip(jax.tree.leaves(terms), jax.tree.leaves(exact), strict=True):
            assert x.dtype == jnp.float32
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)

    def test_no_rows(self):
        terms = jd.operators.constraint_terms(oscillator(), oscillating())
        assert [x.shape for x in (terms.position, terms.velocity, terms.jacobian, terms.bias)] == [
            (0,),
            (0,),
            (0, 2),
            (0,),
        ]

    def test_time_may_be_a_plain_number(self):
        (system, _), (at, _) = wheels(), wheels_states((0.4, -0.9), (1.3, 0.6), 2.0)
        exact = terms_of(system, at)
        for t in (2, 2.0, np.int64(2), np.float32(2.0)):
            np.testing.assert_allclose(
                terms_of(system, jd.State(t, at.q, at.v)).bias, exact.bias, **ROUND_OFF
            )


class TestRetraction:
    """Flywheels in cosines and sines (nq = 4, nv = 2) against the same in angles."""

    @pytest.mark.long
    @pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")
    @pytest.mark.parametrize(
        ("angles", "rates"), [((0.4, -0.9), (1.3, 0.6)), ((0.4, -0.9), (0.0, 0.0)), ((0.0, 0.0), (0.5, 0.2))]
    )
    def test_terms_and_dynamics_agree(self, angles, rates):
        systems, states = wheels(), wheels_states(angles, rates, 0.7)
        in_angles, on_circles = (terms_of(s, x) for s, x in zip(systems, states, strict=True))
        assert on_circles.jacobian.shape == (1, 2)
        for x, y in zip(jax.tree.leaves(on_circles), jax.tree.leaves(in_angles), strict=True):
            np.testing.assert_allclose(x, y, **ROUND_OFF)
        (a, lam), (a_angles, lam_angles) = (
            jd.forward_dynamics(x, y) for x, y in zip(systems[::-1], states[::-1], strict=True)
        )
        np.testing.assert_allclose(a, a_angles, **ROUND_OFF)
        np.testing.assert_allclose(lam, lam_angles, **ROUND_OFF)

    def test_difference_undoes_retract(self):
        _, on_circles = wheels()
        _, at = wheels_states((0.4, -0.9), (0.0, 0.0), 0.0)
        xi = jnp.array([0.7, -2.5])
        np.testing.assert_allclose(on_circles.difference(at.q, on_circles.retract(at.q, xi)), xi, **ROUND_OFF)
        plain = oscillator()
        np.testing.assert_allclose(plain.difference(xi, plain.retract(xi, 2.0 * xi)), 2.0 * xi, **ROUND_OFF)


@jd.tree.pytree(kw_only=True)
class AngleDoublePendulum(jd.LagrangianSystem):
    mass: Any
    length: Any
    gravity: Any

    def kinetic_energy(self, q, v):
        (m1, m2), (l1, l2) = self.mass, self.length
        first, second = 0.5 * (m1 + m2) * (l1 * v[0]) ** 2, 0.5 * m2 * (l2 * v[1]) ** 2
        return first + second + m2 * l1 * l2 * v[0] * v[1] * jnp.cos(q[0] - q[1])

    def potential_energy(self, t, q):
        (m1, m2), (l1, l2) = self.mass, self.length
        return -self.gravity * ((m1 + m2) * l1 * jnp.cos(q[0]) + m2 * l2 * jnp.cos(q[1]))

    def generalized_force(self, t, q, v, u):
        return -0.3 * v if u is None else u - 0.3 * v


class TestLagrangianSystem:
    numbers: ClassVar = {
        "mass": jnp.array([1.2, 0.7]),
        "length": jnp.array([0.9, 1.4]),
        "gravity": jnp.asarray(9.81, float),
    }

    def by_hand(self, q, v):
        (m1, m2), (l1, l2), g = (np.asarray(self.numbers[name]) for name in ("mass", "length", "gravity"))
        c, s = np.cos(q[0] - q[1]), np.sin(q[0] - q[1])
        m = np.array([[(m1 + m2) * l1**2, m2 * l1 * l2 * c], [m2 * l1 * l2 * c, m2 * l2**2]])
        f = [
            -m2 * l1 * l2 * s * v[1] ** 2 - (m1 + m2) * g * l1 * np.sin(q[0]) - 0.3 * v[0],
            m2 * l1 * l2 * s * v[0] ** 2 - m2 * g * l2 * np.sin(q[1]) - 0.3 * v[1],
        ]
        return m, np.array(f)

    @pytest.mark.parametrize("v", [(1.7, -0.8), (0.0, 0.0)])
    def test_against_the_textbook(self, v):
        system, at = AngleDoublePendulum(**self.numbers), state([0.8, -0.5], v)
        m, f = self.by_hand(at.q, at.v)
        np.testing.assert_allclose(jax.jit(system.mass_matrix)(at.q), m, **ROUND_OFF)
        np.testing.assert_allclose(jax.jit(system.force)(at.t, at.q, at.v, None), f, **ROUND_OFF)
        u = jnp.array([0.5, -2.0])
        a, lam = jd.forward_dynamics(system, at, u)
        assert lam.shape == (0,)
        np.testing.assert_allclose(a, np.linalg.solve(m, f + u), **ROUND_OFF)

    def test_energy_changes_by_the_power_of_the_force(self):
        system, at = AngleDoublePendulum(**self.numbers), state([0.8, -0.5], [1.7, -0.8])
        a, _ = jd.forward_dynamics(system, at)

        def along(s):
            return jd.energy(system, jd.State(at.t, at.q + s * at.v, at.v + s * a))

        rate = jax.jit(jax.grad(along))(0.0)
        np.testing.assert_allclose(rate, -0.3 * at.v @ at.v, rtol=1e-12)


class TestDefaults:
    def test_energies(self):
        system, at = oscillator(), oscillating()
        np.testing.assert_allclose(
            system.kinetic_energy(at.q, at.v), 0.5 * (1.0 * 0.1**2 + 2.0 * 0.4**2), rtol=1e-15
        )
        np.testing.assert_allclose(jd.energy(system, at), 0.165 + 1.5 * (0.7**2 + 0.2**2), rtol=1e-15)
        everything_free = everything()
        assert jd.System.potential_energy(everything_free, at.t, at.q) == 0.0

    def test_mass_operator(self):
        system, at = oscillator(), oscillating()
        np.testing.assert_array_equal(system.mass_operator(at.q).as_dense(), system.mass_matrix(at.q))
        np.testing.assert_array_equal(system.mass_operator(at.q).as_dense(), np.diag([1.0, 2.0]))

    def test_mass_matrix_and_force_must_be_written(self):
        class Incomplete(jd.System):
            def mass_matrix(self, q):
                return jnp.eye(2)

        with pytest.raises(TypeError, match="force"):
            Incomplete()


def broken(**methods):
    """Returns an oscillator with methods replaced."""
    return jd.tree.pytree(type("Broken", (Oscillator,), methods))(
        jnp.array([1.0, 2.0]), jnp.asarray(3.0, float)
    )


MISTAKES = {
    "scalar row": (
        {"constraint": lambda self, t, q: q @ q - 1.0},
        "system.constraint(t, q) must return an array of shape (rows,), got (); use jnp.stack([...])",
    ),
    "matrix of rows": (
        {"constraint": lambda self, t, q: q[None]},
        "system.constraint(t, q) must return an array of shape (rows,), got (1, 2)",
    ),
    "list of rows": (
        {"constraint": lambda self, t, q: [q @ q - 1.0]},
        "system.constraint(t, q) must return an array, got list; use jnp.stack([...])",
    ),
    "forgotten return": (
        {"constraint": lambda self, t, q: None},
        "system.constraint(t, q) must return an array, got NoneType",
    ),
    "scalar velocity row": (
        {"velocity_constraint": lambda self, t, q, v: v[0]},
        "system.velocity_constraint(t, q, v) must return an array of shape (rows,), got ()",
    ),
    "rows in single precision": (
        {"constraint": lambda self, t, q: q.astype(jnp.float32)},
        "system.constraint(t, q) returned float32, but the state is float64; use",
    ),
    "scalar force": (
        {"force": lambda self, t, q, v, u: -q[0]},
        "system.force(t, q, v, u) must return an array of shape (2,), got ()",
    ),
    "force as a column": (
        {"force": lambda self, t, q, v, u: -q[:, None]},
        "system.force(t, q, v, u) must return an array of shape (2,), got (2, 1)",
    ),
    "force as a list": (
        {"force": lambda self, t, q, v, u: [0.0, 0.0]},
        "system.force(t, q, v, u) must return an array, got list",
    ),
    "integer force": (
        {"force": lambda self, t, q, v, u: jnp.zeros(2, int)},
        "system.force(t, q, v, u) returned int64, but the state is float64",
    ),
    "mass as a vector": (
        {"mass_matrix": lambda self, q: jnp.ones(2)},
        "system.mass_matrix(q) must return an array of shape (2, 2) for q of shape (2,) and v of shape "
        "(2,), got (2,)",
    ),
    "mass of another size": (
        {"mass_matrix": lambda self, q: jnp.eye(3)},
        "system.mass_matrix(q) must return an array of shape (2, 2) for q of shape (2,) and v of shape "
        "(2,), got (3, 3)",
    ),
    "mass that does not fit q": (
        {"mass_matrix": lambda self, q: jnp.eye(2) * (q + jnp.ones(3))},
        "system.mass_matrix(q) fails for q of shape (2,) and v of shape (2,); check the lengths of q and v",
    ),
    "retract that changes the shape": (
        {"retract": lambda self, q, xi: jnp.append(q, xi)},
        "system.retract(q, v) must return an array of shape (2,) for q of shape (2,) and v of shape (2,), "
        "got (4,)",
    ),
}


@pytest.mark.parametrize("count", [2, 3])
def test_coordinates_do_not_broadcast_to_one_velocity(count):
    rod = jm.Body("rod", 1.0, 0.1, (0.5, 0.0, 0.0))
    hinge = jm.Revolute("A", "ground", "rod", at=(0.0, 0.0))
    pendulum, _ = jm.planar_mechanism([rod], [hinge], coordinates=jm.Joints())
    with pytest.raises(ValueError, match=f"q must have as many entries as xi, got {count} and 1"):
        jd.forward_dynamics(pendulum, jd.State(0.0, jnp.zeros(count), jnp.zeros(1)))


@all_cases(("methods", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_in_a_system(methods, message):
    with without_typechecker(), pytest.raises((TypeError, ValueError)) as caught:
        jd.forward_dynamics(broken(**methods), oscillating())
    assert message in str(caught.value)


STATES = {
    "initialize's pair": (
        (jd.State(0.0, jnp.zeros(2), jnp.zeros(2)), None),
        "got tuple: initialize returns (state, info)",
    ),
    "an array": (np.zeros(4), "state must be a State(t, q, v), got ndarray"),
    "integers": (
        jd.State(0.0, jnp.arange(2), jnp.zeros(2)),
        "state.q must be floating point, got int64; write 0.0 instead of 0",
    ),
    "two precisions": (
        jd.State(0.0, jnp.zeros(2), jnp.zeros(2, jnp.float32)),
        "state.q and state.v must have one dtype, got float64 and float32",
    ),
    "many worlds": (
        jd.State(0.0, jnp.zeros((3, 2)), jnp.zeros((3, 2))),
        "state.q must have one axis, got shape (3, 2); for many",
    ),
    "many times": (
        jd.State(jnp.zeros(3), jnp.zeros(2), jnp.zeros(2)),
        "state.t must be a single number, got shape (3,)",
    ),
    "another length": (
        jd.State(0.0, jnp.zeros(3), jnp.zeros(2)),
        "fails for q of shape (3,) and v of shape (2,)",
    ),
}


@all_cases(("wrong", "message"), STATES.values(), ids=STATES)
@all_cases("use", [jd.forward_dynamics, jd.operators.kkt_inverse, jd.diagnose])
def test_mistakes_in_a_state(use, wrong, message):
    with without_typechecker(), pytest.raises((TypeError, ValueError)) as caught:
        use(oscillator(), wrong)
    assert message in str(caught.value)


@pytest.mark.parametrize("use", [jd.forward_dynamics, jd.operators.kkt_inverse, jd.diagnose])
def test_mistakes_instead_of_a_system(use):
    with without_typechecker():
        with pytest.raises(TypeError, match=r"got tuple: planar_mechanism returns \(mechanism, q\)"):
            use((oscillator(), None), oscillating())
        with pytest.raises(TypeError, match=r"an instance of a jaxdae\.System, got the class Oscillator"):
            use(Oscillator, oscillating())
        undecorated = type("Undecorated", (Oscillator,), {})(jnp.ones(2), 1.0)
        with pytest.raises(
            TypeError, match=r"the class Undecorated is unknown to JAX; decorate it with @jaxdae.tree.pytree"
        ):
            use(undecorated, oscillating())
