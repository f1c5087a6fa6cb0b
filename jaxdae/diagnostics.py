"""What can be said about a system at one state before anything moves: mobility, rank, conditioning, redundancy.

Host-side: the numbers are concrete and the answer is a report, not an array. The rank of J is decided by its singular values; a row is
*redundant* when it depends linearly on the rows before it. Which of several dependent rows that is, is a matter of their order: that
of `row_names`, in a mechanism joint type by joint type, and within a type as the joints were given.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.branches import mobility_nearby
from jaxdae.openings import Opening, openings
from jaxdae.operators import AutodiffRows
from jaxdae.system import AnySystem, State, check_fit, checked_state, velocity_residual


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The report of `diagnose`.

    Attributes:
        coordinates: nv, the number of velocities.
        rows: the number of constraint rows, without those that hold driven velocities of a mechanism of first order at its inputs.
        rank: rank of these rows.
        mobility: nv - rank.
        mobility_nearby: that of the configurations beside this one that the rows allow. Smaller than `mobility` in a singular configuration
            (a parallelogram that lies flat, a truss that can be shaken), where `redundant_rows` are so in this configuration alone; looked
            for in double precision, where rows are dependent and all are of positions.
        condition: ratio of the largest to the smallest nonzero singular value of J; 1 without rows.
        mass_condition: condition number of M.
        scaled_condition: as `condition`, of J M^-1/2; its square is the condition number of the Delassus matrix.
        violation: largest |g| in row units; angles in rad stand for their sines, see `System.opening`.
        velocity_violation: largest |[g'; w]|, row units per second.
        redundant_rows: names of the rows that depend on rows before them.
        redundant: names of the joints that they belong to.
        blocking_rows: where the mobility is zero, the names of the rows that stop the motion that comes nearest to being allowed, the right
            singular vector of J with the smallest singular value: those that resist it by at least a tenth as much as the strongest.
            Of wheels that conflict they are those that are steered wrongly; of rows that leave freedom there are none. Where `stopped`
            has names it is the motion of least slip among those with one of these velocities, whatever else is free.
        blocking_value: that smallest singular value relative to the largest, or the slip of that motion over its size and the largest one;
            zero where nothing is stopped.
        open_joints: the joints that are open by more than eps^0.6 in m or rad (4e-10 in double precision), the widest first, with their
            openings; of rows whose units are known.
        driven: how many of the freedoms that the rows leave the inputs hold, of a mechanism of first order; zero of all others.
        told: where the mobility is zero, the names of the rows that change with time, such as those of a `PrescribedMotion`, which move
            the system.
        stopped: the names of the rows of inputs whose velocities the other rows hold at zero, of a mechanism of first order: the speed of a
            car whose wheels conflict, although its kingpins may turn.
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
        """Returns the report as text, a line a fact."""
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
            stopped = f"{', '.join(self.blocking_rows)} (singular value {self.blocking_value:.2g} of the largest)"
            if self.told:
                lines.append(("moves as it is told by", ", ".join(self.told)))
            if self.stopped:
                lines.append(("inputs that nothing follows", ", ".join(self.stopped)))
            label = "because of" if self.stopped else "no other motion, because of" if self.told else "no motion, because of"
            lines.append((label, stopped))
        if self.open_joints:
            lines.append(("open joints", ", ".join(map(str, self.open_joints))))
        return "\n".join(f"{name:<28}{value}" for name, value in lines)


def diagnose(system: AnySystem, state: State) -> Diagnosis:
    """Returns mobility, rank, conditioning and redundant rows of a system at a state.

    Args:
        system: the mechanical system; row names are taken from its `row_names` where it has them.
        state: time (s), coordinates and velocities; concrete.

    Returns:
        `Diagnosis`; `print` it for a table.

    Raises:
        ValueError: the state or the Jacobian is not finite.
    """
    state = checked_state(state)
    check_fit(system, state)
    velocity = np.asarray(velocity_residual(system, state))
    jacobian = np.asarray(system.constraint_jacobian(state.t, state.q, state.v))
    mass = np.asarray(system.mass_operator(state.q).as_dense())
    if not (np.all(np.isfinite(jacobian)) and np.all(np.isfinite(mass))):
        raise ValueError("diagnose: the Jacobian or the mass matrix is not finite at this state; check state and masses")
    count, size = jacobian.shape
    # Those of drives are the last ones.
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
    position = np.asarray(system.opening(state.t, state.q))
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


def _told(system: AnySystem, state: State) -> list[int]:
    """Returns the rows of positions that change with time by themselves, at this instant or at one of two others."""
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
        dependent: indices of the others, ascending.
        dependent_rows: their names.
        joints: names of the joints that they belong to.
    """

    rows: tuple[int, ...]
    dependent: tuple[int, ...]
    dependent_rows: tuple[str, ...]
    joints: tuple[str, ...]


