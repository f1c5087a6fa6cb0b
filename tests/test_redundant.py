"""Mechanisms with one row too many on all of their motion: with every solver that allows dependent rows they
move as they should.

*The rank tolerance.* On the manifold the lost singular value of J is round-off, but the stages of a
Runge-Kutta method leave the manifold by about h^2, and the rows of Bricard's mechanism are independent there:
off the manifold it is rigid. A solver that takes the lost singular value for a real one stops it, without a
word. So the tolerance must lie above what the step does to the singular value and below the smallest that is
meant. For Bricard's mechanism, relative to the largest, in J and in J M^-1/2:

                        steps of 0.001 s    0.01 s    0.02 s    smallest that is meant
    Dormand-Prince 5         1e-9           1e-7      5e-7         4e-2   (4e-3)
    RK4                      8e-9           8e-7      3e-6         4e-2   (4e-3)

`RANK` = 1e-5, the default of `SingularValues`, is far from both.
"""

import catalogue
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import redundant_problems
from catalogue import RANK, in_ci
from scipy.spatial.transform import Rotation

import jaxdae as jd
import jaxdae.mechanisms as jm
from jaxdae.mechanisms import spatial as js

SOLVERS = {name: row.tolerant for name, row in catalogue.SOLVERS.items() if row.any_rank}


@jax.jit
def rolled(system, method, start, dt, times):
    """Returns the trajectory with an entry for each of the times (n,), which stand for no more than their
    number.
    """
    return jd.rollout(system, method, start, dt=dt, steps=times.shape[0])


def projected(method, name):
    """Returns the method with a projection, both with one solver: projections take that of their integrator."""
    return jd.Projected(method(solver=SOLVERS[name]))


# Bricard's mechanism.

BRICARD = "iftomm_a04_bricard"
DT = 0.02


@jd.tree.pytree
class BricardByEnergies(jd.LagrangianSystem):
    """The same mechanism from its energies, with the inertia of the quaternions' lengths as the energy that
    it stands for.
    """

    rods: redundant_problems.Bricard

    def kinetic_energy(self, q, v):
        rods = self.rods
        e, rate, speed = q.reshape(-1, 7)[:, 3:], v.reshape(-1, 7)[:, 3:], v.reshape(-1, 7)[:, :3]
        spin = 2.0 * jnp.einsum("kij,kj->ki", redundant_problems.body_rates(e), rate)
        stretch = rods.length_inertia * 4.0 * jnp.mean(rods.inertia, axis=1) * jnp.sum(e * rate, axis=1) ** 2
        return 0.5 * (
            jnp.sum(rods.mass[:, None] * speed**2) + jnp.sum(rods.inertia * spin**2) + jnp.sum(stretch)
        )

    def potential_energy(self, t, q):
        return self.rods.potential_energy(t, q)


@pytest.fixture(scope="module")
def bricard():
    return redundant_problems.bricard()


def states(reference):
    """Returns the states of a reference, stacked."""
    return jd.State(*(jnp.asarray(x) for x in (reference.t, reference.q, reference.v)))


def test_bricard_starts_where_the_reference_does(bricard):
    np.testing.assert_array_equal(bricard[1].q, problems.reference(BRICARD).start().q)


def test_bricard_has_the_equations_of_its_energies(bricard):
    """M and f against autodiff of the energies, anywhere: quaternions of any length."""
    rods, _ = bricard
    energies = BricardByEnergies(rods)
    q, v = jnp.asarray(np.random.default_rng(0).normal(size=(2, 35)))
    zero = jnp.zeros(())
    # Entries of order 1 to 10, sums of some ten terms.
    np.testing.assert_allclose(
        jax.jit(rods.mass_matrix)(q), jax.jit(energies.mass_matrix)(q), rtol=0.0, atol=1e-14
    )
    force, expected = (jax.jit(lambda x, y, s=s: s.force(zero, x, y, None))(q, v) for s in (rods, energies))
    np.testing.assert_allclose(force, expected, rtol=0.0, atol=1e-13)


