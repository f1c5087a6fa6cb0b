"""Velocities and poses that satisfy some rows exactly and other rows in the least-squares sense.

For hard rows H v = h and soft rows S v = s, the least-squares solution satisfies

    [ S^T S   H^T ] [ v  ]   [ S^T s ]
    [ H       0   ] [ mu ] = [ h     ],

with known driven velocities. The solution is unique if the rows of H are independent and every velocity
affects H or S. The residual S v - s is the slip: the wheels of a rover on uneven ground cannot all roll.

References:
    N. Seegmiller, A. Kelly, "Enhanced 3D kinematic modeling of wheeled mobile robots", Robotics: Science and
    Systems, 2014 (all rows soft, so that a body leaves the ground).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.matrices import DenseMatrix, DenseRows
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.joints.terrain_wheels import OnTerrain
from jaxdae.mechanisms.massless import without_masses
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement, solve_saddle_point
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.kinematic_system import KinematicSystem, determines
from jaxdae.systems.status import Status
from jaxdae.systems.wrapper import SameCoordinates
from jaxdae.typing import Coordinates, Count, Input, Leaf, Rows, Scalar, Square, Velocity

SLIPPING = (".lateral", ".rolling")
"""The suffixes of the names of soft rows."""


def constrained_normal_equations(
    hard: Any, wanted: Any, soft: Any, target: Any, solver: SaddlePointSolver | None = None
) -> tuple[Any, Any]:
    """Return x (n,) with hard x = wanted and least |soft x - target|, and the multipliers mu (h,).

    Args:
        hard: (h, n), independent rows, unless the solver supports dependent rows.
        wanted: (h,).
        soft: (s, n).
        target: (s,).
        solver: a saddle-point solver, `SchurComplement()` by default.

    NaN if the solution is not unique. Differentiable. The matrix is S^T S + H^T H (n, n), which is positive
    definite. H^T h is added on the right so that the solution does not change.
    """
    matrix = DenseMatrix(soft.T @ soft + hard.T @ hard)
    x, lam = solve_saddle_point(
        solver or SchurComplement(), matrix, DenseRows(hard), target @ soft + wanted @ hard, wanted
    )
    return x, -lam


class _Rows(NamedTuple):
    """Hard and soft rows in the undriven velocities, their targets, the velocity indices, and the inputs."""

    hard: Any
    wanted: Any
    soft: Any
    target: Any
    free: np.ndarray
    driven: np.ndarray
    told: Any


def is_on_terrain(group: Any) -> bool:
    """Return whether the joints of a group are wheels on terrain."""
    return isinstance(group, OnTerrain)


def without_wheels(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism without its wheels on terrain."""
    return dataclasses.replace(
        mechanism, joints={key: group for key, group in mechanism.joints.items() if not is_on_terrain(group)}
    )


def _own_rates(mechanism: Mechanism, still: Evaluation) -> Rows:
    """Return the explicit time rates of the rows (nc,) at rest; zero for wheels on (static) terrain."""
    others = without_wheels(mechanism)
    own = jnp.append(still.with_system(others).velocity, 0.0)
    numbers = {name: k for k, name in enumerate(others.row_names)}
    return own[np.array([numbers.get(name, len(numbers)) for name in mechanism.row_names], int)]


