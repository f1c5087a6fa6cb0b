"""Computed torque: inputs that impose linear error dynamics on chosen outputs, constraints included.

The accelerations of a constrained system are affine in its inputs, a = a0 + A_u u with
a0 = L11 f0 - L12 gamma and A_u = L11 B. The accelerations of outputs y(q), y'' = Jy a + b, are therefore also
affine in u. The error dynamics

    e'' + Kd e' + Kp e = 0,      e = yd - y,

give linear equations for u, with the multipliers eliminated:

    Jy A_u u = yd'' + Kd e' + Kp e - Jy a0 - b.

The pseudoinverse solves them. The solution is exact if the motors can produce the requested accelerations. It
has the smallest inputs if several inputs produce them, and it is a least-squares solution if no input does.
Outputs that the motors cannot move (a singular configuration) get zero input instead of an infinite one.

For an open arm this is the classical law tau = M (qd'' + Kd e' + Kp e) + c. With constraints, no manual
elimination is necessary, and the choice of coordinates does not matter.

References:
    J. Y. S. Luh, M. W. Walker, R. P. C. Paul, "Resolved-acceleration control of mechanical manipulators",
    IEEE Transactions on Automatic Control 25 (1980). F. Aghili, "A unified approach for inverse and direct
    dynamics of constrained multibody systems based on linear projection operator", IEEE Transactions on
    Robotics 21 (2005).
"""

from __future__ import annotations

from typing import Any

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import fraction
from jaxdae.control.gravity import solve_inputs
from jaxdae.control.inputs import input_response
from jaxdae.control.outputs import OutputMotion, apply_gain, output_motion, reference_motion
from jaxdae.saddle_point.saddle_point_solver import SOLVER_TEXT, is_solver
from jaxdae.systems.system import MODEL_TEXT, AnySystem, State, is_system
from jaxdae.typing import Input, Leaf


def commanded(reference: Any, kp: Any, kd: Any, t: Any, y: OutputMotion) -> Any:
    """Return yd'' + Kd e' + Kp e (ny,), the output accelerations that make the errors decay.

    Raises:
        ValueError: gains or a reference that do not fit the output.
    """
    target, target_rate, target_second = reference_motion(reference, t, y.value)
    feedback = apply_gain("kp", kp, target - y.value) + apply_gain("kd", kd, target_rate - y.rate)
    if feedback.shape != y.value.shape:
        raise ValueError(
            f"kp and kd must give one acceleration per output, shape {y.value.shape}, got {feedback.shape}"
        )
    return target_second + feedback


@pytree(kw_only=True)
class ComputedTorque:
    """Inputs with which outputs of a constrained system obey e'' + Kd e' + Kp e = 0.

    Attributes:
        model: the controller's model of the system.
        output: y(q), a pytree with `__call__(q)`; at most as many outputs as independent motors.
        reference: yd: (ny,), a number, or a pytree with `__call__(t)`, twice differentiable.
        kp: in 1/s^2: a number, (ny,) or (ny, ny).
        kd: in 1/s; 2 sqrt(kp) is critical damping.
        solver: a saddle-point solver; None for `NullSpace()`, which allows dependent rows;
            `SchurComplement()` is faster.
        rank_tolerance: the motors cannot move an output direction if their effect on it is below this
            fraction of their largest effect.
        inputs: the number of inputs, if the model does not define it (static).

    If an integrator evaluates the law at every stage, the error equation holds to the accuracy of the
    integrator. In `Sampled`, it holds to first order in the period. Differentiable where the rank does not
    change.
    """

    model: AnySystem
    output: Any = function_field()
    reference: Any = function_field()
    kp: Leaf
    kd: Leaf
    solver: Leaf = None
    rank_tolerance: Leaf = 1e-5
    inputs: int | None = static(default=None)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_system(self.model), MODEL_TEXT
        yield is_solver(self.solver), SOLVER_TEXT
        yield fraction(self.rank_tolerance), "rank_tolerance must be at least 0 and below 1"

    def __call__(self, t: Any, state: State) -> Input:
        """Return u (nu,)."""
        at = State(t, state.q, state.v)
        response = input_response(self.model, at, self.inputs, solver=self.solver)
        y = output_motion(self.model, self.output, at)
        wanted = commanded(self.reference, self.kp, self.kd, t, y)
        return solve_inputs(
            y.jacobian @ response.matrix, wanted - y.jacobian @ response.drift - y.bias, self.rank_tolerance
        )
