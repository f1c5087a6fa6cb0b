"""What our own methods have in common, and how they hand on what they factorized.

An integrator of a user's own is two functions of plain states, `init` and `step` (see `Integrator`). Ours are written one floor below that:
they go from `Point` to `Point`, a state with what was factorized there, so that the end of a step serves the beginning of the next. A
rollout carries the point; the memory of a method is memory only. `of_points` makes both kinds alike for rollouts and wrappers.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
from jax.core import Tracer

from jaxdae._pytree import pytree
from jaxdae.batching.last import as_many_as
from jaxdae.checkpointing import Keep
from jaxdae.integrators.interface import Integrator, StepInfo
from jaxdae.integrators.motion import motion
from jaxdae.linearization import Point
from jaxdae.requirements import offers
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.stabilization import NoStabilization, Stabilization
from jaxdae.system import AnySystem, State
from jaxdae.typing import Rows, Velocity


class Roles(NamedTuple):
    """How an integrator solves for accelerations; what is solved around it is solved likewise.

    Attributes:
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row.
    """

    solver: SaddlePointSolver | None
    stabilization: Stabilization


class Method(abc.ABC):
    """An integrator of this library, without fields.

    What is told here of a method by default is told of a wrapper by the integrator inside (`Wrapping`), and of an integrator of a user's
    own by attributes of the same names (`roles_of`, `switches_rows`, `samples_law`).
    """

    symmetric: ClassVar[bool] = False
    """Whether the method is of order two and its step backward undoes its step forward: `Composition` takes no other."""

    @property
    def switches(self) -> bool:
        """Whether steps switch constraint rows, of which those of the system are only the first: projections belong inside then."""
        return False

    @property
    def samples(self) -> bool:
        """Whether steps evaluate a feedback law at their start, and remember what it remembers."""
        return False

    @property
    def roles(self) -> Roles:
        """The solver and the stabilization of the method's dynamics: its fields of these names."""
        return _roles_in_fields(self)

    @property
    def damping_limit(self) -> float:
        """The largest h mu for which the method damps v' = -mu v; infinity, the default, for implicit methods."""
        return float("inf")

    @property
    def position_share(self) -> Any:
        """The share s of h^2 a in the displacement of a step under a constant acceleration a: 1/2, the default, from order two on."""
        return 0.5

    def sampled_law(self, memory: Any, dt: Any) -> tuple[Any, int] | None:
        """Return (law, every) of a law that is evaluated every so many steps and held; None, the default, for none to examine.

        Args:
            memory: from `init`, or from the step before.
            dt: the step in s.

        The law is (t, state) -> u at this memory.
        """
        return None

    def step_matrix(self, rate: Any) -> Any:
        """Return the matrix (2, 2) by which a step of length 1 multiplies (q, v) with (q, v)' = rate (q, v); of explicit methods only."""
        raise NotImplementedError(f"{type(self).__name__}.step_matrix")

    def init(self, system: AnySystem, state: State) -> Any:
        """Returns the memory that the method carries from step to step: (), none."""
        return ()

    @abc.abstractmethod
    def step(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt, the memory, and what the step found out; see `Integrator`."""

    def reported(self, system: AnySystem, state: State, u: Any, dt: Any) -> tuple[Velocity, Rows]:
        """Returns a (nv,) and lam (nc,) as a step of length dt that begins at a state reports them: those of the dynamics there."""
        _, a, lam, _ = motion(system, state, u, *self.roles)
        return a, lam


class PointMethod(Method):
    """A method whose steps go from point to point."""

    takes_linearization: ClassVar[bool] = True
    """Whether a step that begins at a point with a linearization solves with it. Such a step keeps that of its last stage as well."""
    begins_at_estimate: ClassVar[bool] = False
    """Whether its first stage takes the dynamics at the origin of the point, where that is not its state; see `Point.estimate`."""

    def begin(self, system: AnySystem, state: State) -> Point:
        """Returns the point at which a motion begins, linearized where the steps of the method end with a linearization.

        Args:
            system: the mechanical system.
            state: the start.
        """
        return Point(state)

    @abc.abstractmethod
    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt, the memory, and what the step found out.

        Args:
            system: the mechanical system.
            point: from `begin`, or from the step before. A rollout carries its linearization: from such a point to one alike.
            memory: from `init`, or from the step before.
            u: input that is held constant, or a law of (t, state).
            dt: the step in s.
        """

    def step(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt, the memory, and what the step found out: a step of its own, that hands on no factorization.

        Reverse mode keeps `Keep.STATES` of it, so that loops of a user's own keep as little as a rollout does.
        """

        def single(start: State, memory: Any) -> tuple[State, Any, StepInfo]:
            return _begun_and_advanced(self, system, start, memory, u, dt)

        # Of numbers nothing is kept, and they need not be traced, step by step.
        return (Keep.STATES.applied(single) if isinstance(state.q, Tracer) else single)(state, memory)


class Wrapping(Method):
    """A method around another one, its field `integrator`, whose roles and memory it has."""

    integrator: Any

    @property
    def roles(self) -> Roles:
        """The solver and the stabilization of the integrator inside."""
        return roles_of(self.integrator)

    @property
    def solver(self) -> SaddlePointSolver | None:
        """The saddle-point solver of the integrator inside."""
        return self.roles.solver

    @property
    def stabilization(self) -> Stabilization:
        """The stabilization of the integrator inside."""
        return self.roles.stabilization

    @property
    def damping_limit(self) -> float:
        """The limit of the integrator inside."""
        return of_points(self.integrator).damping_limit

    @property
    def position_share(self) -> Any:
        """The share of the integrator inside."""
        return of_points(self.integrator).position_share

    def sampled_law(self, memory: Any, dt: Any) -> tuple[Any, int] | None:
        """Return the law of the integrator inside."""
        return sampled_law(self.integrator, memory, dt)

    def step_matrix(self, rate: Any) -> Any:
        """Return the matrix of the integrator inside."""
        return of_points(self.integrator).step_matrix(rate)

    @property
    def switches(self) -> bool:
        """Whether steps of the integrator inside switch rows."""
        return switches_rows(self.integrator)

    @property
    def samples(self) -> bool:
        """Whether steps of the integrator inside evaluate a law at their start."""
        return samples_law(self.integrator)

    def init(self, system: AnySystem, state: State) -> Any:
        """Returns the memory of the integrator inside."""
        return self.integrator.init(system, state)

    def reported(self, system: AnySystem, state: State, u: Any, dt: Any) -> tuple[Velocity, Rows]:
        """Returns what the integrator inside does."""
        return reported_dynamics(self.integrator, system, state, u, dt)


class PointWrapping(Wrapping, PointMethod):
    """A wrapper whose steps go from point to point, like those of the method inside."""

    takes_linearization: ClassVar[bool] = False

    @property
    def inner(self) -> PointMethod:
        """The integrator inside, from point to point."""
        return of_points(self.integrator)

    def begin(self, system: AnySystem, state: State) -> Point:
        """Returns the point at which the integrator inside begins."""
        return self.inner.begin(system, state)


@pytree
class _OfStates(Wrapping, PointMethod):
    """An integrator that is written for plain states, between points: nothing is handed on."""

    takes_linearization: ClassVar[bool] = False
    integrator: Integrator

    @property
    def damping_limit(self) -> float:
        """Infinity: nothing is known."""
        return float("inf")

    @property
    def position_share(self) -> Any:
        """1/2, as of methods of order two."""
        return 0.5

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns what the step returns, its state as a point."""
        state, memory, info = self.integrator.step(system, point.state, memory, u, dt)
        return Point(state), memory, info


def of_points(integrator: Any) -> PointMethod:
    """Returns any integrator as a method that goes from point to point.

    A class that writes a `step` of its own means it, also where it is derived from one of ours: that step is made then.
    """
    ours = isinstance(integrator, PointMethod) and type(integrator).step is PointMethod.step
    return integrator if ours else _OfStates(integrator)


def single_step(integrator: Any, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
    """Returns what `step` of any integrator does, for those who say themselves what reverse mode keeps."""
    return _begun_and_advanced(of_points(integrator), system, state, memory, u, dt)


def _begun_and_advanced(method: PointMethod, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
    point, memory, info = method.advance(system, method.begin(system, state), memory, u, dt)
    return point.state, memory, info


def switches_rows(integrator: Any) -> bool:
    """Returns whether steps of any integrator switch constraint rows, as those of `Switching` do."""
    return _says(integrator, "switches")


def begun_with(integrator: Any, system: AnySystem, state: State, *others: Any) -> Point:
    """Returns the start of a loop over steps of any integrator, whose factorization is constant under differentiation.

    Args:
        integrator: the method.
        system: the mechanical system.
        state: the start.
        others: all else that the steps depend on: in a batch where any of it differs from world to world, each factorizes its start.
    """
    still = jax.lax.stop_gradient((system, state, integrator, others))
    begun = of_points(integrator).begin(still[0], as_many_as(still[1], *still))
    return Point(state, begun.linearization, estimate=None if begun.estimate is None else state.q)


def samples_law(integrator: Any) -> bool:
    """Returns whether steps of any integrator evaluate a feedback law at their start, as those of `Sampled` do."""
    return _says(integrator, "samples")


def sampled_law(integrator: Any, memory: Any, dt: Any) -> tuple[Any, int] | None:
    """Return (law, every) of the sampled law of any integrator at its memory, None for none; see `Method.sampled_law`."""
    return integrator.sampled_law(memory, dt) if isinstance(integrator, Method) else None


def is_symmetric(integrator: Any) -> bool:
    """Returns whether any integrator says that it is of order two and that its step backward undoes its step forward."""
    return _says(integrator, "symmetric")


def _says(integrator: Any, attribute: str) -> bool:
    return offers(integrator, attribute) and getattr(integrator, attribute) is True


NOT_SWITCHING = "integrator must not switch rows: write Switching(..., law) around projections, not inside of them"
"""What wrappers say that look at constraint rows after a step: those of the system, which are not those that are on then."""


def roles_of(integrator: Any) -> Roles:
    """Returns the solver and the stabilization of any integrator."""
    return integrator.roles if isinstance(integrator, Method) else _roles_in_fields(integrator)


def _roles_in_fields(integrator: Any) -> Roles:
    """Returns the fields `solver` and `stabilization`, None for the solver of the system and no stabilization where there are none."""
    solver = integrator.solver if offers(integrator, "solver") else None
    stabilization = integrator.stabilization if offers(integrator, "stabilization") else None
    return Roles(solver, stabilization or NoStabilization())


def reported_dynamics(integrator: Any, system: AnySystem, state: State, u: Any, dt: Any) -> tuple[Velocity, Rows]:
    """Returns accelerations and multipliers at a state as any integrator sees them: `Method.reported`, or those of the dynamics."""
    if offers(integrator, "reported"):
        return integrator.reported(system, state, u, dt)
    _, a, lam, _ = motion(system, state, u, *roles_of(integrator))
    return a, lam
