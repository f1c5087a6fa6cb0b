"""The velocity-level time stepper of physics engines, with goals in addition to constraints.

A step of length h from (t, q, v), with all quantities evaluated at its start:

    M (v+ - v) = h f + J^T p + sum_k A_k^T p_k
    J v+ + dg/dt = -(beta / h) g,      w(t, q, v+) = 0
    q+ = q (+) h v+

p is an impulse, and p / h the multiplier. beta is the fraction of the violation that a step removes: to first
order g+ = (1 - beta) g. The method is semi-implicit (v+ moves q) and of first order.

*Groups.* Goals are organized in groups, each with its own beta and one of three couplings:

    TOGETHER    solved with the system's own constraints and all other such groups, as one set of rows. Goals
                that contradict the constraints require a solver for dependent rows (`LeastSquares`,
                `NullSpace`) or compliance.
    FREE        decoupled, from the free velocity v + h M^-1 f alone: the forces as if the system had no
                constraints.
    AFTER       decoupled, from the velocity after the constraints, the TOGETHER groups and the preceding
                groups, in the order of `groups`.

The impulses of a group are processed in this order: `motors` replace them by motor impulses with the same
virtual work (`VirtualWork`); a `limit` clamps them to |p| <= h limit; then they act on the system. The report
contains the efforts p / h.

*Order of constraints and goals.* With `ConstraintOrder.LAST` the system's constraints are solved last, with
the clamped and replaced impulses of all goals on the right-hand side. The constraints therefore hold even if
goals saturate. If all groups are TOGETHER, without limits and without motors, the joint solution is already
final, and goals have the same rank as constraints. `ConstraintOrder.FREE` computes the constraint impulses
from the free velocity as well, and adds all impulses. The published step for a pendulum with a
motor uses this order. The constraints then hold only to the extent that goals do not act on them.

*Limits.* Saturated rows are clamped simultaneously. The other rows keep the impulses that were computed
without saturation. The derivative of the clamped impulse is zero with respect to the goals of a
saturated row, one with respect to its limit, and undefined at the corner.

*Soft goals.* With compliance C a row reads J v+ + C p = -(beta / h) psi. It is an implicit spring and damper
of stiffness k and damping d for beta = h k / (h k + d), C = 1 / (h (h k + d)), see `spring_and_damper`: from
p / h = -k (psi + h psi'+) - d psi'+. The compliance of the system's own rows enters in the same way, as
J v+ + C p, which is J a + C lam times h.

References:
    E. Catto, "Iterative dynamics with temporal coherence", Game Developers Conference (2005). R. Smith, "Open
    Dynamics Engine User Guide", section 3.8 (beta is its ERP, C its CFM / h). M. Anitescu, F. A. Potra,
    "Formulating dynamic multi-rigid-body contact problems with friction as solvable linear complementarity
    problems", Nonlinear Dynamics 14 (1997).
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import came, not_negative, offers
from jaxdae.control.goals import GOALS_TEXT, GoalRows, are_goals, goal_rows, input_count
from jaxdae.control.virtual_work import VirtualWork
from jaxdae.integrators.euler import SemiImplicitEuler
from jaxdae.integrators.integrator import StepInfo, input_at, step_info
from jaxdae.integrators.method import Method
from jaxdae.matrices import DenseRows
from jaxdae.saddle_point.derivative import solve
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import Linearization, factorized, linearize_at
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Input, Leaf, Rows, Velocity


class Coupling(enum.Enum):
    """The velocity from which the impulses of a group of goals are computed; see the module."""

    TOGETHER = "together"
    """With the system's constraints, as one set of rows."""
    FREE = "free"
    """Alone, from the velocity without any constraint."""
    AFTER = "after"
    """Alone, from the velocity after the constraints and the preceding groups."""


class ConstraintOrder(enum.Enum):
    """The order in which the system's own constraints are solved; see the module."""

    LAST = "last"
    """After the goals: the constraints hold."""
    FREE = "free"
    """From the velocity without any goal; impulses are added."""


