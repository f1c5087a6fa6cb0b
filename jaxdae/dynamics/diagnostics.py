"""Analysis of a system at one state: mobility, rank, conditioning, redundancy.

These functions run on the host with concrete numbers and return reports instead of arrays. The singular
values of J determine its rank. A row is *redundant* if it depends linearly on the rows before it. The order
of `row_names` decides which of several dependent rows that is. In a mechanism, rows are ordered by joint
type, and within a type as the joints were given.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.dynamics.loop_closure_error import Opening, openings
from jaxdae.dynamics.nearby_mobility import mobility_nearby
from jaxdae.matrices import AutodiffRows
from jaxdae.systems.system import AnySystem, State, check_fit, checked_state


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The report of `diagnose`.

    Attributes:
        coordinates: nv, the number of velocities.
        rows: the number of constraint rows, without the rows that set driven velocities of a first-order
            mechanism to its inputs.
        rank: rank of these rows.
        mobility: nv - rank.
        mobility_nearby: mobility of nearby configurations that the rows allow. It is smaller than `mobility`
            in a singular configuration (a flat parallelogram, an infinitesimally flexible truss), where
            `redundant_rows` are redundant only in this configuration. It is computed only in double
            precision, and only if rows are dependent and all rows are at position level; otherwise it equals
            `mobility`.
        condition: ratio of the largest to the smallest nonzero singular value of J; 1 without rows.
        mass_condition: condition number of M.
        scaled_condition: condition number of J M^-1/2; its square is the condition number of the Delassus
            matrix.
        violation: largest |g| in row units; angles in rad replace their sines, see `Joint.opening`.
        velocity_violation: largest |[g'; w]|, row units per second.
        redundant_rows: names of the rows that depend on rows before them.
        redundant: names of the joints of the redundant rows.
        blocking_rows: if the mobility is zero, the names of the rows that block the motion x that violates
            the rows least: the right singular vector of J with the smallest singular value. The list contains
            the rows whose entry of |J x| is at least a tenth of the largest entry. For conflicting wheels
            these are the wrongly steered ones. The list is empty if the rows leave freedom. If `stopped` is
            not empty, x is the motion of least slip among all motions in which a stopped velocity is not
            zero, even if the mechanism can move otherwise.
        blocking_value: |J x| / |x| of the motion x of `blocking_rows`, relative to the largest singular
            value; zero if nothing is blocked.
        open_joints: the joints that are open by more than eps^0.6 in m or rad (4e-10 in double precision)
            with their openings, the widest first; only for rows with known units.
        driven: the number of remaining degrees of freedom that the inputs drive, for a first-order mechanism;
            zero for other systems.
        told: if the mobility is zero, the names of the rows that change with time and move the system, such
            as the rows of a `PrescribedMotion`.
        stopped: the names of the input rows whose velocities the other rows hold at zero, for a first-order
            mechanism. An example is the speed of a car with conflicting wheels, although its kingpins may
            turn.
    """

    coordinates: int
    rows: int
    rank: int
    mobility: int
    mobility_nearby: int
    condition: float
    mass_condition: float
    scaled_condition: float
    violation: float
    velocity_violation: float
    redundant_rows: tuple[str, ...]
    redundant: tuple[str, ...]
    blocking_rows: tuple[str, ...] = ()
    blocking_value: float = 0.0
    open_joints: tuple[Opening, ...] = ()
    driven: int = 0
    told: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the report as text, one line per fact."""
        redundant = ", ".join(self.redundant_rows) if self.redundant_rows else "none"
        lines = [
            ("velocities", f"{self.coordinates}"),
            ("constraint rows", f"{self.rows}"),
            ("rank", f"{self.rank}"),
            ("mobility", f"{self.mobility}"),
            ("condition of J", f"{self.condition:.3g}"),
            ("condition of M", f"{self.mass_condition:.3g}"),
            ("condition of J M^-1/2", f"{self.scaled_condition:.3g}"),
            ("largest violation", f"{self.violation:.3g}"),
            ("largest velocity violation", f"{self.velocity_violation:.3g}"),
            ("redundant rows", redundant),
        ]
        if self.mobility_nearby != self.mobility:
            lines.insert(4, ("mobility nearby", f"{self.mobility_nearby} (this configuration is singular)"))
        if self.driven:
            lines.insert(4, ("driven by inputs", f"{self.driven}"))
        if self.blocking_rows:
            stopped = (
                f"{', '.join(self.blocking_rows)} (singular value {self.blocking_value:.2g} of the largest)"
            )
            if self.told:
                lines.append(("followed inputs", ", ".join(self.told)))
            if self.stopped:
                lines.append(("blocked inputs", ", ".join(self.stopped)))
            label = (
                "blocked by"
                if self.stopped
                else "all other motion blocked by"
                if self.told
                else "all motion blocked by"
            )
            lines.append((label, stopped))
        if self.open_joints:
            lines.append(("open joints", ", ".join(map(str, self.open_joints))))
        return "\n".join(f"{name:<28}{value}" for name, value in lines)


def diagnose(system: AnySystem, state: State) -> Diagnosis:
    """Return mobility, rank, conditioning and redundant rows of a system at a state.

    Args:
        system: the mechanical system; its `row_names` give the row names, if present.
        state: time (s), coordinates and velocities; concrete.

    Returns:
        `Diagnosis`; `print` it for a table.

    Raises:
        ValueError: the state or the Jacobian is not finite.
    """
    state = checked_state(state)
    check_fit(system, state)
    position, velocity, jacobian, mass = map(np.asarray, _terms(system, state))
    if not (np.all(np.isfinite(jacobian)) and np.all(np.isfinite(mass))):
        raise ValueError(
            "diagnose: the Jacobian or the mass matrix is not finite at this state; check state and masses"
        )
    count, size = jacobian.shape
    # The rows of drives are last.
    rows = count - system.driven_rows
    known = system.names.filled(system.sizes(state.q))
    names = known.rows
    held = jacobian[:rows]
    values = np.linalg.svd(held, compute_uv=False) if rows else np.zeros(0)
    tolerance = _tolerance(held, values)
    rank = int(np.sum(values > tolerance))
    driven = _rank(jacobian) - rank if count > rows else 0
    dependent = _dependent_rows(jacobian, tolerance)
    redundant_rows = tuple(names[k] for k in dependent)
    dubious = rank < rows == position.size and held.dtype.itemsize == 8
    stopped = _stopped(held, jacobian[rows:], rank)
    blocking, value = ((), 0.0)
    if stopped:
        blocking, value = _resisting(held, jacobian[rows:][stopped], position.size)
    elif rank == size and rows:
        blocking, value = _blocking(held)
    return Diagnosis(
        coordinates=size,
        rows=rows,
        rank=rank,
        mobility=size - rank,
        mobility_nearby=mobility_nearby(system, state, held, rank) if dubious else size - rank,
        condition=float(values[0] / values[rank - 1]) if rank else 1.0,
        mass_condition=float(np.linalg.cond(mass)),
        scaled_condition=_scaled_condition(held, mass, rank),
        violation=_largest(position),
        velocity_violation=_largest(velocity),
        redundant_rows=redundant_rows,
        redundant=_joints(redundant_rows),
        blocking_rows=tuple(names[k] for k in blocking),
        blocking_value=value,
        open_joints=openings(names, known.row_units, position, float(np.finfo(position.dtype).eps) ** 0.6),
        driven=driven,
        told=tuple(names[k] for k in _told(system, state)) if blocking else (),
        stopped=tuple(names[rows + k] for k in stopped),
    )


@jax.jit
def _terms(system: Any, state: State) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return g (of angles, not their sines), [g'; w], J and M at a state."""
    at = system.evaluate(state.t, state.q, state.v)
    return at.opening, at.velocity, at.dense_jacobian, at.mass.as_dense()


