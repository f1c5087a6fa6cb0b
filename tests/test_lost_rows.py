"""Rows of loops in joint coordinates that vanish: a parallelogram that passes the position in line.

The cranks of length 1 m turn at 1 rad/s without load. Then they turn at 1 rad/s forever, whatever the masses.
In line, the second branch begins, on which the cranks turn in opposite directions.
"""

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.fused.call import traced
from jaxdae.systems import linearization

DT, STEPS = 5e-3, 120
SOLVERS = {
    "schur": jd.SchurComplement(),
    "kkt": jd.DenseKKT(),
    "qr": jd.NullSpace(jd.operators.HouseholderQR()),
    "normal": jd.NullSpace(jd.operators.NormalEquations()),
}


def parallelogram(closed_by, size=1.0, angle=-0.5, coordinates=None):
    """Return the mechanism, q and v at 1 rad/s, by default in joint coordinates.

    The coupler is a body between two hinges, or a massless rod. At an angle of -0.5 rad, step 100 ends in line.
    """
    x, y = size * np.cos(angle), size * np.sin(angle)
    half = size / 2
    bodies = [
        jm.Body(f"crank{k}", 1.0, 0.1 * size**2, pose=(k * size + x / 2, y / 2, angle)) for k in range(2)
    ]
    joints: list[Any] = [
        jm.Revolute(f"foot{k}", jm.GROUND, f"crank{k}", point_a=(k * size, 0.0), point_b=(-half, 0.0))
        for k in range(2)
    ]
    if closed_by == "rod":
        joints.append(jm.Rod("rod", "crank0", "crank1", point_a=(half, 0.0), point_b=(half, 0.0)))
    else:
        bodies.append(jm.Body("coupler", 2.0, 0.5 * size**2, pose=(half + x, y, 0.0)))
        joints += [
            jm.Revolute(
                f"tip{k}", f"crank{k}", "coupler", point_a=(half, 0.0), point_b=((k - 0.5) * size, 0.0)
            )
            for k in range(2)
        ]
    description = jm.Description(space=jm.PLANE, bodies=bodies, joints=joints, gravity=(0.0, 0.0))
    mechanism, q = jm.mechanism(description, coordinates or jm.Joints())
    return mechanism, q, jnp.array([1.0 if "foot" in name else -1.0 for name in mechanism.names.velocities])


def rolled(mechanism, q, v, solver=None, dt=DT):
    method = jd.Projected(jd.SemiImplicitEuler(solver=solver))
    return jd.rollout(mechanism, method, jd.State(jnp.zeros((), q.dtype), q, v), dt=dt, steps=STEPS)


@pytest.mark.parametrize(
    ("closed_by", "solver", "size"),
    [
        pytest.param("hinges", "schur", 1.0, marks=pytest.mark.long),
        pytest.param("hinges", "kkt", 1.0, marks=pytest.mark.long),
        pytest.param("hinges", "qr", 1.0, marks=pytest.mark.exhaustive),
        pytest.param("hinges", "normal", 1.0, marks=pytest.mark.exhaustive),
        pytest.param("hinges", "schur", 1e-6, marks=pytest.mark.long),
        pytest.param("hinges", "schur", 1e4, marks=pytest.mark.exhaustive),
        pytest.param("rod", "schur", 1.0, marks=pytest.mark.long),
        pytest.param("rod", "kkt", 1.0, marks=pytest.mark.exhaustive),
        pytest.param("rod", "schur", 1e-6, marks=pytest.mark.exhaustive),
    ],
)
def test_a_step_that_ends_in_line_is_not_ok(closed_by, solver, size):
    mechanism, q, v = parallelogram(closed_by, size)
    out = rolled(mechanism, q, v, SOLVERS[solver])
    ok = np.asarray(out.info.status) == jd.Status.OK
    np.testing.assert_array_equal(ok, np.arange(STEPS) < 99)
    np.testing.assert_allclose(out.state.v[ok], np.broadcast_to(v, (99, v.size)), atol=1e-9)