@pytree(kw_only=True)
class GoalGroup:
    """Goals that are solved simultaneously.

    Attributes:
        goals: `Goal` or `FunctionGoal`, a tuple.
        beta: the fraction of the error that a step removes, between 0 and 2; a number, or one per row.
            Differentiable.
        coupling: solution together with the constraints or decoupled (static), see `Coupling`.
        motors: the motors that exert the forces; None to apply the goal forces directly.
        limit: largest effort in N or N m, per motor, or per row without `motors`; a number or an array. None
            for no limit.
        compliance: C, 1 / (kg) or 1 / (kg m^2): a number or one per row; None for hard rows.
        active: mask of active rows (nonzero or true): a number or one per row, or a law of (t, q) that
            returns them. None for always active. Values may change without recompilation and are not
            differentiated.
    """

    goals: tuple[Any, ...]
    beta: Leaf = 0.1
    coupling: Coupling = static(one_of=Coupling, default=Coupling.TOGETHER)
    motors: VirtualWork | None = None
    limit: Leaf = None
    compliance: Leaf = None
    active: Any = function_field(default=None)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield are_goals(self.goals), GOALS_TEXT
        yield (self.beta >= 0) & (self.beta <= 2), "beta must lie between 0 and 2"
        motors = self.motors
        yield (
            motors is None or offers(motors, "efforts", "levers"),
            "motors must be a VirtualWork((output, ...)) or None",
        )
        yield not_negative(self.limit), "limit must not be negative"
        yield not_negative(self.compliance), "compliance must not be negative"


@pytree
class SteppingInfo(StepInfo):
    """A `StepInfo` of step means, a = (v+ - v) / h and lam = p / h, plus results of goals and motors.

    Attributes:
        goal_lam: requested multipliers of the goals (k,) of each group; N or N m.
        efforts: applied efforts of each group after the limit: (nm,) of its motors, or goal_lam (k,) without
            motors.
    """

    goal_lam: Leaf
    efforts: Leaf


class _Group(NamedTuple):
    """Rows of a group at a state: J (k, nv), r (k,) with J dv + C p = r, and C (k,)."""

    jacobian: Any
    target: Any
    compliance: Any


