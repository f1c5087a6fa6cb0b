"""Base classes of the integrators in this library, which pass factorizations between steps.

A user-defined integrator consists of two functions of plain states, `init` and `step` (see `Integrator`). The
methods in this library use a lower-level interface: their steps map a `Point` to a `Point`, a state with the
factorizations computed there. The factorization at the end of a step can thus serve the start of the next
step. A rollout carries the point separately from the memory of the method. `of_points` converts both kinds to
this interface for rollouts and wrappers.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
from jax.core import Tracer

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import offers
from jaxdae.base.suggestions import join_first
from jaxdae.compile.batch_factors import as_many_as
from jaxdae.compile.rematerialization import Keep
from jaxdae.dynamics.stabilization import NoStabilization, Stabilization
from jaxdae.integrators.equation_of_motion import motion
from jaxdae.integrators.integrator import Integrator, StepInfo
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.systems.linearization import Point
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Rows, Velocity


class Roles(NamedTuple):
    """The solver and stabilization that an integrator uses for accelerations; wrappers use the same.

    Attributes:
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row.
    """

    solver: SaddlePointSolver | None
    stabilization: Stabilization


class Method(abc.ABC):
    """Base class of the integrators in this library, without fields.

    The properties here have defaults for a method. A wrapper takes them from its inner integrator
    (`Wrapping`). A user-defined integrator can set attributes of the same names (`roles_of`, `switches_rows`,
    `samples_law`).
    """

    symmetric: ClassVar[bool] = False
    """Whether the order is two and the backward step reverses the forward step (see `Composition`)."""

    @property
    def switches(self) -> bool:
        """Whether steps switch constraint rows, starting from the rows of the system.

        Projections then belong inside the method.
        """
        return False

    @property
    def samples(self) -> bool:
        """Whether steps evaluate a feedback law at their start and carry its memory."""
        return False

    @property
    def is_plastic(self) -> bool:
        """Whether steps need contacts and joint limits without restitution."""
        return False

    @property
    def roles(self) -> Roles:
        """The solver and the stabilization of the method's dynamics, from its fields of these names."""
        return _roles_in_fields(self)

    @property
    def damping_limit(self) -> float:
        """The largest h mu for which the method damps v' = -mu v; infinity for implicit methods."""
        return float("inf")

    @property
    def position_share(self) -> Any:
        """The share s of h^2 a in the displacement of a step under a constant acceleration a.

        The default 1/2 holds for methods of order two and higher.
        """
        return 0.5

    @property
    def is_of_second_order(self) -> bool:
        """Whether a step displaces by h^2 a / 2 under a constant acceleration, as methods of order two do."""
        return bool(abs(self.position_share - 0.5) < 1e-9)

    def sampled_law(self, memory: Any, dt: Any) -> tuple[Any, int] | None:
        """Return (law, every) for a law that is evaluated every `every` steps and held.

        The default None means that there is no law to examine. The law is (t, state) -> u at this memory.

        Args:
            memory: from `init`, or from the previous step.
            dt: the step in s.
        """
        return None

    def system_input(self, u: Any) -> Any:
        """Return the part of the input u (nu,) that the system reads, by default u."""
        return u

    def on_linear_systems(self) -> Integrator:
        """Return the method for linear systems without rows: no contacts, no goals; by default itself."""
        return self

    def step_matrix(self, rate: Any) -> Any:
        """Return the matrix (2, 2) of a step of length 1 for (q, v)' = rate (q, v); explicit methods only."""
        raise NotImplementedError(f"{type(self).__name__}.step_matrix")

    def init(self, system: AnySystem, state: State) -> Any:
        """Return the memory that the method carries between steps; the default () is empty."""
        return ()

    @abc.abstractmethod
    def step(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
    ) -> tuple[State, Any, StepInfo]:
        """Return the state after dt, the memory, and the report of the step; see `Integrator`."""

    def reported(self, system: AnySystem, state: State, u: Any, dt: Any) -> tuple[Velocity, Rows]:
        """Return a (nv,) and lam (nc,) as reported by a step of length dt from a state.

        By default, these are the results of the dynamics at the state.
        """
        _, a, lam, _ = motion(system, state, u, *self.roles)
        return a, lam


