"""Unit quaternions: products, exponential, logarithm, and the derivative of the exponential, smooth at zero.

A quaternion q = (w, x, y, z) of length 1, scalar first, maps body vectors to world vectors; q and -q are the
same rotation. With the rotation vector phi (axis times angle, in the body frame) and theta = |phi|,

    exp(phi) = (cos(theta/2), sin(theta/2)/theta phi),
    q (+) phi = q exp(phi),        q' = q (0, omega_body) / 2.

All these functions are smooth in phi, also at phi = 0, but the formulas divide by theta. The implementation
therefore uses functions of theta^2, the Stumpff functions,

    c_k(z) = sum_n (-z)^n / (2 n + k)!,
    c_0 = cos(sqrt z),  c_1 = sin(sqrt z)/sqrt z,  c_{k+2} = (1/k! - c_k)/z.

They are entire, and their derivatives belong to the same family, c_k' = (k c_{k+2} - c_{k+1})/2. Derivatives
of every order are therefore correct at and near zero. With Phi x = phi x x (cross product) and z = theta^2,

    exp(phi)       = (c_0(z/4), c_1(z/4) phi/2),
    dexp(-phi)     = I - c_2(z) Phi + c_3(z) Phi^2                               (`right_dexp`),
    dexp(-phi)^-1  = I + Phi/2 + (c_2(z/4) - c_3(z/4))/(4 c_1(z/4)) Phi^2        (`right_dexp_inverse`);

the last factor is the usual (1 - theta/2 cot(theta/2))/theta^2, from c_1 - c_0 = z (c_2 - c_3).

The logarithm of w + u with w >= 0 (otherwise of -q) is 2 atan2(|u|, w)/|u| u. Near the identity it is 2/w
g_1(|u|^2/w^2) u, with another family that is closed under differentiation,

    g_k(y) = sum_n (-y)^n / (2 n + k),
    g_1 = atan(sqrt y)/sqrt y,  g_{k+2} = (1/k - g_k)/y,  g_k' = (k g_{k+2} - 1/(1 + y))/2.

References:
    A. Iserles, H. Z. Munthe-Kaas, S. P. Norsett, A. Zanna, "Lie-group methods", Acta Numerica 9 (2000).
    K. Stumpff, "Himmelsmechanik", volume 1 (1959), for the functions c_k.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae.geometry.trigonometry import cos_sin, once
from jaxdae.typing import Scalar

Quaternion: TypeAlias = Float[Array, "4"]
Vector: TypeAlias = Float[Array, "3"]
Matrix: TypeAlias = Float[Array, "3 3"]

# At z = 1 the first neglected term of c_0, 1/20!, is 4e-19.
_STUMPFF_TERMS = 10
# At y = 1/20 the first neglected term of g_1 is 1e-17. Beyond, the closed form loses a factor 1/y per
# derivative.
_ARCTANGENT_TERMS = 12
_ARCTANGENT_RANGE = 0.05


# Compiled separately, like the functions below: steps call them many times, and JAX traces each of them once.
@jax.jit
def quat_multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """Return the product p q: first the rotation q, then the rotation p.

    Args:
        p: the left factor, wxyz.
        q: the right factor, wxyz.
    """
    pw, px, py, pz = p
    qw, qx, qy, qz = q
    return jnp.stack(
        [
            pw * qw - px * qx - py * qy - pz * qz,
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy - px * qz + py * qw + pz * qx,
            pw * qz + px * qy - py * qx + pz * qw,
        ]
    )


def quat_conjugate(q: Quaternion) -> Quaternion:
    """Return (w, -x, -y, -z), the inverse rotation for a unit quaternion."""
    return jnp.concatenate([q[:1], -q[1:]])


def quat_normalize(q: Quaternion) -> Quaternion:
    """Return q / |q|; NaN for q = 0, which is not a rotation."""
    return q / jnp.sqrt(jnp.sum(q * q))


def quat_rotate(quat_wb: Quaternion, x: Vector) -> Vector:
    """Return the world components of a vector given in body components.

    `quat_rotate(quat_conjugate(quat_wb), x)` is the inverse.

    Args:
        quat_wb: the unit quaternion, body to world.
        x: the body components, in any unit.
    """
    u = quat_wb[1:]
    turned = 2.0 * _cross(u, x)
    return x + quat_wb[0] * turned + _cross(u, turned)


def rotation_matrix(q: Quaternion) -> Matrix:
    """Return R with R x = `quat_rotate(q, x)` for a unit quaternion.

    The columns of R are the body axes in world components.
    """
    w, x, y, z = q
    return jnp.stack(
        [
            jnp.stack([1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)]),
            jnp.stack([2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)]),
            jnp.stack([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)]),
        ]
    )


def matrix_quaternion(matrix: Matrix) -> Quaternion:
    """Return the unit quaternion with w >= 0 of a rotation matrix; differentiable, also at half turns.

    The symmetric matrix q q^T follows from the entries of R. The function normalizes the row with the largest
    diagonal entry, so it does not divide by a small number.

    Args:
        matrix: R, body to world.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = matrix
    rows = jnp.stack(
        [
            jnp.stack([1.0 + xx + yy + zz, zy - yz, xz - zx, yx - xy]),
            jnp.stack([zy - yz, 1.0 + xx - yy - zz, xy + yx, xz + zx]),
            jnp.stack([xz - zx, xy + yx, 1.0 - xx + yy - zz, yz + zy]),
            jnp.stack([yx - xy, xz + zx, yz + zy, 1.0 - xx - yy + zz]),
        ]
    )
    q = quat_normalize(rows[jnp.argmax(jnp.diagonal(rows))])
    return jnp.where(q[0] < 0.0, -q, q)


