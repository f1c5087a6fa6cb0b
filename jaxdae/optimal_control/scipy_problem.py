"""An optimal control problem as functions of one vector, for the optimizers of SciPy and Ipopt.

The unknowns are the inputs of all stages, x = (u_0, u_1, ...). Simulation computes the states from them
(single shooting). All functions take and return NumPy arrays, are compiled once, and have exact derivatives:

    fun(x), jac(x), hessp(x, p), hess(x)        J and its gradient, Hessian-vector products, and the Hessian
    bounds                                      the limits of the inputs
    constraints                                 dictionaries with type, fun, jac and hess(x, y);
                                                "eq" is fun = 0, "ineq" is fun >= 0

SciPy and `Problem` use opposite signs for inequalities: the SciPy "ineq" is -c.

References:
    SciPy, `scipy.optimize.minimize`. cyipopt, `minimize_ipopt`, which takes the same arguments, and `hess` in
    constraints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.optimal_control.augmented_lagrangian import all_rows, total_cost
from jaxdae.optimal_control.problem import Problem, begin_status, checked_problem, finite_or_raise
from jaxdae.optimal_control.shooting import motion
from jaxdae.systems.status import SimulationError, Status
from jaxdae.systems.system import State


@dataclasses.dataclass(frozen=True)
class ScipyProblem:
    """Arguments for `scipy.optimize.minimize` and cyipopt's `minimize_ipopt`.

    Call `minimize(**as_scipy(problem, guess).arguments)`.

    Attributes:
        fun: x -> J; infinite if the motion fails.
        x0: the guess (n,).
        jac: x -> dJ/dx (n,).
        hessp: (x, p) -> Hessian-vector product (n,) with p.
        hess: x -> the Hessian (n, n).
        bounds: (lower, upper) of every entry, with None for no limit; None without any limits.
        constraints: dictionaries with the keys type, fun, jac and hess.
        shape: (stages, nu).
    """

    fun: Callable[[Any], float]
    x0: np.ndarray
    jac: Callable[[Any], np.ndarray]
    hessp: Callable[[Any, Any], np.ndarray]
    hess: Callable[[Any], np.ndarray]
    bounds: list[tuple[float | None, float | None]] | None
    constraints: list[dict[str, Any]]
    shape: tuple[int, int]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments for all methods; add `hessp` or `hess` for methods that use them."""
        return {
            "fun": self.fun,
            "x0": self.x0,
            "jac": self.jac,
            "bounds": self.bounds,
            "constraints": self.constraints,
        }

    def controls(self, x: Any) -> np.ndarray:
        """Return the inputs (stages, nu) from a vector."""
        return np.asarray(x).reshape(self.shape)


def as_scipy(problem: Problem, controls: Any) -> ScipyProblem:
    """Return a problem as functions of the inputs of all stages in one vector.

    Args:
        problem: the problem.
        controls: the guess (stages, nu).

    Raises:
        TypeError, ValueError: invalid fields of `Problem`, or arguments that do not fit.
        SimulationError: a start that does not satisfy the constraints, or, for the guess, a motion that fails
            or a cost that is not finite.
    """
    problem, controls = checked_problem(problem, controls)
    finite_or_raise("controls", controls)
    shape = controls.shape

    def vector(x: Any) -> Array:
        return jnp.asarray(np.asarray(x), controls.dtype)

    def cost(x: Any) -> float:
        value, status = _value(problem, vector(x), shape)
        return float(value) if status == Status.OK and np.isfinite(value) else float("inf")

    # If the cost is infinite and its slope is zero, optimizers stop immediately and report success.
    value, status = _value(problem, jnp.ravel(controls), shape)
    if status != Status.OK or not np.isfinite(value):
        found = Status.NONFINITE if status == Status.OK else Status(int(status))
        raise SimulationError(f"as_scipy: {found.name} at the guess, whose cost is {value}: {found.meaning}")

    bounds = None
    if problem.limited:
        limits = (np.tile(np.asarray(limit), shape[0]) for limit in problem.limits(controls))
        bounds = [
            tuple(float(x) if np.isfinite(x) else None for x in pair) for pair in zip(*limits, strict=True)
        ]
    sizes = jax.eval_shape(lambda: _rows(problem, jnp.ravel(controls), shape))
    constraints = [_constraint(problem, shape, vector, k) for k in range(2) if sizes[k].shape[0]]
    return ScipyProblem(
        fun=cost,
        x0=np.asarray(controls).ravel(),
        jac=lambda x: np.asarray(_slope(problem, vector(x), shape)),
        hessp=lambda x, p: np.asarray(_product(problem, vector(x), vector(p), shape)),
        hess=lambda x: np.asarray(_hessian(problem, vector(x), shape)),
        bounds=bounds,  # pyright: ignore[reportArgumentType]
        constraints=constraints,
        shape=(shape[0], shape[1]),
    )


def _constraint(
    problem: Problem, shape: tuple[int, ...], vector: Callable[[Any], Array], which: int
) -> dict[str, Any]:
    sign = -1.0 if which else 1.0
    return {
        "type": "ineq" if which else "eq",
        "fun": lambda x: sign * np.asarray(_rows(problem, vector(x), shape)[which]),
        "jac": lambda x: sign * np.asarray(_rows_jacobian(problem, vector(x), shape)[which]),
        "hess": lambda x, y: sign * np.asarray(_rows_hessian(problem, vector(x), vector(y), shape, which)),
    }


def _states(problem: Problem, x: Array, shape: tuple[int, ...]) -> tuple[State, Array, Array]:
    controls = x.reshape(shape)
    trial = motion(problem, controls, begin_status(problem, controls))
    return trial.states, trial.controls, trial.status


def _cost(problem: Problem, x: Array, shape: tuple[int, ...]) -> Array:
    states, controls, _ = _states(problem, x, shape)
    return total_cost(problem, states, controls)


def _all_rows(problem: Problem, x: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    states, controls, _ = _states(problem, x, shape)
    (h, c), (hf, cf) = all_rows(problem, states, controls)
    return jnp.concatenate([jnp.ravel(h), hf]), jnp.concatenate([jnp.ravel(c), cf])


@partial(jax.jit, static_argnames="shape")
def _value(problem: Problem, x: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    states, controls, status = _states(problem, x, shape)
    return total_cost(problem, states, controls), status


_slope = jax.jit(jax.grad(_cost, argnums=1), static_argnames="shape")
_hessian = jax.jit(jax.hessian(_cost, argnums=1), static_argnames="shape")
_rows = jax.jit(_all_rows, static_argnames="shape")
_rows_jacobian = jax.jit(jax.jacfwd(_all_rows, argnums=1), static_argnames="shape")


@partial(jax.jit, static_argnames="shape")
def _product(problem: Problem, x: Array, p: Array, shape: tuple[int, ...]) -> Array:
    return jax.jvp(lambda at: jax.grad(_cost, argnums=1)(problem, at, shape), (x,), (p,))[1]


@partial(jax.jit, static_argnames=("shape", "which"))
def _rows_hessian(problem: Problem, x: Array, y: Array, shape: tuple[int, ...], which: int) -> Array:
    return jax.hessian(lambda at: y @ _all_rows(problem, at, shape)[which])(x)
