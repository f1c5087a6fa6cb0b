"""Newton's iteration with a fixed matrix: its root, and derivatives that know nothing of the iteration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae.integrators.integrator import convergence
from jaxdae.linalg.newton import simplified_newton


def root(residual, correction, iterations, x0, args):
    def update(x, args):
        return jax.tree.map(jnp.subtract, x, correction(residual(x, args), args))

    return simplified_newton(update, residual, correction, iterations, x0, args)[0]


def square_root(a, start=1.4, iterations=14):
    """The root of x^2 = a with the derivative at 1.5 held fixed, which converges at the rate |1 - x / 1.5|."""
    return root(lambda x, a: x**2 - a, lambda f, a: f / 3.0, iterations, jnp.asarray(start, float), a)


MATRIX = np.array([[3.0, 0.5], [0.5, 2.0]])
SKEW = np.array([[0.0, 0.08], [-0.05, 0.02]])


def vector_root(args):
    """The root of (A + S) x + tanh(x) / 50 = b as a pytree of two scalars. C = A^-1 is symmetric, dF/dx is
    not; the rate is 0.05.
    """

    def residual(x, args):
        s, b = args
        x = jnp.stack([x["first"], x["second"]])
        f = (MATRIX + s * SKEW) @ x + 0.02 * jnp.tanh(x) - b
        return {"first": f[0], "second": f[1]}

    def correction(f, args):
        x = np.linalg.inv(MATRIX) @ jnp.stack([f["first"], f["second"]])
        return {"first": x[0], "second": x[1]}

    x = root(residual, correction, 13, {"first": jnp.zeros(()), "second": jnp.zeros(())}, args)
    return jnp.stack([x["first"], x["second"]])


ARGUMENTS = (jnp.asarray(1.0, float), jnp.array([1.0, -2.0]))


def test_root():
    np.testing.assert_allclose(square_root(2.0), np.sqrt(2.0), rtol=1e-15)
    x = vector_root(ARGUMENTS)
    np.testing.assert_allclose((MATRIX + SKEW) @ x + 0.02 * np.tanh(x), ARGUMENTS[1], rtol=0.0, atol=1e-14)


def test_counts_its_iterations():
    # The error falls by |1 - x / 1.5| = 0.057 each time; from 1.4, two corrections leave 4.6e-5.
    np.testing.assert_allclose(square_root(2.0, iterations=2) - np.sqrt(2.0), -0.0142 * 0.0572**2, rtol=0.1)
    once = square_root(2.0, iterations=1)
    np.testing.assert_allclose(once, 1.4 - (1.4**2 - 2.0) / 3.0, rtol=1e-15)


@pytest.mark.parametrize(("a", "most"), [(2.0, 16), (2.25, 2)])
def test_ends_when_corrections_are_rounding_errors(a, most):
    # The ratio of 0.057 takes 13 corrections to 1e-16; from the root 1.5, the first correction is zero.
    calls = []

    def update(x, a):
        jax.debug.callback(calls.append, x)
        return x - (x**2 - a) / 3.0

    start = jnp.asarray(1.4 if a == 2.0 else 1.5, float)
    x, size = simplified_newton(update, lambda x, a: x**2 - a, lambda f, a: f / 3.0, 1000, start, a)
    jax.effects_barrier()
    assert abs(x - np.sqrt(a)) < 3e-16
    assert size < 1e-15
    assert 1 <= len(calls) <= most


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
def test_first_and_second_derivative_of_a_scalar_root(derivative):
    np.testing.assert_allclose(jax.jit(derivative(square_root))(2.0), 0.5 / np.sqrt(2.0), rtol=1e-14)
    np.testing.assert_allclose(
        jax.jit(derivative(derivative(square_root)))(2.0), -0.25 * 2.0**-1.5, rtol=1e-13
    )


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_pytree_with_a_matrix_that_is_not_symmetric(jacobian):
    x = vector_root(ARGUMENTS)
    inverse = np.linalg.inv(MATRIX + SKEW + np.diag(0.02 / np.cosh(x) ** 2))
    of_s, of_b = jax.jit(jacobian(vector_root))(ARGUMENTS)
    np.testing.assert_allclose(of_b, inverse, rtol=1e-13)
    np.testing.assert_allclose(of_s, -inverse @ SKEW @ x, rtol=1e-13)


@jd.tree.pytree
class Pushed(jd.System):
    """A point of unit mass that is pushed along x and held at y = x / 2: x'' = 4 u / 5."""

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.concatenate([u, 0.0 * u])

    def constraint(self, t, q):
        return q[1:] - 0.5 * q[:1]


@pytest.mark.long
def test_second_derivatives_where_rows_are_linear():
    """Forward over reverse through positions and velocities that a constant J projects: x(3 h) = h^2 sum (5/2
    - k) x''_k.
    """
    start = jd.State(jnp.zeros(()), jnp.zeros(2), jnp.zeros(2))

    def loss(inputs):
        trajectory = jd.rollout(Pushed(), jd.Projected(jd.RungeKutta.rk4()), start, inputs[:, None], dt=0.1)
        return 0.5 * trajectory.state.q[-1, 0] ** 2

    slope = 0.8 * 0.01 * np.array([2.5, 1.5, 0.5])
    np.testing.assert_allclose(jax.hessian(loss)(jnp.ones(3)), np.outer(slope, slope), rtol=1e-12)


def test_the_start_has_no_derivative():
    assert jax.jit(jax.grad(lambda start: square_root(2.0, start)))(1.4) == 0.0


def test_vmap_is_a_loop():
    values = jnp.array([1.8, 2.0, 2.3])
    # At the worst of these rates, 0.11, 14 corrections leave 4e-14 of the derivative.
    np.testing.assert_allclose(jax.jit(jax.vmap(square_root))(values), np.sqrt(values), rtol=1e-14)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(jax.grad(square_root)))(values), 0.5 / np.sqrt(values), rtol=1e-13
    )


def test_the_size_is_that_of_what_moves():
    """Two roots of one iteration: x is found at once, y at the rate 1/2, so that its third correction is 1/8
    of 1/(1 + 7/8).
    """

    def residual(x, args):
        return x - jnp.array([1.0, 1.0])

    def correction(f, args):
        return f * jnp.array([1.0, 0.5])

    def update(x, args):
        return x - correction(residual(x, args), args)

    sizes = [
        simplified_newton(update, residual, correction, 3, jnp.zeros(2), None, moving=moving)[1]
        for moving in (None, lambda x, args: x[1], lambda x, args: x[0])
    ]
    np.testing.assert_allclose(sizes, [0.125 / 2.0, 0.125 / 1.875, 0.0], rtol=1e-15)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_rounding_of_positions_counts_as_converged(dtype):
    """eps^0.6 + 16 c eps (1 + |q|), unless a tolerance is given."""
    eps = float(jnp.finfo(dtype).eps)
    q, closing = jnp.array([-3.0, 1.0], dtype), jnp.asarray(1e4, dtype)
    limit = eps**0.6 + 16.0 * 1e4 * eps * 4.0
    for factor, expected in ((0.99, jd.Status.OK), (1.01, jd.Status.NOT_CONVERGED)):
        assert convergence(jnp.asarray(factor * limit, dtype), None, q, closing) == expected
        assert convergence(jnp.asarray(factor * 1e-3, dtype), 1e-3, q, closing) == expected
