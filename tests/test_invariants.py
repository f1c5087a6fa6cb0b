"""What mechanics keeps: energy, momentum, angular momentum, and the zero virtual work of constraint forces."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from catalogue import SYSTEMS, in_ci

import jaxdae as jd
from jaxdae import mechanisms as jm

METHOD = jd.Projected(jd.RungeKutta.dormand_prince5())
EPS = np.finfo(float).eps


# The place of a system: an entry of its reference, or its start.
# A mechanism and a system by hand are quick.
ENTRIES = {"crank_rocker": None, "ivptest_andrews": 3, "double_pendulum": 2, "spherical_pendulum": 2}
QUICK = ("crank_rocker", "spherical_pendulum")
entries = pytest.mark.parametrize(
    "name",
    in_ci(ENTRIES, *QUICK),
)
entries_and_metrics = pytest.mark.parametrize(
    ("name", "metric"),
    [
        *(("crank_rocker", metric) for metric in jd.Metric),
        ("spherical_pendulum", jd.Metric.EUCLIDEAN),
        pytest.param("ivptest_andrews", jd.Metric.MASS, marks=pytest.mark.long),
        pytest.param("double_pendulum", jd.Metric.EUCLIDEAN, marks=pytest.mark.exhaustive),
    ],
)


def moving_states(name, count=5):
    """Returns a system at rest constraints, and states on the manifold with random consistent velocities."""
    rng, entry = np.random.default_rng(sum(map(ord, name))), ENTRIES[name]
    system, start = SYSTEMS[name]()
    q = start.q if entry is None else jnp.asarray(problems.reference(name).q[entry])
    wanted = rng.normal(size=(count, q.size))
    return system, [jd.VelocityProjection().project(system, problems.state(q, v)) for v in wanted]


@pytest.mark.long
@entries
def test_constraint_forces_do_no_work(name):
    """lam^T J v = 0 for constraints at rest and consistent velocities."""
    system, states = moving_states(name)
    for state in states:
        _, lam = jd.forward_dynamics(system, state)
        jacobian = system.constraint_jacobian(state.t, state.q, state.v)
        # The sum of products of this size, rounded once each.
        scale = np.sum(np.abs(np.asarray(lam)[:, None] * np.asarray(jacobian) * np.asarray(state.v)))
        assert abs(float(lam @ (jacobian @ state.v))) <= 100 * EPS * scale
        assert scale > 0.01


@pytest.mark.long
def test_a_moving_constraint_does_work():
    """For g(t, q) = 0 the power of the constraint force is -lam dg/dt, and it is the change of the bead's
    energy.
    """
    bead, reference = problems.bead_on_wire(), problems.reference("bead_rotating_wire")
    for t, q, v in zip(reference.t, reference.q, reference.v, strict=True):
        state = problems.state(q, v, t)
        a, lam = jd.forward_dynamics(bead, state)
        power = float(lam @ bead.constraint_jacobian(state.t, state.q, state.v) @ state.v)
        explicit = jax.jacfwd(bead.constraint)(state.t, state.q)
        np.testing.assert_allclose(power, -float(lam @ explicit), rtol=1e-12)
        motion = (jd.State(jnp.ones(()), state.v, a),)
        change = jax.jvp(lambda s: jd.energy(bead, s), (state,), motion)[1]
        # The weight's power cancels between the kinetic and the potential part.
        np.testing.assert_allclose(change, power, rtol=1e-12)


def energies(system, states):
    return np.asarray(jax.jit(jax.vmap(lambda s: jd.energy(system, s)))(states))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "dt", "steps"),
    [
        pytest.param("double_pendulum", 1 / 2048, 4096, marks=pytest.mark.exhaustive),
        ("spherical_pendulum", 1 / 1024, 5120),
    ],
)
def test_energy_is_constant(name, dt, steps):
    """Of the point masses, with a method whose error is below round-off: to 1e-12 J, of some 10 J that go
    back and forth.
    """
    system, start = SYSTEMS[name]()
    trajectory = jd.rollout(system, METHOD, start, dt=dt, steps=steps, save_every=steps // 64)
    np.testing.assert_allclose(
        energies(system, trajectory.state), jd.energy(system, start), rtol=0.0, atol=1e-12
    )


@pytest.mark.exhaustive
def test_energy_error_falls_with_the_order():
    """RK4 with projection: halving the step divides the largest energy error by 16 or, as RK4 damps at order
    5, by 32.
    """
    system, start = SYSTEMS["double_pendulum"]()
    errors = []
    for count in (512, 1024):
        method = jd.Projected(jd.RungeKutta.rk4())
        trajectory = jd.rollout(system, method, start, dt=1.0 / count, steps=count, save_every=count // 64)
        errors.append(np.max(np.abs(energies(system, trajectory.state) - jd.energy(system, start))))
    assert 4.0 - 0.2 <= np.log2(errors[0] / errors[1]) <= 5.2


@pytest.mark.exhaustive
def test_energy_of_andrews_mechanism():
    """Kinetic energy plus that of the spring, minus the work of the motor: the file lists it at every
    reference state.
    """
    reference = problems.reference("ivptest_andrews")
    p = problems.andrews_parameters()
    mechanism, poses = problems.andrews_mechanism(p, reference.start().q)
    trajectory = jd.rollout(mechanism, METHOD, problems.state(poses), dt=1e-5, steps=1500, save_every=50)
    expected = reference.file["reference"]["states"][0]["energy"]
    # 1.4 J, of which half swings within milliseconds; steps of 1e-5 s leave less than 1e-13 of them.
    np.testing.assert_allclose(energies(mechanism, trajectory.state), expected, rtol=1e-12)


@pytest.mark.long
def test_angular_momentum_of_the_spherical_pendulum():
    """About the vertical: 0.8 in the file, and neither weight nor rod have a moment about it."""
    system, start = SYSTEMS["spherical_pendulum"]()
    trajectory = jd.rollout(system, METHOD, start, dt=1 / 1024, steps=10240, save_every=128)
    q, v = trajectory.state.q, trajectory.state.v
    np.testing.assert_allclose(q[:, 0] * v[:, 1] - q[:, 1] * v[:, 0], 0.8, rtol=1e-13)


# Momentum of a mechanism that floats freely: three bodies, two hinges, a spring and a torque between them, no
# weight.


def floating_chain():
    """Returns the mechanism and a start on the manifold that drifts, turns and folds."""
    bodies = [
        jm.Body("left", mass=1.0, inertia=0.1, pose=(0.0, 0.0, 0.2)),
        jm.Body("middle", mass=2.5, inertia=0.4, pose=(1.0, 0.3, 0.9)),
        jm.Body("right", mass=0.7, inertia=0.2, pose=(1.6, 1.2, -0.4)),
    ]
    joints = [
        jm.Revolute("knee", "left", "middle", at=(0.5, 0.2)),
        jm.Revolute("elbow", "middle", "right", at=(1.4, 0.8)),
    ]
    forces = [
        jm.LinearSpring(
            "spring", "left", "right", at_a=(-0.3, 0.1), at_b=(1.9, 1.5), stiffness=20.0, rest_length=1.5
        ),
        jm.Torque("motor", "left", "middle", torque=0.3),
        jm.TorsionalSpring("damper", "middle", "right", damping=0.2),
    ]
    chain, q = jm.planar_mechanism(bodies, joints, forces, gravity=(0.0, 0.0))
    wanted = np.random.default_rng(5).normal(size=9)
    return chain, jd.VelocityProjection().project(chain, problems.state(q, wanted))


def momenta(chain, states):
    """Returns the linear momentum (n, 2) and the angular momentum (n,) about the world's origin."""
    q, v = (np.asarray(x).reshape(-1, 3, 3) for x in (states.q, states.v))
    mass, inertia = np.asarray(chain.mass), np.asarray(chain.inertia)
    linear = np.einsum("b,nbk->nk", mass, v[..., :2])
    orbit = mass * (q[..., 0] * v[..., 1] - q[..., 1] * v[..., 0])
    return linear, np.sum(orbit + inertia * v[..., 2], axis=1)


