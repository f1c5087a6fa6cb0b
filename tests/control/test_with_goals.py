"""Goals as rows of a system: against the same rows written by hand, masked, soft, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_systems import Everything, everything, everywhere

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.control import Coordinates, FunctionGoal, Goal, InputTarget, WithGoals

MOTION = jm.Sinusoid(jnp.asarray(0.2), jnp.asarray(0.7))


@jd.tree.pytree(kw_only=True)
class ByHand(Everything):
    """`Everything` with three more rows, where `WithGoals` puts them."""

    def constraint(self, t, q):
        return jnp.concatenate(
            [super().constraint(t, q), jnp.stack([q[1] - q[3] - MOTION(t), q[0] * q[3] - t])]
        )

    def velocity_constraint(self, t, q, v):
        return jnp.concatenate([super().velocity_constraint(t, q, v), (v[2] - 0.3)[None]])


def both():
    inside = everything()
    goals = (
        Goal(Coordinates((1,), (3,)), MOTION),
        Goal(Coordinates((2,)), rate=0.3),
        FunctionGoal(lambda t, q: (q[0] * q[3] - t)[None]),
    )
    return WithGoals(inside, goals), ByHand(**vars(inside))


def test_rows_are_those_written_by_hand():
    at = everywhere()
    goals, hand = (jax.jit(jd.operators.constraint_terms)(system, at) for system in both())
    for x, y in zip(jax.tree.leaves(goals), jax.tree.leaves(hand), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-14)
    assert goals.jacobian.shape == (6, 4)


@pytest.mark.long
def test_goals_may_be_soft_and_masked():
    at, (system, _) = everywhere(), both()
    softness = jnp.array([0.0, 0.0, 0.4, 0.3, 0.0, 0.2])
    soft = jd.Soft(system, softness)
    # The rows of the system come before those of goals at both levels.
    masked = jd.Masked(soft, jnp.array([True, True, True, False, True, False]))
    a, lam = jax.jit(jd.forward_dynamics)(masked, at)
    np.testing.assert_array_equal(lam[jnp.array([3, 5])], 0.0)
    rows = jax.jit(jd.operators.constraint_terms)(masked, at)
    residual = rows.jacobian @ a + rows.bias + jnp.where(masked.active, softness, 0.0) * lam
    np.testing.assert_allclose(residual, 0.0, rtol=0, atol=1e-12)
    inner = WithGoals(jd.Soft(everything(), jnp.array([0.1, 0.0, 0.2])), system.goals)
    np.testing.assert_array_equal(inner.compliance(at.t, at.q), [0.1, 0.0, 0.0, 0.0, 0.2, 0.0])


def test_without_goals_of_a_kind():
    at = everywhere()
    system = WithGoals(everything(), (Goal(Coordinates((2,)), rate=0.3),))
    assert system.constraint(at.t, at.q).shape == (2,)
    assert system.velocity_constraint(at.t, at.q, at.v).shape == (2,)
    assert system.names.rows == ()


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        (
            Goal(Coordinates((0,)), 0.0, 1.0),
            "a goal with both a target and a rate needs the step h; use VelocityStepping",
        ),
        (Goal(Coordinates((0,)), InputTarget(0)), "use VelocityStepping for an InputTarget"),
    ],
)
def test_mistakes(goal, message):
    at = everywhere()
    with pytest.raises(ValueError, match=message):
        WithGoals(everything(), (goal,)).constraint(at.t, at.q)
