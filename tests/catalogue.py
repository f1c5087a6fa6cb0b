"""What there is, once: methods, solvers, joints and systems. The tests of a contract loop over these tables:
what is new is one more row.

A contract costs seconds of compiling a row, and members of one family differ in little of it. `leaders`
therefore marks all but the first row of each family as long; `every` is for contracts that cost little, and
for those in which the members do differ. `quick` names the rows that suffice where the others cost more than
they add; what a family has of its own is then told by another quick test.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import problems
import pytest
import reference_systems
import small_systems

import jaxdae as jd
from jaxdae import mechanisms as jm


def every(table: Mapping[str, Any], where: Callable[[Any], Any] = lambda row: True) -> list[str]:
    """Returns the names of the rows that satisfy a condition."""
    return [name for name, row in table.items() if where(row)]


def leaders(table: Mapping[str, Any], where: Callable[[Any], Any] = lambda row: True) -> list[Any]:
    """Returns the names of the rows that satisfy a condition, for `pytest.mark.parametrize`: the first of
    each family is quick.
    """
    return quick(every(table, where), *first(table, where))


def first(table: Mapping[str, Any], where: Callable[[Any], Any] = lambda row: True) -> list[str]:
    """Return the name of the first row of each family, of the rows that satisfy a condition."""
    firsts: dict[str, str] = {}
    for name in every(table, where):
        firsts.setdefault(table[name].family, name)
    return list(firsts.values())


def quick(names: Iterable[str], *those: str) -> list[Any]:
    """Returns names for `pytest.mark.parametrize`, of which only those are quick."""
    return _marked(names, those, pytest.mark.long)


def in_ci(names: Iterable[str], *those: str) -> list[Any]:
    """Return names for `pytest.mark.parametrize`. All names but `those` are exhaustive."""
    return _marked(names, those, pytest.mark.exhaustive)


def _marked(names: Iterable[str], those: tuple[str, ...], mark: Any) -> list[Any]:
    """Return names for `pytest.mark.parametrize`, with a mark on all names but `those`."""
    names = list(names)
    unknown = set(those) - set(names)
    if unknown or not those:
        raise ValueError(f"unmarked rows must be among {names}, got {sorted(unknown)}")
    return [pytest.param(name, marks=[] if name in those else [mark]) for name in names]


def with_leaf(tree: Any, path: str, value: Any) -> Any:
    """Return a tree with a leaf replaced, without the check of `set_leaf`."""
    leaves, structure = jax.tree.flatten(tree)
    leaves[jd.tree.leaf_paths(tree).index(path)] = value
    return jax.tree.unflatten(structure, leaves)


# Methods.


@dataclasses.dataclass(frozen=True)
class Method:
    """A time-stepping method, with what the tests hold it to.

    Attributes:
        integrator: the method with the roles that it has by default; those that let constraints drift have a
            field `stabilization`.
        order: of positions and velocities at a fixed time.
        family: methods of one family share their code.
        closed: the levels of constraints that hold to round-off after a step.
        symplectic: whether the energy error of conservative systems stays bounded.
        implicit: whether a step iterates, and reports how often.
    """

    integrator: Any
    order: int
    family: str
    closed: tuple[str, ...] = ()
    symplectic: bool = False
    implicit: bool = False


POSITIONS, VELOCITIES = "positions", "velocities"
_symplectic = functools.partial(Method, closed=(POSITIONS, VELOCITIES), symplectic=True, implicit=True)
_implicit = functools.partial(Method, closed=(POSITIONS,), implicit=True)

METHODS = {
    "rk4": Method(jd.RungeKutta.rk4(), 4, "runge_kutta"),
    "midpoint": Method(jd.RungeKutta.midpoint(), 2, "runge_kutta"),
    "heun": Method(jd.RungeKutta.heun(), 2, "runge_kutta"),
    "ralston3": Method(jd.RungeKutta.ralston3(), 3, "runge_kutta"),
    "dormand_prince5": Method(jd.RungeKutta.dormand_prince5(), 5, "runge_kutta"),
    "semi_implicit_euler": Method(jd.SemiImplicitEuler(), 1, "euler"),
    "explicit_euler": Method(jd.ExplicitEuler(), 1, "euler"),
    "taylor": Method(jd.textbook.Taylor(), 2, "taylor"),
    # The lecture's scheme (4): q + h v + h^2/2 a is locally of third order, but v + h a only of second, and v
    # feeds q. Over a fixed time the method is of order 1, however exact its positions look after one step.
    "lecture_taylor": Method(jd.textbook.Taylor(jerk=False), 1, "taylor"),
    "half_explicit4": Method(jd.HalfExplicitRungeKutta(), 4, "half_explicit", closed=(VELOCITIES,)),
    "rattle": _symplectic(jd.Rattle(), 2, "rattle"),
    # The order of its positions: its velocities miss the impulse of the last half step, h/2 J^T lam.
    "shake": _symplectic(jd.Rattle(velocity_level=False), 2, "rattle", closed=(POSITIONS,)),
    "discrete_euler_lagrange": _symplectic(jd.DiscreteEulerLagrange(), 2, "euler_lagrange"),
    "discrete_euler_lagrange_trapezoidal": _symplectic(
        jd.DiscreteEulerLagrange(jd.TrapezoidalLagrangian()), 2, "euler_lagrange"
    ),
    "implicit_midpoint": _implicit(jd.ImplicitMidpoint(), 2, "implicit"),
    "backward_euler": _implicit(jd.BackwardEuler(), 1, "implicit"),
    "generalized_alpha": _implicit(jd.GeneralizedAlpha(), 2, "generalized_alpha"),
    "generalized_alpha_undamped": _implicit(jd.GeneralizedAlpha(jnp.asarray(1.0)), 2, "generalized_alpha"),
    "radau_iia": _implicit(jd.RadauIIA(), 5, "radau_iia", closed=(POSITIONS, VELOCITIES)),
    "suzuki4": _symplectic(jd.Composition.suzuki4(jd.Rattle()), 4, "composition"),
    "yoshida4": _symplectic(jd.Composition.yoshida4(jd.Rattle()), 4, "composition"),
    "yoshida6": _symplectic(jd.Composition.yoshida6(jd.Rattle()), 6, "composition"),
    "kahan_li6": _symplectic(jd.Composition.kahan_li6(jd.Rattle()), 6, "composition"),
    "kahan_li8": _symplectic(jd.Composition.kahan_li8(jd.Rattle()), 8, "composition"),
    "kahan_li6_of_midpoint": _symplectic(
        jd.Composition.kahan_li6(jd.DiscreteEulerLagrange()), 6, "composition"
    ),
}


def precise(name: str) -> Any:
    """Returns a method for orders in long steps; parts of compositions with as many corrections as round-off
    takes.

    Eight, which are the default of RATTLE, leave 1e-10 to 1e-12 where bodies turn by some 0.4 rad in a part.
    An order of eight is to be seen in errors that are as small, and the slope would be that of the iteration.
    """
    method = METHODS[name].integrator
    if METHODS[name].family != "composition":
        return method
    part = method.integrator
    more = {"iterations": 12} if isinstance(part, jd.Rattle) else {"newton": jd.DenseNewton(iterations=12)}
    return dataclasses.replace(method, integrator=dataclasses.replace(part, **more))


PARAMETERS_ONLY = (
    *(
        "yoshida4",
        "yoshida6",
        "kahan_li6",
        "kahan_li8",
        "kahan_li6_of_midpoint",
        "generalized_alpha_undamped",
    ),
    *("midpoint", "heun", "ralston3", "lecture_taylor"),
)
"""Methods that differ from another one in numbers alone: tests of orders have all of them, other contracts
hold for one if for all.
"""


def distinct(where: Callable[[Any], Any] = lambda row: True) -> list[str]:
    """Returns the names of the methods that satisfy a condition, without those that differ from others in
    numbers alone.
    """
    return [name for name in every(METHODS, where) if name not in PARAMETERS_ONLY]


# Solvers.


@dataclasses.dataclass(frozen=True)
class Solver:
    """A saddle-point solver, with what the tests hold it to.

    Attributes:
        solver: with the settings that it has by default.
        any_rank: whether rows of J may depend on each other.
        massless: whether M > 0 is asked for on the null space of J only.
        iterative: whether it stops at a residual of some 1e-12, instead of round-off.
        tolerant: for any rank: the solver with a rank tolerance of 1e-5, above what a step does to dependent
            rows.
    """

    solver: Any
    any_rank: bool = False
    massless: bool = False
    iterative: bool = False
    tolerant: Any = None


RANK = 1e-5
SOLVERS = {
    "dense_kkt": Solver(jd.DenseKKT(), massless=True),
    "schur_complement": Solver(jd.SchurComplement()),
    "null_space": Solver(
        jd.NullSpace(), any_rank=True, massless=True, tolerant=jd.NullSpace(jd.operators.SingularValues(RANK))
    ),
    "null_space_qr": Solver(jd.NullSpace(jd.operators.HouseholderQR()), massless=True),
    "null_space_normal": Solver(jd.NullSpace(jd.operators.NormalEquations()), massless=True),
    "least_squares": Solver(jd.LeastSquares(), any_rank=True, tolerant=jd.LeastSquares(RANK)),
    "proximal": Solver(jd.Proximal(), any_rank=True, tolerant=jd.Proximal()),
    "conjugate_gradient": Solver(
        jd.ConjugateGradient(),
        any_rank=True,
        iterative=True,
        tolerant=jd.ConjugateGradient(rank_tolerance=RANK),
    ),
    "biconjugate_gradient": Solver(jd.BiconjugateGradient(), iterative=True),
}


# Joints and forces of the plane, of every kind: between three bodies, and holding where these start.

POSES = {"left": (0.3, -0.2, 0.4), "middle": (1.1, 0.6, -1.2), "right": (-0.7, 0.9, 2.5)}
BODIES = [jm.Body(name, 1.0 + k, 0.3 + 0.1 * k, pose) for k, (name, pose) in enumerate(POSES.items())]
JOINTS = [
    jm.Revolute("pin", "ground", "left", at=(0.1, 0.2)),
    jm.Revolute("elbow", "left", "middle", at=(0.7, 0.3), damping=0.4),
    jm.Prismatic("rail", "ground", "right", axis=(1.0, 2.0), at=(-0.5, 0.4), damping=0.7),
    jm.Prismatic("slide", "middle", "right", axis=(-1.0, 0.5), at=(0.2, 0.8)),
    jm.Weld("weld", "left", "right", at=(0.0, 0.5)),
    jm.Rod("rod", "left", "middle", at_a=(0.2, 0.1), at_b=(0.9, 0.9)),
    jm.Rod("strut", "ground", "right", at_a=(0.0, 2.0), at_b=(-0.4, 1.0)),
    jm.PointOnLine("slot", "middle", "left", axis=(2.0, 1.0), at=(0.5, 0.5)),
    jm.Gear("gears", "left", "right", ratio=-2.5),
]
MOTIONS = [
    jm.PrescribedMotion("motor", "pin", jm.Sinusoid(0.3, 1.7, 0.4)),
    jm.PrescribedMotion("feed", "rail", jm.Polynomial((0.0, 0.5, -0.2))),
    jm.PrescribedMotion("servo", "elbow", lambda t: 0.2 * jnp.tanh(t)),
]
FORCES = [
    jm.LinearSpring(
        "spring", "left", "middle", at_a=(0.2, 0.1), at_b=(0.9, 0.9), stiffness=30.0, rest_length=0.4
    ),
    jm.TorsionalSpring("coil", "ground", "left", stiffness=5.0, rest_angle=0.1),
    jm.Torque("push", "left", "right", torque=1.7),
    jm.Force("pull", "middle", at=(1.0, 1.0), force=(2.0, -3.0)),
    jm.JointForce("drive", "rail", force=1.3),
    jm.JointForce("wind", "elbow", force=-0.6),
]


# Systems: functions that return one, and a start that satisfies its constraints. Published problems have the
# name of their reference.


def _point_mass(name: str, make: Callable[[], Any]) -> Callable[[], tuple[Any, jd.State]]:
    return lambda: (make(), problems.reference(name).start())


def _pendulum(name: str) -> Callable[[], tuple[Any, jd.State]]:
    return _point_mass(name, functools.partial(problems.pendulum, name))


SYSTEMS = {
    "ivptest_pendulum": _pendulum("ivptest_pendulum"),
    "sundials_pendulum_period2": _pendulum("sundials_pendulum_period2"),
    "iftomm_a01_pendulum": _pendulum("iftomm_a01_pendulum"),
    "spherical_pendulum": _pendulum("spherical_pendulum"),
    "double_pendulum": _point_mass("double_pendulum", problems.double_pendulum),
    "bead_rotating_wire": _point_mass("bead_rotating_wire", problems.bead_on_wire),
    "ivptest_andrews": _point_mass(
        "ivptest_andrews", lambda: problems.AndrewsAngles(problems.andrews_parameters())
    ),
    "iftomm_a03_andrews": reference_systems.iftomm_andrews,
    "heavy_top_bruls": functools.partial(reference_systems.heavy_top, "heavy_top_bruls"),
    "heavy_top_steady": functools.partial(reference_systems.heavy_top, "heavy_top_steady"),
    "torque_free_asymmetric": reference_systems.torque_free,
    "chaplygin_sleigh": reference_systems.chaplygin_sleigh,
    "rolling_penny": reference_systems.rolling_penny,
    "ivptest_slider_crank": reference_systems.elastic_slider_crank,
    "iftomm_a05_flyball": reference_systems.flyball,
    "crank_rocker": lambda: problems.CrankRocker().build(),
    "everything": lambda: (small_systems.everything(), small_systems.consistent()),
    "oscillator": lambda: (small_systems.oscillator(), small_systems.oscillating()),
}