def _told(system: AnySystem, state: State) -> list[int]:
    """Return the position-level rows that depend explicitly on time, now or at one of two later instants."""
    rate = jax.jit(jax.jacfwd(lambda t: system.constraint(t, state.q)))
    rates = [np.asarray(rate(jnp.asarray(state.t + later, state.q.dtype))) for later in (0.0, 0.3183, 0.7071)]
    return [int(k) for k in np.flatnonzero(np.max(np.abs(rates), axis=0))]


def _rank(jacobian: np.ndarray) -> int:
    values = np.linalg.svd(jacobian, compute_uv=False)
    return int(np.sum(values > _tolerance(jacobian, values)))


@dataclasses.dataclass(frozen=True)
class IndependentRows:
    """The report of `independent_rows`.

    Attributes:
        rows: indices of a largest set of independent rows, ascending.
        dependent: indices of the other rows, ascending.
        dependent_rows: names of the other rows.
        joints: names of the joints of the other rows.
    """

    rows: tuple[int, ...]
    dependent: tuple[int, ...]
    dependent_rows: tuple[str, ...]
    joints: tuple[str, ...]


def independent_rows(system: AnySystem, state: State) -> IndependentRows:
    """Return a largest independent set of constraint rows, and the joints of the other rows.

    The order of selection is the order of a QR factorization of J^T with column pivoting: each step selects
    the row that is farthest from the span of the rows selected before. The set is therefore the best
    conditioned one that this greedy choice finds, and does not depend on the order of the joints.
    `Masked(system, active)` with these rows active is a system of full rank with the same motion, as long as
    the other rows stay dependent.

    Args:
        system: the mechanical system; its `row_names` give the row names, if present.
        state: time (s), coordinates and velocities; concrete.

    Raises:
        ValueError: the Jacobian is not finite.

    References:
        P. Businger, G. H. Golub, "Linear least squares solutions by Householder transformations", Numer.
        Math. 7 (1965).
    """
    state = checked_state(state)
    check_fit(system, state)
    jacobian = np.asarray(system.constraint_jacobian(state.t, state.q, state.v))
    if not np.all(np.isfinite(jacobian)):
        raise ValueError("independent_rows: the Jacobian is not finite at this state; check the state")
    names = system.names.filled(system.sizes(state.q)).rows
    values = np.linalg.svd(jacobian, compute_uv=False) if jacobian.size else np.zeros(0)
    taken = _pivoted(jacobian, int(np.sum(values > _tolerance(jacobian, values))))
    dependent = tuple(k for k in range(jacobian.shape[0]) if k not in taken)
    dependent_rows = tuple(names[k] for k in dependent)
    return IndependentRows(tuple(sorted(taken)), dependent, dependent_rows, _joints(dependent_rows))


