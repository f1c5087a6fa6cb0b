"""Wheels on terrain as joints: published problems to their digits, planes, gradients, and what ends a
rollout.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from terrain_references import PROBLEMS, file

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.describe.measures import AUTODIFF, Pairs

KKT = jd.DenseKKT()


@functools.partial(jax.jit, static_argnames="method")
def stepped(system, state, method, dt):
    return method.step(system, state, (), None, dt)[0]


# Steps over the whole time of the file: the error of fourth order is below its digits. Rows drift by no more.
STEPS = {
    "disk_steady_circle": 6000,
    "disk_transient": 6000,
    "wheel_on_sine_road": 6000,
    "wheel_in_trough": 4000,
    "ball_turntable_flat": 20000,
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=() if x in ("disk_transient", "wheel_on_sine_road") else pytest.mark.exhaustive)
        for x in STEPS
    ],
)
def test_problems_to_their_digits(name):
    problem, steps = PROBLEMS[name](), STEPS[name]
    method = jd.RungeKutta.rk4(solver=KKT)
    state = jax.tree.map(lambda x: jnp.asarray(x, float), problem.start)  # strong types: one program
    h = problem.t[-1] / steps
    entries = np.rint(problem.t / h).astype(int)
    np.testing.assert_allclose(entries * h, problem.t, rtol=1e-12)
    mechanism = getattr(problem.system, "system", problem.system)
    found = []
    for k in range(1, steps + 1):
        state = stepped(problem.system, state, method, h)
        if k in entries:
            found.append(problem.seen(mechanism, state))
    digits = min(file(name)["expected_digits"].values())
    size = np.maximum(1.0, np.max(np.abs(problem.expected)))
    np.testing.assert_allclose(found, problem.expected, rtol=0.0, atol=10.0**-digits * size)
    assert int(mechanism.condition(state.t, state.q)) == jd.Status.OK


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", [js.RollingDisc, pytest.param(js.RollingSphere, marks=pytest.mark.exhaustive)]
)
def test_rows_of_contacts_are_the_derivatives_of_what_they_measure(kind):
    hills = jv.Hills([0.10, 0.06], [1.1, -0.7], [0.6, 1.9], [0.3, 1.0])
    bodies = [
        js.Body(name, 1.0, (1.0, 1.0, 1.0), (x, 0.0, z))
        for name, x, z in (("table", 0.0, 0.0), ("one", 0.0, 0.4), ("two", 1.0, 0.3))
    ]
    axle = {"axis": (0.1, 1.0, 0.2)} if kind is js.RollingDisc else {}
    joints = [
        kind("on_table", "table", "one", point_b=(0.1, 0.0, 0.05), radius=0.3, terrain=hills, **axle),
        kind("on_ground", "ground", "two", point_b=(0.0, 0.0, 0.05), radius=0.2, terrain=hills, **axle),
    ]
    mechanism, q = jm.spatial_mechanism(bodies, joints)
    random = np.random.default_rng(0)
    q, v = (
        mechanism.retract(q, jnp.asarray(0.3 * random.normal(size=18))),
        jnp.asarray(random.normal(size=18)),
    )
    motion = mechanism.coordinates.kinematics(q, v)
    # As in joint coordinates, where bodies accelerate while coordinates do not.
    motion = motion._replace(
        bias=jax.tree.map(lambda x: jnp.asarray(random.normal(size=x.shape)), motion.velocity)
    )
    (group,) = mechanism.joints.values()
    pair = Pairs(group.a, group.b, 3)

    @jax.jit
    def rows(group, motion):
        measures = {False: kind.residual, True: kind.velocity_residual}
        return [
            [
                getattr(way, name)(measures[name.startswith("velocity")], group, pair, motion, jnp.zeros(()))
                for way in (AUTODIFF, group.derivatives)
            ]
            for name in AUTODIFF._fields
        ]

    for differentiated, known in rows(group, motion):
        # Some ten products of numbers of size 1 to 10.
        jax.tree.map(lambda x, y: np.testing.assert_allclose(y, x, rtol=0, atol=1e-13), differentiated, known)


@pytest.mark.exhaustive
def test_gradients_on_hills_are_central_differences():
    hills = jv.Hills(*(jnp.asarray(x) for x in ([0.10, 0.06], [1.1, -0.7], [0.6, 1.9], [0.3, 1.0])))
    contact = js.RollingDisc(
        "contact", "ground", "wheel", (0, 1, 0), point_b=(0.0, 0.0, 0.0), radius=0.3, terrain=hills
    )
    body = js.Body("wheel", 2.0, (0.045, 0.09, 0.045), (0.0, 0.0, 0.4))
    mechanism, q = jm.spatial_mechanism([body], [contact], gravity=(0.0, 0.0, -9.81))
    method = jd.SemiImplicitEuler(solver=KKT)
    random = np.random.default_rng(1)
    weights = [jnp.asarray(random.normal(size=n)) for n in (7, 6, 3)]

    def loss(p):
        """Returns a mix of what is reached in a step, and of multipliers: of height, amplitudes, place, lean
        and velocities (6,).
        """
        (group,) = mechanism.joints.values()
        terrain = dataclasses.replace(group.terrain, amplitudes=p[None, :2])
        system = dataclasses.replace(
            mechanism, joints={"contact": dataclasses.replace(group, terrain=terrain, radius=p[2:3])}
        )
        guess = system.retract(q, jnp.zeros(6).at[0].set(p[3]).at[3].set(p[4]))
        # Only the height follows the ground: which of all poses is the nearest depends on the way there.
        start, _ = jd.initialize(
            system, guess, p[5] * jnp.array([1.5, 0.0, 0.0, 0.2, 5.0, 0.3]), fixed=np.arange(6) != 2
        )
        end = method.step(system, start, (), None, 0.02)[0]
        _, lam = jd.forward_dynamics(system, end, solver=KKT)
        return sum(w @ x for w, x in zip(weights, (end.q, end.v, 0.1 * lam), strict=True))

    along, h = jax.jit(lambda p, dp: jax.jvp(loss, (p,), (dp,))), 1e-5
    # Moving; upright and at rest, where nothing slips.
    for p in ([0.10, 0.06, 0.3, 0.2, 0.3, 1.0], [0.10, 0.06, 0.3, 0.0, 0.0, 0.0]):
        p = jnp.asarray(p)
        for e in jnp.eye(6):
            difference = (along(p + h * e, e)[0] - along(p - h * e, e)[0]) / (2.0 * h)
            # Third derivatives of size 100 times h^2 / 6, and round-off of the start, 1e-13 / h.
            np.testing.assert_allclose(along(p, e)[1], difference, rtol=1e-7, atol=1e-7)