@pytest.mark.long
def test_bricard_does_not_notice_the_inertia_of_the_quaternions_lengths(bricard):
    """Accelerations and shortest multipliers at all reference states, with the default and with 10 and 1/10
    of it.
    """
    rods, _ = bricard
    dynamics = jax.jit(
        jax.vmap(lambda s, x: jd.forward_dynamics(s, x, solver=SOLVERS["null_space"]), in_axes=(None, 0))
    )
    at = states(problems.reference(BRICARD))
    a, lam = dynamics(rods, at)
    assert np.max(np.abs(a)) > 1.0
    for factor in (0.1, 10.0):
        other = dynamics(jd.tree.set_leaf(rods, "length_inertia", jnp.asarray(factor)), at)
        # Multipliers up to 30 N m, and accelerations that are multiplied by up to 150 on the way through
        # M^-1.
        np.testing.assert_allclose(other[1], lam, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(other[0], a, rtol=0.0, atol=1e-11)


def test_bricard_has_one_row_too_many_on_all_of_its_motion(bricard):
    rods, _ = bricard
    reference = problems.reference(BRICARD)
    at = states(reference)
    residual = jax.jit(jax.vmap(lambda x: rods.constraint(x.t, x.q)))(at)
    jacobian = np.asarray(jax.jit(jax.vmap(lambda x: rods.constraint_jacobian(x.t, x.q, x.v)))(at))
    assert jacobian.shape[1:] == (35, 35)
    # The references are rounded to 1e-16; J v sums some ten products of order 1.
    np.testing.assert_allclose(residual, 0.0, rtol=0, atol=5e-16)
    np.testing.assert_allclose(np.einsum("kij,kj->ki", jacobian, reference.v), 0.0, rtol=0, atol=5e-15)
    values = np.linalg.svd(jacobian, compute_uv=False)
    assert np.all(values[:, 34] < 1e-15 * values[:, 0])
    assert np.all(values[:, 33] > 1e-2 * values[:, 0])
    energy = jax.jit(jax.vmap(lambda x: jd.energy(rods, x)))(at)
    np.testing.assert_allclose(
        energy, [s["energy"] for s in reference.file["reference"]["states"]], rtol=1e-15
    )


def test_bricard_is_rigid_off_the_manifold(bricard):
    """Half a step of DT along the velocity: the lost singular value is no round-off any more, but still far
    below `RANK`.
    """
    rods, _ = bricard
    at = states(problems.reference(BRICARD))
    jacobian = jax.jit(jax.vmap(lambda x: rods.constraint_jacobian(x.t, x.q + 0.5 * DT * x.v, x.v)))(at)
    values = np.linalg.svd(jacobian, compute_uv=False)
    lost = values[:, 34] / values[:, 0]
    assert 1e-7 < np.max(lost) < RANK / 3
    assert np.all(values[:, 33] > 1e3 * RANK * values[:, 0])


def hinge_gaps(rods, q):
    """Returns the distances (n, 6) between the two points of each hinge, from poses (n, 35), with rotation
    matrices of scipy.
    """
    pose = np.asarray(q).reshape(-1, 5, 7)
    ground = np.broadcast_to(np.eye(7)[3], (len(pose), 1, 7))

    def points(poses, local):
        turned = Rotation.from_quat(poses[..., 3:].reshape(-1, 4), scalar_first=True)
        places = np.broadcast_to(np.asarray(local), (len(pose), 6, 3)).reshape(-1, 3)
        return poses[..., :3] + turned.apply(places).reshape(-1, 6, 3)

    before = points(np.concatenate([ground, pose], axis=1), rods.before)
    return np.linalg.norm(points(np.concatenate([pose, ground], axis=1), rods.behind) - before, axis=-1)


# The null-space solver follows it in `test_accuracy_spatial`, in both forms of coordinates.
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        pytest.param("least_squares", 2.5, marks=pytest.mark.exhaustive),
        pytest.param("proximal", 2.5, marks=pytest.mark.exhaustive),
        pytest.param("conjugate_gradient", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_bricard_follows_the_reference(bricard, name, seconds):
    """To the digits that the file expects, 9 of positions and 8 of velocities, with the loops closed at every
    step.
    """
    rods, start = bricard
    reference = problems.reference(BRICARD)
    trajectory = rolled(
        rods, projected(jd.RungeKutta.dormand_prince5, name), start, DT, np.arange(1, round(seconds / DT) + 1)
    )
    jd.raise_if_failed(trajectory)
    inside = (reference.t > 0.0) & (reference.t <= seconds)
    entries = np.rint(reference.t[inside] / DT).astype(int) - 1
    for computed, expected, digits in (
        (trajectory.state.q, reference.q[inside], reference.file["expected_digits"]["q"]),
        (trajectory.state.v, reference.v[inside], reference.file["expected_digits"]["v"]),
    ):
        scale = np.maximum(1.0, np.max(np.abs(expected), axis=1))
        error = np.max(np.abs(np.asarray(computed)[entries] - expected), axis=1)
        assert np.all(error <= 10.0**-digits * scale), f"errors {error}"
    assert np.max(trajectory.info.violation) <= 1e-11
    assert np.max(trajectory.info.velocity_violation) <= 1e-11
    assert np.max(hinge_gaps(rods, trajectory.state.q)) <= 1e-11


# A parallelogram with a third crank.

SWING = 1.0  # rad off the lower vertical, from rest: the cranks never come in line with their feet
STEPS, STEP = 128, 0.01
TIMES = STEP * np.arange(1, STEPS + 1)


@pytest.fixture(scope="module")
def design():
    numbers = {"length": 1.0, "mass": 1.0, "coupler": 2.0, "gravity": 9.81, "rate": 0.0}
    numbers["angle"] = np.pi - SWING
    return redundant_problems.Parallelogram(
        feet=jnp.array([0.0, 0.7, 2.0]), **{key: jnp.asarray(x) for key, x in numbers.items()}
    )


def test_parallelogram_has_one_row_too_many(design):
    mechanism, start = design.build()
    report = jd.diagnose(mechanism, start)
    assert (report.coordinates, report.rows, report.rank, report.mobility) == (12, 12, 11, 1)
    assert report.redundant == ("pin2",)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    in_ci(SOLVERS, "proximal"),
)
def test_parallelogram_follows_its_closed_form(design, name):
    mechanism, start = design.build()
    trajectory = rolled(mechanism, projected(jd.RungeKutta.rk4, name), start, STEP, TIMES)
    jd.raise_if_failed(trajectory)
    angle, rate = redundant_problems.swinging(TIMES, float(design.frequency), SWING)
    poses = jax.jit(
        jax.vmap(lambda a, r: jd.tree.set_leaf(jd.tree.set_leaf(design, "angle", a), "rate", r).build()[1])
    )(angle, rate)
    # Truncation: h^4 w^5 T / 120 with w = 3.4 1/s, h = 0.01 s, T = 1.28 s, that is 5e-8; velocities are w
    # times that.
    np.testing.assert_allclose(trajectory.state.q, poses.q, rtol=0.0, atol=5e-8)
    np.testing.assert_allclose(trajectory.state.v, poses.v, rtol=0.0, atol=2e-7)
    assert np.max(trajectory.info.violation) <= 1e-14
    assert np.max(trajectory.info.velocity_violation) <= 1e-14


def end(design, method):
    """Returns a weighted sum of the state after half of the time."""
    weights = jnp.asarray(np.random.default_rng(1).normal(size=24))
    mechanism, start = design.build()
    last = jd.rollout(mechanism, method, start, dt=STEP, steps=STEPS // 2, save_every=STEPS // 2).state
    return jnp.sum(weights * jnp.concatenate([last.q[0], last.v[0]]))


value_and_sensitivity = jax.jit(jax.value_and_grad(end))


# A solver that promises derivatives of all multipliers, and one that promises those of forces only.
@pytest.mark.long
@pytest.mark.parametrize("name", ["null_space", pytest.param("proximal", marks=pytest.mark.exhaustive)])
def test_sensitivity_of_the_parallelogram(design, name):
    """Gradients in reverse mode through 64 steps against central differences.

    All numbers of the design keep the redundancy: cranks stay equal, and the coupler's pins as far apart as
    the feet. So the rank is constant along all of them, and the derivative is defined. The method has one
    stage, which is least to compile.
    """
    projection = jd.Projection(jd.PositionProjection(iterations=2), jd.VelocityProjection())
    method = jd.Projected(jd.SemiImplicitEuler(solver=SOLVERS[name]), projection)
    leaves, structure = jax.tree.flatten(design)
    sizes = np.cumsum([x.size for x in leaves])
    flat = np.concatenate([np.ravel(x) for x in leaves])

    def changed(x):
        parts = [
            jnp.asarray(part.reshape(leaf.shape))
            for part, leaf in zip(np.split(x, sizes[:-1]), leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, parts)

    gradient = np.concatenate(
        [np.ravel(g) for g in jax.tree.leaves(value_and_sensitivity(design, method)[1])]
    )
    assert np.all(np.isfinite(gradient))
    # The crank's length, the three feet, all lengths at once, and everything at once.
    names = np.repeat(jd.tree.leaf_paths(design), [x.size for x in leaves])
    lengths = np.flatnonzero((names == "length") | (names == "feet"))
    directions = [np.eye(len(flat))[k] for k in lengths]
    directions += [
        np.where(np.isin(np.arange(len(flat)), lengths), flat, 0.0),
        np.random.default_rng(2).normal(size=len(flat)),
    ]
    # Third derivatives are of order 1e2 at most: the truncation h^2/6 is 1e-8, and round-off 1e-14/h less
    # than that.
    h = 2e-5
    for direction in directions:
        above, below = (
            float(value_and_sensitivity(changed(flat + s * h * direction), method)[0]) for s in (1.0, -1.0)
        )
        np.testing.assert_allclose(gradient @ direction, (above - below) / (2.0 * h), rtol=1e-6)


# The default solver.


def _pins(*pins):
    """Returns hinges in the plane from (name, first body, second body, x, y)."""
    return [jm.Revolute(name, a, b, at=(x, y)) for name, a, b, x, y in pins]


def _bodies(**places):
    return [jm.Body(name, 1.0, 0.1, (*place, 0.0)) for name, place in places.items()]


_RING = [(np.cos(angle), np.sin(angle)) for angle in 2.0 * np.pi / 7.0 * np.arange(7)]
_WITH_ONE_MORE = {
    "three hinges that are geared pairwise": (
        _bodies(a=(0.5, 0.0), b=(1.5, 0.3), c=(2.5, -0.2)),
        [
            *_pins(("A", "ground", "a", 0, 0), ("B", "ground", "b", 1, 0), ("C", "ground", "c", 2, 0)),
            *(jm.Relation(f"{one}{other}", one, other, (0.0, 1.0)) for one, other in ("AB", "BC")),
        ],
        jm.Relation("AC", "A", "C", (0.0, 1.0)),
    ),
    "a tendon relation that is another one twice": (
        _bodies(a=(0.5, 0.0), b=(1.5, 0.3)),
        [
            *_pins(("A", "ground", "a", 0, 0), ("B", "ground", "b", 1, 0)),
            jm.TendonRelation("t", ("A", "B"), (1.0, 1.0)),
        ],
        jm.TendonRelation("u", ("A", "B"), (2.0, 2.0)),
    ),
    "a parallelogram with equal crank angles": (
        _bodies(a=(0.0, 0.5), b=(1.0, 0.5), t=(0.5, 1.0)),
        _pins(
            ("A", "ground", "a", 0, 0),
            ("B", "ground", "b", 1, 0),
            ("C", "a", "t", 0, 1),
            ("D", "b", "t", 1, 1),
        ),
        jm.Relation("equal", "A", "B", (0.0, 1.0)),
    ),
    "a ring of seven hinges, one of them twice": (
        _bodies(**{f"b{k}": np.mean(_RING[k : k + 2], axis=0) for k in range(6)}),
        _pins(
            *(
                (f"J{k}", f"b{k - 1}" if k else "ground", f"b{k}" if k < 6 else "ground", *_RING[k])
                for k in range(7)
            )
        ),
        *_pins(("again", "b2", "b3", *_RING[3])),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if "ring" not in name else [])
        for name in _WITH_ONE_MORE
    ],
)
def test_the_default_solver_takes_rows_that_repeat_others(name):
    """A joint or a relation that changes nothing: the accelerations are those without it."""
    bodies, joints, further = _WITH_ONE_MORE[name]
    for coordinates in (jm.Absolute(), jm.Joints()):
        found = []
        for elements in (joints, [*joints, further]):
            mechanism, q = jm.planar_mechanism(bodies, elements, coordinates=coordinates)
            assert isinstance(
                mechanism.default_solver,
                jd.LeastSquares if len(elements) > len(joints) else jd.SchurComplement,
            )
            a, _ = jd.forward_dynamics(
                mechanism, jd.State(jnp.zeros(()), q, jnp.zeros(len(mechanism.names.velocities)))
            )
            found.append(dict(zip(mechanism.names.velocities, np.asarray(a), strict=True)))
        assert found[0].keys() == found[1].keys()
        np.testing.assert_allclose(
            [found[1][key] for key in found[0]], list(found[0].values()), rtol=0, atol=1e-10
        )


@pytest.mark.long
def test_mobile_legs_do_not_hide_a_redundant_loop():
    """A four-bar of hinges in space with three legs between balls, each of which adds the mobility of its
    spin.
    """
    bodies = [
        js.Body(name, 1.0, (0.1, 0.2, 0.3), place)
        for name, place in (("a", (0, 0.5, 0)), ("t", (0.5, 1, 0)), ("b", (1, 0.5, 0)))
    ]
    pins = (
        ("A", "ground", "a", (0, 0, 0)),
        ("B", "a", "t", (0, 1, 0)),
        ("C", "t", "b", (1, 1, 0)),
        ("D", "ground", "b", (1, 0, 0)),
    )
    joints = [js.Revolute(name, a, b, axis=(0, 0, 1), at=at) for name, a, b, at in pins]
    for k in range(3):
        low, high = np.array([0.5, 0.3 * k, 1.0]), np.array([0.2 * k, 1.0, 0.1 * k])
        lower, upper = f"lower{k}", f"upper{k}"
        bodies += [js.Body(name, 1.0, (0.1, 0.2, 0.3), 0.5 * (low + high)) for name in (lower, upper)]
        joints += [js.Ball(f"S{k}", "ground", lower, at=low), js.Ball(f"T{k}", "t", upper, at=high)]
        joints.append(js.Prismatic(f"P{k}", lower, upper, axis=high - low, at=low))
    for coordinates in (jm.Absolute(), jm.Joints()):
        assert isinstance(
            jm.spatial_mechanism(bodies, joints, coordinates=coordinates)[0].default_solver, jd.LeastSquares
        )


@pytest.mark.parametrize("coordinates", [jm.Absolute(), jm.Joints()])
def test_a_mobile_chain_does_not_hide_a_parallelogram_with_three_cranks(coordinates):
    """Three links from its coupler to the ground add a freedom, so that all loops together have one."""
    bodies = _bodies(a=(0, 0.5), b=(1, 0.5), c=(2, 0.5), t=(1, 1), u=(2.5, 1.3), v=(3.5, 1.3), w=(4, 0.5))
    joints = _pins(
        *((f"foot_{name}", "ground", name, k, 0) for k, name in enumerate("abc")),
        *((f"head_{name}", name, "t", k, 1) for k, name in enumerate("abc")),
        ("tu", "t", "u", 2, 1),
        ("uv", "u", "v", 3, 1.6),
        ("vw", "v", "w", 4, 1),
        ("w", "w", "ground", 4, 0),
    )
    fewer = [joint for joint in joints if joint.name not in ("foot_b", "head_b")]
    found = []
    for elements in (joints, [*fewer, jm.Weld("hold", "ground", "b", at=(1, 0.5))]):
        mechanism = jm.planar_mechanism(bodies, elements, gravity=(0, 0), coordinates=coordinates)[0]
        found.append(type(mechanism.default_solver))
    assert found == [jd.LeastSquares, jd.SchurComplement]


def test_relations_that_take_a_freedom_each_keep_the_default_solver():
    """A joint that is held, one that follows it, a crank that follows a loop, and two loops that are coupled."""
    held = [jm.TendonRelation("hold", ("A",), (1.0,)), jm.Relation("follow", "B", "A", (0.0, 1.0))]
    cases = [
        (
            _bodies(a=(0.5, 0.0), b=(1.5, 0.0)),
            [*_pins(("A", "ground", "a", 0, 0), ("B", "ground", "b", 1, 0)), *held],
        )
    ]
    loops, linkage = [], []
    for k in range(2):
        a, b, t, x = f"a{k}", f"b{k}", f"t{k}", 5.0 * k
        loops += _bodies(**{a: (x, 0.5), b: (x + 2.0, 0.5), t: (x + 1.0, 1.0)})
        pins = (
            ("A", "ground", a, x, 0),
            ("B", "ground", b, x + 2, 0),
            ("C", a, t, x, 1),
            ("D", b, t, x + 2, 1),
        )
        linkage += _pins(*((f"{name}{k}", *rest) for name, *rest in pins))
    cases.append((loops, [*linkage, jm.Relation("couple", "A0", "A1", (0.0, 1.0))]))
    crank = _pins(("X", "ground", "x", 9, 0))
    cases.append(
        (
            loops[:3] + _bodies(x=(9.5, 0.0)),
            [*linkage[:4], *crank, jm.Relation("follow", "X", "A0", (0.0, 1.0))],
        )
    )
    for bodies, joints in cases:
        assert isinstance(jm.planar_mechanism(bodies, joints)[0].default_solver, jd.SchurComplement)


_CORNERS = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))


