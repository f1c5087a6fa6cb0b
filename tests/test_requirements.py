"""What parameters have to satisfy: an error where the numbers are known, a boolean where they are traced;
text is no choice.
"""

import dataclasses
import enum
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from small_systems import oscillating, oscillator, without_typechecker

import jaxdae as jd
import jaxdae.control as jc
from jaxdae.base.requirements import (
    Stacked,
    check_arrays,
    check_requirements,
    not_above,
    not_negative,
    requirements_met,
)

RK4 = jd.RungeKutta.rk4()
OUTPUT = jc.Coordinates((0,))
GOAL = jc.Goal(OUTPUT, 0.3)


def public_classes():
    return {
        value
        for module in (jd, jc)
        for name in module.__all__
        if isinstance(value := getattr(module, name), type)
    }


# Choices.


CHOICES = [
    (
        lambda x: jd.VelocityProjection(metric=x),
        "VelocityProjection.metric must be one of Metric.MASS, Metric.EUCLIDEAN, got ",
    ),
    (
        lambda x: jd.textbook.LinearPositionProjection(metric=x),
        "LinearPositionProjection.metric must be one of Metric.MASS, Metric.EUCLIDEAN, got ",
    ),
    (
        lambda x: jd.textbook.LinearPositionProjection(origin=x),
        "LinearPositionProjection.origin must be one of Origin.ESTIMATE, Origin.PREVIOUS, Or",
    ),
    (
        lambda x: jd.PositionProjection(metric=x),
        "PositionProjection.metric must be one of Metric.MASS, Metric.EUCLIDEAN, got ",
    ),
    (
        lambda x: jd.PositionProjection(origin=x),
        "PositionProjection.origin must be one of Origin.ESTIMATE, Origin.PREVIOUS, Origin.STAGE",
    ),
    (
        lambda x: jd.textbook.ProjectedStep(RK4, metric=x),
        "ProjectedStep.metric must be one of Metric.MASS, Metric.EUCLIDEAN, got ",
    ),
    (
        lambda x: jd.textbook.ProjectedDerivative(RK4, metric=x),
        "ProjectedDerivative.metric must be one of Metric.MASS, Metric.EUCLIDEAN, got ",
    ),
    (
        lambda x: jc.VirtualWork((OUTPUT,), metric=x),
        "VirtualWork.metric must be one of Metric.MASS, Metric.EUCLIDEAN, got ",
    ),
    (lambda x: jc.VirtualWork((OUTPUT,), project=x), "VirtualWork.project must be True or False, got "),
    (
        lambda x: jc.GoalGroup(goals=(GOAL,), coupling=x),
        "GoalGroup.coupling must be one of Coupling.TOGETHER, Coupling.FREE, Coupling.AFTER",
    ),
    (
        lambda x: jc.VelocityStepping(constraints=x),
        "VelocityStepping.constraints must be one of ConstraintOrder.LAST, ConstraintOrder.FREE",
    ),
    (lambda x: jd.textbook.Taylor(jerk=x), "Taylor.jerk must be True or False, got "),
    (lambda x: jd.Rattle(velocity_level=x), "Rattle.velocity_level must be True or False, got "),
    (
        lambda x: jd.HalfExplicitRungeKutta(tableau=x),
        "HalfExplicitRungeKutta.tableau must be a Tableau, got ",
    ),
]


@all_cases("value", ["mass", "banana", None, 1, enum.Enum("Other", "MASS").MASS], ids=str)
@all_cases(("make", "message"), CHOICES, ids=[message[:30] for _, message in CHOICES])
def test_a_choice_is_one_of_its_members(make, message, value):
    with without_typechecker(), pytest.raises(TypeError) as caught:
        make(value)
    assert str(caught.value).startswith(message)
    assert repr(value) in str(caught.value)


