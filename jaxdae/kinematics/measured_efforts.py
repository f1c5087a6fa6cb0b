"""Motor efforts in a log, as measurements of a calibration (inverse dynamic identification model).

With the rows J of the loops, their residuals g, the projector N = I - J^+ J onto the null space of J, the
rows S of the motors and G = (S N)^+, the logged rates s' and accelerations s'' determine

    v = v_0 + G (s' - S v_0),      v_0 = -J^+ dg/dt,
    a = a_0 + G (s'' - S a_0),     a_0 = -J^+ gamma.                                                     (1)

G is also the map of virtual displacements, so loops do no work along it. For logged efforts tau, the residual

    r = G^T (M a - f - S^T tau)                                                                          (2)

is the smallest change of tau that produces this motion, the solution of N S^T r = N (M a - f - S^T tau), as
in `closed_chain_efforts`. If there is one motor per degree of freedom, r is the difference of the computed
and the logged efforts. It is linear in masses, first moments of mass, moments of inertia about a joint,
damping, friction, stiffness and armature.

References:
    M. Gautier, W. Khalil, "Direct calculation of minimum set of inertial parameters of serial robots", IEEE
    Trans. Robotics and Automation 6 (1990), for identifiable combinations (base parameters). W. Khalil, E.
    Dombre, "Modeling, Identification and Control of Robots" (2002), chapter 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.control.outputs import Coordinates, output_jacobian
from jaxdae.kinematics.least_squares_on_loops import scaled_inverse
from jaxdae.kinematics.targets import coordinate_indices, real_array
from jaxdae.mechanisms import Mechanism
from jaxdae.systems.system import State
from jaxdae.systems.tolerances import scales


@pytree
class MeasuredEfforts:
    """Efforts of all motors for logged rates and accelerations, one of the measurements of `calibrate`.

    The rows of the residual are in alphabetical order of the motors. Contacts, joint limits and exact dry
    friction have no effect on it.

    Attributes:
        rates: rates (n,) in rad/s or m/s by the names of the motors.
        accelerations: (n,) in rad/s^2 or m/s^2 by the same names.
        efforts: (n,) in N m or N by the same names.

    The rates and the accelerations count as exact. Noise in them biases the result: filter them, or compute
    them from a fitted trajectory.

    With more motors than degrees of freedom, the residuals are dependent. The standard errors are then too
    small by the root of the number of motors over the degrees of freedom.
    """

    rates: Mapping[str, Any]
    accelerations: Mapping[str, Any]
    efforts: Mapping[str, Any]

    def units(self, mechanism: Mechanism) -> tuple[str, ...]:
        """Return the unit of each row, N m or N."""
        units = mechanism.names.coordinate_units
        return tuple("N m" if units[k] == "rad" else "N" for k in self.places(mechanism))

    def checked(self, mechanism: Mechanism) -> MeasuredEfforts:
        """Return the measurement with arrays in the precision of the mechanism.

        Raises:
            ValueError: unknown names, or three sets of names that differ.
        """
        parts = {name: getattr(self, name) for name in ("rates", "accelerations", "efforts")}
        if not self.efforts or any(set(part) != set(self.efforts) for part in parts.values()):
            given = ", ".join(f"{name} of {sorted(part)}" for name, part in parts.items())
            raise ValueError(f"MeasuredEfforts needs the same motors three times, got {given}")
        self.places(mechanism)
        return MeasuredEfforts(
            **{
                name: {
                    motor: real_array(f"MeasuredEfforts: {name} of {motor}", x, mechanism.dtype)
                    for motor, x in part.items()
                }
                for name, part in parts.items()
            }
        )

    def error(self, mechanism: Mechanism, frames: Any, q: Array) -> Array:
        """Return the residual r (k,) of (2) in N m and N; arguments as in `PoseTarget`."""
        names = sorted(self.efforts)
        rates, accelerations, efforts = (
            jnp.stack([part[name] for name in names])
            for part in (self.rates, self.accelerations, self.efforts)
        )
        t, still = jnp.zeros((), q.dtype), jnp.zeros((len(mechanism.names.velocities),), q.dtype)
        motors = output_jacobian(mechanism, State(t, q, still), Coordinates(self.places(mechanism)))
        at = mechanism.evaluate(t, q, still)
        columns = scales(mechanism, mechanism.names.velocity_units, still.shape[0], q.dtype)
        rows = at.dense_jacobian
        sizes = scales(mechanism, mechanism.names.row_units, rows.shape[0], q.dtype)
        closing = columns[:, None] * scaled_inverse(rows * columns / sizes[:, None]) / sizes
        free = (motors - (motors @ closing) @ rows) * columns
        moving = columns[:, None] * scaled_inverse(free)

        def motion(bias: Array, rate: Array) -> Array:
            forced = -closing @ bias
            return forced + moving @ (rate - motors @ forced)

        v = motion(at.constraint_rate, rates)
        at = mechanism.evaluate(t, q, v)
        a = motion(at.bias, accelerations)
        return (at.mass.times(a) - at.force(None)) @ moving - efforts @ (motors @ moving)

    def places(self, mechanism: Mechanism) -> tuple[int, ...]:
        """Return the indices of the motors in q, in alphabetical order."""
        return coordinate_indices("MeasuredEfforts", mechanism, sorted(self.efforts))


def characteristic_rate(mechanism: Mechanism, logs: Sequence[MeasuredEfforts]) -> Array:
    """Return 1 / T () in 1/s of logs with arrays (n,); see `dynamic_parameters`."""
    length = jnp.asarray(mechanism.characteristic_length, mechanism.dtype)
    square = jnp.linalg.norm(mechanism.gravity) / length
    for log in logs:
        units = mechanism.names.coordinate_units
        for name, place in zip(sorted(log.efforts), log.places(mechanism), strict=True):
            size = length if units[place] == "m" else 1.0
            rate, acceleration = log.rates[name] / size, log.accelerations[name] / size
            square = square + jnp.mean(rate**2) + jnp.sqrt(jnp.mean(acceleration**2))
    known: Any = jnp.where(square > 0.0, square, 1.0)
    return jnp.sqrt(known)
