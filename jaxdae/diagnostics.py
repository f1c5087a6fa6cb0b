"""What can be said about a system at one state before anything moves: mobility, rank, conditioning, redundancy.

Host-side: the numbers are concrete and the answer is a report, not an array. The rank of J is decided by its singular values; a row is
*redundant* when it depends linearly on the rows before it. Which of several dependent rows that is, is a matter of their order: that
of `row_names`, in a mechanism joint type by joint type, and within a type as the joints were given.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxdae.saddle_point import as_dense
from jaxdae.system import State, System, check_fit, checked_state, velocity_residual


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The report of `diagnose`.

    Attributes:
        coordinates: nv, the number of velocities.
        rows: nc, the number of constraint rows.
        rank: rank of J.
        mobility: nv - rank.
        condition: ratio of the largest to the smallest nonzero singular value of J; 1 without rows.
        mass_condition: condition number of M.
        violation: largest |g| in row units.
        velocity_violation: largest |[g'; w]|, row units per second.
        redundant_rows: names of the rows that depend on rows before them.
        redundant: names of the joints that they belong to.
    """

    coordinates: int
    rows: int
    rank: int
    mobility: int
    condition: float
    mass_condition: float
    violation: float
    velocity_violation: float
    redundant_rows: tuple[str, ...]
    redundant: tuple[str, ...]

    def __str__(self) -> str:
        """Returns the report as text, a line a fact."""
        redundant = ", ".join(self.redundant_rows) if self.redundant_rows else "none"
        lines = [
            ("coordinates", f"{self.coordinates}"),
            ("constraint rows", f"{self.rows}"),
            ("rank", f"{self.rank}"),
            ("mobility", f"{self.mobility}"),
            ("condition of J", f"{self.condition:.3g}"),
            ("condition of M", f"{self.mass_condition:.3g}"),
            ("largest violation", f"{self.violation:.3g}"),
            ("largest velocity violation", f"{self.velocity_violation:.3g}"),
            ("redundant rows", redundant),
        ]
        return "\n".join(f"{name:<28}{value}" for name, value in lines)


def diagnose(system: System, state: State) -> Diagnosis:
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
    mass = np.asarray(as_dense(system.mass_operator(state.q)))
    if not (np.all(np.isfinite(jacobian)) and np.all(np.isfinite(mass))):
        raise ValueError("diagnose: the Jacobian or the mass matrix is not finite at this state; check state and masses")
    rows, size = jacobian.shape
    names = getattr(system, "row_names", None) or tuple(f"row {k}" for k in range(rows))
    values = np.linalg.svd(jacobian, compute_uv=False) if rows else np.zeros(0)
    tolerance = _tolerance(jacobian, values)
    rank = int(np.sum(values > tolerance))
    dependent = _dependent_rows(jacobian, tolerance)
    redundant_rows = tuple(names[k] for k in dependent)
    position = np.asarray(system.constraint(state.t, state.q))
    return Diagnosis(
        coordinates=size,
        rows=rows,
        rank=rank,
        mobility=size - rank,
        condition=float(values[0] / values[rank - 1]) if rank else 1.0,
        mass_condition=float(np.linalg.cond(mass)),
        violation=_largest(position),
        velocity_violation=_largest(velocity),
        redundant_rows=redundant_rows,
        redundant=tuple(dict.fromkeys(name.rsplit(".", 1)[0] for name in redundant_rows)),
    )


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x))) if x.size else 0.0


def _tolerance(matrix: np.ndarray, values: np.ndarray) -> float:
    """Returns the singular value below which a direction counts as lost: round-off of assembling J, with a margin."""
    return float(values[0]) * max(matrix.shape) * float(np.finfo(matrix.dtype).eps) * 1e3 if values.size else 0.0


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