def test_every_enumeration_of_a_public_class_is_checked():
    fields = {
        (kind, f.name): f
        for kind in public_classes()
        if dataclasses.is_dataclass(kind)
        for f in dataclasses.fields(kind)
    }
    unchecked = [
        key
        for key, f in fields.items()
        if isinstance(f.default, enum.Enum) and f.metadata.get("one_of") is not type(f.default)
    ]
    assert not unchecked


def test_a_choice_is_looked_at_before_the_rest_of_the_object():
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    @jd.tree.pytree
    class Paint:
        amount: Any
        color: Color = jd.tree.static(one_of=Color, default=Color.RED)

        def __post_init__(self):
            object.__setattr__(self, "amount", (self.amount, self.color.value))

    assert Paint(3.0, Color.BLUE).amount == (3.0, 2)
    with pytest.raises(TypeError, match=r"Paint.color must be one of Color.RED, Color.BLUE, got 'red'"):
        Paint(3.0, "red")


# Numbers.


def unit(softness):
    return jd.Soft(oscillator(), softness)


def group(**fields):
    return jc.VelocityStepping(groups=(jc.GoalGroup(goals=(GOAL,), **fields),))


def push(t, state):
    return jnp.ones((2,))


PID = {"model": oscillator(), "output": OUTPUT, "reference": 0.0, "kp": 1.0, "ki": 1.0}

