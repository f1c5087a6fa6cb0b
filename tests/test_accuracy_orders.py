"""Fitted orders of all integrators on problems with constraints, with and without projections.

The error against the reference solution at a fixed time is computed for several steps h, and the order is the slope
of log(error) over log(h). All runs of one case share one compiled program: dt is a leaf, so that each run makes the
same number of steps and is read off at the entry where it arrives at that time.

A method of order p has the error C h^p (1 + O(h)), so the fit is off by O(h). With the steps below it comes out
within 0.06 of p for p <= 4 and within 0.15 for the method of order 5, whose leading coefficients are small; the
bounds are 0.1 and 0.2. Neighboring orders are 1 apart.
"""

import jax
import numpy as np
import problems
import pytest

import jaxdae as jd

INTEGRATORS = {
    "explicit_euler": (jd.ExplicitEuler(), 1),
    "semi_implicit_euler": (jd.SemiImplicitEuler(), 1),
    # The lecture's scheme (4): q + h v + h^2/2 a is locally of third order, but v + h a only of second, and v feeds
    # q. Over a fixed time the method is of order 1, however exact its positions look after one step.
    "taylor_of_the_lecture": (jd.Taylor(jerk=False), 1),
    "taylor": (jd.Taylor(), 2),
    "midpoint": (jd.RungeKutta.midpoint(), 2),
    "heun": (jd.RungeKutta.heun(), 2),
    "ralston3": (jd.RungeKutta.ralston3(), 3),
    "rk4": (jd.RungeKutta.rk4(), 4),
    "dormand_prince5": (jd.RungeKutta.dormand_prince5(), 5),
}

VELOCITY = jd.VelocityProjection()
PROJECTIONS = {
    "none": None,
    "iterated": jd.Projection(),
    # The correction is as large as the local error, along directions that are slightly old: the order stays.
    "iterated_at_previous": jd.Projection(jd.PositionProjection(origin=jd.Origin.PREVIOUS), VELOCITY),
    "linear": jd.Projection(jd.LinearPositionProjection(), VELOCITY),
    "linear_euclidean": jd.Projection(
        jd.LinearPositionProjection(metric=jd.Metric.EUCLIDEAN), jd.VelocityProjection(metric=jd.Metric.EUCLIDEAN)
    ),
    "linear_at_previous": jd.Projection(jd.LinearPositionProjection(origin=jd.Origin.PREVIOUS), VELOCITY),
    "velocity_only": jd.Projection(None, VELOCITY),
}

# Reference, system, and (end time, numbers of steps) for orders up to 4 and for order 5, which needs longer steps or
# a longer time to stay above round-off.
PROBLEMS = {
    "pendulum": (
        "iftomm_a01_pendulum",
        lambda: problems.pendulum("iftomm_a01_pendulum"),
        (0.5, (64, 128, 256)),
        (1.0, (96, 128, 192, 256)),
    ),
    "double_pendulum": ("double_pendulum", problems.double_pendulum, (0.5, (64, 128, 256)), (2.0, (256, 384, 512))),
    "bead_on_turning_wire": (
        "bead_rotating_wire",
        problems.bead_on_wire,
        (0.5, (64, 128, 256)),
        (1.0, (64, 96, 128, 192)),
    ),
}


def fitted_order(problem, integrator, projection, order):
    """Returns the slope of log(error) over log(h)."""
    name, make, *plans = PROBLEMS[problem]
    end, counts = plans[order == 5]
    method = integrator if PROJECTIONS[projection] is None else jd.Projected(integrator, PROJECTIONS[projection])
    reference, system = problems.reference(name), make()
    start, k = reference.start(), reference.at(end)
    errors = []
    for count in counts:
        trajectory = jd.rollout(system, method, start, dt=end / count, steps=counts[-1])
        t, q, v, status = (np.asarray(x)[count - 1] for x in jax.tree.leaves((trajectory.state, trajectory.info.status)))
        assert status == jd.Status.OK
        np.testing.assert_allclose(t, end, rtol=1e-12)
        errors.append(max(np.max(np.abs(q - reference.q[k])), np.max(np.abs(v - reference.v[k]))))
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


def check_order(problem, integrator, projection, order):
    fitted = fitted_order(problem, INTEGRATORS[integrator][0], projection, order)
    assert abs(fitted - order) <= (0.2 if order == 5 else 0.1), f"expected order {order}, fitted {fitted:.3f}"


@pytest.mark.parametrize("projection", ["none", "iterated"])
@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_order(problem, integrator, projection):
    check_order(problem, integrator, projection, INTEGRATORS[integrator][1])


@pytest.mark.parametrize("projection", ["linear", "linear_euclidean", "iterated_at_previous", "velocity_only"])
@pytest.mark.parametrize("integrator", ["taylor", "rk4"])
def test_order_with_other_projections(integrator, projection):
    """Every projection that linearizes at the estimate, or converges, keeps the order; in either metric."""
    check_order("double_pendulum", integrator, projection, INTEGRATORS[integrator][1])


@pytest.mark.parametrize("projection", ["linear", "velocity_only"])
def test_order_with_other_projections_onto_a_moving_constraint(projection):
    check_order("bead_on_turning_wire", "rk4", projection, 4)


@pytest.mark.parametrize("integrator", ["taylor", "rk4"])
def test_linear_projection_at_the_previous_state_has_order_two(integrator):
    """The lecture's choice q0 = previous state: the positions stay on a tangent plane, h v away from where it touches.

    That leaves g = O(h^2) after every step, however accurate the integrator. Only constraints that are linear in q,
    such as those of the bead, escape.
    """
    check_order("double_pendulum", integrator, "linear_at_previous", 2)
    order = INTEGRATORS[integrator][1]
    check_order("bead_on_turning_wire", integrator, "linear_at_previous", order)
