"""Motions and derivatives of `Touching` against published reference problems of contact and friction."""

import contact_references as refs
import numpy as np
import pytest


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param("block_incline", "kicked_up_returns", marks=pytest.mark.long),
        ("block_incline", "kicked_up_stays"),
        pytest.param("ball_slide_roll", "back_spin_returns", marks=pytest.mark.exhaustive),
        pytest.param("ball_slide_roll", "incline_uphill_back_spin", marks=pytest.mark.exhaustive),
    ],
)
def test_slip_that_ends_or_reverses_under_constant_forces_is_exact(name, case):
    # The derivatives include the change of the times at which slip ends. Of a direction of friction per step,
    # they would be wrong by the ratio of the accelerations before and after, whatever the step.
    reference = refs.Case(name, case)
    q, v, status = reference.errors(4e-3)
    assert status == 0
    assert max(q, v) < 1e-9
    assert np.max(reference.derivative_errors(4e-3)) < 1e-7


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "case", "error"),
    [
        pytest.param("coulomb_oscillator", "five_half_swings", 3e-4, marks=pytest.mark.exhaustive),
        ("pendulum_dry_joint", "comes_to_rest", 3e-4),
        pytest.param("block_kicked_across", "stops", 5e-5, marks=pytest.mark.exhaustive),
    ],
)
def test_forces_that_vary_are_of_second_order_through_turning_points(name, case, error):
    reference = refs.Case(name, case)
    coarse, fine = (reference.errors(dt) for dt in (4e-3, 1e-3))
    assert coarse[2] == fine[2] == 0
    assert max(coarse[:2]) < error
    assert max(fine[:2]) < max(coarse[:2]) / 12.0
    assert np.max(reference.derivative_errors(1e-3)) < 1e-3


@pytest.mark.long
def test_contacts_of_a_body_that_turns_are_of_second_order():
    # Without contact forces, the ladder would fall along the wall, which its foot presses it against.
    reference = refs.Case("ladder", "smooth_leaves_wall")
    coarse, fine = (reference.errors(dt) for dt in (4e-3, 1e-3))
    assert coarse[2] == fine[2] == 0
    assert max(coarse[:2]) < 3e-5
    assert max(fine[:2]) < max(coarse[:2]) / 12.0


@pytest.mark.long
def test_a_ladder_below_the_friction_angle_rests():
    q, v, status = refs.Case("ladder", "rough_just_stays").errors(4e-3)
    assert status == 0
    assert max(q, v) < 1e-11