def _plates(kind, count):
    """A plate that hangs on rods, or stands on legs; three determine its motion."""
    plate = js.Body("plate", 1.0, (0.1, 0.2, 0.3), (0.4, 0.5, 2.0))
    above = js.Body("above", 2.0, (0.3, 0.2, 0.1), (0.4, 0.5, 3.0))
    ends = {f"J{k}": at for k, at in enumerate(_CORNERS[:count])}
    if kind == "rods":
        return [plate, above], [
            js.Rod(name, "above", "plate", at_a=(*at, 3.0), at_b=(*at, 2.0)) for name, at in ends.items()
        ]
    return [plate], [
        js.PointOnPlane(name, "ground", "plate", axis=(0, 0, 1), at=(*at, 1.8)) for name, at in ends.items()
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "coordinates"),
    [
        pytest.param("rods", jm.Absolute(), marks=pytest.mark.exhaustive),
        ("legs", jm.Joints()),
        pytest.param("rods", jm.Joints(), marks=pytest.mark.exhaustive),
        pytest.param("legs", jm.Absolute(), marks=pytest.mark.exhaustive),
    ],
)
def test_the_default_solver_takes_parallel_joints_that_a_count_calls_independent(kind, coordinates):
    """Four rows of rank 3 between bodies with six freedoms: the accelerations are those of three."""
    found = []
    for count in (3, 4):
        mechanism, q = jm.spatial_mechanism(*_plates(kind, count), coordinates=coordinates)
        assert isinstance(mechanism.default_solver, jd.LeastSquares if count == 4 else jd.SchurComplement)
        found.append(
            jd.forward_dynamics(mechanism, jd.State(0.0, q, jnp.zeros(len(mechanism.names.velocities))))[0]
        )
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-10)