def quat_exp(phi: Vector) -> Quaternion:
    """Return the unit quaternion of the rotation about phi by |phi|.

    The length is 1 to round-off. Derivatives of every order are finite and correct, also at phi = 0.

    Args:
        phi: the rotation vector in rad, of any length.
    """
    c0, c1 = _stumpff(2, 0.25 * jnp.sum(phi * phi))
    return jnp.concatenate([c0[None], 0.5 * c1 * phi])


def quat_log(q: Quaternion) -> Vector:
    """Return the rotation vector phi (rad), |phi| <= pi, with exp(phi) = q or -q.

    This is the inverse of `quat_exp` modulo full turns. It ignores the length of q, so its derivatives are
    derivatives along unit quaternions. It is accurate for tiny rotations and near half a turn. Derivatives of
    every order are correct at the identity. At exactly half a turn phi jumps to -phi, which is the same
    rotation.

    Args:
        q: the quaternion, wxyz; the sign does not matter.
    """
    q = jnp.where(q[0] < 0.0, -q, q)
    w, u = q[0], q[1:]
    square = jnp.sum(u * u)
    near = square < _ARCTANGENT_RANGE * w * w
    # The double `where` passes harmless values to the branch that is not selected. Otherwise its derivatives
    # would be NaN.
    w_near = jnp.where(near, w, 1.0)
    y = jnp.where(near, square, 0.0) / (w_near * w_near)
    length = jnp.sqrt(jnp.where(near, 1.0, square))
    g: Array = _arctangent(1, y)[0]
    factor = jnp.where(near, g / w_near, jnp.arctan2(length, jnp.where(near, 0.0, w)) / length)
    return 2.0 * factor * u


@jax.jit
def quat_retract(q: Quaternion, phi: Vector) -> Quaternion:
    """Return q (+) phi = q exp(phi), normalized so that round-off does not accumulate over many steps.

    Args:
        q: the unit quaternion, body to world.
        phi: the rotation vector in rad, in the body frame; omega_body dt for a step.
    """
    # Each of the four entries uses all entries of the factor. Without `once`, its series would be computed
    # and compiled four times.
    return quat_normalize(quat_multiply(q, once(quat_exp(phi))))


@jax.jit
def quat_velocity(q: Quaternion, rate: Quaternion) -> Vector:
    """Return the angular velocity in the body, in rad/s, of a unit quaternion with this rate.

    It is the vector part of 2 q^-1 q'.
    """
    return 2.0 * quat_multiply(quat_conjugate(q), rate)[1:]


def quat_difference(q0: Quaternion, q1: Quaternion) -> Vector:
    """Return log(conj(q0) q1), the rotation vector (rad, |phi| <= pi) in the body frame from q0 to q1.

    This is the inverse of `quat_retract`: `quat_retract(q0, quat_difference(q0, q1))` is q1 or -q1.

    Args:
        q0: the unit quaternion, body to world.
        q1: the unit quaternion, body to world.
    """
    return quat_log(quat_multiply(quat_conjugate(q0), q1))


def right_dexp(phi: Vector) -> Matrix:
    """Return D = dexp(-phi), the derivative of the exponential.

    For q(t) = q0 exp(phi(t)), omega_body = D phi'. Derivatives of every order are correct, also at phi = 0.

    Args:
        phi: the rotation vector in rad.

    References:
        Iserles, Munthe-Kaas, Norsett, Zanna, "Lie-group methods", Acta Numerica 9 (2000).
    """
    _, _, c2, c3 = _stumpff(4, jnp.sum(phi * phi))
    cross, cross_twice = _cross_matrices(phi)
    return jnp.eye(3, dtype=phi.dtype) - c2 * cross + c3 * cross_twice