class PointMethod(Method):
    """A method whose steps map points to points."""

    takes_linearization: ClassVar[bool] = True
    """Whether a step from a linearized point uses the linearization and returns one at its last stage."""
    begins_at_estimate: ClassVar[bool] = False
    """Whether the first stage evaluates the dynamics at the origin of the point; see `Point.estimate`."""

    def begin(self, system: AnySystem, state: State) -> Point:
        """Return the start point of a motion, linearized if steps of the method end with a linearization.

        Args:
            system: the mechanical system.
            state: the start.
        """
        return Point(state)

    @abc.abstractmethod
    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt, the memory, and the report of the step.

        Args:
            system: the mechanical system.
            point: from `begin`, or from the previous step. A rollout carries the point, so the linearization
                must have the same structure before and after a step.
            memory: from `init`, or from the previous step.
            u: constant input, or a feedback law of (t, state).
            dt: the step in s.
        """

    def step(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
    ) -> tuple[State, Any, StepInfo]:
        """Return the state after dt, the memory, and the report of a single step.

        The step does not pass on a factorization. Reverse mode saves only `Keep.STATES`, so user-written
        loops save as little as a rollout.
        """

        def single(start: State, memory: Any) -> tuple[State, Any, StepInfo]:
            return _begun_and_advanced(self, system, start, memory, u, dt)

        # Concrete values need no checkpoint, so do not trace every step.
        return (Keep.STATES.applied(single) if isinstance(state.q, Tracer) else single)(state, memory)


class Wrapping(Method):
    """A method around another method, its field `integrator`, with the same roles and memory."""

    integrator: Any

    @property
    def roles(self) -> Roles:
        """The solver and the stabilization of the inner integrator."""
        return roles_of(self.integrator)

    @property
    def solver(self) -> SaddlePointSolver | None:
        """The saddle-point solver of the inner integrator."""
        return self.roles.solver

    @property
    def stabilization(self) -> Stabilization:
        """The stabilization of the inner integrator."""
        return self.roles.stabilization

    @property
    def damping_limit(self) -> float:
        """The damping limit of the inner integrator."""
        return of_points(self.integrator).damping_limit

    @property
    def position_share(self) -> Any:
        """The position share of the inner integrator."""
        return of_points(self.integrator).position_share

    def sampled_law(self, memory: Any, dt: Any) -> tuple[Any, int] | None:
        """Return the sampled law of the inner integrator."""
        return sampled_law(self.integrator, memory, dt)

    def system_input(self, u: Any) -> Any:
        """Return the part of the input that the system reads, with the inner integrator."""
        return self.integrator.system_input(u) if isinstance(self.integrator, Method) else u

    def on_linear_systems(self) -> Integrator:
        """Return the wrapper around the inner integrator for linear systems."""
        inner: Any = {"integrator": on_linear_systems(self.integrator)}
        return dataclasses.replace(self, **inner)  # pyright: ignore[reportArgumentType]

    def step_matrix(self, rate: Any) -> Any:
        """Return the step matrix of the inner integrator."""
        return of_points(self.integrator).step_matrix(rate)

    @property
    def switches(self) -> bool:
        """Whether steps of the inner integrator switch rows."""
        return switches_rows(self.integrator)

    @property
    def resolves_contacts(self) -> bool:
        """Whether steps of the inner integrator apply contact forces."""
        return resolves_contacts(self.integrator)

    @property
    def is_plastic(self) -> bool:
        """Whether steps of the inner integrator need contacts without restitution."""
        return _says(self.integrator, "is_plastic")

    @property
    def samples(self) -> bool:
        """Whether steps of the inner integrator evaluate a feedback law at their start."""
        return samples_law(self.integrator)

    def init(self, system: AnySystem, state: State) -> Any:
        """Return the memory of the inner integrator."""
        return self.integrator.init(system, state)

    def reported(self, system: AnySystem, state: State, u: Any, dt: Any) -> tuple[Velocity, Rows]:
        """Return the dynamics that the inner integrator reports."""
        return reported_dynamics(self.integrator, system, state, u, dt)


class PointWrapping(Wrapping, PointMethod):
    """A wrapper whose steps map points to points, as the steps of the inner method do."""

    takes_linearization: ClassVar[bool] = False

    @property
    def inner(self) -> PointMethod:
        """The inner integrator as a method from point to point."""
        return of_points(self.integrator)

    def begin(self, system: AnySystem, state: State) -> Point:
        """Return the start point of the inner integrator."""
        return self.inner.begin(system, state)


@pytree
class _OfStates(Wrapping, PointMethod):
    """Adapter from an integrator of plain states to points; it passes on no factorization."""

    takes_linearization: ClassVar[bool] = False
    integrator: Integrator

    @property
    def damping_limit(self) -> float:
        """The damping limit of a wrapper of this library; else infinity, because the limit is unknown."""
        return self.integrator.damping_limit if isinstance(self.integrator, Method) else float("inf")

    @property
    def position_share(self) -> Any:
        """The position share of a wrapper of this library; else 1/2, as for methods of order two."""
        return self.integrator.position_share if isinstance(self.integrator, Method) else 0.5

    def step_matrix(self, rate: Any) -> Any:
        """Return the step matrix of a wrapper of this library."""
        inner: Any = self.integrator
        return inner.step_matrix(rate)

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the result of `step`, with its state as a point."""
        state, memory, info = self.integrator.step(system, point.state, memory, u, dt)
        return Point(state), memory, info


