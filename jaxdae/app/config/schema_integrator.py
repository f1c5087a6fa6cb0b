"""The sections of integrators and projections."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jaxdae.app.config.section import Section


def _none_is_null(value: Any) -> Any:
    return None if value == "none" else value


class Projection(Section):
    """The projection of positions and velocities onto the constraints after each step."""

    position: Annotated[Literal["iterated", "linear"] | None, BeforeValidator(_none_is_null)] = Field(
        default="iterated", description="iterated (to round-off), linear (one linear step) or none"
    )
    velocity: bool = Field(default=True, description="whether to project velocities; true or false")
    metric: Literal["mass", "euclidean"] = Field(
        default="mass", description="mass (keeps the momentum along the constraints) or euclidean"
    )
    origin: Literal["estimate", "previous", "stage"] = Field(
        default="estimate",
        description="the point of linearization of the constraints: estimate, previous or stage",
    )
    iterations: int | None = Field(
        default=None, ge=1, le=100, description="the number of iterations; omit for the library's default"
    )
    tolerance: float | None = Field(
        default=None,
        gt=0,
        description="the largest violation that counts as converged, in m; omit for the library's default",
    )

    @model_validator(mode="after")
    def _iterations_where_iterated(self) -> "Projection":
        given = [key for key in ("iterations", "tolerance") if getattr(self, key) is not None]
        if given and self.position != "iterated":
            keys = " and ".join(given)
            raise ValueError(
                f"{keys} with position {self.position or 'none'}|{keys} only with position iterated|remove "
                f"{keys}"
            )
        return self

    @model_validator(mode="after")
    def _nothing_for_what_is_not_projected(self) -> "Projection":
        if self.position is None and self.origin != "estimate":
            raise ValueError(
                f"origin {self.origin} with position none|an origin only with projected positions|remove "
                "origin"
            )
        if self.position is None and not self.velocity and self.metric != "mass":
            raise ValueError(f"metric {self.metric} without any projection|projection none|remove metric")
        return self


Explicit = Literal[
    "explicit_euler",
    "semi_implicit_euler",
    "taylor",
    "lecture_taylor",
    "midpoint",
    "heun",
    "ralston3",
    "rk4",
    "dormand_prince5",
    "rkmk4",
]

_PROJECTION = "none, or {position: ..., velocity: ..., metric: ...}"


class Integrator(Section):
    """An explicit method. Constraints drift by its errors, so it is combined with projections."""

    type: Explicit = Field(description="the method")
    projection: Annotated[Projection | None, BeforeValidator(_none_is_null)] = Field(
        default=Projection(), description=_PROJECTION
    )


class Route(Section):
    """One of the three textbook methods of mobile robotics, based on an explicit method."""

    type: Literal["sequential", "projected_step", "projected_derivative"]
    of: Explicit = Field(default="rk4", description="the explicit method")
    projection: Annotated[Projection | None, BeforeValidator(_none_is_null)] = Field(
        default=None, description=_PROJECTION
    )

    @model_validator(mode="after")
    def _tableau_where_needed(self) -> "Route":
        if self.type == "projected_derivative" and self.of in (
            "semi_implicit_euler",
            "taylor",
            "lecture_taylor",
            "rkmk4",
        ):
            raise ValueError(
                f"projected_derivative of {self.of}|a Runge-Kutta method or explicit_euler|it needs a "
                "tableau: choose rk4"
            )
        return self


class HalfExplicit(Section):
    """The half-explicit Runge-Kutta method of order 4.

    Velocities satisfy the constraints, and positions are projected.
    """

    type: Literal["half_explicit4"]
    projection: Annotated[Projection | None, BeforeValidator(_none_is_null)] = Field(
        default=Projection(), description=_PROJECTION
    )


class VelocityStepping(Section):
    """The velocity-level time stepper of physics engines."""

    type: Literal["velocity_stepping"]
    beta: float = Field(
        default=1.0,
        gt=0,
        lt=2,
        description="the fraction of the violation that a step removes, between 0 and 2",
    )
    projection: Annotated[Projection | None, BeforeValidator(_none_is_null)] = Field(
        default=None, description=_PROJECTION
    )


class ContactStepping(Section):
    """The one-stage step with contact, without restitution."""

    type: Literal["contact_stepping"]
    projection: Annotated[None, BeforeValidator(_none_is_null)] = Field(
        default=None, description="none: the step closes the loops itself"
    )
    corrections: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="corrections that close the loops in each step; omit for the library's default",
    )


class _Iterated(Section):
    """A method that satisfies the constraints without projection."""

    projection: Annotated[Projection | None, BeforeValidator(_none_is_null)] = Field(
        default=None, description=_PROJECTION
    )
    iterations: int | None = Field(
        default=None, ge=1, le=100, description="Newton corrections per step; omit for the library's default"
    )
    tolerance: float | None = Field(
        default=None,
        gt=0,
        description="relative size of the last correction at convergence; omit for a value that fits the "
        "precision",
    )


class Rattle(_Iterated):
    """RATTLE, or SHAKE, which does not correct the velocities."""

    type: Literal["rattle", "shake"]


class _Factorized(_Iterated):
    newton: Literal["dense", "saddle_point"] = Field(
        default="dense",
        description="the linear solver of the corrections: dense (LU factorization) or saddle_point (the "
        "section solver)",
    )
    factorizations: int = Field(
        default=1,
        ge=1,
        le=100,
        description="factorizations of the Newton matrix per step; only with newton dense",
    )

    @model_validator(mode="after")
    def _factorizations_where_dense(self) -> "_Factorized":
        if self.newton != "dense" and self.factorizations != 1:
            raise ValueError(
                f"factorizations {self.factorizations} with newton {self.newton}|factorizations only with "
                "newton dense|remove factorizations"
            )
        return self


class Newton(_Factorized):
    """An implicit method."""

    type: Literal["backward_euler", "implicit_midpoint", "radau_iia"]


class DiscreteEulerLagrange(_Factorized):
    """The discrete Euler-Lagrange equations."""

    type: Literal["discrete_euler_lagrange"]
    lagrangian: Literal["midpoint", "trapezoidal"] = Field(
        default="midpoint", description="the discrete Lagrangian"
    )


class GeneralizedAlpha(_Factorized):
    """The generalized-alpha method."""

    type: Literal["generalized_alpha"]
    rho_inf: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="the fraction of infinitely fast modes that remains after a "
        "step, 0 (full damping) to 1 (no damping)",
    )


class Composition(_Iterated):
    """A symmetric composition of steps of a second-order method."""

    type: Literal["yoshida4", "suzuki4", "yoshida6", "kahan_li6", "kahan_li8"]
    of: Literal["rattle", "discrete_euler_lagrange", "implicit_midpoint"] = Field(
        default="rattle", description="the second-order method"
    )


class Adaptive(Section):
    """Adaptive steps of an explicit method of Diffrax. The tolerances set the number of steps in each dt."""

    type: Literal["adaptive"]
    method: Literal["tsit5", "dopri5", "dopri8"] = Field(
        default="dopri8", description="the method, of order 5, 5 or 8"
    )
    rtol: float = Field(default=1e-8, gt=0, lt=1, description="relative tolerance of a step")
    atol: float = Field(
        default=1e-8,
        gt=0,
        description="absolute tolerance of a step, in the units of coordinates and velocities",
    )
    max_steps: int = Field(
        default=256,
        ge=1,
        description="the largest number of adaptive steps in each dt; beyond it, the world stops with "
        "STEP_BUDGET",
    )
    projection: Annotated[Projection | None, BeforeValidator(_none_is_null)] = Field(
        default=Projection(), description=_PROJECTION
    )


Method = Annotated[
    Integrator
    | Route
    | HalfExplicit
    | VelocityStepping
    | ContactStepping
    | Rattle
    | Newton
    | DiscreteEulerLagrange
    | GeneralizedAlpha
    | Composition
    | Adaptive,
    Field(discriminator="type"),
]
