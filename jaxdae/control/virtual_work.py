"""The virtual-work map: from goal forces without an actuator to equivalent motor efforts.

A goal of an end effector, solved like any constraint, has a multiplier lam_e. The force J_e^T lam_e would
achieve the goal, but no actuator can exert it. Motors act through the coordinates y_m that they drive, with
J_m = dy_m/dxi. Their efforts tau do the same virtual work, tau^T J_m dxi = lam_e^T J_e dxi, for all
displacements dxi if

    J_m^T tau = J_e^T lam_e,                                                                (1)

nv equations in one unknown per motor, solved in the least-squares sense. For a pendulum with J_e = 1 and
J_m = [y, -x] / r^2 the solution is tau = y lam_x - x lam_y, the torque of the force about the hinge.

*Mechanisms with constraints.* For these mechanisms (1) is too strict. The bodies transmit forces: a force at
the hand differs from torques at the joints by joint reactions, J^T mu, which do no work in any admissible
motion of the mechanism. Only displacements dxi = N y with J N = 0 count, and

    N^T J_m^T tau = N^T J_e^T lam_e    or, with the projector P = N N^T,
    P J_m^T tau = P J_e^T lam_e.                                                            (2)

In absolute coordinates (1) and (2) have different least-squares solutions, and (1) gives the wrong one: the
force at the hand acts on the coordinates of one body, and the torques act on other coordinates. For an arm of
hinged bodies (2) has the exact solution J_theta^T F, the transposed Jacobian of the textbooks, in any
coordinates. Therefore always pass the Jacobian of the constraints if the mechanism has constraints.

*Metric.* With too few motors, the residual |P (J_m^T tau - J_e^T lam_e)| is minimized in one of two metrics.
The Euclidean metric mixes N and N m. The kinetic metric uses the accelerations L11 F that a force F causes
(`kkt_inverse`), and minimizes

    |L11 (J_m^T tau - J_e^T lam_e)|_M.

The motors then come closest to the goal force in the sense of Gauss' principle, independent of coordinates
and units. If motors are dependent (more motors than mobility, or singular configurations), the map returns
the smallest tau. A tolerance determines the rank.

*Derivatives* are exact at full and at constant deficient rank, and do not differentiate an SVD
(`jaxdae.saddle_point`).

References:
    O. Khatib, "A unified approach for motion and force control of robot manipulators: the operational space
    formulation", IEEE J. Robotics and Automation 3 (1987), for J^T F and the kinetic metric.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import fraction, offers
from jaxdae.control.outputs import checked_vector, output_jacobian
from jaxdae.dynamics.stabilization import Metric
from jaxdae.matrices import DenseRows, DiagonalMatrix, MassOperator, as_mass_operator
from jaxdae.saddle_point import NullSpace, SingularValues
from jaxdae.saddle_point.derivative import solve, solve_saddle_point
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf

Vector = Float[Array, " nm"]
Matrix = Float[Array, "nm nv"]
RANK_TOLERANCE = 1e-5


def motor_efforts(
    motor_jacobian: Array,
    goal_jacobian: Array,
    goal_lam: Array,
    *,
    constraint_jacobian: Array | None = None,
    mass: Array | MassOperator | None = None,
    rank_tolerance: Any = RANK_TOLERANCE,
) -> Vector:
    """Return motor efforts tau (nm,) with the virtual work of J_e^T lam_e, in least squares; see the module.

    Args:
        motor_jacobian: J_m (nm, nv), derivatives of the coordinates that motors drive.
        goal_jacobian: J_e (ne, nv).
        goal_lam: lam_e (ne,): multipliers, or impulses (the efforts are then also impulses).
        constraint_jacobian: J (nc, nv) of the mechanism's own constraints; None without constraints. Rows may
            be dependent.
        mass: M, an array or an operator such as `DiagonalMatrix`, for the kinetic metric; None for the
            Euclidean metric.
        rank_tolerance: singular values below this fraction of the largest count as zero.

    Returns:
        tau: N m for a coordinate in rad, N for a coordinate in m. The smallest of all minimizers.

    Raises:
        ValueError: shapes that do not fit.

    Differentiable at full and at constant rank, in forward and reverse mode. Costs one SVD of (nv, nm), and
    one SVD of J if given.
    """
    mass = None if mass is None else as_mass_operator(mass)
    nv = _checked(motor_jacobian, goal_jacobian, goal_lam, constraint_jacobian, mass)
    forces = jnp.concatenate([motor_jacobian, (goal_lam @ goal_jacobian)[None, :]])
    columns = _weighted(forces, constraint_jacobian, mass, rank_tolerance, nv)
    solver = NullSpace(SingularValues(rank_tolerance))
    unit = DiagonalMatrix(jnp.ones((motor_jacobian.shape[0],), motor_jacobian.dtype))
    return solve_saddle_point(solver, unit, columns[:-1].T, None, columns[-1])[0]


def _weighted(forces: Any, jacobian: Any, mass: Any, tolerance: Any, nv: int) -> Any:
    """Return S^T F for each row F of `forces`, whose Euclidean norm is the norm of F in the metric."""
    if jacobian is None and mass is None:
        return forces
    if jacobian is None:
        # |M^-1 F|_M = |R^-1 F| with M = R R^T.
        return jax.vmap(mass.factorize().scaled)(forces)
    weight = DiagonalMatrix(jnp.ones((nv,), forces.dtype)) if mass is None else mass
    solver = NullSpace(SingularValues(tolerance))
    rows = DenseRows(jacobian)
    factors = solver.factorize(*jax.lax.stop_gradient((weight, rows, None)))
    still = jnp.zeros((jacobian.shape[0],), forces.dtype)
    moved = jax.vmap(lambda f: solve(factors, weight, rows, None, f, still)[0])(forces)
    return moved if mass is None else mass.root_times(moved.T).T


def _checked(motor: Any, goal: Any, lam: Any, jacobian: Any, mass: Any) -> int:
    """Check all shapes, and return nv."""
    matrices = {"motor_jacobian": motor, "goal_jacobian": goal}
    if jacobian is not None:
        matrices["constraint_jacobian"] = jacobian
    for name, x in matrices.items():
        if jnp.ndim(x) != 2 or jnp.shape(x)[1] != jnp.shape(motor)[-1]:
            raise ValueError(
                f"{name} must have shape (rows, nv) with equal nv, got "
                f"{ ({n: jnp.shape(m) for n, m in matrices.items()}) }"
            )
    nv = motor.shape[1]
    if motor.shape[0] == 0:
        raise ValueError("motor_jacobian must have at least one row, one per motor")
    if jnp.shape(lam) != (goal.shape[0],):
        raise ValueError(
            f"goal_lam must have one entry per row of goal_jacobian, shape ({goal.shape[0]},), got "
            f"{jnp.shape(lam)}"
        )
    size = None if mass is None else mass.shape
    if size not in (None, (nv, nv)):
        raise ValueError(f"mass must have shape ({nv}, {nv}), got {size}")
    return nv


@pytree
class VirtualWork:
    """Motors that replace the forces of goals; see the module.

    Attributes:
        motors: outputs y(q) that the motors drive, such as `JointCoordinate`: a tuple; each output gives one
            motor per entry.
        lever: (t, q) -> (nm, nv), rows by which a unit of effort acts on the system; None for J_m itself.
        project: if true, the map considers only displacements that the constraints allow (2); if false, all
            displacements (1) (static).
        metric: metric of the least-squares solution, see `jaxdae.Metric` (static): `MASS` is the kinetic
            metric.
        rank_tolerance: singular values below this fraction of the largest count as zero.

    Map and lever differ in a step that is published as "controlling a pendulum with constraints". It solves
    (1) with J_m = [y, -x] / r^2 and applies tau [y, -x]. On the circle of radius 1 both are equal. Off the
    circle, where the steps lead, the published step is inconsistent with virtual work, by the factor r^2.
    """

    motors: tuple[Any, ...] = function_field()
    lever: Any = function_field(default=None)
    project: bool = static(one_of=bool, default=True)
    metric: Metric = static(one_of=Metric, default=Metric.EUCLIDEAN)
    rank_tolerance: Leaf = RANK_TOLERANCE

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        motors = self.motors
        outputs = isinstance(motors, tuple) and all(offers(motor, "__call__") for motor in motors)
        yield (
            outputs,
            "motors must be a tuple of outputs, such as (JointCoordinate.named(mechanism, 'elbow'),)",
        )
        yield fraction(self.rank_tolerance), "rank_tolerance must be at least 0 and below 1"

    def jacobian(self, system: AnySystem, state: State) -> Matrix:
        """Return J_m (nm, nv).

        Raises:
            ValueError: no motor, or an output that is not a vector.
        """
        if not self.motors:
            raise ValueError("VirtualWork.motors must hold at least one output")
        outputs = [
            lambda q, motor=motor: checked_vector("VirtualWork.motors: an output", motor(q))
            for motor in self.motors
        ]
        return jnp.concatenate([output_jacobian(system, state, output) for output in outputs])

    def levers(self, system: AnySystem, state: State) -> Matrix:
        """Return the rows by which efforts act (nm, nv); J_m if `lever` is None.

        Raises:
            ValueError: the shape of the lever differs from the shape of J_m.
        """
        jacobian = self.jacobian(system, state)
        if self.lever is None:
            return jacobian
        lever = jnp.asarray(self.lever(state.t, state.q), jacobian.dtype)
        if lever.shape != jacobian.shape:
            raise ValueError(
                f"VirtualWork.lever must return one row per motor, shape {jacobian.shape}, got {lever.shape}"
            )
        return lever

    def efforts(
        self,
        system: AnySystem,
        state: State,
        goal_jacobian: Any,
        goal_lam: Any,
        constraint_jacobian: Any = None,
    ) -> Vector:
        """Return the efforts tau (nm,) that replace J_e^T lam_e.

        Args:
            system: the mechanical system.
            state: time (s), coordinates and velocities.
            goal_jacobian: J_e (ne, nv).
            goal_lam: lam_e (ne,).
            constraint_jacobian: J of the system's hard rows, if already known. Soft rows do not transmit
                forces exactly.
        """
        if constraint_jacobian is None:
            constraint_jacobian = hard_rows(system.evaluate(state.t, state.q, state.v)).dense_jacobian
        use = self.project and constraint_jacobian.shape[0] > 0
        return motor_efforts(
            self.jacobian(system, state),
            goal_jacobian,
            goal_lam,
            constraint_jacobian=constraint_jacobian if use else None,
            mass=system.mass_operator(state.q) if self.metric is Metric.MASS else None,
            rank_tolerance=self.rank_tolerance,
        )
