"""The Whipple bicycle as a mechanism and its linear equations: two thin wheels, rear frame with rider, fork.

Four bodies with three hinges and two wheels that roll without slip have nine velocities, two height rows and
four slip rows. Three degrees of freedom remain. The roll rate, the steer rate and the spin of the rear wheel
can represent them. In upright, straight running at a speed v, the linear equations are

    M q'' + v C1 q' + (g K0 + v^2 K2) q = T,      q = (roll, steer), positive to the right.

The literature uses the axes x forward, y right, z down from the rear contact. This module uses x forward, y
left, z up (ISO 8855), which is a half turn about x. Bicycle parameters follow the literature, so that you can
copy published tables: positions with z down, and products of inertia I_xz in those axes. Roll and steer angle
have the same signs in both systems. Spins are positive if wheels roll forward.

`linear_bicycle` derives M, C1, K0 and K2 from the mechanism. Let N(q) be the velocities that the constraints
allow for unit rates of the three degrees of freedom. Let a be accelerations with given values for the three;
the other entries follow from J a + gamma = 0. The residual N^T (M a - f) is the missing force on each of the
three. The matrices are its derivatives with respect to accelerations, rates and angles.

References:
    J. P. Meijaard, J. M. Papadopoulos, A. Ruina, A. L. Schwab, "Linearized dynamics equations for the balance
    and steer of a bicycle: a benchmark and review", Proc. R. Soc. A 463 (2007), doi 10.1098/rspa.2007.1857.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.terrain import Plane, Terrain
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.build_mechanism import Description, mechanism
from jaxdae.mechanisms.coordinates.joint_coordinates import Joints
from jaxdae.mechanisms.describe.numbers import concrete, real, vector
from jaxdae.mechanisms.describe.plane_and_space import SPACE
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.typing import Leaf
from jaxdae.vehicles.argument_checks import length_mistakes, refuse

_SPEED = 3.0
"""The speed in m/s at which speed-dependent terms are evaluated; any nonzero speed works."""


@pytree
class BicycleParameters:
    """Bicycle parameters in the notation of Meijaard et al., x forward and z down from the rear contact.

    The defaults are their benchmark.

    Attributes:
        w: wheelbase in m.
        c: trail in m.
        lam: tilt of the steer axis from the vertical in rad.
        rR: radius of the rear wheel in m.
        mR: mass of the rear wheel in kg.
        IRxx: inertia of the rear wheel about a diameter in kg m^2.
        IRyy: inertia of the rear wheel about its axle in kg m^2.
        xB: x of the mass center of rear frame and rider in m.
        zB: z of the mass center of rear frame and rider in m, negative above the ground.
        mB: mass of rear frame and rider in kg.
        IBxx: inertia of rear frame and rider in kg m^2.
        IBxz: product of inertia of rear frame and rider in kg m^2, an entry of the inertia tensor.
        IByy: inertia of rear frame and rider in kg m^2.
        IBzz: inertia of rear frame and rider in kg m^2.
        xH: x of the mass center of handlebar and fork in m.
        zH: z of the mass center of handlebar and fork in m.
        mH: mass of handlebar and fork in kg.
        IHxx: inertia of handlebar and fork in kg m^2.
        IHxz: product of inertia of handlebar and fork in kg m^2.
        IHyy: inertia of handlebar and fork in kg m^2.
        IHzz: inertia of handlebar and fork in kg m^2.
        rF: radius of the front wheel in m.
        mF: mass of the front wheel in kg.
        IFxx: inertia of the front wheel about a diameter in kg m^2.
        IFyy: inertia of the front wheel about its axle in kg m^2.
    """

    w: Leaf = 1.02
    c: Leaf = 0.08
    lam: Leaf = np.pi / 10.0
    rR: Leaf = 0.3
    mR: Leaf = 2.0
    IRxx: Leaf = 0.0603
    IRyy: Leaf = 0.12
    xB: Leaf = 0.3
    zB: Leaf = -0.9
    mB: Leaf = 85.0
    IBxx: Leaf = 9.2
    IBxz: Leaf = 2.4
    IByy: Leaf = 11.0
    IBzz: Leaf = 2.8
    xH: Leaf = 0.9
    zH: Leaf = -0.7
    mH: Leaf = 4.0
    IHxx: Leaf = 0.05892
    IHxz: Leaf = -0.00756
    IHyy: Leaf = 0.06
    IHzz: Leaf = 0.00708
    rF: Leaf = 0.35
    mF: Leaf = 3.0
    IFxx: Leaf = 0.1405
    IFyy: Leaf = 0.28


def whipple_bicycle(
    parameters: BicycleParameters | None = None, *, terrain: Terrain | None = None, gravity: Any = 9.81
) -> Description:
    """Return the description of an upright bicycle, rear contact at the origin; parameters are leaves.

    Bodies `rear_wheel`, `frame`, `fork`, `front_wheel`; joints `rear_hub`, `steer`, `front_hub` with
    coordinates `angle`; contacts `rear` and `front` with rows `rear.height`, `rear.lateral`, `rear.rolling`.

    Args:
        parameters: by default the parameters of the published benchmark.
        terrain: `Plane()` by default; on other terrains call `initialize` for the start.
        gravity: in m/s^2.

    Raises:
        ValueError: an invalid wheelbase, such as zero: both wheels would touch the ground at the same point.
    """
    p = BicycleParameters() if parameters is None else parameters
    refuse("whipple_bicycle", length_mistakes("w, the wheelbase,", p.w))
    terrain = Plane() if terrain is None else terrain

    def at(x: Any, down: Any) -> Any:
        return vector((x, 0.0, -real(down)))

    def tensor(xx: Any, yy: Any, zz: Any, xz: Any) -> Any:
        # A half turn about x changes the sign of products with z.
        return jnp.stack(
            [vector(row) for row in ((xx, 0.0, -real(xz)), (0.0, yy, 0.0), (-real(xz), 0.0, zz))]
        )

    rear, front, head = at(0.0, -p.rR), at(p.w, -p.rF), at(p.w + p.c, 0.0)
    bodies = [
        js.Body("frame", p.mB, tensor(p.IBxx, p.IByy, p.IBzz, p.IBxz), at(p.xB, p.zB)),
        js.Body("rear_wheel", p.mR, tensor(p.IRxx, p.IRyy, p.IRxx, 0.0), rear),
        js.Body("fork", p.mH, tensor(p.IHxx, p.IHyy, p.IHzz, p.IHxz), at(p.xH, p.zH)),
        js.Body("front_wheel", p.mF, tensor(p.IFxx, p.IFyy, p.IFxx, 0.0), front),
    ]
    left, down = (0.0, 1.0, 0.0), vector((jnp.sin(p.lam), 0.0, -jnp.cos(p.lam)))
    joints = [
        js.Revolute("rear_hub", "frame", "rear_wheel", left, rear),
        js.Revolute("steer", "frame", "fork", down, head),
        js.Revolute("front_hub", "fork", "front_wheel", left, front),
        js.RollingDisc("rear", "ground", "rear_wheel", left, rear, radius=p.rR, terrain=terrain),
        js.RollingDisc("front", "ground", "front_wheel", left, front, radius=p.rF, terrain=terrain),
    ]
    return Description(space=SPACE, bodies=bodies, joints=joints, gravity=vector((0.0, 0.0, -gravity)))


@pytree
class LinearBicycle:
    """M q'' + v C1 q' + (g K0 + v^2 K2) q = T about upright running, q = (roll, steer).

    Attributes:
        M: (2, 2) in kg m^2.
        C1: (2, 2) in kg m.
        K0: (2, 2) in kg m.
        K2: (2, 2) in kg.
        gravity: () in m/s^2.
    """

    M: Leaf
    C1: Leaf
    K0: Leaf
    K2: Leaf
    gravity: Leaf

    def state_matrix(self, speed: Any) -> Any:
        """Return A (4, 4) with (q, q')' = A (q, q') at a speed in m/s."""
        stiffness = self.gravity * self.K0 + speed**2 * self.K2
        lower = -jnp.linalg.solve(self.M, jnp.concatenate([stiffness, speed * self.C1], axis=1))
        return jnp.concatenate([jnp.eye(4, dtype=lower.dtype)[2:], lower])

    def eigenvalues(self, speed: Any) -> Any:
        """Return the four eigenvalues in 1/s at a speed in m/s, on the host."""
        return np.linalg.eigvals(np.asarray(self.state_matrix(jnp.asarray(speed, self.M.dtype))))

    def critical_speeds(self) -> dict[str, float]:
        """Return the positive speeds in m/s at which stability changes, by name, on the host.

        The names refer to det(M s^2 + v C1 s + g K0 + v^2 K2) = sum a_k(v) s^k. Nonexistent speeds are
        omitted. `weave`: an oscillation is marginally stable, Hurwitz's determinant a1 a2 a3 - a4 a1^2 - a0
        a3^2 = 0 with a1 a3 > 0. `capsize`: a0 = 0. `double_root`: two unstable real eigenvalues merge into an
        oscillation, the smallest speed with discriminant zero.
        """
        a = self._characteristic()
        hurwitz = a[1] * a[2] * a[3] - a[4] * a[1] ** 2 - a[0] * a[3] ** 2
        speeds = {
            "double_root": _positive_roots(_discriminant(a)),
            "weave": [v for v in _positive_roots(hurwitz) if a[1](v) * a[3](v) > 0.0],
            "capsize": _positive_roots(a[0]),
        }
        return {name: float(min(found)) for name, found in speeds.items() if len(found)}

    def _characteristic(self) -> list[Any]:
        """Return the coefficients of s^0, ..., s^4, each a polynomial in v."""
        mass, rate, still, fast = (
            np.asarray(part, float) for part in (self.M, self.C1, self.gravity * self.K0, self.K2)
        )
        entries = [
            [
                [
                    np.polynomial.Polynomial(c)
                    for c in ([still[i, j], 0.0, fast[i, j]], [0.0, rate[i, j]], [mass[i, j]])
                ]
                for j in range(2)
            ]
            for i in range(2)
        ]

        def product(x: Any, y: Any, k: int) -> Any:
            return sum((x[i] * y[k - i] for i in range(3) if 0 <= k - i < 3), np.polynomial.Polynomial([0.0]))

        (a, b), (c, d) = entries
        return [product(a, d, k) - product(b, c, k) for k in range(5)]


def _discriminant(a: list[Any]) -> Any:
    """Return the discriminant of a quartic with coefficients a[0], ..., a[4]."""
    e, d, c, b, a4 = a
    first = 12.0 * a4 * e - 3.0 * b * d + c * c
    second = 72.0 * a4 * c * e + 9.0 * b * c * d - 27.0 * a4 * d * d - 27.0 * e * b * b - 2.0 * c * c * c
    return (4.0 * first * first * first - second * second) * (1.0 / 27.0)


def _positive_roots(polynomial: Any) -> list[float]:
    """Return the positive real roots at which a polynomial changes sign, each refined by Newton's method."""
    found = []
    scaled = polynomial.trim(1e-14 * np.max(np.abs(polynomial.coef)))
    for root in scaled.roots():
        if abs(root.imag) > 1e-6 * (1.0 + abs(root)) or root.real <= 1e-6:
            continue
        v = float(root.real)
        for _ in range(4):
            slope = polynomial.deriv()(v)
            v -= polynomial(v) / slope if slope != 0.0 else 0.0
        if polynomial(v * (1.0 - 1e-5)) * polynomial(v * (1.0 + 1e-5)) < 0.0:
            found.append(v)
    return found


def linear_bicycle(parameters: BicycleParameters | None = None, *, gravity: Any = 9.81) -> LinearBicycle:
    """Return the linear equations of a bicycle about upright, straight running on level ground, by autodiff.

    Args:
        parameters: by default the parameters of the published benchmark.
        gravity: in m/s^2, nonzero.

    Raises:
        ValueError: zero gravity, because K0 is the stiffness divided by gravity; an invalid wheelbase.

    Differentiable with respect to the parameters.
    """
    if (known := concrete(gravity)) is not None and not (np.isfinite(known) and known != 0.0):
        raise ValueError(f"linear_bicycle: gravity must be finite and nonzero, in m/s^2, got {gravity}")
    made, q = mechanism(whipple_bicycle(parameters, gravity=gravity), Joints())
    rear = (BicycleParameters() if parameters is None else parameters).rR
    return _linear(made, q, jnp.asarray(rear, q.dtype), jnp.asarray(gravity, q.dtype))


@jax.jit
def _linear(made: Mechanism, q: Any, radius: Any, gravity: Any) -> LinearBicycle:
    names = made.names.velocities
    chosen = np.array(
        [names.index(name) for name in ("frame.omega_x", "steer.angle_rate", "rear_hub.angle_rate")]
    )
    others = np.setdiff1d(np.arange(len(names)), chosen)
    t = jnp.zeros((), q.dtype)

    def pose(angles: Any) -> Any:
        """Return q at a roll and a steer angle; height and pitch change only to second order."""
        xi = jnp.zeros((len(names),), q.dtype).at[chosen[:2]].set(angles)
        return made.retract(q, xi)

    def missing(angles: Any, rates: Any, changes: Any, speed: Any) -> Any:
        """Return the forces (2,) on roll and steer that these motions require."""
        at = pose(angles)
        jacobian = made.constraint_jacobian(t, at, jnp.zeros((len(names),), q.dtype))
        basis = jnp.zeros((len(names), 3), q.dtype).at[chosen].set(jnp.eye(3, dtype=q.dtype))
        basis = basis.at[others].set(-jnp.linalg.solve(jacobian[:, others], jacobian[:, chosen]))
        v = basis @ jnp.concatenate([rates, speed[None] / radius])
        given = jnp.concatenate([changes, jnp.zeros((1,), q.dtype)])
        rest = jnp.linalg.solve(
            jacobian[:, others], -made.constraint_bias(t, at, v) - jacobian[:, chosen] @ given
        )
        a = jnp.zeros((len(names),), q.dtype).at[chosen].set(given).at[others].set(rest)
        return (basis.T @ (made.mass_matrix(at) @ a - made.force(t, at, v, None)))[:2]

    none = jnp.zeros((2,), q.dtype)

    # The stiffness is a polynomial in v^2 and the damping a polynomial in v: two speeds suffice, one of them
    # zero.
    speeds = jnp.array([0.0, _SPEED], q.dtype)
    stiffness, damping, mass = jax.lax.map(
        lambda speed: jax.jacfwd(missing, argnums=(0, 1, 2))(none, none, none, speed), speeds
    )
    curvature = (stiffness[1] - stiffness[0]) / _SPEED**2
    return LinearBicycle(mass[0], damping[1] / _SPEED, stiffness[0] / gravity, curvature, gravity)