@pytree
class VelocityStepping(Method):
    """The velocity-level step of physics engines; see the module.

    Attributes:
        beta: the fraction of the violation of the system's own constraints that a step removes; a number, or
            one per position-level row.
        groups: groups of goals, for motors and end effectors.
        solver: a saddle-point solver; None for the default solver of the system.
        constraints: the order in which the system's own constraints are solved (static).

    Inputs: u contains the inputs of the system's forces first, then the inputs of `InputTarget`s. The mass
    matrix must be invertible with `ConstraintOrder.FREE` only. Differentiable except with respect to
    `active`. A step needs one factorization without groups, or if all groups are TOGETHER without limits and
    without motors. Each set of rows that is solved separately needs one more.
    """

    beta: Leaf = 1.0
    groups: tuple[GoalGroup, ...] = ()
    solver: Leaf = None
    constraints: ConstraintOrder = static(one_of=ConstraintOrder, default=ConstraintOrder.LAST)

    # Without goals and rows, a step is one of semi-implicit Euler.
    position_share = SemiImplicitEuler.position_share
    damping_limit = SemiImplicitEuler.damping_limit
    step_matrix = SemiImplicitEuler.step_matrix

    def system_input(self, u: Any) -> Any:
        """Return the inputs of the system, without the inputs of goals."""
        if not callable(u):
            return self._inputs(u)[0]
        return lambda t, state: self._inputs(u(t, state))[0]

    def on_linear_systems(self) -> VelocityStepping:
        """Return the step without goals, whose outputs are functions of the coordinates of the system."""
        return dataclasses.replace(self, groups=())

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield (self.beta >= 0) & (self.beta <= 2), "beta must lie between 0 and 2"
        groups = self.groups
        fits = isinstance(groups, tuple | list) and all(isinstance(group, GoalGroup) for group in groups)
        yield fits, "groups must be a tuple of GoalGroup(goals=...)"

    def step(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
    ) -> tuple[State, Any, SteppingInfo]:
        """Return the state after dt, the memory, and the report.

        Raises:
            ValueError: entries of groups that do not fit their rows.
        """
        own_input, goal_input = self._inputs(input_at(u, state))
        terms = system.evaluate(state.t, state.q, state.v)
        push, at, target = (
            dt * terms.force(own_input),
            linearize_at(terms, self.solver),
            self._own_target(terms, dt),
        )
        with jax.named_scope("goals"):
            groups = [_assembled(group, system, state, goal_input, dt, at.mass) for group in self.groups]
        dv, p, impulses = self._together(at, push, target, groups)
        with jax.named_scope("efforts"):
            efforts: list[Any] = [None] * len(groups)
            applied = jnp.zeros_like(push)
            exchanged = any(group.motors is not None for group in self.groups)
            known = at.jacobian.as_dense() if exchanged and at.compliance is None else None
            for k in sorted(
                range(len(groups)), key=lambda k: self.groups[k].coupling is not Coupling.TOGETHER
            ):
                group, rows = self.groups[k], groups[k]
                if group.coupling is not Coupling.TOGETHER:
                    left = at.jacobian.transpose_times(p) + applied
                    given = push + left if group.coupling is Coupling.AFTER else push
                    alone = factorized(at.solver, at.mass, DenseRows(rows.jacobian), rows.compliance)
                    impulses[k] = solve(
                        alone.factors, alone.mass, alone.jacobian, alone.compliance, given, rows.target
                    )[1]
                effort, force = _applied(group, system, state, rows.jacobian, impulses[k], known, dt)
                efforts[k] = effort / dt
                applied = applied + force
        if any(_is_apart(group) for group in self.groups):
            dv, p = self._last(at, push, applied, target)
        new = State(state.t + dt, system.retract(state.q, dt * (state.v + dv)), state.v + dv)
        info = step_info(system, new, dv / dt, p / dt)
        return (
            new,
            memory,
            SteppingInfo(**vars(info), goal_lam=tuple(x / dt for x in impulses), efforts=tuple(efforts)),
        )

    def reported(self, system: AnySystem, state: State, u: Any, dt: Any) -> tuple[Velocity, Rows]:
        """Return the mean accelerations and multipliers of a step, including the effect of goals."""
        _, _, info = self.step(system, state, (), u, dt)
        return info.a, info.lam

    @property
    def _goal_inputs(self) -> int:
        """The number of inputs that goals read."""
        return input_count(tuple(goal for group in self.groups for goal in group.goals))

    def _inputs(self, u: Input) -> tuple[Input, Input]:
        """Return the inputs of the system, and the inputs of the goals."""
        count = self._goal_inputs
        if count == 0 or u is None:
            return u, None
        u = jnp.asarray(u)
        if u.ndim != 1 or u.shape[0] < count:
            raise ValueError(
                f"u must be a vector whose last {count} entries are the targets of goals, got shape {u.shape}"
            )
        own = u.shape[0] - count
        return (u[:own] if own else None), u[own:]

    def _own_target(self, terms: Evaluation, dt: Any) -> Rows:
        """Return r (nc,) of the system's own rows, J dv + C p = r."""
        g, rates = terms.position, terms.velocity
        beta = _spread("VelocityStepping.beta", self.beta, g, "position-level row")
        return -rates - jnp.pad(beta / dt * g, (0, rates.shape[0] - g.shape[0]))

    def _together(
        self, at: Linearization, push: Velocity, target: Rows, groups: list[_Group]
    ) -> tuple[Velocity, Rows, list[Any]]:
        """Return dv, p and the impulses of the TOGETHER groups; None for the impulses of the other groups."""
        impulses: list[Any] = [None] * len(groups)
        joint = [k for k, group in enumerate(self.groups) if group.coupling is Coupling.TOGETHER]
        if not joint:
            return *solve(at.factors, at.mass, at.jacobian, at.compliance, push, target), impulses
        rows = at.jacobian.shape[0]
        own = None if at.compliance is None else jnp.broadcast_to(at.compliance, (rows,))
        parts = [own, *(groups[k].compliance for k in joint)]
        lengths = [rows, *(groups[k].target.shape[0] for k in joint)]
        compliance = None
        if any(part is not None for part in parts):
            filled = [
                jnp.zeros((n,), push.dtype) if part is None else part
                for part, n in zip(parts, lengths, strict=True)
            ]
            compliance = jnp.concatenate(filled)
        jacobian = at.jacobian.stacked(*(DenseRows(groups[k].jacobian) for k in joint))
        both = factorized(at.solver, at.mass, jacobian, compliance)
        targets = jnp.concatenate([target, *(groups[k].target for k in joint)])
        dv, all_p = solve(both.factors, both.mass, both.jacobian, both.compliance, push, targets)
        start = rows
        for k, length in zip(joint, lengths[1:], strict=True):
            impulses[k] = all_p[start : start + length]
            start += length
        return dv, all_p[:rows], impulses

    def _last(
        self, at: Linearization, push: Velocity, applied: Velocity, target: Rows
    ) -> tuple[Velocity, Rows]:
        """Return dv and p of the system's own rows for given impulses of the goals."""
        if self.constraints is ConstraintOrder.LAST:
            return solve(at.factors, at.mass, at.jacobian, at.compliance, push + applied, target)
        dv, p = solve(at.factors, at.mass, at.jacobian, at.compliance, push, target)
        return dv + at.mass.solve(applied), p


