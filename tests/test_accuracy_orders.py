"""Fitted orders of all integrators on problems with constraints, with and without projections.

The error against the reference solution at a fixed time is computed for several steps h, and the order is the
slope of log(error) over log(h). All runs of one case share one compiled program: dt is a leaf, so that each
run makes the same number of steps and is read off at the entry where it arrives at that time.

A method of order p has the error C h^p (1 + O(h)), so the fit is off by O(h). With the steps below it comes
out within 0.06 of p for p <= 4 and within 0.15 for the method of order 5, whose leading coefficients are
small; the bounds are 0.1 and 0.2. Neighboring orders are 1 apart.
"""

import itertools

import jax
import numpy as np
import problems
import pytest
from catalogue import METHODS, SYSTEMS, every, first

import jaxdae as jd

VELOCITY = jd.VelocityProjection()
PROJECTIONS = {
    "none": None,
    "iterated": jd.Projection(),
    # The correction is as large as the local error, along directions that are slightly old: the order stays.
    "iterated_at_previous": jd.Projection(jd.PositionProjection(origin=jd.Origin.PREVIOUS), VELOCITY),
    "linear": jd.Projection(jd.textbook.LinearPositionProjection(), VELOCITY),
    "linear_euclidean": jd.Projection(
        jd.textbook.LinearPositionProjection(metric=jd.Metric.EUCLIDEAN),
        jd.VelocityProjection(metric=jd.Metric.EUCLIDEAN),
    ),
    "linear_at_previous": jd.Projection(
        jd.textbook.LinearPositionProjection(origin=jd.Origin.PREVIOUS), VELOCITY
    ),
    "velocity_only": jd.Projection(None, VELOCITY),
}

# (End time, numbers of steps) for orders up to 4 and for order 5, which needs longer steps or a longer time
# to stay above round-off.
PLANS = {
    "iftomm_a01_pendulum": ((0.5, (64, 128, 256)), (1.0, (96, 128, 192, 256))),
    "double_pendulum": ((0.5, (64, 128, 256)), (2.0, (256, 384, 512))),
    "bead_rotating_wire": ((0.5, (64, 128, 256)), (1.0, (64, 96, 128, 192))),
}


def fitted_order(problem, integrator, projection, order):
    """Returns the slope of log(error) over log(h)."""
    end, counts = PLANS[problem][order == 5]
    method = (
        integrator if PROJECTIONS[projection] is None else jd.Projected(integrator, PROJECTIONS[projection])
    )
    (system, start), reference = SYSTEMS[problem](), problems.reference(problem)
    k = reference.at(end)
    errors = []
    for count in counts:
        trajectory = jd.rollout(system, method, start, dt=end / count, steps=counts[-1])
        t, q, v, status = (
            np.asarray(x)[count - 1] for x in jax.tree.leaves((trajectory.state, trajectory.info.status))
        )
        assert status == jd.Status.OK
        np.testing.assert_allclose(t, end, rtol=1e-12)
        errors.append(max(np.max(np.abs(q - reference.q[k])), np.max(np.abs(v - reference.v[k]))))
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


def check_order(problem, integrator, projection, order):
    fitted = fitted_order(problem, METHODS[integrator].integrator, projection, order)
    assert abs(fitted - order) <= (0.2 if order == 5 else 0.1), f"expected order {order}, fitted {fitted:.3f}"


def drifting(method):
    return not method.closed


LEADERS = first(METHODS, drifting)
OTHERS = [name for name in every(METHODS, drifting) if name not in LEADERS]


def alternately(names, *projections):
    """Return (name, projection) pairs in which the projections take turns."""
    return [(name, projections[k % len(projections)]) for k, name in enumerate(names)]


@pytest.mark.parametrize(
    ("integrator", "projection"),
    [
        *itertools.product(LEADERS, ("none", "iterated")),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in alternately(OTHERS, "none", "iterated")),
    ],
)
def test_order(integrator, projection):
    check_order("double_pendulum", integrator, projection, METHODS[integrator].order)


@pytest.mark.long
@pytest.mark.parametrize(
    ("problem", "integrator", "projection"),
    [
        *(
            pytest.param("iftomm_a01_pendulum", *pair, marks=pytest.mark.exhaustive)
            for pair in alternately(LEADERS, "none", "iterated")
        ),
        *(("bead_rotating_wire", *pair) for pair in alternately(LEADERS, "iterated", "none")),
        *(
            pytest.param("bead_rotating_wire", *pair, marks=pytest.mark.exhaustive)
            for pair in alternately(OTHERS, "none", "iterated")
        ),
    ],
)
def test_order_on_other_problems(problem, integrator, projection):
    """A published pendulum, per family, and for each method a constraint that moves with time."""
    check_order(problem, integrator, projection, METHODS[integrator].order)


@pytest.mark.long
@pytest.mark.parametrize(
    ("integrator", "projection"),
    [
        ("rk4", "linear"),
        ("rk4", "velocity_only"),
        pytest.param("rk4", "linear_euclidean", marks=pytest.mark.long),
        pytest.param("rk4", "iterated_at_previous", marks=pytest.mark.exhaustive),
        pytest.param("taylor", "linear", marks=pytest.mark.exhaustive),
    ],
)
def test_order_with_other_projections(integrator, projection):
    """Every projection that linearizes at the estimate, or converges, keeps the order; in either metric."""
    check_order("double_pendulum", integrator, projection, METHODS[integrator].order)


@pytest.mark.long
@pytest.mark.parametrize("projection", ["linear", "velocity_only"])
def test_order_with_other_projections_onto_a_moving_constraint(projection):
    check_order("bead_rotating_wire", "rk4", projection, 4)


@pytest.mark.long
@pytest.mark.parametrize("integrator", ["rk4", pytest.param("taylor", marks=pytest.mark.exhaustive)])
def test_linear_projection_at_the_previous_state_has_order_two(integrator):
    """The lecture's choice q0 = previous state: the positions stay on a tangent plane, h v away from where it
    touches.

    That leaves g = O(h^2) after every step, however accurate the integrator. Only constraints that are linear
    in q, such as those of the bead, escape.
    """
    check_order("double_pendulum", integrator, "linear_at_previous", 2)
    check_order("bead_rotating_wire", integrator, "linear_at_previous", METHODS[integrator].order)