@pytest.mark.long
@pytest.mark.parametrize(
    "integrator",
    [
        pytest.param(jd.SemiImplicitEuler(), id="euler", marks=pytest.mark.exhaustive),
        pytest.param(jd.RungeKutta.rk4(), id="rk4"),
    ],
)
def test_linear_momentum_survives_every_step(integrator):
    """Internal forces and impulses cancel in pairs, in every stage and in projections of the mass metric:
    exact for any method.
    """
    chain, start = floating_chain()
    trajectory = jd.rollout(chain, jd.Projected(integrator), start, dt=5e-3, steps=1000, save_every=20)
    jd.raise_if_failed(trajectory)
    linear, _ = momenta(chain, trajectory.state)
    # 1000 roundings of numbers of order 1.
    np.testing.assert_allclose(
        linear, np.broadcast_to(momenta(chain, start)[0], linear.shape), rtol=0, atol=1000 * EPS
    )


@pytest.mark.long
def test_angular_momentum_of_a_floating_mechanism():
    """To the integrator's error, far below that of the motion itself: the spring, the torque and the hinges
    are internal.
    """
    chain, start = floating_chain()
    trajectory = jd.rollout(chain, METHOD, start, dt=1e-3, steps=2000, save_every=20)
    _, angular = momenta(chain, trajectory.state)
    np.testing.assert_allclose(angular, momenta(chain, start)[1][0], rtol=1e-13)
    # And it is not zero, nor is the motion trivial.
    assert abs(angular[0]) > 0.1
    assert np.ptp(np.asarray(trajectory.state.q)[:, 5]) > 0.1