def test_independent_rows_keep_the_fastest_solver():
    bodies, joints = _plates("rods", 4)
    joints[3] = js.Rod("skew", "above", "plate", at_a=(1.4, 1.2, 3.0), at_b=(1.0, 0.7, 2.0))
    assert isinstance(jm.spatial_mechanism(bodies, joints)[0].default_solver, jd.SchurComplement)


def _flat(kind):
    """A parallelogram that lies on its base line, and a plate in the plane of its cranks with ball joints."""
    if kind == "parallelogram":
        ends = (
            ("A", "ground", "a", 0, 0),
            ("B", "a", "t", 1, 0),
            ("C", "t", "b", 3, 0),
            ("D", "ground", "b", 2, 0),
        )
        return jm.Description(bodies=_bodies(a=(0.5, 0), t=(2, 0), b=(2.5, 0)), joints=_pins(*ends))
    bodies = [js.Body("t", 1.0, (0.1, 0.1, 0.1), (0.5, 1.5, 0.0))]
    joints = []
    for k, (x, y) in enumerate(_CORNERS):
        bodies.append(js.Body(f"c{k}", 1.0, (0.1, 0.1, 0.1), (x, y + 0.5, 0.0)))
        joints += [
            js.Ball(f"A{k}", "ground", f"c{k}", at=(x, y, 0.0)),
            js.Ball(f"B{k}", f"c{k}", "t", at=(x, y + 1.0, 0.0)),
        ]
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=joints)


