"""Things in the wrong place: one error each, with what was expected, what came, and what to do; nothing is
compiled for it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from small_systems import oscillating, oscillator, without_typechecker

import jaxdae as jd
import jaxdae.control as jc
import jaxdae.mechanisms as jm
from jaxdae import contact

RK4 = jd.RungeKutta.rk4()
OUTPUT = jc.Coordinates((0,))
GOAL = jc.Goal(OUTPUT, 0.3)
PD = {"model": oscillator(), "output": jc.Coordinates((0, 1)), "reference": 0.0, "kp": 1.0}


def roll(integrator=RK4, controls=None, system=None, **changes):
    return jd.rollout(
        system or oscillator(), integrator, oscillating(), controls, **{"dt": 0.01, "steps": 2, **changes}
    )


def group(goals):
    return jc.VelocityStepping(groups=(jc.GoalGroup(goals=goals),))


class Gain:
    """A law as most people write it first."""

    def __init__(self, k):
        self.k = k

    def __call__(self, t, state):
        return -self.k * state.v

    def of_coordinates(self, q):
        return self.k * q


@jd.tree.pytree
class Spring:
    """A law whose gain is a leaf."""

    k: Any

    def __call__(self, t, state):
        return -self.k * state.q

    def push(self, t, state):
        return -self.k * state.q


def damping(t, state):
    return -0.3 * state.v


# Objects in the wrong place.


PLACES = {
    "projections swapped": (
        lambda: roll(jd.Projected(RK4, jd.Projection(jd.VelocityProjection(), jd.PositionProjection()))),
        "integrator.projection: Projection.position must be a PositionProjection(), a "
        "LinearPositionProjection() or None, got a VelocityP",
    ),
    "velocity of positions": (
        lambda: roll(jd.Projected(RK4, jd.Projection(velocity=jd.textbook.LinearPositionProjection()))),
        "integrator.projection: Projection.velocity must be a VelocityProjection() or None, got a "
        "LinearPositionProjection",
    ),
    "projection without Projection": (
        lambda: roll(jd.Projected(RK4, jd.PositionProjection())),
        "integrator: Projected.projection must be a Projection(position, velocity); set one of them to "
        "None to omit it, got a Posi",
    ),
    "projection as a class": (
        lambda: roll(jd.Projected(RK4, jd.Projection)),
        "integrator: Projected.projection must be a Projection(position, velocity); set one of them to "
        "None to omit it, got the cl",
    ),
    "no projection": (
        lambda: roll(jd.Projected(RK4, None)),
        "Projected.projection must be a Projection(position, velocity); set one of",
    ),
    "solver as text": (
        lambda: roll(jd.RungeKutta.rk4(solver="SchurComplement")),
        "integrator: RungeKutta.solver must be a saddle-point solver, such as SchurComplement(), got the "
        "text 'SchurComplement'",
    ),
    "solver as a class": (
        lambda: roll(jd.Projected(jd.RungeKutta.rk4(solver=jd.LeastSquares))),
        "integrator.integrator: RungeKutta.solver must be a saddle-point solver, such as SchurComplement(), "
        "got the class LeastSquares; c",
    ),
    "solver of a projection": (
        lambda: roll(jd.Projected(RK4, jd.Projection(jd.PositionProjection(solver="DenseKKT")))),
        "integrator.projection.position: PositionProjection.solver must be a saddle-point solver, such as "
        "SchurComplement(), got the text",
    ),
    "solver of a law": (
        lambda: roll(controls=jc.GravityCompensation(oscillator(), "NullSpace")),
        "controls: GravityCompensation.solver must be a saddle-point solver, such as SchurComplement(), got "
        "the text 'NullSpace'",
    ),
    "solver of the dynamics": (
        lambda: jd.forward_dynamics(oscillator(), oscillating(), solver=jd.SchurComplement),
        "solver must be a saddle-point solver, such as SchurComplement(), got the class SchurComplement; "
        "call it: SchurComplement()",
    ),
    "solver of an impulse": (
        lambda: jd.constraint_impulse(oscillator(), oscillating(), solver="LeastSquares"),
        "solver must be a saddle-point solver, such as SchurComplement(), got the text 'LeastSquares'",
    ),
    "solver of the inverse": (
        lambda: jd.operators.kkt_inverse(oscillator(), oscillating(), solver=3.0),
        "solver must be a saddle-point solver, such as",
    ),
    "decomposition": (
        lambda: jd.forward_dynamics(oscillator(), oscillating(), solver=jd.NullSpace("qr")),
        "solver: NullSpace.decomposition must be SingularValues(), HouseholderQR() or NormalEquations(), "
        "got the text 'qr'",
    ),
    "stabilization as text": (
        lambda: roll(jd.RungeKutta.rk4(stabilization="Baumgarte")),
        "integrator: RungeKutta.stabilization must be a stabilization, such as Baumgarte(10.0, 10.0), got "
        "the text 'Baumgarte'",
    ),
    "stabilization as a class": (
        lambda: roll(jd.ExplicitEuler(stabilization=jd.Baumgarte)),
        "integrator: ExplicitEuler.stabilization must be a stabilization, such as Baumgarte(10.0, 10.0), "
        "got the class Baumgarte; call it",
    ),
    "stabilization of the dynamics": (
        lambda: jd.forward_dynamics(oscillator(), oscillating(), stabilization=(10.0, 10.0)),
        "stabilization must be a stabilization, such as Baumgarte(10.0, 10.0), got (10.0, 10.0)",
    ),
    "uncalled": (
        lambda: roll(jd.RungeKutta.rk4),
        "integrator must have a method step, like Projected(RungeKutta.rk4()), got the method "
        "RungeKutta.rk4; call it: RungeKutta.rk4(),",
    ),
    "uncalled inside": (
        lambda: roll(jd.Projected(jd.RungeKutta.rk4)),
        "integrator.integrator must have a method step, like Projected(RungeKutta.rk4()), got the method "
        "RungeKutta.rk4; call it: RungeKu",
    ),
    "class inside": (
        lambda: roll(jd.Projected(jd.Rattle)),
        "integrator.integrator must have a method step, like Projected(RungeKutta.rk4())",
    ),
    "composed": (
        lambda: roll(jd.Composition.suzuki4(RK4)),
        "integrator: Composition.integrator must be symmetric and of order two, as Rattle(), "
        "DiscreteEulerLagrange() and ImplicitMidpoint",
    ),
    "composed projections": (
        lambda: roll(jd.Composition(jd.Projected(jd.Rattle()))),
        "Composition.integrator must be symmetric and of order t",
    ),
    "discrete lagrangian": (
        lambda: roll(jd.DiscreteEulerLagrange("midpoint")),
        "DiscreteEulerLagrange.lagrangian must be MidpointLagrangian() or TrapezoidalLagrangian(), got the "
        "text 'midpoint'",
    ),
    "root": (
        lambda: roll(jd.textbook.Sequential(RK4, jd.Projection())),
        "Sequential.root must be a PositionProjection(...), got a Projection",
    ),
    "no goal": (
        lambda: roll(group((OUTPUT,))),
        "groups[0]: GoalGroup.goals must be a tuple of Goal(output, target) or FunctionGoal(residual), got",
    ),
    "a goal alone": (
        lambda: roll(group(GOAL)),
        "integrator.groups[0]: GoalGroup.goals must be a tuple of Goal(output, target) or "
        "FunctionGoal(residual), got a Goal",
    ),
    "goals of a system": (
        lambda: roll(system=jc.WithGoals(oscillator(), (OUTPUT,))),
        "system: WithGoals.goals must be a tuple of Goal(output, target) or FunctionGoal(residual)",
    ),
    "rows of no goals": (
        lambda: jc.goal_rows(oscillator(), GOAL, oscillating()),
        "goals must be a tuple of Goal(output, target) or FunctionGoal(residual), got a Goal",
    ),
    "groups": (
        lambda: roll(jc.VelocityStepping(groups=(GOAL,))),
        "VelocityStepping.groups must be a tuple of GoalGroup(goals=...)",
    ),
    "motors": (
        lambda: roll(jc.VelocityStepping(groups=(jc.GoalGroup(goals=(GOAL,), motors=OUTPUT),))),
        "GoalGroup.motors must be a VirtualWo",
    ),
    "motors of virtual work": (
        lambda: roll(
            jc.VelocityStepping(groups=(jc.GoalGroup(goals=(GOAL,), motors=jc.VirtualWork(OUTPUT)),))
        ),
        "groups[0].motors: VirtualWork.motors must be a tuple of outputs, such as "
        "(JointCoordinate.named(mechanism, 'elbow'),), got a Coo",
    ),
    "switching around no law": (
        lambda: roll(jd.switching.Switching(RK4, 3.0), system=jd.Masked(oscillator(), jnp.ones(0))),
        "integrator: Switching.law must be a SwitchingLaw, such as Unilateral(...) or Scheduled(...), got "
        "3.0",
    ),
    "sampled around no law": (
        lambda: roll(jc.Sampled(RK4, oscillator())),
        "integrator: Sampled.law must be a feedback law, such as PD(...), got an Oscillator",
    ),
    "sampled around a class": (
        lambda: roll(jc.Sampled(RK4, jc.PD)),
        "Sampled.law must be a feedback law, such as PD(...), got the class PD; cal",
    ),
    "saturated": (
        lambda: roll(controls=jc.Saturated(1.0, 0.0, 1.0)),
        "controls: Saturated.law must be a feedback law, such as PD(...), got 1.0",
    ),
    "sum of a law": (
        lambda: roll(controls=jc.Sum(jc.PD(**PD))),
        "controls: Sum.laws must be a tuple of feedback laws, such as (PD(...), law)",
    ),
    "feedforward": (
        lambda: roll(jc.Sampled(RK4, jc.PID(**PD, ki=1.0, feedforward=3.0))),
        "integrator.law: PID.feedforward must be a feedback law, or None, got 3.0",
    ),
    "law as a class": (
        lambda: roll(controls=jc.PD),
        "controls must be an array (steps, nu), a feedback law with __call__(t, state), or None",
    ),
    "text among numbers": (
        lambda: roll(controls=Spring("stiff")),
        "controls.k must hold numbers or arrays, or an object of a class decorated w",
    ),
    "function among numbers": (
        lambda: roll(controls=Spring(jnp.sin)),
        "controls.k must hold numbers or arrays, or an object of a class decorate",
    ),
}


@all_cases(("make", "message"), PLACES.values(), ids=PLACES)
def test_a_thing_in_the_wrong_place(make, message):
    with without_typechecker(), pytest.raises(TypeError) as caught:
        make()
    assert message in str(caught.value)


# What laws return.


def number(t, state):
    return 1.0


@jd.tree.pytree
class Flat:
    """A law that returns a number, as an array."""

    def __call__(self, t, state):
        return jnp.sum(state.v)


def nothing(t, state):
    return None


def three(t, state):
    return jnp.ones(3)


@functools.cache
def pendulum():
    body = jm.Body("arm", mass=1.0, inertia=0.1, pose=(0.5, 0.0, 0.0))
    joint = jm.Revolute("pin", jm.GROUND, "arm", at=(0.0, 0.0))
    return jm.planar_mechanism([body], [joint], [jm.Torque("motor", jm.GROUND, "arm", input=0)])


def swing(controls=None, integrator=RK4):
    mechanism, q = pendulum()
    return jd.rollout(mechanism, integrator, jd.State(0.0, q, jnp.zeros_like(q)), controls, dt=0.01, steps=2)


ANSWERS = {
    "number": (
        lambda: roll(controls=number),
        TypeError,
        "number must return a vector of inputs (nu,), got 1.0; use jnp.stack([...]) to return a vector",
    ),
    "array of no axis": (
        lambda: roll(controls=Flat()),
        ValueError,
        "the feedback law Flat must return a vector of inputs (nu,), got shape ()",
    ),
    "nothing": (
        lambda: roll(controls=nothing),
        TypeError,
        "nothing must return a vector of inputs (nu,), got None",
    ),
    "implicit": (
        lambda: roll(jd.ImplicitMidpoint(), number),
        TypeError,
        "number must return a vector of inputs (nu,), got 1.0",
    ),
    "discrete": (
        lambda: roll(jd.Rattle(), Flat()),
        ValueError,
        "the feedback law Flat must return a vector of inputs (nu,), got shape ()",
    ),
    "stepping": (
        lambda: roll(jc.VelocityStepping(), number),
        TypeError,
        "number must return a vector of inputs (nu,), got 1.0",
    ),
    "half explicit": (
        lambda: roll(jd.HalfExplicitRungeKutta(), Flat()),
        ValueError,
        "the feedback law Flat must return a vector of inputs",
    ),
    "sampled": (
        lambda: roll(jc.Sampled(RK4, number)),
        TypeError,
        "number must return a vector of inputs (nu,), got 1.0",
    ),
    "saturated": (
        lambda: roll(controls=jc.Saturated(Flat(), -1.0, 1.0)),
        ValueError,
        "the feedback law Flat must return a vector of inputs",
    ),
    "sum": (
        lambda: roll(controls=jc.Sum((damping, number))),
        TypeError,
        "number must return a vector of inputs (nu,), got 1.0",
    ),
    "inputs of a mechanism": (
        lambda: swing(three),
        ValueError,
        "three must return a vector of the 1 inputs, shape (1,), got shape (3,)",
    ),
    "number for a mechanism": (
        lambda: swing(number),
        TypeError,
        "number must return a vector of the 1 inputs, shape (1,), got 1.0",
    ),
}


@pytest.mark.long
@all_cases(("make", "error", "message"), ANSWERS.values(), ids=ANSWERS)
def test_a_law_that_returns_something_else(make, error, message):
    with without_typechecker(), pytest.raises(error) as caught:
        make()
    assert "the feedback law " in str(caught.value)
    assert message in str(caught.value)


# Systems that read an input that nobody gives.


@jd.tree.pytree
class Driven(jd.System):
    """A mass that is pushed."""

    mass: Any
    way: Any = jd.tree.static(default="index")

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        if self.way == "index":
            return jnp.stack([u[0], -q[0]])
        if self.way == "sum":
            return u - q
        return jnp.asarray(u, q.dtype) if self.way == "array" else u.astype(q.dtype)


@jd.tree.pytree
class Unicycle(jd.KinematicSystem):
    """A first-order system that is steered."""

    def rate(self, t, x, u):
        return jnp.stack([u[0], u[1] * x[0]])


@jd.tree.pytree
class Broken(Driven):
    """A force with a mistake of its own."""

    def force(self, t, q, v, u):
        return q + "a"


DRIVEN = Driven(1.0)
UNDRIVEN = {
    **{way: lambda way=way: roll(system=Driven(1.0, way)) for way in ("index", "sum", "array", "method")},
    "implicit": lambda: roll(jd.BackwardEuler(), system=DRIVEN),
    "discrete": lambda: roll(jd.DiscreteEulerLagrange(), system=DRIVEN),
    "stepping": lambda: roll(jc.VelocityStepping(), system=DRIVEN),
    "half explicit": lambda: roll(jd.HalfExplicitRungeKutta(), system=DRIVEN),
    "masked": lambda: roll(system=jd.Soft(DRIVEN, 0.0)),
    "dynamics": lambda: jd.forward_dynamics(DRIVEN, oscillating()),
    "inverse dynamics": lambda: jd.inverse_dynamics(DRIVEN, oscillating(), jnp.zeros(2)),
    "kinematic": lambda: roll(jd.Kinematic.rk4(), system=Unicycle()),
    "kinematic velocity": lambda: jd.kinematic_velocity(Unicycle(), oscillating()),
}


@all_cases("call", UNDRIVEN.values(), ids=UNDRIVEN)
def test_a_system_that_reads_an_input_that_nobody_gives(call):
    with without_typechecker(), pytest.raises(TypeError) as caught:
        call()
    assert (
        "this system reads an input u, but no controls were given: pass controls of shape (steps, nu) to "
        "rollout, or u=..." in str(caught.value)
    )
    assert caught.value.__cause__ is not None


def test_other_mistakes_of_a_force_stay_what_they_are():
    with pytest.raises(TypeError) as caught:
        jd.forward_dynamics(Broken(1.0), oscillating())
    assert "reads an input" not in str(caught.value)
    with pytest.raises(IndexError):
        jd.forward_dynamics(DRIVEN, oscillating(), jnp.asarray(1.0))


# Worlds of a batch.


STACKED = jax.tree.map(lambda x: jnp.stack([x, x, x]), oscillating())
ONE = oscillating()
BATCHES = {
    "one state": (
        ONE,
        (None, None, 0, None),
        "batch_rollout: state.q must have a leading world axis, shape (worlds, nq), got (2,); for equal sta",
    ),
    "one v": (
        jd.State(0.0, STACKED.q, ONE.v),
        (None, None, 0, None),
        "state.v must have a leading world axis, shape (worlds, nv), got (2,)",
    ),
    "shared": (
        STACKED,
        (0, None, None, None),
        "state.q has shape (3, 2), but in_axes declares it shared by all worlds, with shape (nq,)",
    ),
    "parts": (
        ONE,
        (None, None, jd.State(None, 0, None), None),
        "state.q must have a leading world axis, shape (worlds, nq), got (2,)",
    ),
}


@all_cases(("state", "in_axes", "message"), BATCHES.values(), ids=BATCHES)
def test_states_that_are_not_stacked(state, in_axes, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        jd.batch_rollout(oscillator(), RK4, state, dt=0.01, steps=2, in_axes=in_axes)
    assert message in str(caught.value)


# Functions.


LAW = Gain(2.0)
REFUSED = {
    "controls": lambda: roll(controls=LAW),
    "batch": lambda: jd.batch_rollout(oscillator(), RK4, STACKED, LAW, dt=0.01, steps=2),
    "adaptive": lambda: jd.diffrax.adaptive_rollout(
        oscillator(), jd.diffrax.Adaptive(), oscillating(), LAW, times=jnp.array([0.1])
    ),
    "method": lambda: roll(controls=LAW.__call__),
    "partial": lambda: roll(controls=functools.partial(LAW)),
    "pytree of it": lambda: roll(controls=jax.tree_util.Partial(LAW)),
    "compiled method": lambda: roll(controls=jax.jit(LAW.__call__)),
    "output": lambda: jc.Goal(LAW.of_coordinates, 0.0),
    "target": lambda: jc.Goal(OUTPUT, LAW),
    "residual": lambda: jc.FunctionGoal(LAW),
    "output of a law": lambda: jc.PD(**{**PD, "output": LAW}),
    "reference": lambda: jc.ComputedTorque(**{**PD, "kd": 1.0, "reference": LAW}),
    "task": lambda: jc.OperationalSpace(model=oscillator(), task=LAW, reference=0.0, kp=1.0, kd=1.0),
    "posture": lambda: jc.OperationalSpace(
        model=oscillator(), task=OUTPUT, reference=0.0, kp=1.0, kd=1.0, posture=LAW
    ),
    "sampled": lambda: jc.Sampled(RK4, LAW),
    "sum": lambda: jc.Sum((damping, LAW)),
    "saturated": lambda: jc.Saturated(LAW, 0.0, 1.0),
    "motors": lambda: jc.VirtualWork((LAW,)),
    "active": lambda: jd.Masked(oscillator(), LAW),
    "active goals": lambda: jc.GoalGroup(goals=(GOAL,), active=LAW),
    "switching": lambda: jd.switching.Switching(RK4, LAW),
    "motion": lambda: jm.planar_mechanism(
        [jm.Body("arm", mass=1.0, inertia=0.1)],
        [
            jm.Revolute("pin", jm.GROUND, "arm", at=(0.0, 0.0)),
            jm.PrescribedMotion("turn", "pin", Gain(1.0).of_coordinates),
        ],
    ),
}


@all_cases("make", REFUSED.values(), ids=REFUSED)
def test_an_object_whose_changes_nobody_would_notice(make):
    with without_typechecker(), pytest.raises(TypeError) as caught:
        make()
    assert "has the class Gain, which is unknown to JAX" in str(caught.value)
    assert "Decorate Gain with @jaxdae.tree.pytree, or pass a plain function" in str(caught.value)


def test_methods_of_pytrees_bring_their_leaves():
    goal = jc.Goal(OUTPUT, Spring(jnp.asarray(2.0)).push)
    assert [float(x) for x in jax.tree.leaves(goal)] == [2.0]
    assert jc.Sampled(RK4, Spring(3.0).push).law(0.0, oscillating()).shape == (2,)
    assert jax.tree.leaves(jc.Sampled(RK4, Spring(3.0).push)) == [3.0]


def test_a_law_is_what_it_was_when_the_rollout_began():
    """Bound methods, functions of functions and plain functions give the same, and the gain of a method is a
    leaf.
    """
    programs = []

    @jd.tree.pytree
    class Counted(Spring):
        def push(self, t, state):
            programs.append(t)
            return super().push(t, state)

    ends = [roll(controls=Counted(jnp.asarray(k)).push).state.v[-1] for k in (1.0, 1.0, 5.0)]
    traced = len(programs)
    roll(controls=Counted(jnp.asarray(7.0)).push)
    assert len(programs) == traced
    np.testing.assert_array_equal(ends[0], ends[1])
    assert jnp.max(jnp.abs(ends[0] - ends[2])) > 1e-3


@pytest.mark.long
def test_plain_functions_serve_as_outputs_and_references():
    """Inside of a compiled program and outside of one, and as pytrees of one's own do."""

    def law(output, reference):
        return jc.PD(model=oscillator(), output=output, reference=reference, kp=2.0, kd=0.3)

    plain = law(lambda q: q[:2], lambda t: jnp.stack([jnp.sin(t), t]))
    end = roll(controls=plain).state.q[-1]
    inside = jax.jit(
        lambda kp: roll(
            controls=jd.tree.set_leaf(law(lambda q: q[:2], lambda t: jnp.stack([jnp.sin(t), t])), "kp", kp)
        ).state.q[-1]
    )
    np.testing.assert_allclose(inside(2.0), end, rtol=1e-14)
    pytrees = law(jc.Coordinates((0, 1)), jax.tree_util.Partial(lambda t: jnp.stack([jnp.sin(t), t])))
    np.testing.assert_allclose(roll(controls=pytrees).state.q[-1], end, rtol=1e-14)


