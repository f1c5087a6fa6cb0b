"""Unit quaternions: the group, its exponential and logarithm, and derivatives where the formulas divide by
zero.

Most bounds are a few roundings, EPS of the numbers that are added up; where one is larger the reason stands
beside it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae import rotation as rot

EPS = np.finfo(float).eps
RNG = np.random.default_rng(0)

DIRECTIONS = RNG.normal(size=(20, 3))
DIRECTIONS = jnp.asarray(DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1)[:, None])
# Tiny ones, both sides of the borders between series and closed form (2 rad; atan(1/sqrt(20)) = 0.44 rad),
# and up to half a turn.
ANGLES = np.array(
    [
        0.0,
        1e-300,
        1e-160,
        1e-12,
        1e-8,
        1e-4,
        0.01,
        0.1,
        0.43,
        0.44,
        0.46,
        1.0,
        1.9,
        2.0,
        2.1,
        2.7,
        3.0,
        3.14,
        3.1415,
        np.pi,
    ]
)
PHI = ANGLES[:, None] * DIRECTIONS


def quaternions(count):
    q = RNG.normal(size=(count, 4))
    return jnp.asarray(q / np.linalg.norm(q, axis=1)[:, None])


def matrix_of_product(p):
    """Returns the matrix of q -> p q, written from i^2 = j^2 = k^2 = ijk = -1."""
    w, x, y, z = p
    return np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])


def hat(x):
    return np.array([[0.0, -x[2], x[1]], [x[2], 0.0, -x[0]], [-x[1], x[0], 0.0]])


def test_the_group():
    p, q, r = quaternions(3)
    one = jnp.array([1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(rot.quat_multiply(p, q), matrix_of_product(p) @ q, rtol=0, atol=2 * EPS)
    left, right = rot.quat_multiply(rot.quat_multiply(p, q), r), rot.quat_multiply(p, rot.quat_multiply(q, r))
    np.testing.assert_allclose(left, right, rtol=0, atol=4 * EPS)
    np.testing.assert_allclose(rot.quat_multiply(rot.quat_conjugate(p), p), one, rtol=0, atol=2 * EPS)
    np.testing.assert_array_equal(rot.quat_multiply(one, p), p)
    product, factors = (
        rot.quat_conjugate(rot.quat_multiply(p, q)),
        (rot.quat_conjugate(q), rot.quat_conjugate(p)),
    )
    np.testing.assert_allclose(product, rot.quat_multiply(*factors), rtol=0, atol=2 * EPS)
    np.testing.assert_allclose(rot.quat_normalize(3.0 * p), p, rtol=0, atol=2 * EPS)


def test_rotations_of_vectors():
    (p, q), x = quaternions(2), jnp.asarray(RNG.normal(size=3))
    r_p, r_q = rot.rotation_matrix(p), rot.rotation_matrix(q)
    np.testing.assert_allclose(r_p @ r_p.T, np.eye(3), rtol=0, atol=8 * EPS)
    np.testing.assert_allclose(np.linalg.det(r_p), 1.0, rtol=0, atol=8 * EPS)
    np.testing.assert_allclose(rot.rotation_matrix(rot.quat_multiply(p, q)), r_p @ r_q, rtol=0, atol=8 * EPS)
    np.testing.assert_allclose(rot.quat_rotate(p, x), r_p @ x, rtol=0, atol=16 * EPS)
    np.testing.assert_allclose(
        rot.quat_rotate(rot.quat_conjugate(p), rot.quat_rotate(p, x)), x, rtol=0, atol=16 * EPS
    )
    # A quarter turn about z takes x to y: body to world, not the other way round.
    quarter = rot.quat_exp(jnp.array([0.0, 0.0, np.pi / 2]))
    np.testing.assert_allclose(
        rot.quat_rotate(quarter, jnp.array([1.0, 0.0, 0.0])), [0.0, 1.0, 0.0], rtol=0, atol=2 * EPS
    )


@jax.jit
@jax.vmap
def _exp_and_back(phi):
    q = rot.quat_exp(phi)
    return q, rot.quat_log(q), rot.quat_log(-q)


@pytest.mark.parametrize(
    ("precision", "exact"), [(np.float64, np.longdouble), (np.float32, np.float64)], ids=("double", "single")
)
def test_exponential_and_logarithm(precision, exact):
    eps = np.finfo(precision).eps
    phi = np.concatenate([PHI, 10.0 * PHI]).astype(precision)
    q, back, back_of_minus = _exp_and_back(jnp.asarray(phi))
    assert q.dtype == back.dtype == precision
    q = np.asarray(q).astype(exact)
    angle = np.linalg.norm(phi.astype(exact), axis=1)
    with np.errstate(invalid="ignore", divide="ignore", under="ignore"):
        half_sinc = np.where(angle == 0.0, 0.5, np.sin(angle / 2) / angle)
    # Relative for tiny rotations: the vector part is as accurate as phi. Angles above 2 rad are reduced, with
    # an error of eps |phi|.
    error = np.linalg.norm(q[:, 1:] - half_sinc[:, None] * phi, axis=1)
    assert np.all(error <= 2 * eps * np.maximum(1.0, angle) * np.minimum(angle, 1.0))
    np.testing.assert_allclose(q[:, 0], np.cos(angle / 2), rtol=0, atol=2 * eps * np.max(angle) / 2)
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1.0, rtol=0, atol=3 * eps)
    # Log undoes exp up to half a turn (beyond, exp is not one to one), relative to the length of phi; q and
    # -q are the same. At half a turn, the last row, the rounded angle may lie on either side, and -phi is as
    # good.
    inside = slice(0, len(PHI) - 1)
    for result in (back, back_of_minus):
        difference = np.linalg.norm(np.asarray(result)[inside] - phi[inside], axis=1)
        assert np.all(difference <= 4 * eps * np.linalg.norm(phi[inside], axis=1))
        last = np.asarray(result)[len(PHI) - 1] * np.sign(
            np.sum(np.asarray(result)[len(PHI) - 1] * phi[len(PHI) - 1])
        )
        np.testing.assert_allclose(last, phi[len(PHI) - 1], rtol=0, atol=4 * eps * np.pi)


def test_logarithm_at_and_beyond_half_a_turn():
    axis = jnp.array([0.6, 0.0, -0.8])
    np.testing.assert_allclose(
        rot.quat_log(jnp.concatenate([jnp.zeros(1), axis])), np.pi * axis, rtol=0, atol=4 * EPS
    )
    # Length and sign of q do not matter, and 4 rad about one axis are 2 pi - 4 rad about the other.
    np.testing.assert_allclose(
        rot.quat_log(-7.0 * rot.quat_exp(4.0 * axis)), (4.0 - 2.0 * np.pi) * axis, rtol=0, atol=16 * EPS
    )
    # Near half a turn an error of q is not magnified: w = 1e-9 is 2e-9 rad short of it.
    phi = rot.quat_log(jnp.concatenate([jnp.full(1, 1e-9), axis * np.sqrt(1.0 - 1e-18)]))
    np.testing.assert_allclose(np.linalg.norm(phi), np.pi - 2e-9, rtol=0, atol=4 * EPS)


def test_retract_and_difference_are_inverse():
    p = quaternions(len(PHI))
    retract, difference = (jax.jit(jax.vmap(f)) for f in (rot.quat_retract, rot.quat_difference))
    q = retract(p, PHI)
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1.0, rtol=0, atol=2 * EPS)
    # conj(p) (p exp(phi)) rounds the scalar part 1 and the vector part alike: absolute, 1e-16, in phi.
    np.testing.assert_allclose(difference(p, q)[:-1], PHI[:-1], rtol=0, atol=16 * EPS)
    again = retract(p, difference(p, -q))
    np.testing.assert_allclose(
        again * np.sign(np.sum(again * q, axis=1, keepdims=True)), q, rtol=0, atol=8 * EPS
    )
    # Right, in the body frame: two steps about one axis of the body are one step.
    x = 0.7 * DIRECTIONS[0]
    np.testing.assert_allclose(
        rot.quat_retract(rot.quat_retract(p[0], x), 2.0 * x),
        rot.quat_multiply(p[0], rot.quat_exp(3.0 * x)),
        rtol=0,
        atol=4 * EPS,
    )


def test_derivatives_of_the_exponential_at_zero():
    """exp(x) = (1 - |x|^2/8 + |x|^4/384 - ..., x/2 - |x|^2 x/48 + ...)."""
    eye = np.eye(3)

    @jax.jit
    def up_to_the_fourth(x):
        derivatives = [jax.jacrev(rot.quat_exp)]
        for _ in range(3):
            derivatives.append(jax.jacfwd(derivatives[-1]))
        return [derivative(x) for derivative in derivatives]

    first, second, third, fourth = map(np.asarray, up_to_the_fourth(jnp.zeros(3)))
    pairs = sum(np.einsum(form, eye, eye) for form in ("ij,kl->ijkl", "ik,jl->ijkl", "il,jk->ijkl"))
    np.testing.assert_array_equal(first, np.concatenate([np.zeros((1, 3)), eye / 2]))
    np.testing.assert_array_equal(second, np.concatenate([-eye[None] / 4, np.zeros((3, 3, 3))]))
    np.testing.assert_allclose(third, np.concatenate([np.zeros((1, 3, 3, 3)), -pairs * 2 / 48]), rtol=4 * EPS)
    np.testing.assert_allclose(
        fourth, np.concatenate([pairs[None] * 8 / 384, np.zeros((3, 3, 3, 3, 3))]), rtol=4 * EPS
    )


@jax.jit
def _log_derivatives(q):
    return jax.jacrev(rot.quat_log)(q), jax.hessian(rot.quat_log)(q)


@pytest.mark.parametrize("precision", [np.float64, np.float32], ids=("double", "single"))
def test_derivatives_of_the_logarithm_at_the_identity(precision):
    """log(w + u) = 2 u/w - 2/3 |u|^2 u/w^3 + ...: at (1, 0) the second derivative is -2 between w and u, and 0 elsewhere."""
    eye = np.eye(3)
    expected = np.zeros((3, 4, 4))
    expected[:, 0, 1:] = expected[:, 1:, 0] = -2.0 * eye
    for sign in (1.0, -1.0):
        first, second = _log_derivatives(jnp.asarray([sign, 0.0, 0.0, 0.0], precision))
        assert first.dtype == second.dtype == precision
        np.testing.assert_array_equal(first, sign * np.concatenate([np.zeros((3, 1)), 2.0 * eye], axis=1))
        np.testing.assert_array_equal(second, expected)


@jax.jit
@jax.vmap
def _derivatives(phi, omega):
    """Returns exp's derivative as an angular velocity, log's as a rate of phi, second derivatives of both,
    and the closed forms.
    """
    q = rot.quat_exp(phi)

    def body_rate(x):
        dq = jax.jvp(rot.quat_exp, (x,), (omega,))[1]
        return 2.0 * rot.quat_multiply(rot.quat_conjugate(rot.quat_exp(x)), dq)

    def rate(s):
        return jax.jvp(
            lambda s: rot.quat_difference(jnp.array([1.0, 0.0, 0.0, 0.0]), rot.quat_retract(q, s * omega)),
            (s,),
            (1.0,),
        )[1]

    def of_closed_form(x):
        return rot.right_dexp_inverse(x) @ omega

    rates, second_rates = jax.jvp(rate, (0.0,), (1.0,))
    curve = of_closed_form(phi)
    return {
        "body_rate": body_rate(phi),
        "body_rate_derivative": jax.jacrev(body_rate)(phi)[1:],
        "dexp_derivative": jax.jacrev(lambda x: rot.right_dexp(x) @ omega)(phi),
        "rate": rates,
        # phi'' = d(D^-1 omega)/dphi phi' at constant omega.
        "second_rate": second_rates,
        "inverse_derivative": jax.jvp(of_closed_form, (phi,), (curve,))[1],
        "dexp": rot.right_dexp(phi),
        "inverse": rot.right_dexp_inverse(phi),
        "vector_rate": rot.rotation_vector_rate(phi, omega),
    }


@pytest.mark.long
def test_derivative_of_the_exponential():
    phi, omega = PHI[:-1], jnp.asarray(RNG.normal(size=(len(PHI) - 1, 3)))
    found = {name: np.asarray(value) for name, value in _derivatives(phi, omega).items()}
    np.testing.assert_allclose(found["body_rate"][:, 0], 0.0, rtol=0, atol=8 * EPS)
    np.testing.assert_allclose(
        found["body_rate"][:, 1:], np.einsum("nij,nj->ni", found["dexp"], omega), rtol=0, atol=16 * EPS
    )
    np.testing.assert_allclose(
        found["rate"], np.einsum("nij,nj->ni", found["inverse"], omega), rtol=0, atol=64 * EPS
    )
    np.testing.assert_allclose(
        found["vector_rate"], np.einsum("nij,nj->ni", found["inverse"], omega), rtol=0, atol=16 * EPS
    )
    np.testing.assert_allclose(
        found["inverse"] @ found["dexp"], np.broadcast_to(np.eye(3), (len(phi), 3, 3)), rtol=0, atol=16 * EPS
    )
    np.testing.assert_allclose(found["body_rate_derivative"], found["dexp_derivative"], rtol=0, atol=64 * EPS)
    # The closed form of the logarithm, differentiated twice, loses a factor 1/y^2 = 400 where it begins.
    np.testing.assert_allclose(found["second_rate"], found["inverse_derivative"], rtol=0, atol=1000 * EPS)
    # Independent of all that: the series of dexp(-phi) = sum (-Phi)^n / (n + 1)!.
    for x, dexp in zip(phi, found["dexp"], strict=True):
        series, term = np.zeros((3, 3)), np.eye(3)
        for n in range(40):
            series += term
            term = term @ -hat(x) / (n + 2)
        np.testing.assert_allclose(dexp, series, rtol=0, atol=32 * EPS)


def test_derivative_of_the_exponential_against_central_differences():
    h = 1e-5
    for phi, omega in ((PHI[0], DIRECTIONS[1]), (PHI[7], DIRECTIONS[2]), (PHI[14], DIRECTIONS[3])):
        q = rot.quat_exp(phi)
        step = rot.quat_difference(rot.quat_exp(phi - h * omega), rot.quat_exp(phi + h * omega)) / (2 * h)
        # Truncation h^2 times third derivatives below 1; round-off eps/h.
        np.testing.assert_allclose(step, rot.right_dexp(phi) @ omega, rtol=0, atol=h**2 + 4 * EPS / h)
        ahead, behind = (rot.quat_log(rot.quat_retract(q, sign * h * omega)) for sign in (1.0, -1.0))
        np.testing.assert_allclose(
            (ahead - behind) / (2 * h), rot.right_dexp_inverse(phi) @ omega, rtol=0, atol=h**2 + 16 * EPS / h
        )


def test_single_precision():
    phi = jnp.asarray(PHI[:-1], jnp.float32)
    omega = jnp.asarray(DIRECTIONS[:-1], jnp.float32)

    @jax.jit
    @jax.vmap
    def everything(phi, omega):
        q = rot.quat_exp(phi)
        matrices = rot.right_dexp(phi), rot.right_dexp_inverse(phi), rot.rotation_matrix(q)
        return (*matrices, rot.quat_rotate(q, omega), rot.quat_difference(q, rot.quat_retract(q, omega)))

    results = everything(phi, omega)
    assert all(result.dtype == jnp.float32 for result in results)
    dexp, inverse, matrix, turned, difference = map(np.asarray, results)
    eps = np.finfo(np.float32).eps
    np.testing.assert_allclose(
        dexp @ inverse, np.broadcast_to(np.eye(3), (len(phi), 3, 3)), rtol=0, atol=32 * eps
    )
    np.testing.assert_allclose(turned, np.einsum("nij,nj->ni", matrix, omega), rtol=0, atol=8 * eps)
    np.testing.assert_allclose(difference, omega, rtol=0, atol=16 * eps)


def test_reverse_mode_through_a_motion_of_many_steps():
    """Gradient of a loss on the last attitude with respect to the first and to the rate, against the closed
    form of a steady rotation.
    """
    omega = jnp.array([0.3, -1.0, 2.0])
    q0, target = quaternions(2)

    def last(omega):
        return jax.lax.scan(lambda q, _: (rot.quat_retract(q, 0.01 * omega), None), q0, None, length=50)[0]

    def at_once(omega):
        return rot.quat_multiply(q0, rot.quat_exp(0.5 * omega))

    gradients = jax.jit(
        lambda w: [jax.grad(lambda w, f=f: jnp.sum(target * f(w)))(w) for f in (last, at_once)]
    )(omega)
    np.testing.assert_allclose(*gradients, rtol=0, atol=100 * EPS)