def _pivoted(jacobian: np.ndarray, rank: int) -> set[int]:
    """Return the first `rank` pivots of J^T, by Gram-Schmidt with reorthogonalization."""
    rest = jacobian.astype(float)
    taken: set[int] = set()
    for _ in range(rank):
        lengths = np.linalg.norm(rest, axis=1)
        lengths[list(taken)] = -1.0
        pivot = int(np.argmax(lengths))
        direction = rest[pivot] / lengths[pivot]
        for _ in range(2):
            rest = rest - np.outer(rest @ direction, direction)
        taken.add(pivot)
    return taken


def virtual_work(system: AnySystem, state: State, lam: Any) -> Any:
    """Return lam^T J v (), the power of the constraint forces in W.

    It is zero for time-independent constraints, because they do no work on the motions that they allow,
    J v = 0. With time-dependent constraints, J v = -dg/dt, and the drive that moves the constraint supplies
    the power.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        lam: multipliers (nc,) from `forward_dynamics`.

    Differentiable. Use `jax.vmap` to apply it to a whole `Trajectory`.
    """
    state = checked_state(state)
    return jnp.sum(lam * AutodiffRows(system, state).times(state.v))


def _scaled_condition(jacobian: np.ndarray, mass: np.ndarray, rank: int) -> float:
    """Return the condition number of J M^-1/2 on its range; infinite if M is not positive definite."""
    if rank == 0:
        return 1.0
    weights, axes = np.linalg.eigh(mass)
    if weights[0] <= 0.0:
        return float("inf")
    values = np.linalg.svd(jacobian @ axes / np.sqrt(weights), compute_uv=False)
    return float(values[0] / values[rank - 1]) if values[rank - 1] > 0.0 else float("inf")