def test_functions_that_are_functions():
    @jax.custom_jvp
    def ruled(q):
        return q

    ruled.defjvps(lambda dq, y, q: dq)

    class Kept:
        @staticmethod
        def still(q):
            return q

        @classmethod
        def of(cls, q):
            return q

    functions = (
        jnp.sin,
        jax.jit(jnp.sin),
        functools.partial(jnp.add, 1.0),
        ruled,
        Kept.still,
        Kept.of,
        abs,
        jax.vmap(jnp.sin),
        lambda q: q,
    )
    for function in functions:
        goal = jc.Goal(function, 0.0)
        assert jax.tree.leaves(goal) == [0.0]
        np.testing.assert_array_equal(goal.output(jnp.ones(2)), function(jnp.ones(2)))


def test_long_values_are_cut_in_messages():
    huge, body = "x" * 10_000, jm.Body("ball", 1.0, 0.1)
    pair = contact.Pair("floor", "ground", "ball", contact.Line(), contact.Disc(huge))
    for wrong in (
        lambda: jm.mechanism(jm.Description(bodies=[body], contacts=[pair])),
        lambda: jd.tree.get_leaf(RK4, huge),
        lambda: jc.Coordinates.named(oscillator(), huge),
        lambda: roll(dt=huge),
        lambda: roll(start_tolerance=huge),
    ):
        with pytest.raises((KeyError, TypeError, ValueError)) as error:
            wrong()
        assert len(str(error.value)) < 600
