"""A prescribed motion that jumps opens its joint, unless a projection closes it: the status says so."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js

FORMS = {"absolute": jm.Absolute(), "joints": jm.Joints()}
RK4 = jd.RungeKutta.rk4()


def stepped(height):
    return lambda t: jnp.where(t < 0.0055, 0.0, height)


def slider(space, motion, form, size=1.0):
    """Return a slide of some size whose motion is prescribed."""
    motor = (js if space == "space" else jm).PrescribedMotion("motor", "slide", motion)
    if space == "plane":
        slide = jm.Prismatic("slide", "ground", "block", (1.0, 0.0), point_a=(0.0, 0.0), point_b=(0.0, size))
        return jm.planar_mechanism([jm.Body("block", 1.0, 0.1)], [slide, motor], coordinates=FORMS[form])
    slide = js.Prismatic(
        "slide", "ground", "block", (1.0, 0.0, 0.0), point_a=(0.0, 0.0, 0.0), point_b=(0.0, size, 0.0)
    )
    return jm.spatial_mechanism(
        [js.Body("block", 1.0, (0.1, 0.1, 0.1))], [slide, motor], coordinates=FORMS[form]
    )


def crank(space, motion, form):
    """Return a hinge whose motion is prescribed."""
    if space == "plane":
        joints = [
            jm.Revolute("hinge", "ground", "arm", at=(0.0, 0.0)),
            jm.PrescribedMotion("motor", "hinge", motion),
        ]
        return jm.planar_mechanism(
            [jm.Body("arm", 1.0, 0.1, (0.5, 0.0, 0.0))], joints, coordinates=FORMS[form]
        )
    hinge = js.Revolute("hinge", "ground", "arm", axis=(0.0, 0.0, 1.0), at=(0.0, 0.0, 0.0))
    body = js.Body("arm", 1.0, (0.1, 0.1, 0.1), place=(0.5, 0.0, 0.0))
    return jm.spatial_mechanism(
        [body], [hinge, js.PrescribedMotion("motor", "hinge", motion)], coordinates=FORMS[form]
    )


@jd.tree.pytree
class Piecewise:
    """A jump, a corner and a wave, of some sizes."""

    jump: Any
    corner: Any
    wave: Any

    def __call__(self, t):
        later = t - 0.0055
        return (
            jnp.where(later < 0.0, 0.0, self.jump)
            + self.corner * jnp.maximum(later, 0.0)
            + self.wave * jnp.sin(500.0 * t)
        )


@pytest.mark.parametrize(
    ("make", "space", "form"),
    [
        *((make, "plane", form) for make in (slider, crank) for form in FORMS),
        pytest.param(slider, "space", "joints", marks=pytest.mark.exhaustive),
        pytest.param(crank, "space", "absolute", marks=pytest.mark.exhaustive),
    ],
)
def test_a_jump_that_no_projection_closes_is_reported(make, space, form):
    mechanism, q = make(space, Piecewise(0.0, 0.0, 0.0), form)
    path = next(path for path in jd.tree.leaf_paths(mechanism) if path.endswith("motion.jump")).removesuffix(
        ".jump"
    )
    rest = jnp.zeros(len(mechanism.names.velocities))

    @jax.jit
    @jax.vmap
    def jumps(sizes, times):
        moved = jd.tree.set_leaf(mechanism, path, Piecewise(*sizes[:, None]))
        return jax.vmap(lambda t: moved.jumps(jd.State(t, q, rest), jd.State(t + 1e-3, q, rest)))(times)

    # Rounding is not a jump, nor is a corner, or a motion that the steps resolve.
    cases = [(1.0, 0, 0), (-1e-3, 0, 0), (3.0, 0, 0), (1e-9, 0, 0), (0, 3.0, 0), (0, 0, 1.0)]
    times = jnp.tile(1e-3 * jnp.arange(20.0), (len(cases), 1))
    expected = np.zeros((len(cases), 20), bool)
    expected[:3, 5] = True
    np.testing.assert_array_equal(jumps(jnp.array(cases, float), times), expected)


def test_jumps_are_relative_to_the_characteristic_length():
    mechanism, q = slider("plane", stepped(1e-8), "joints", size=1e-6)
    before, after = (jd.State(jnp.asarray(t), q, 0.0 * q) for t in (5e-3, 6e-3))
    assert mechanism.jumps(before, after)


def test_motions_that_cannot_jump_are_not_examined():
    for motion in (jm.Polynomial([0.0, 1.0]), jm.Sinusoid(1.0, 2.0)):
        mechanism, q = crank("plane", motion, "joints")
        state = jd.State(jnp.zeros(()), q, 0.0 * q)
        assert mechanism.jumps(state, state) is None


METHODS = {
    "none": (RK4, stepped(1.0), jd.Status.OUT_OF_RANGE),
    "projection": (jd.Projected(RK4), stepped(0.1), jd.Status.OK),
    "feedback, jump": (
        jd.RungeKutta.rk4(stabilization=jd.Baumgarte(40.0, 400.0)),
        stepped(1.0),
        jd.Status.OUT_OF_RANGE,
    ),
    "feedback, corner": (
        jd.RungeKutta.rk4(stabilization=jd.Baumgarte(40.0, 400.0)),
        lambda t: 3.0 * jnp.maximum(t - 0.0055, 0.0),
        jd.Status.OK,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("case", "form"), list(zip(METHODS, 2 * tuple(FORMS), strict=True)))
def test_statuses_of_rollouts_over_a_jump(case, form):
    method, motion, expected = METHODS[case]
    mechanism, q = crank("plane", motion, form)
    start = jd.State(0.0, q, 0.0 * q)
    run = jax.jit(lambda start: jd.rollout(mechanism, method, start, dt=1e-3, steps=20))(start)
    np.testing.assert_array_equal(run.info.status, np.where(np.arange(20) < 5, jd.Status.OK, expected))


@pytest.mark.long
def test_feedback_closes_a_small_opening_at_the_start():
    mechanism, q = crank("plane", lambda t: 0.1 * jnp.sin(5.0 * t), "absolute")
    start = jd.State(0.0, q.at[2].add(1e-3), jnp.zeros(3).at[2].set(0.5))
    method = jd.RungeKutta.rk4(stabilization=jd.Baumgarte(40.0, 400.0))
    run = jd.rollout(mechanism, method, start, dt=1e-3, steps=400, start_tolerance=jnp.inf)
    assert np.all(run.info.status == jd.Status.OK)
    assert run.info.violation[-1] < 1e-5