def of_points(integrator: Any) -> PointMethod:
    """Return any integrator as a method from point to point.

    If a class overrides `step`, the returned method calls that `step`, even if the class derives from a
    method of this library.
    """
    ours = isinstance(integrator, PointMethod) and type(integrator).step is PointMethod.step
    return integrator if ours else _OfStates(integrator)


def single_step(
    integrator: Any, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
) -> tuple[State, Any, StepInfo]:
    """Return the result of `step` of any integrator, for callers that set their own checkpoint policy."""
    return _begun_and_advanced(of_points(integrator), system, state, memory, u, dt)


def _begun_and_advanced(
    method: PointMethod, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
) -> tuple[State, Any, StepInfo]:
    point, memory, info = method.advance(system, method.begin(system, state), memory, u, dt)
    return point.state, memory, info


def switches_rows(integrator: Any) -> bool:
    """Return whether steps of any integrator switch constraint rows, like those of `Switching`."""
    return _says(integrator, "switches")


def resolves_contacts(integrator: Any) -> bool:
    """Return whether steps of any integrator apply contact forces, like those of `Touching`."""
    return _says(integrator, "resolves_contacts")


def check_resolves(system: AnySystem, integrator: Any) -> None:
    """Raise ValueError if steps would ignore contacts, joint limits or dry friction, or their restitution."""
    if system.touches and not resolves_contacts(integrator):
        raise ValueError(
            f"{type(integrator).__name__} ignores the contacts, joint limits and dry friction of the system; "
            "write contact.Touching(integrator), or remove them with without_contacts()"
        )
    if _says(integrator, "is_plastic") and system.rebounding:
        raise ValueError(
            f"the restitution of {join_first(system.rebounding)} must be 0, because ContactStepping stops "
            "bodies before they rebound; use Touching"
        )


def begun_with(integrator: Any, system: AnySystem, state: State, *others: Any) -> Point:
    """Return the start point of a loop over steps; its factorization is constant under differentiation.

    Args:
        integrator: the method.
        system: the mechanical system.
        state: the start.
        others: all other values that the steps depend on. If any of them differs between the worlds of a
            batch, each world factorizes its own start.
    """
    still = jax.lax.stop_gradient((system, state, integrator, others))
    begun = of_points(integrator).begin(still[0], as_many_as(still[1], *still))
    return Point(state, begun.linearization, estimate=None if begun.estimate is None else state.q)


def samples_law(integrator: Any) -> bool:
    """Return whether steps of any integrator evaluate a feedback law at their start, like `Sampled`."""
    return _says(integrator, "samples")


def sampled_law(integrator: Any, memory: Any, dt: Any) -> tuple[Any, int] | None:
    """Return (law, every) of the sampled law of any integrator, or None; see `Method.sampled_law`."""
    return integrator.sampled_law(memory, dt) if isinstance(integrator, Method) else None


def on_linear_systems(integrator: Any) -> Any:
    """Return any integrator for linear systems without rows; see `Method.on_linear_systems`."""
    return integrator.on_linear_systems() if isinstance(integrator, Method) else integrator


def is_symmetric(integrator: Any) -> bool:
    """Return whether any integrator declares order two and a backward step that reverses its forward step."""
    return _says(integrator, "symmetric")


def _says(integrator: Any, attribute: str) -> bool:
    return offers(integrator, attribute) and getattr(integrator, attribute) is True


NOT_SWITCHING = (
    "integrator must not switch rows; write Switching(..., law) around projections, not inside them"
)
"""Message of wrappers that read the constraint rows after a step; `Switching` activates others."""


def roles_of(integrator: Any) -> Roles:
    """Return the solver and the stabilization of any integrator."""
    return integrator.roles if isinstance(integrator, Method) else _roles_in_fields(integrator)


def _roles_in_fields(integrator: Any) -> Roles:
    """Return the fields `solver` and `stabilization`, by default None and `NoStabilization()`."""
    solver = integrator.solver if offers(integrator, "solver") else None
    stabilization = integrator.stabilization if offers(integrator, "stabilization") else None
    return Roles(solver, stabilization or NoStabilization())


def reported_dynamics(
    integrator: Any, system: AnySystem, state: State, u: Any, dt: Any
) -> tuple[Velocity, Rows]:
    """Return accelerations and multipliers at a state as any integrator reports them.

    This is the result of `Method.reported`, or of the dynamics if the integrator has no such method.
    """
    if offers(integrator, "reported"):
        return integrator.reported(system, state, u, dt)
    _, a, lam, _ = motion(system, state, u, *roles_of(integrator))
    return a, lam