@pytree
class LeastSlip(SameCoordinates, KinematicSystem):
    """A first-order vehicle with prescribed driven velocities, exact other rows, and least-squares slip.

    x = q of the mechanism, u: the driven velocities. Integrate it with `Kinematic`.

    Attributes:
        mechanism: a mechanism with wheels such as `RollingDisc`, in joint coordinates. It is stored without
            masses and forces, because they do not affect the motion.
        driven: names of the velocities that the inputs prescribe, in the order of u (static), such as
            "front_left.angle_rate".
        solver: `SchurComplement()` by default, for independent hard rows. Use `LeastSquares()` if height rows
            depend on each other, as for four wheels on a rigid body.
    """

    mechanism: Leaf
    driven: tuple[str, ...] = static()
    solver: Leaf = None

    def __post_init__(self) -> None:
        """Remove masses and forces."""
        if type(self.mechanism) is Mechanism:
            object.__setattr__(self, "mechanism", without_masses(self.mechanism))

    @property
    def n_inputs(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of driven velocities."""
        return len(self.driven)

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Return the velocities (nv,) in m/s and rad/s."""
        return self.motion(t, x, u)[0]

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count:
        """Return SINGULAR if a velocity is undetermined or hard rows are dependent, else OK."""
        rows = self._rows(t, x, u)

        def again(v: Velocity) -> Velocity:
            return constrained_normal_equations(
                rows.hard, rows.hard @ v, rows.soft, rows.soft @ v, self.solver
            )[0]

        determined = determines(again, rows.hard.shape[1], x.dtype)
        # NaN rows have a different cause, which shows in the velocities.
        told = jnp.all(jnp.isfinite(rows.hard)) & jnp.all(jnp.isfinite(rows.soft))
        found: Any = jnp.where(determined | ~told, Status.OK, Status.SINGULAR)
        return found.astype(jnp.int32)

    def motion(self, t: Scalar, x: Coordinates, u: Input) -> tuple[Velocity, Any]:
        """Return the velocities (nv,), and the slip (k,) of all lateral and rolling rows in m/s.

        `slip_names` names the slip entries.

        Raises:
            ValueError: an unknown or duplicate name in `driven`, or a wrong number of inputs.
        """
        rows = self._rows(t, x, u)
        others = constrained_normal_equations(rows.hard, rows.wanted, rows.soft, rows.target, self.solver)[0]
        v = jnp.concatenate([others, rows.told])[np.argsort(np.concatenate([rows.free, rows.driven]))]
        return v, rows.soft @ others - rows.target

    def _rows(self, t: Scalar, x: Coordinates, u: Input) -> _Rows:
        """Return the rows in the velocities that are not driven."""
        mechanism: Mechanism = self.mechanism
        names, rows = mechanism.names.velocities, mechanism.row_names
        unknown = [name for name in self.driven if name not in names]
        if unknown:
            raise ValueError(f"LeastSlip.driven: no velocity {unknown[0]!r}{hint(unknown[0], names)}")
        if len(set(self.driven)) != len(self.driven):
            raise ValueError(f"LeastSlip.driven: each velocity must appear once, got {self.driven}")
        u = jnp.asarray(u, x.dtype)
        if u.shape != (len(self.driven),):
            raise ValueError(
                f"LeastSlip: u must have shape {(len(self.driven),)}, one for each driven velocity, got "
                f"{u.shape}"
            )
        soft = np.array([row.endswith(SLIPPING) for row in rows], bool)
        still = mechanism.evaluate(t, x, jnp.zeros((len(names),), x.dtype))
        jacobian = still.dense_jacobian
        driven = np.array([names.index(name) for name in self.driven], int)
        free = np.setdiff1d(np.arange(len(names)), driven)
        # Driven velocities are known. They move to the right-hand sides, with the explicit time rates of the
        # rows.
        own = _own_rates(mechanism, still) + jacobian[:, driven] @ u
        return _Rows(
            jacobian[~soft][:, free], -own[~soft], jacobian[soft][:, free], -own[soft], free, driven, u
        )

    @property
    def slip_names(self) -> tuple[str, ...]:
        """The names of the slip entries that `motion` returns."""
        return tuple(row for row in self.mechanism.row_names if row.endswith(SLIPPING))

    def mass_matrix(self, q: Coordinates) -> Square:
        """Return the identity (nv, nv)."""
        return jnp.eye(len(self.mechanism.names.velocities), dtype=q.dtype)

    def mass_operator(self, q: Coordinates) -> Any:
        """Return the identity."""
        return super(KinematicSystem, self).mass_operator(q)

    @property
    def coordinates_of(self) -> Mechanism:
        """The mechanism."""
        return self.mechanism

    def condition(self, t: Scalar, q: Coordinates) -> Any:
        """Return the condition of the mechanism: wheels beyond the terrain or with two contacts."""
        return self.mechanism.row_condition(t, q)