NUMBERS = {
    "saturated": (
        lambda: jc.Saturated(push, 2.0, -1.0),
        "Saturated.lower must not be above upper, got lower = 2.0, upper = -1.0",
    ),
    "saturated, one of two": (
        lambda: jc.Saturated(push, jnp.array([0.0, 2.0]), 1.0),
        "Saturated.lower must not be above upper, got lower = [0",
    ),
    "pid": (
        lambda: jc.PID(**PID, lower=1.0, upper=0.5),
        "PID.lower must not be above upper, got lower = 1.0, upper = 0.5",
    ),
    "limit": (lambda: group(limit=-2.0), "groups[0]: GoalGroup.limit must not be negative, got -2.0"),
    "beta": (lambda: group(beta=2.5), "GoalGroup.beta must lie between 0 and 2, got 2.5"),
    "negative beta": (
        lambda: group(beta=np.array([0.1, -0.1])),
        "GoalGroup.beta must lie between 0 and 2, got [ 0.1 -0.1]",
    ),
    "compliance of goals": (
        lambda: group(compliance=-1e-3),
        "GoalGroup.compliance must not be negative, got -0.001",
    ),
    "beta of the stepping": (
        lambda: jc.VelocityStepping(beta=3.0),
        "VelocityStepping.beta must lie between 0 and 2, got 3.0",
    ),
    "softness": (lambda: unit(jnp.array([0.0, -1.0])), "Soft.softness must not be negative, got [ 0. -1.]"),
    "rho_inf": (
        lambda: jd.GeneralizedAlpha(rho_inf=1.5),
        "GeneralizedAlpha.rho_inf must lie between 0 and 1, got 1.5",
    ),
    "tolerance of a projection": (
        lambda: jd.PositionProjection(tolerance=-1e-9),
        "PositionProjection.tolerance must not be negative, got -1e-09",
    ),
    "projected": (
        lambda: jd.Projected(RK4, jd.Projection(jd.PositionProjection(tolerance=-1.0))),
        ".projection.position: PositionProjection.tolerance must not be negative, got -1.0",
    ),
    "root": (
        lambda: jd.textbook.Sequential(RK4, jd.PositionProjection(iterations=0)),
        "root: PositionProjection.iterations must be at least 1, got 0",
    ),
    "backward euler": (
        lambda: jd.BackwardEuler(newton=jd.DenseNewton(tolerance=-1.0)),
        "thing.newton: DenseNewton.tolerance must not be negative, got -1.0",
    ),
    "midpoint": (
        lambda: jd.ImplicitMidpoint(newton=jd.DenseNewton(tolerance=-1.0)),
        "thing.newton: DenseNewton.tolerance must not be negative, got -1.0",
    ),
    "radau": (
        lambda: jd.RadauIIA(newton=jd.DenseNewton(tolerance=-1.0)),
        "thing.newton: DenseNewton.tolerance must not be negative, got -1.0",
    ),
    "alpha": (
        lambda: jd.GeneralizedAlpha(newton=jd.DenseNewton(tolerance=-1.0)),
        "thing.newton: DenseNewton.tolerance must not be negative, got -1.0",
    ),
    "rattle": (lambda: jd.Rattle(tolerance=-1.0), "Rattle.tolerance must not be negative, got -1.0"),
    "discrete lagrangian": (
        lambda: jd.DiscreteEulerLagrange(newton=jd.DenseNewton(tolerance=-1.0)),
        "thing.newton: DenseNewton.tolerance must not be negative, got -1.0",
    ),
    "adaptive": (
        lambda: jd.diffrax.Adaptive(rtol=jnp.asarray(-1e-3)),
        "Adaptive.rtol must be positive, got -0.001",
    ),
    "point": (
        lambda: jd.textbook.ProjectedStep(RK4, 1.5),
        "ProjectedStep.point must lie between 0 and 1, got 1.5",
    ),
    "least squares": (
        lambda: jd.LeastSquares(-1.0),
        "LeastSquares.tolerance must be at least 0 and below 1, got -1.0",
    ),
    "singular values": (
        lambda: jd.NullSpace(jd.operators.SingularValues(1.0)),
        "decomposition: SingularValues.tolerance must be at least 0 and below 1, got",
    ),
    "proximal": (lambda: jd.Proximal(0.0), "Proximal.regularization must be positive, got 0.0"),
    "conjugate gradients": (
        lambda: jd.ConjugateGradient(rank_tolerance=-1.0),
        "ConjugateGradient.rank_tolerance must be at least 0 and below 1",
    ),
    "biconjugate gradients": (
        lambda: jd.BiconjugateGradient(-1.0),
        "BiconjugateGradient.tolerance must be at least 0 and below 1, got -1.0",
    ),
    "solver of a method": (
        lambda: jd.RungeKutta.rk4(solver=jd.LeastSquares(-1.0)),
        "thing.solver: LeastSquares.tolerance must be at least 0",
    ),
    "direction": (
        lambda: jd.switching.Unilateral(jnp.array([1.0, 0.5, -1.0])),
        "Unilateral.direction must be 1, -1 or 0 for each row, got [ 1.   0.5 -1. ]",
    ),
    "schedule": (
        lambda: jd.switching.Scheduled(2.0, np.array([3.0, 1.0])),
        "Scheduled.on must not be later than off, got on = 2.0, off = [3. 1.]",
    ),
    "virtual work": (
        lambda: jc.VirtualWork((OUTPUT,), rank_tolerance=-1.0),
        "VirtualWork.rank_tolerance must be at least 0 and below 1",
    ),
    "gravity": (
        lambda: jc.GravityCompensation(oscillator(), None, 2.0),
        "GravityCompensation.rank_tolerance must be at least 0 and below 1",
    ),
    "in a sum": (
        lambda: jc.Sum((push, jc.Saturated(push, 1.0, 0.0))),
        "laws[1]: Saturated.lower must not be above upper, got lower = 1.0",
    ),
    "not a number": (lambda: unit(np.nan), "Soft.softness must not be negative, got nan"),
}


