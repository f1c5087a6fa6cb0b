"""Published and closed-form problems in space as mechanisms of bodies and joints, to the digits that their
references allow.

At each time of a file, with `digits` of the file, or those that its closed form was checked to,

    error <= 10^-digits * max(1, largest component) + round-off,

as in `test_accuracy_published`, where some of the problems are systems written by hand.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference_systems as systems
import spatial_references
from catalogue import RANK, in_ci, quick
from spatial_references import PROBLEMS, file

import jaxdae as jd
from jaxdae import mechanisms as jm

EPS = np.finfo(float).eps


@functools.partial(jax.jit, static_argnames=("steps", "save_every"))
def rolled(system, method, start, dt, steps, save_every=1):
    return jd.rollout(system, method, start, dt=dt, steps=steps, save_every=save_every)


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def in_absolute(mechanism, state):
    return jm.to_absolute(mechanism, state)


@functools.cache
def problem(name):
    return PROBLEMS[name]()


def projected(solver):
    return jd.Projected(jd.RungeKutta.dormand_prince5(solver=solver, unroll=False))


PLAIN = projected(jd.DenseKKT())
# Rows too many: the rank is that of the manifold, which a step leaves by less than this tolerance.
REDUNDANT = projected(jd.NullSpace(jd.operators.SingularValues(RANK)))
EIGHTH = jd.Composition.kahan_li8(jd.Rattle(iterations=12))
# The closed forms were checked against other engines to 1e-11 or better, and each of the programs ends within
# 3e-12 of them.
CLOSED_FORM = {"q": 11, "v": 11}

# Method, steps over the whole time of the file, digits (those of the file by default), round-off relative to
# the largest component.
METHODS = {
    "heavy_top_bruls": (EIGHTH, 1000, None, 0.0),
    "heavy_top_steady": (EIGHTH, 1000, None, 0.0),
    "torque_free_asymmetric": (PLAIN, 8000, None, 2500 * EPS * 8000**0.5),
    "spherical_pendulum": (PLAIN, 20000, None, 0.0),
    "iftomm_a04_bricard": (REDUNDANT, 500, None, 0.0),
    "mechanism_bennett": (REDUNDANT, 1600, CLOSED_FORM, 0.0),
    "mechanism_cardan_cross": (REDUNDANT, 2000, CLOSED_FORM, 0.0),
    # It accelerates evenly, which four stages follow as well as seven, for half of what they take to compile.
    "mechanism_screw_nut": (
        jd.Projected(jd.RungeKutta.rk4(solver=jd.DenseKKT(), unroll=False)),
        2000,
        CLOSED_FORM,
        0.0,
    ),
    "mechanism_gimbal_gyroscope": (PLAIN, 4000, CLOSED_FORM, 0.0),
    "mechanism_bevel_differential_b": (PLAIN, 1000, CLOSED_FORM, 0.0),
}
OPEN = jd.RungeKutta.dormand_prince5(solver=jd.DenseKKT(), unroll=False)
LOOP = jd.Projected(jd.RungeKutta.rk4(solver=jd.NullSpace(jd.operators.SingularValues(RANK)), unroll=False))
# In joint coordinates most have no rows left, and nothing to project; loops have four stages for half of what
# seven take to compile.
IN_JOINTS = {
    "heavy_top_bruls": (OPEN, 60000, None, 0.0),
    "heavy_top_steady": (OPEN, 30000, None, 0.0),
    # Energy and momentum hold to 3e-15. Each turn about the middle axis, an unstable one, multiplies round-
    # off, which is M's here, too.
    "torque_free_asymmetric": (OPEN, 4000, None, 10000 * EPS * 4000**0.5),
    "spherical_pendulum": (PLAIN, 8000, None, 0.0),
    "iftomm_a04_bricard": (LOOP, 4000, None, 0.0),
    "mechanism_bennett": (LOOP, 4000, CLOSED_FORM, 0.0),
    "mechanism_cardan_cross": (LOOP, 4000, CLOSED_FORM, 0.0),
    "mechanism_screw_nut": (jd.RungeKutta.rk4(solver=jd.DenseKKT(), unroll=False), 2000, CLOSED_FORM, 0.0),
    "mechanism_gimbal_gyroscope": (OPEN, 4000, CLOSED_FORM, 0.0),
    "mechanism_bevel_differential_b": (LOOP, 1000, CLOSED_FORM, 0.0),
}


# Those that CI runs: each kind of problem and each method in one of the coordinate forms.
IN_CI = ("heavy_top_bruls", "torque_free_asymmetric", "iftomm_a04_bricard", "mechanism_bennett")
IN_CI_IN_JOINTS = (
    "heavy_top_steady",
    "mechanism_screw_nut",
    "mechanism_gimbal_gyroscope",
    "mechanism_bevel_differential_b",
)


def same_sign(q, expected):
    """Returns q with the signs of the expected quaternions: both are the same rotation."""
    ours, theirs = (x.reshape(len(x), -1, 7).copy() for x in (np.asarray(q), expected))
    ours[..., 3:] *= np.where(
        np.sum(ours[..., 3:] * theirs[..., 3:], axis=-1, keepdims=True) < 0.0, -1.0, 1.0
    )
    return ours.reshape(expected.shape)


def solved(given, mechanism, start, method, steps):
    """Returns the relative errors of q and v in absolute coordinates at the times of the file."""
    entries = np.rint(given.t * steps / given.t[-1]).astype(int)
    np.testing.assert_allclose(entries * given.t[-1] / steps, given.t, rtol=1e-12)
    save_every = int(np.gcd.reduce(entries))
    trajectory = rolled(mechanism, method, start, given.t[-1] / steps, steps, save_every)
    jd.raise_if_failed(trajectory)
    reached = jax.tree.map(lambda x: x[entries // save_every - 1], trajectory.state)
    if mechanism.carrying:
        reached = in_absolute(mechanism, reached)
    found = {"q": same_sign(reached.q, given.q), "v": np.asarray(reached.v)}
    return {key: errors(found[key], getattr(given, key)) for key in found}


def errors(computed, expected):
    """Returns the largest error at each state, relative to the largest component, or to 1."""
    return np.max(np.abs(computed - expected), axis=1) / np.maximum(1.0, np.max(np.abs(expected), axis=1))


def assert_digits(name, found, digits, round_off):
    digits = digits or file(name)["expected_digits"]
    for key, error in found.items():
        assert np.all(error <= 10.0 ** -digits[key] + round_off), (
            f"{key}: errors {error}, allowed {10.0 ** -digits[key]} and {round_off}"
        )


@pytest.mark.long
@pytest.mark.parametrize("name", in_ci(METHODS, *IN_CI))
def test_reaches_the_expected_digits(name):
    method, steps, digits, round_off = METHODS[name]
    given = problem(name)
    assert_digits(name, solved(given, given.mechanism, given.start, method, steps), digits, round_off)


@pytest.mark.long
@pytest.mark.parametrize("name", in_ci(IN_JOINTS, *IN_CI_IN_JOINTS))
def test_reaches_them_in_joint_coordinates(name):
    method, steps, digits, round_off = IN_JOINTS[name]
    given = problem(name)
    assert_digits(name, solved(given, *given.in_joints(), method, steps), digits, round_off)


@pytest.mark.long
@pytest.mark.parametrize("name", quick(PROBLEMS, "iftomm_a04_bricard"))
def test_starts_on_its_constraints_with_the_rank_of_its_file(name):
    """The start satisfies the rows, as do all states of the file."""
    given = problem(name)
    counts = file(name)
    mechanism = given.mechanism

    @jax.jit
    @jax.vmap
    def residuals(t, q, v):
        jacobian = mechanism.constraint_jacobian(t, q, v)
        return mechanism.constraint(t, q), jacobian @ v, jacobian

    start, states = given.start, (given.t, given.q, given.v)
    t, q, v = (
        jnp.concatenate([x[None], jnp.asarray(y)])
        for x, y in zip((start.t, start.q, start.v), states, strict=True)
    )
    positions, velocities, jacobian = residuals(t, q, v)
    # The files have 16 digits, 12 where they come from extrapolation.
    np.testing.assert_allclose(positions, 0.0, rtol=0, atol=1e-11)
    np.testing.assert_allclose(velocities, 0.0, rtol=0, atol=1e-10 * max(1.0, np.max(np.abs(v))))
    if "rank" in counts:
        assert jacobian.shape[1:] == (counts["rows"], counts["velocities"])
        assert {int(np.linalg.matrix_rank(x, 1e-8)) for x in jacobian} == {counts["rank"]}
    if name == "iftomm_a04_bricard":
        assert {int(np.linalg.matrix_rank(x, 1e-8)) for x in jacobian} == {29}


@pytest.mark.long
@pytest.mark.parametrize("form", [pytest.param("absolute", marks=pytest.mark.exhaustive), "joints"])
def test_radau_follows_the_governor(form):
    """Dampers of 2e4 1/s; in joint coordinates at all times of the file, where the shaft turns by 56 rad:
    poses know the last turn.

    In absolute coordinates all 10 s take minutes, and end within 3e-9 rad.
    """
    name = "iftomm_a05_flyball"
    given = problem(name)
    mechanism, start = (given.mechanism, given.start) if form == "absolute" else given.in_joints()
    method = jd.RadauIIA(newton=jd.DenseNewton(iterations=6))
    dt, last = 0.005, 1.0 if form == "absolute" else 10.0
    trajectory = rolled(mechanism, method, start, dt, round(last / dt), round(0.1 / dt))
    jd.raise_if_failed(trajectory)
    reached = trajectory.state if form == "absolute" else in_absolute(mechanism, trajectory.state)
    times = given.t[given.t <= last + 1e-9]
    poses = np.asarray(reached.q)[np.rint(times / 0.1).astype(int) - 1]
    states = problems.reference(name).file["reference"]["states"][1 : 1 + len(times)]
    expected = np.array([[float(x) for x in state["minimal_hp"]][:3] for state in states])
    away = np.array([systems.flyball_minimal(pose) for pose in poses]) - expected
    away[:, 0] -= 2.0 * np.pi * np.round(away[:, 0] / (2.0 * np.pi))
    np.testing.assert_allclose(away, 0.0, rtol=0, atol=1e-9)
    if form == "absolute":
        norms = np.linalg.norm(np.asarray(reached.q).reshape(-1, 4, 7)[..., 3:], axis=-1)
        np.testing.assert_allclose(norms, 1.0, rtol=0.0, atol=4 * EPS)


@pytest.mark.exhaustive
def test_the_governor_has_the_equations_of_the_system_by_hand():
    """Accelerations at all states of the file, whose dampers would show every mistake."""
    given, hand = problem("iftomm_a05_flyball"), systems.flyball()[0]

    @jax.jit
    def accelerations(mechanism, q, v):
        zero = jnp.zeros(())
        return jax.vmap(
            lambda q, v: jd.forward_dynamics(mechanism, jd.State(zero, q, v), solver=jd.DenseKKT())[0]
        )(q, v)

    ours, theirs = (
        accelerations(system, jnp.asarray(given.q), jnp.asarray(given.v))
        for system in (given.mechanism, hand)
    )
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-10 * np.max(np.abs(theirs)))


def reactions(mechanism, start):
    """Returns accelerations, and multipliers by the names of their rows."""
    a, lam = jax.jit(lambda m, s: jd.forward_dynamics(m, s, solver=jd.DenseKKT()))(mechanism, start)
    return np.asarray(a), dict(zip(mechanism.names.rows, np.asarray(lam), strict=True))


@pytest.mark.long
def test_bearings_of_an_unbalanced_rotor():
    expected = file("mechanism_reactions")["unbalanced_rotor"]
    mechanism, start = spatial_references.unbalanced_rotor()
    a, lam = reactions(mechanism, start)
    # Forces on b; the axes of the slot are those of its group.
    across = np.asarray(mechanism.joints["point_on_line"].axes_a)[0]
    on_b = across[:, 0] * lam["B.x"] + across[:, 1] * lam["B.y"]
    np.testing.assert_allclose(a[3], expected["angular_acceleration"], rtol=1e-12)
    np.testing.assert_allclose(
        [lam[f"A.{k}"] for k in "xyz"], expected["force_of_bearing_A_on_rotor"], rtol=0, atol=1e-11
    )
    np.testing.assert_allclose(on_b, expected["force_of_bearing_B_on_rotor"], rtol=0, atol=1e-11)


@pytest.mark.exhaustive
def test_forces_in_a_tripod():
    expected = file("mechanism_reactions")["tripod"]
    a, lam = reactions(*spatial_references.tripod())
    np.testing.assert_allclose(a, 0.0, rtol=0, atol=1e-12)
    for k in range(3):
        np.testing.assert_allclose(lam[f"top{k}.z"], expected["vertical_force_each_rod_on_apex"], rtol=1e-12)
        np.testing.assert_allclose(lam[f"foot{k}.z"], expected["ground_reaction_each_vertical"], rtol=1e-12)
        np.testing.assert_allclose(
            np.hypot(lam[f"foot{k}.x"], lam[f"foot{k}.y"]), expected["horizontal_thrust_at_foot"], rtol=1e-12
        )


@functools.partial(jax.jit, static_argnums=2)
def _loads(mechanism, there, solver):
    here = jm.to_joints(mechanism, there)
    a, lam = jd.forward_dynamics(mechanism, here, solver=solver)
    found = jm.reactions(mechanism, here, lam)
    return a, found.force, found.torque


def loads(problem):
    """Returns accelerations in joint coordinates, and the forces of all joints on their bodies b by name."""
    mechanism, _ = problem(jm.Joints())
    a, force, torque = _loads(mechanism, problem()[1], jd.NullSpace())
    return np.asarray(a), dict(zip(mechanism.joint_names, np.asarray(force), strict=True)), np.asarray(torque)


@pytest.mark.exhaustive
def test_bearings_of_an_unbalanced_rotor_in_joint_coordinates():
    """The ball is in the tree: its force is what the rotor needs beyond its weight and the other bearing."""
    expected = file("mechanism_reactions")["unbalanced_rotor"]
    _, force, torque = loads(spatial_references.unbalanced_rotor)
    np.testing.assert_allclose(force["A"], expected["force_of_bearing_A_on_rotor"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(force["B"], expected["force_of_bearing_B_on_rotor"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(torque, 0.0, rtol=0, atol=1e-11)


@pytest.mark.long
def test_forces_in_a_tripod_in_joint_coordinates():
    expected = file("mechanism_reactions")["tripod"]
    a, force, torque = loads(spatial_references.tripod)
    np.testing.assert_allclose(a, 0.0, rtol=0, atol=1e-11)
    np.testing.assert_allclose(torque, 0.0, rtol=0, atol=1e-11)
    for k in range(3):
        np.testing.assert_allclose(
            force[f"top{k}"][2], expected["vertical_force_each_rod_on_apex"], rtol=1e-11
        )
        np.testing.assert_allclose(
            force[f"foot{k}"][2], expected["ground_reaction_each_vertical"], rtol=1e-11
        )
        np.testing.assert_allclose(
            np.hypot(*force[f"foot{k}"][:2]), expected["horizontal_thrust_at_foot"], rtol=1e-11
        )


@pytest.mark.long
def test_thread_of_a_screw():
    """The spindle carries the nut along the axis and turns it: a force, and -lead times the force as torque."""
    expected = file("mechanism_screw_nut")
    given = problem("mechanism_screw_nut")
    a, lam = reactions(given.mechanism, given.start)
    np.testing.assert_allclose(a[5], expected["acceleration"], rtol=1e-12)
    jacobian = jax.jit(given.mechanism.constraint_jacobian)(given.start.t, given.start.q, given.start.v)
    wrench = np.asarray(jacobian).T @ np.array(list(lam.values()))
    reaction = expected["thread_reaction"]
    np.testing.assert_allclose(wrench[[2, 5]], [reaction["force_z"], reaction["torque_z"]], rtol=1e-12)