def test_accelerations_next_to_the_position_in_line_are_nan():
    mechanism, q, v = parallelogram("rod")
    for angle, is_lost in ((1e-3, False), (1e-10, True)):
        state = jd.State(0.0, q + 0.5 + angle, 0.0 * v)
        with pytest.warns(jd.StateWarning, match="along the rows rod.length") if is_lost else nullcontext():
            a, _ = jd.forward_dynamics(mechanism, state, tau=jnp.array([1.0, 0.0]))
        # The torque of 1 N m turns both cranks, whose moments of inertia about their feet are 0.35 kg m^2.
        np.testing.assert_allclose(a, np.full(2, np.nan if is_lost else 1 / 0.7), rtol=1e-9)


@pytest.mark.parametrize(
    ("coordinates", "most"), [(jm.Absolute(), 1.0), pytest.param(jm.Joints(), 1.2, marks=pytest.mark.long)]
)
def test_the_test_for_lost_rows_adds_few_operations(monkeypatch, coordinates, most):
    """NaN in lost rows must not fill the zeros of J. Rows in absolute coordinates need no test."""
    mechanism, q, _ = parallelogram("hinges", coordinates=coordinates)
    v = jnp.zeros(mechanism.sizes(q).nv)

    def operations():
        program, _ = traced(lambda *given: rolled(*given), mechanism, q, v)
        return program.code((True,) * len(program.jaxpr.jaxpr.invars))[0].looped

    tested = operations()
    monkeypatch.setattr(linearization, "lost_rows", lambda *given: None)
    assert tested <= most * operations()


@pytest.mark.long
def test_the_null_space_passes_the_position_in_line():
    mechanism, q, v = parallelogram("hinges")
    out = rolled(mechanism, q, v, jd.NullSpace())
    np.testing.assert_array_equal(out.info.status, jd.Status.OK)
    np.testing.assert_allclose(out.state.v[-1], v, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("closed_by", ["hinges", "rod"])
def test_single_precision_never_leaves_the_branch_silently(closed_by):
    mechanism, q, v = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), parallelogram(closed_by))
    rates = jnp.linspace(-3.0, 3.0, 200, dtype=jnp.float32)
    out = jax.jit(jax.vmap(lambda rate: rolled(mechanism, q, rate * v, dt=jnp.float32(1e-2))))(rates)
    ok = np.asarray(out.info.status) == jd.Status.OK
    error = np.max(np.abs(out.state.v - (rates[:, None] * v)[:, None]), axis=2)
    assert np.max(error[ok]) <= 0.1
    assert np.sum(ok[:, -1]) >= 100  # Most worlds pass the position in line.


@pytest.mark.long
def test_a_small_loop_on_a_large_arm_keeps_its_rows():
    """The levers of a gripper with links of 5 mm on an arm of 1 m count in single precision."""
    lever = 5e-3
    bodies = [jm.Body("arm", 1.0, 0.1, pose=(0.5, 0.0, 0.0))]
    bodies += [jm.Body(f"link{k}", 0.1, 1e-6, pose=(1.0 + k * lever, lever / 2, np.pi / 2)) for k in range(2)]
    bodies.append(jm.Body("pad", 0.1, 1e-6, pose=(1.0 + lever / 2, lever, 0.0)))
    joints = [jm.Revolute("base", jm.GROUND, "arm", point_a=(0.0, 0.0), point_b=(-0.5, 0.0))]
    for k in range(2):
        across = (k - 0.5) * lever
        joints += [
            jm.Revolute(
                f"foot{k}", "arm", f"link{k}", point_a=(0.5 + k * lever, 0.0), point_b=(-lever / 2, 0.0)
            ),
            jm.Revolute(f"tip{k}", f"link{k}", "pad", point_a=(lever / 2, 0.0), point_b=(across, 0.0)),
        ]
    description = jm.Description(space=jm.PLANE, bodies=bodies, joints=joints, gravity=(0.0, -9.81))
    double, q = jm.mechanism(description, jm.Joints())
    exact, _ = jd.forward_dynamics(double, jd.State(0.0, q, jnp.zeros_like(q)))
    single, q = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (double, q))
    found, _ = jd.forward_dynamics(single, jd.State(jnp.float32(0.0), q, jnp.zeros_like(q)))
    np.testing.assert_allclose(found, exact, rtol=1e-2, atol=1e-2 * np.max(np.abs(exact)))