@pytest.mark.long
@pytest.mark.parametrize("coordinates", [jm.Absolute(), jm.Joints()])
@pytest.mark.parametrize("kind", ["parallelogram", pytest.param("cranks", marks=pytest.mark.long)])
def test_rows_that_are_dependent_at_the_start_alone_have_an_acceleration(kind, coordinates):
    """The coupler M falls on n horizontal cranks of length 1, mass m and moment J about their ends:
    a (M + n J) = -g (M + n m / 2)."""
    mechanism, q = jm.mechanism(_flat(kind), coordinates)
    a, _ = jd.forward_dynamics(mechanism, jd.State(0.0, q, jnp.zeros(len(mechanism.names.velocities))))
    rates = mechanism.twists(q, a)  # T a, because v = 0.
    cranks = 2 if kind == "parallelogram" else 4
    expected = -9.81 * (1.0 + cranks / 2) / (1.0 + cranks * (0.1 + 0.25))
    body = mechanism.body_names.index("t")
    np.testing.assert_allclose((rates.y if kind == "parallelogram" else rates.z)[body], expected, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("coordinates", [jm.Absolute(), jm.Joints()])
def test_the_default_solver_takes_two_motions_of_one_freedom(coordinates):
    """Motions of one hinge, or of two hinges that a relation couples, agree; accelerations were NaN."""
    bodies = [jm.Body(name, 1.0, 0.1, pose=(x, 0.0, 0.0)) for name, x in (("one", 0.5), ("two", 2.5))]
    hinges = [
        jm.Revolute("A", "ground", "one", at=(0.0, 0.0)),
        jm.Revolute("B", "ground", "two", at=(2.0, 0.0)),
    ]
    turn, again, other = (
        jm.PrescribedMotion(name, joint, jm.Sinusoid(1.0, 1.0))
        for name, joint in (("turn", "A"), ("again", "A"), ("other", "B"))
    )
    gear = jm.Relation("gear", "B", "A")
    for joints, redundant in (
        ((turn, again), True),
        ((turn, other, gear), True),
        ((turn, other), False),
        ((turn, gear), False),
    ):
        mechanism, _ = jm.planar_mechanism(bodies, [*hinges, *joints], coordinates=coordinates)
        assert mechanism.redundant == redundant