@all_cases(("make", "message"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_that_cannot_be_meant(make, message):
    with without_typechecker():
        thing = make()
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            check_requirements("thing", thing)
    assert str(caught.value).startswith("thing")
    assert message in str(caught.value)


@all_cases("make", [make for make, _ in NUMBERS.values()], ids=NUMBERS)
def test_the_same_numbers_traced_are_a_boolean(make):
    with without_typechecker():
        thing = make()
        leaves, structure = jax.tree.flatten(thing)
        met = jax.vmap(lambda *x: requirements_met(jax.tree.unflatten(structure, x)))(
            *[jnp.asarray(x)[None] for x in leaves]
        )
    assert met.shape == (1,)
    assert not met[0]


MEANT = [
    jc.Saturated(push, -1.0, jnp.ones(2)),
    jc.Saturated(push, None, 1.0),
    jc.PID(**PID),
    group(limit=0.0, beta=jnp.array([0.0, 2.0]), compliance=0.0),
    unit(0.0),
    jd.GeneralizedAlpha(rho_inf=0.0),
    jd.GeneralizedAlpha(rho_inf=jnp.ones(())),
    jd.Projected(RK4, jd.Projection(jd.PositionProjection(tolerance=0.0), None)),
    jd.Composition.yoshida4(jd.ImplicitMidpoint()),
    jd.Composition.suzuki4(jd.DiscreteEulerLagrange()),
    jd.switching.Scheduled(-jnp.inf, jnp.inf),
    jd.switching.Unilateral(np.array([1, -1, 0])),
    jd.NullSpace(jd.operators.SingularValues(0.0)),
    {"a": [jd.Rattle(), (None, 3)], "b": jax.tree_util.Partial(push, jc.Saturated(push, 0.0, 1.0))},
]


@all_cases("thing", MEANT, ids=[type(thing).__name__ for thing in MEANT])
def test_numbers_that_can_be_meant(thing):
    check_requirements("thing", thing)
    assert requirements_met(thing)


@jd.tree.pytree
class Limits:
    lower: Any
    upper: Any
    other: Any = None

    def requirements(self):
        yield not_above(self.lower, self.upper), "lower must not be above upper"
        yield not_negative(self.other), "other must not be negative"


def test_a_traced_number_leaves_out_its_own_conditions_only():
    def traced(x):
        check_requirements("limits", Limits(x, 0.0, x))
        with pytest.raises(ValueError, match=r"limits: Limits.other must not be negative, got -1.0"):
            check_requirements("limits", Limits(x, 0.0, -1.0))
        return requirements_met(Limits(x, 0.0)), requirements_met(Limits(x, x, x))

    assert jax.jit(traced)(1.0) == (False, True)
    jax.grad(lambda x: jnp.where(traced(x)[0], x, 0.0))(1.0)
    np.testing.assert_array_equal(
        jax.vmap(lambda x: requirements_met(Limits(x, 0.5)))(jnp.array([0.0, 1.0])), [True, False]
    )


def test_nothing_is_computed_where_numbers_are_traced():
    program = jax.make_jaxpr(lambda x: (check_requirements("limits", Limits(x, 2.0 * x, x)), x)[1])(1.0)
    assert len(program.eqns) == 1


def test_stacked_numbers_meet_those_of_every_world():
    # Two worlds with a number each beside two inputs, which no broadcasting would tell from two worlds.
    check_requirements("limits", Limits(Stacked(jnp.array([0.0, 1.0]), 0), jnp.array([1.0, 1.5])))
    with pytest.raises(ValueError, match="lower must not be above upper"):
        check_requirements("limits", Limits(Stacked(jnp.array([0.0, 1.2]), 0), jnp.array([1.0, 1.5])))
    lower = Stacked(jnp.array([[0.0, 1.0], [0.0, 0.0]]), 1)
    check_requirements("limits", Limits(lower, Stacked(jnp.array([0.5, 1.5]), 0)))
    with pytest.raises(ValueError, match="lower must not be above upper"):
        check_requirements("limits", Limits(lower, Stacked(jnp.array([1.5, 0.5]), 0)))


def test_precisions_may_differ():
    assert not jax.jit(lambda x: requirements_met(Limits(x, np.zeros((), np.float32))))(jnp.ones(()))


def test_text_is_no_number():
    with pytest.raises(TypeError, match="limits: Limits contains a non-numeric value"):
        check_requirements("limits", Limits("a", 1.0))


def test_the_check_costs_little():
    """Before every rollout: some tens of microseconds for a method, its projections and a law."""
    things = (
        jd.Projected(jd.RungeKutta.rk4(solver=jd.LeastSquares(1e-9))),
        jc.PID(**PID, lower=jnp.zeros(()), upper=jnp.ones(())),
    )
    check_requirements("things", things)

    def seconds():
        start = time.perf_counter()
        check_requirements("things", things)
        return time.perf_counter() - start

    # Types of the tests are checked as well, which takes most of this; the fastest of many is not disturbed
    # by other processes.
    assert min(seconds() for _ in range(30)) < 2e-3


def test_leaves_that_are_no_arrays():
    check_arrays(
        "law", {"a": jnp.ones(2), "b": (1, 2.0, None, np.float32(3.0), np.ones(2)), "c": jax.random.key(0)}
    )
    jax.jit(lambda x: check_arrays("law", x))(1.0)
    with pytest.raises(
        TypeError,
        match=r"law\['b'\]\[1\] must hold numbers or arrays, or an object of a class .*, got the text 'pi'",
    ):
        check_arrays("law", {"a": 1.0, "b": (2.0, "pi")})


# Where they are met: each entry of a table of calls that take the thing.


ENTRIES = {
    "rollout": lambda thing: jd.rollout(oscillator(), thing, oscillating(), dt=0.01, steps=2),
    "batch_rollout": lambda thing: jd.batch_rollout(
        oscillator(), thing, jax.tree.map(lambda x: x[None], oscillating()), dt=0.01, steps=2
    ),
}


@all_cases("call", ENTRIES.values(), ids=ENTRIES)
def test_an_integrator_is_looked_at_before_anything_is_compiled(call):
    with pytest.raises(
        ValueError,
        match=r"integrator.integrator: GeneralizedAlpha.rho_inf must lie between 0 and 1, got -0.5",
    ):
        call(jd.Projected(jd.GeneralizedAlpha(rho_inf=-0.5)))


SYSTEMS = {
    "rollout": lambda system: jd.rollout(system, RK4, oscillating(), dt=0.01, steps=2),
    "forward_dynamics": lambda system: jd.forward_dynamics(system, oscillating()),
    "initialize": lambda system: jd.initialize(system, oscillating().q),
    "diagnose": lambda system: jd.diagnose(system, oscillating()),
    "constraint_impulse": lambda system: jd.constraint_impulse(system, oscillating()),
}


@all_cases("call", SYSTEMS.values(), ids=SYSTEMS)
def test_a_system_is_looked_at_before_anything_is_compiled(call):
    with pytest.raises(ValueError, match=r"system: Soft.softness must not be negative, got -0.1"):
        call(unit(-0.1))


def test_controls_are_looked_at_before_anything_is_compiled():
    with pytest.raises(
        ValueError, match=r"controls: Saturated.lower must not be above upper, got lower = 1.0, upper = 0.0"
    ):
        jd.rollout(oscillator(), RK4, oscillating(), jc.Saturated(push, 1.0, 0.0), dt=0.01, steps=2)


def test_worlds_of_a_batch_are_looked_at_one_by_one():
    law = jc.Saturated(push, jnp.array([0.0, 2.0]), jnp.array([1.0, 3.0]))
    starts = jax.tree.map(lambda x: jnp.stack([x, x]), oscillating())
    axes = (None, None, 0, jd.tree.batch_axes(law, "lower"))
    with pytest.raises(
        ValueError,
        match=r"controls: Saturated.lower must not be above upper, got lower = \[0. 2.\], upper = \[1. 3.\]",
    ):
        jd.batch_rollout(oscillator(), RK4, starts, law, dt=0.01, steps=2, in_axes=axes)