def right_dexp_inverse(phi: Vector) -> Matrix:
    """Return D^-1, the inverse of `right_dexp` in closed form.

    For q(t) = q0 exp(phi(t)), phi' = D^-1 omega_body. The derivatives of every order are correct, even at phi
    = 0. D^-1 is singular at full turns, |phi| = 2 pi, 4 pi, ...

    Args:
        phi: the rotation vector in rad.

    References:
        Iserles, Munthe-Kaas, Norsett, Zanna, "Lie-group methods", Acta Numerica 9 (2000).
    """
    _, c1, c2, c3 = _stumpff(4, 0.25 * jnp.sum(phi * phi))
    cross, cross_twice = _cross_matrices(phi)
    return jnp.eye(3, dtype=phi.dtype) + 0.5 * cross + 0.25 * (c2 - c3) / c1 * cross_twice


@jax.jit
def rotation_vector_rate(phi: Vector, omega: Vector) -> Vector:
    """Return phi' (rad/s) such that exp(phi(t)) rotates with omega in the body.

    This is `right_dexp_inverse(phi) @ omega`, without the matrix.

    Args:
        phi: the rotation vector in rad.
        omega: the angular velocity in the body, in rad/s.
    """
    _, c1, c2, c3 = _stumpff(4, 0.25 * jnp.sum(phi * phi))
    across = _cross(phi, omega)
    return omega + 0.5 * across + 0.25 * (c2 - c3) / c1 * _cross(phi, across)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
# Compiled separately: differentiated code traces it once, and code outside of `jit` runs it as one operation.
@partial(jax.jit, static_argnums=(0,))
def _stumpff(count: int, z: Scalar) -> tuple[Scalar, ...]:
    """Return c_0(z), ..., c_{count-1}(z) for z >= 0, with count at least 2."""
    near = z < 1.0
    # Near zero: the last two functions by their series, and the others by downward recursion, without
    # cancellation.
    z_near = jnp.where(near, z, 0.0)
    down: list[Array] = []
    for k in (count - 1, count - 2):
        series = jnp.zeros_like(z)
        for n in reversed(range(_STUMPFF_TERMS)):
            series = series * -z_near + 1.0 / math.factorial(2 * n + k)
        down.append(series)
    for k in reversed(range(count - 2)):
        down.append(1.0 / math.factorial(k) - z_near * down[-2])
    # Farther out: upward recursion from the cosine and the sine.
    z_far = jnp.where(near, 1.0, z)
    root = jnp.sqrt(z_far)
    cos, sin = cos_sin(root)
    up: list[Array] = [cos, sin / root]
    for k in range(count - 2):
        up.append((1.0 / math.factorial(k) - up[k]) / z_far)
    return tuple(jnp.where(near, *both) for both in zip(reversed(down), up, strict=True))


@_stumpff.defjvp
def _stumpff_jvp(count: int, primals: Any, tangents: Any) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    c = _stumpff(count + 2, primals[0])
    return c[:count], tuple(0.5 * (k * c[k + 2] - c[k + 1]) * tangents[0] for k in range(count))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
@partial(jax.jit, static_argnums=(0,))
def _arctangent(count: int, y: Scalar) -> tuple[Scalar, ...]:
    """Return `count` functions g_1(y), g_3(y), ..., for y from 0 to `_ARCTANGENT_RANGE`."""
    last = 2 * count - 1
    series = jnp.zeros_like(y)
    for n in reversed(range(_ARCTANGENT_TERMS)):
        series = series * -y + 1.0 / (2 * n + last)
    g = [series]
    for k in reversed(range(1, last, 2)):
        g.append(1.0 / k - y * g[-1])
    return tuple(reversed(g))


@_arctangent.defjvp
def _arctangent_jvp(count: int, primals: Any, tangents: Any) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    g = _arctangent(count + 1, primals[0])
    limit = 1.0 / (1.0 + primals[0])
    return g[:count], tuple(0.5 * ((2 * i + 1) * g[i + 1] - limit) * tangents[0] for i in range(count))


def _cross(x: Vector, y: Vector) -> Vector:
    return jnp.stack([x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]])


def _cross_matrices(phi: Vector) -> tuple[Matrix, Matrix]:
    """Return Phi with Phi x = phi x x (cross product), and Phi^2 = phi phi^T - |phi|^2 I."""
    x, y, z = phi
    zero = jnp.zeros_like(x)
    cross = jnp.stack([jnp.stack([zero, -z, y]), jnp.stack([z, zero, -x]), jnp.stack([-y, x, zero])])
    return cross, phi[:, None] * phi[None, :] - jnp.sum(phi * phi) * jnp.eye(3, dtype=phi.dtype)