def _joints(row_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the joints of the rows, without duplicates."""
    return tuple(dict.fromkeys(name.rsplit(".", 1)[0] for name in row_names))


def _blocking(jacobian: np.ndarray) -> tuple[list[int], float]:
    """Return the rows that block the motion closest to being allowed, and its relative singular value.

    The rows are sorted by resistance, strongest first. The singular value is relative to the largest.
    """
    _, values, directions = np.linalg.svd(jacobian, full_matrices=False)
    return _strongest(np.abs(jacobian @ directions[-1])), float(values[-1] / values[0])


def _strongest(resistance: np.ndarray) -> list[int]:
    """Return the rows that resist by at least a tenth of the strongest resistance, strongest first."""
    order = np.argsort(-resistance)
    return [int(k) for k in order if resistance[k] >= 0.1 * resistance[order[0]]]


def _stopped(held: np.ndarray, driven: np.ndarray, rank: int) -> list[int]:
    """Return which rows of drives (nu, nv) are combinations of the other rows (nc, nv).

    The other rows hold the velocities of these rows at zero.
    """
    if not rank or not driven.size:
        return []
    free = np.linalg.svd(held)[2][rank:]
    lengths = np.linalg.norm(driven, axis=1)
    left = np.linalg.norm(driven @ free.T, axis=1)
    return [
        int(k)
        for k in np.flatnonzero(
            (lengths > 0.0) & (left <= 1e3 * max(held.shape) * np.finfo(held.dtype).eps * lengths)
        )
    ]


def _resisting(held: np.ndarray, driven: np.ndarray, positions: int) -> tuple[list[int], float]:
    """Return the rows that slip when a stopped velocity is 1, fastest first, and the relative slip.

    The slip is relative to the size of the motion. Joints, the leading position-level rows, hold exactly, so
    that only wheels slip, unless the joints themselves stop the velocity. Let J = U S V^T be the other rows
    restricted to the motions that the joints allow. Then the motion d of least |J d| with c . V^T d = 1 has
    J d = U S^-1 c / |S^-1 c|^2.
    """
    joints, free = held[:positions], np.eye(held.shape[1])
    if positions and positions < held.shape[0]:
        free = np.linalg.svd(joints)[2][_rank(joints) :]
        if np.min(np.linalg.norm(driven @ free.T, axis=1) / np.linalg.norm(driven, axis=1)) < 1e-6:
            positions, free = 0, np.eye(held.shape[1])
    else:
        positions = 0
    slipping = held[positions:] @ free.T
    rank = _rank(slipping)
    u, values, directions = np.linalg.svd(slipping, full_matrices=False)
    across = (driven @ free.T @ directions[:rank].T) / values[:rank]
    squares = np.sum(across**2, axis=1, keepdims=True)
    slips, sizes = (
        (across @ u[:, :rank].T) / squares,
        np.linalg.norm(across / values[:rank], axis=1) / squares[:, 0],
    )
    least = int(np.argmin(np.linalg.norm(slips, axis=1) / sizes))
    named = [positions + k for k in _strongest(np.abs(slips[least]))]
    return named, float(np.linalg.norm(slips[least]) / (sizes[least] * values[0]))


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x))) if x.size else 0.0


def _tolerance(matrix: np.ndarray, values: np.ndarray) -> float:
    """Return the singular value below which a direction counts as lost.

    It is the larger of two bounds. The first is the round-off of assembling J, with a margin. The second
    covers rows that are dependent only up to the digits of given lengths, within the tolerance of
    `initialize`: a motion of 1 m or 1 rad then opens no row by more than about this tolerance.
    """
    if not values.size:
        return 0.0
    eps = float(np.finfo(matrix.dtype).eps)
    return max(
        float(values[0]) * max(matrix.shape) * eps * 1e3, min(10.0 * eps**0.6, 1e-5 * float(values[0]))
    )


def _dependent_rows(jacobian: np.ndarray, tolerance: float) -> list[int]:
    """Return the rows that depend on rows before them, by Gram-Schmidt with reorthogonalization."""
    basis: list[np.ndarray] = []
    dependent = []
    for k, row in enumerate(jacobian):
        rest = row.astype(float)
        for _ in range(2):
            for direction in basis:
                rest = rest - (rest @ direction) * direction
        length: Any = np.linalg.norm(rest)
        if length <= tolerance:
            dependent.append(k)
        else:
            basis.append(rest / length)
    return dependent
