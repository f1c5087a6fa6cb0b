"""Model-predictive control: at every sampling instant, optimize the inputs of a horizon and apply the first.

The plan from time s is the guess at time t: it is shifted by (t - s) / T stages of duration T, and the last
input is held. Between two stages the guess is interpolated; the shift is exact if the sampling period is a
whole number of stages. From such a guess one or two passes of the solver suffice: the real-time iteration.
The multipliers of the constraints are shifted in the same way.

Reference:
    M. Diehl, H. G. Bock, J. P. Schloeder, "A real-time iteration scheme for nonlinear optimization in optimal
    feedback control", SIAM Journal on Control and Optimization 43 (2005).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import checked_count
from jaxdae.control.law import refuse_call
from jaxdae.optimal_control.augmented_lagrangian import Multipliers, no_multipliers
from jaxdae.optimal_control.expansion import Curvature
from jaxdae.optimal_control.iteration import Options, solve
from jaxdae.optimal_control.problem import Problem, checked_problem
from jaxdae.optimal_control.shooting import Single
from jaxdae.systems.status import Status
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Input, Leaf


@pytree
class Plan:
    """The memory of `ModelPredictive`.

    Attributes:
        t: the time of the plan, in s ().
        controls: the inputs of the stages from this time on (stages, nu).
        multipliers: multipliers of the constraints.
        cost: the cost of the plan ().
        violation: the largest constraint violation of the plan ().
        status: OK if every plan succeeded, else the status of the first failed plan ().
        failures: the number of failed plans ().
    """

    t: Leaf
    controls: Leaf
    multipliers: Leaf
    cost: Leaf
    violation: Leaf
    status: Leaf
    failures: Leaf


@pytree(kw_only=True)
class ModelPredictive:
    """A law with memory that solves an optimal control problem at every sampling instant.

    It runs inside `Sampled(integrator, law, every)`.

    If planning fails because the motion fails or is not finite, the previous plan remains in place, shifted.
    `Plan.status` and `Plan.failures` in the memory of the trajectory report this. The law applies a plan with
    violated constraints, because the next plan continues from it. `Plan.violation` reports the violation.
    Constraints that cannot be satisfied within the input limits, such as a goal that the horizon does not
    reach, stay violated. Their multipliers grow from plan to plan, and the inputs then oscillate or stall.
    Put such a goal in the cost.

    Attributes:
        problem: the problem over the horizon. Its system is the model; the current state replaces its start.
            With dependent rows, pass `problem.counted()`. If the plant satisfies the constraints less
            accurately than a start must, use a larger `start_tolerance`.
        guess: the first inputs (stages, nu), such as `ilqr(problem, zeros).controls`.
        iterations: passes of the solver at each instant (static).
        curvature: the second derivatives to use (static).
        damping: mu at the start of each instant.
        penalty: penalty of the constraints.
        tolerance: tolerance of the projected gradient, relative to 1 + |J|; sqrt(eps) by default. If it is
            met, the solver does not move.
    """

    examined: ClassVar[bool] = False  # The stability check of sampling would solve the problem eleven times.
    problem: Problem
    guess: Leaf
    iterations: int = static(one_of=int, default=1)
    curvature: Curvature = static(one_of=Curvature, default=Curvature.GAUSS_NEWTON)
    damping: Leaf = 1e-6
    penalty: Leaf = 100.0
    tolerance: Leaf = None

    def __call__(self, t: Any, state: State) -> Input:
        """Raise TypeError: the law has a memory."""
        refuse_call(self)

    def init(self, system: AnySystem, state: State) -> Plan:
        """Return the first guess as a plan."""
        checked_count("ModelPredictive.iterations", self.iterations)
        problem, controls = checked_problem(dataclasses.replace(self.problem, state=state), self.guess)
        none, zero = jnp.zeros((), jnp.int32), jnp.zeros((), controls.dtype)
        return Plan(
            state.t, controls, no_multipliers(problem, controls, self.penalty), zero, zero, none, none
        )

    def update(self, t: Any, state: State, memory: Plan, dt: Any) -> tuple[Input, Plan]:
        """Return the first input (nu,) of the new plan, and the plan."""
        state = State(jnp.asarray(t, state.q.dtype), state.q, state.v)
        problem, before = checked_problem(dataclasses.replace(self.problem, state=state), memory.controls)
        stages = (state.t - memory.t) / (problem.every * jnp.asarray(problem.dt, before.dtype))
        guess = shifted(before, stages)
        old = memory.multipliers
        multipliers = Multipliers(
            jax.tree.map(lambda y: shifted(y, stages), old.stages), old.final, old.penalty
        )
        eps = float(jnp.finfo(before.dtype).eps) ** 0.5
        given = (eps if self.tolerance is None else self.tolerance, eps, self.damping, self.penalty, -jnp.inf)
        options = Options(*(jnp.asarray(x, before.dtype) for x in given))
        with jax.named_scope("model_predictive"):
            plan = (problem, Single(), guess, None, options, multipliers)
            found = solve(*plan, iterations=self.iterations, curvature=self.curvature)
        made = (found.status == Status.OK) | (found.status == Status.NOT_CONVERGED)
        made &= jnp.all(jnp.isfinite(found.controls))
        controls: Any = jnp.where(made, found.controls, guess)
        new, fallback = (found.multipliers.stages, found.multipliers.final), (multipliers.stages, old.final)
        stages_kept, final_kept = jax.tree.map(lambda x, y: jnp.where(made, x, y), new, fallback)
        kept = Multipliers(stages_kept, final_kept, old.penalty)
        status: Any = jnp.where((memory.status == Status.OK) & ~made, found.status, memory.status)
        cost, violation = (
            jnp.where(made, found.cost, memory.cost),
            jnp.where(made, found.violation, memory.violation),
        )
        failures = memory.failures + (~made).astype(jnp.int32)
        return controls[0], Plan(state.t, controls, kept, cost, violation, status.astype(jnp.int32), failures)


def shifted(values: Array, stages: Array) -> Array:
    """Return values (k, ...) of stages, shifted by a number of stages; the last value is held.

    Between two stages the values are interpolated.
    """
    count = values.shape[0]
    # Times are sums of steps. A time that is early by a thousandth of a stage is on time.
    whole = jnp.floor(stages + 1e-3)
    part = jnp.clip(stages - whole, 0.0, 1.0)
    at = jnp.arange(count, dtype=jnp.int32) + whole.astype(jnp.int32)
    first, second = (values[jnp.clip(k, 0, count - 1)] for k in (at, at + 1))
    return first + jnp.where(part < 1e-3, 0.0, part) * (second - first)