def independent_rows(system: AnySystem, state: State) -> IndependentRows:
    """Returns a largest independent set of constraint rows, and the joints that the others belong to.

    Rows are taken in the order of a QR factorization of J^T with column pivoting: always the one that is farthest from the span of those
    taken before. The set is therefore the best conditioned that such a greedy choice finds, and does not depend on the order of the joints.
    `Masked(system, active)` with these rows switched on is a system of full rank with the same motion, as long as the others stay
    dependent.

    Args:
        system: the mechanical system; row names are taken from its `row_names` where it has them.
        state: time (s), coordinates and velocities; concrete.

    Raises:
        ValueError: the Jacobian is not finite.

    References:
        P. Businger, G. H. Golub, "Linear least squares solutions by Householder transformations", Numer. Math. 7 (1965).
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
    """Returns the first `rank` pivots of J^T, by Gram-Schmidt with reorthogonalization."""
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
    """Returns lam^T J v (), the power of the constraint forces in W.

    Zero for constraints at rest, which do no work on motions that they allow: J v = 0. With time-dependent constraints J v = -dg/dt, and
    the power is what the drive behind them supplies.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        lam: multipliers (nc,), as `forward_dynamics` returns them.

    Differentiable. Under `jax.vmap` it takes a whole `Trajectory`.
    """
    state = checked_state(state)
    return jnp.sum(lam * AutodiffRows(system, state).times(state.v))


def _scaled_condition(jacobian: np.ndarray, mass: np.ndarray, rank: int) -> float:
    """Returns the condition number of J M^-1/2 on its range; infinite where M is not positive definite."""
    if rank == 0:
        return 1.0
    weights, axes = np.linalg.eigh(mass)
    if weights[0] <= 0.0:
        return float("inf")
    values = np.linalg.svd(jacobian @ axes / np.sqrt(weights), compute_uv=False)
    return float(values[0] / values[rank - 1]) if values[rank - 1] > 0.0 else float("inf")


def _joints(row_names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of the joints that rows belong to, each once."""
    return tuple(dict.fromkeys(name.rsplit(".", 1)[0] for name in row_names))


def _blocking(jacobian: np.ndarray) -> tuple[list[int], float]:
    """Returns the rows that stop the motion nearest to being allowed, the strongest first, and its singular value over the largest."""
    _, values, directions = np.linalg.svd(jacobian, full_matrices=False)
    return _strongest(np.abs(jacobian @ directions[-1])), float(values[-1] / values[0])


def _strongest(resistance: np.ndarray) -> list[int]:
    """Returns which rows resist by at least a tenth as much as the strongest, which comes first."""
    order = np.argsort(-resistance)
    return [int(k) for k in order if resistance[k] >= 0.1 * resistance[order[0]]]


def _stopped(held: np.ndarray, driven: np.ndarray, rank: int) -> list[int]:
    """Returns which rows of drives (nu, nv) are combinations of the other rows (nc, nv), which hold their velocities at zero."""
    if not rank or not driven.size:
        return []
    free = np.linalg.svd(held)[2][rank:]
    lengths = np.linalg.norm(driven, axis=1)
    left = np.linalg.norm(driven @ free.T, axis=1)
    return [int(k) for k in np.flatnonzero((lengths > 0.0) & (left <= 1e3 * max(held.shape) * np.finfo(held.dtype).eps * lengths))]


def _resisting(held: np.ndarray, driven: np.ndarray, positions: int) -> tuple[list[int], float]:
    """Returns the rows that slip when a stopped velocity is one, the fastest first, and how much over the size of the motion.

    Joints hold, the first rows at position level, so that wheels slip alone, unless joints are what stops the velocity. With the other rows
    J = U S V^T along what joints allow the motion d of least |J d| for which c . V^T d = 1 has J d = U S^-1 c / |S^-1 c|^2.
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
    slips, sizes = (across @ u[:, :rank].T) / squares, np.linalg.norm(across / values[:rank], axis=1) / squares[:, 0]
    least = int(np.argmin(np.linalg.norm(slips, axis=1) / sizes))
    named = [positions + k for k in _strongest(np.abs(slips[least]))]
    return named, float(np.linalg.norm(slips[least]) / (sizes[least] * values[0]))


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x))) if x.size else 0.0


def _tolerance(matrix: np.ndarray, values: np.ndarray) -> float:
    """Returns the singular value below which a direction counts as lost.

    Round-off of assembling J, with a margin; and what rows that depend on others up to the digits of lengths have, which `initialize` takes
    for closed: that of a motion of 1 m or 1 rad that opens no row by more than that.
    """
    if not values.size:
        return 0.0
    eps = float(np.finfo(matrix.dtype).eps)
    return max(float(values[0]) * max(matrix.shape) * eps * 1e3, min(10.0 * eps**0.6, 1e-5 * float(values[0])))


def _dependent_rows(jacobian: np.ndarray, tolerance: float) -> list[int]:
    """Returns the rows that depend on rows before them, by Gram-Schmidt with reorthogonalization."""
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