@pytest.mark.long
def test_euclidean_projections_do_change_momentum():
    """The lecture's metric adds meters to radians, whatever the masses: the same rollout drifts. Hence the
    default.
    """
    chain, start = floating_chain()
    euclidean = jd.Projection(
        jd.PositionProjection(metric=jd.Metric.EUCLIDEAN), jd.VelocityProjection(metric=jd.Metric.EUCLIDEAN)
    )
    method = jd.Projected(jd.SemiImplicitEuler(), euclidean)
    trajectory = jd.rollout(chain, method, start, dt=5e-3, steps=1000, save_every=1000)
    drift = momenta(chain, trajectory.state)[0] - momenta(chain, start)[0]
    assert np.max(np.abs(drift)) > 1e-2


# Projections as such.


def null_basis(jacobian):
    """Returns an orthonormal basis (nv, nv - rank) of the feasible directions."""
    jacobian = np.asarray(jacobian)
    return np.linalg.svd(jacobian)[2][jacobian.shape[0] :].T


@pytest.mark.long
@entries_and_metrics
def test_velocity_projection_changes_no_momentum_along_the_manifold(name, metric):
    """N^T W (v - v_e) = 0: an impulse of the constraints, J^T mu, and nothing else; with W = M that is
    momentum.
    """
    system, (state, *_) = moving_states(name)
    mass = np.asarray(system.mass_matrix(state.q))
    weight = mass if metric is jd.Metric.MASS else np.eye(mass.shape[0])
    kick = np.random.default_rng(6).normal(size=state.v.shape)
    estimate = dataclasses.replace(state, v=state.v + kick)
    projected = jd.VelocityProjection(metric=metric).project(system, estimate)
    jacobian = np.asarray(system.constraint_jacobian(state.t, state.q, state.v))
    change = weight @ np.asarray(projected.v - estimate.v)
    along = null_basis(jacobian).T @ change
    # Sums of some ten products, each rounded.
    np.testing.assert_allclose(along, 0.0, rtol=0, atol=100 * EPS * np.max(np.abs(weight) @ np.abs(kick)))
    np.testing.assert_allclose(
        jacobian @ projected.v, 0.0, rtol=0, atol=100 * EPS * np.max(np.abs(jacobian) @ np.abs(kick))
    )
    assert np.max(np.abs(projected.v - estimate.v)) > 0.01
    # A second projection finds nothing left to do.
    again = jd.VelocityProjection(metric=metric).project(system, projected)
    np.testing.assert_allclose(again.v, projected.v, rtol=0.0, atol=100 * EPS * np.max(np.abs(kick)))


@entries_and_metrics
def test_position_projection_moves_along_constraint_forces_only(name, metric):
    """W xi = -J0^T mu with J0 at the estimate: N0^T W xi = 0, and the constraints hold afterwards."""
    system, (state, *_) = moving_states(name)
    # As far off as a step of an integrator would be, in the units of the system: links of Andrews' mechanism
    # are centimeters.
    kick = 1e-5 * np.random.default_rng(7).normal(size=state.q.shape)
    estimate = dataclasses.replace(state, q=state.q + kick)
    projected = jd.PositionProjection(metric=metric).project(system, estimate)
    mass = np.asarray(system.mass_matrix(estimate.q))
    weight = mass if metric is jd.Metric.MASS else np.eye(mass.shape[0])
    xi = np.asarray(projected.q - estimate.q)
    rows = system.constraint(state.t, state.q).size
    jacobian = np.asarray(system.constraint_jacobian(state.t, estimate.q, state.v))[:rows]
    along = null_basis(jacobian).T @ (weight @ xi)
    # xi is the difference of numbers of order 1: its rounding counts, not that of the solve.
    np.testing.assert_allclose(
        along, 0.0, rtol=0, atol=10 * EPS * np.max(np.abs(weight) @ np.maximum(1.0, np.abs(estimate.q)))
    )
    np.testing.assert_allclose(
        system.constraint(state.t, projected.q), 0.0, rtol=0, atol=10 * EPS * np.max(np.abs(projected.q))
    )
    assert np.max(np.abs(xi)) > 1e-7


@entries
def test_projection_at_the_right_place_moves_nothing(name):
    """On the manifold both projections are the identity, to round-off."""
    system, (state, *_) = moving_states(name)
    projected = jd.Projection().project(system, state)
    np.testing.assert_allclose(projected.q, state.q, rtol=0.0, atol=1e-14)
    np.testing.assert_allclose(projected.v, state.v, rtol=0.0, atol=1e-13)