def spring_and_damper(stiffness: Any, damping: Any, dt: Any) -> tuple[Any, Any]:
    """Return (beta, compliance) of a group whose rows are springs and dampers, integrated implicitly.

    Args:
        stiffness: k in N/m or N m/rad, non-negative.
        damping: d in N s/m or N m s/rad, non-negative. At least one of k and d must be positive.
        dt: the step length in s.

    Raises:
        ValueError: a known number is negative.
    """
    for name, x in (("stiffness", stiffness), ("damping", damping), ("dt", dt)):
        if not isinstance(x, Tracer) and not np.all(np.asarray(x) >= 0.0):
            raise ValueError(f"spring_and_damper: {name} must be non-negative, got {came(x)}")
    give = dt * stiffness + damping
    return dt * stiffness / give, 1.0 / (dt * give)


def _is_apart(group: GoalGroup) -> bool:
    return group.coupling is not Coupling.TOGETHER or group.motors is not None or group.limit is not None


def _assembled(group: GoalGroup, system: AnySystem, state: State, u: Input, dt: Any, mass: Any) -> _Group:
    """Return the rows of a group at a state; inactive rows are 0 dv + C p = 0 with C > 0."""
    rows: GoalRows = goal_rows(system, group.goals, state, u)
    beta = _spread("GoalGroup.beta", group.beta, rows.error)
    target = -rows.rate - beta / dt * rows.error
    compliance = (
        None if group.compliance is None else _spread("GoalGroup.compliance", group.compliance, target)
    )
    if group.active is None:
        return _Group(rows.jacobian, target, compliance)
    given = group.active(state.t, state.q) if callable(group.active) else group.active
    active = _spread(
        "GoalGroup.active", jax.lax.stop_gradient(jnp.asarray(given)).astype(bool), target, dtype=bool
    )
    # As in `Masked`: close to the pivots of rows in meters.
    off = jax.lax.stop_gradient(1.0 / mass.diagonal_mean())
    on = jnp.zeros_like(target) if compliance is None else compliance
    return _Group(
        jnp.where(active[:, None], rows.jacobian, 0.0),
        jnp.where(active, target, 0.0),
        jnp.where(active, on, off),
    )


def _applied(
    group: GoalGroup, system: AnySystem, state: State, jacobian: Any, impulse: Any, own: Any, dt: Any
) -> tuple[Any, Any]:
    """Return impulses of motors (of goals, without motors) and their generalized impulse (nv,)."""
    if group.motors is not None:
        impulse = group.motors.efforts(system, state, jacobian, impulse, own)
        jacobian = group.motors.levers(system, state)
    if group.limit is not None:
        bound = dt * _spread(
            "GoalGroup.limit", group.limit, impulse, "row" if group.motors is None else "motor"
        )
        impulse = jnp.clip(impulse, -bound, bound)
    return impulse, jacobian.T @ impulse


def _spread(name: str, value: Any, rows: Any, what: str = "row", dtype: Any = None) -> Any:
    """Return the value broadcast to one number per row.

    Raises:
        ValueError: neither a number nor one entry per row.
    """
    value = jnp.asarray(value, dtype or rows.dtype)
    if value.shape not in ((), rows.shape):
        raise ValueError(
            f"{name} must be a number or have one entry per {what}, shape {rows.shape}, got {value.shape}"
        )
    return jnp.broadcast_to(value, rows.shape)
