"""Contact names, and gaps, slips and forces of contacts by name: closed forms, losses and laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import contact as ct
from jaxdae import control
from jaxdae import mechanisms as jm
from jaxdae.tuning import final, tracking

G, MU, ANGLE, HEIGHT, MASS, DT, STEPS = 9.81, 0.5, 0.6, 1.0, 2.0, 1e-2, 40
DOWNHILL, PRESS = G * np.sin(ANGLE), G * np.cos(ANGLE)
BLOCK = ct.PlanarCapsule(0.1, 0.2, angle=np.pi / 2)


def described():
    """Return a block that slides down an incline along x, and a ball that flies above it."""
    bodies = [jm.Body("block", MASS, 0.1, (0.0, 0.1, 0.0)), jm.Body("ball", 1.0, 0.1, (5.0, HEIGHT, 0.0))]
    contacts = [
        ct.Pair("block", jm.GROUND, "block", ct.Line(), BLOCK, friction=MU),
        ct.Pair("ball", jm.GROUND, "ball", ct.Line(), ct.Disc(0.1), friction=MU),
    ]
    return jm.Description(space=jm.PLANE, bodies=bodies, contacts=contacts, gravity=(DOWNHILL, -PRESS))


@pytest.fixture(scope="module")
def slide():
    mechanism, q = jm.mechanism(described())
    step = ct.Touching(jd.RungeKutta.midpoint(), contact_solver=ct.Robust.quick())
    start = jd.State(0.0, q, jnp.zeros(6))
    return mechanism, jd.rollout(mechanism, step, start, dt=DT, steps=STEPS)


@pytest.mark.long
def test_contact_names(slide):
    mechanism = slide[0]
    assert mechanism.names.contacts == ("ball", "block.end0", "block.end1")
    assert mechanism.names.filled(mechanism.sizes(jnp.zeros(6))).contacts == mechanism.names.contacts
    for names, numbers in ((("block",), (1, 2)), (("block.end1", "ball"), (2, 0))):
        assert ct.ContactForce.named(mechanism, *names).contacts == numbers
    with pytest.raises(ValueError, match=r"no contact 'blocks'; did you mean 'block'\?"):
        ct.Gap.named(mechanism, "blocks")
    with pytest.raises(ValueError, match="name at least one contact"):
        ct.Slip.named(mechanism)
    with pytest.raises(ValueError, match="the mechanism has no contacts"):
        ct.Gap.named(mechanism.without_contacts(), "ball")


@pytest.mark.long
def test_outputs_have_closed_forms(slide):
    mechanism, found = slide
    t = np.asarray(found.state.t)
    gap, slip = (output.named(mechanism, "ball", "block.end0") for output in (ct.Gap, ct.Slip))
    gaps, slips = jax.jit(jax.vmap(lambda state: (gap(state.q), slip(state))))(found.state)
    # The ball flies: the block slides with the constant acceleration g (sin - mu cos).
    np.testing.assert_allclose(gaps[:, 0], HEIGHT - 0.1 - PRESS * t**2 / 2.0, atol=1e-13)
    np.testing.assert_allclose(gaps[:, 1], 0.0, atol=1e-13)
    np.testing.assert_allclose(np.abs(slips[:, 0, 0]), DOWNHILL * t, atol=1e-12)
    np.testing.assert_allclose(np.abs(slips[:, 1, 0]), (DOWNHILL - MU * PRESS) * t, atol=1e-12)
    np.testing.assert_allclose(slips, found.info.slip[:, [0, 1]], atol=1e-12)
    force = ct.ContactForce.named(mechanism, "block")(found.info)
    # Compliance of the contacts changes the sum of the forces by about 1e-8 of it.
    np.testing.assert_allclose(force.sum(axis=1)[:, 0], MASS * PRESS, rtol=1e-7)
    np.testing.assert_allclose(force[..., 1] * np.sign(slips[:, 1]), -MU * force[..., 0], rtol=1e-6)
    assert not np.any(ct.ContactForce.named(mechanism, "ball")(found.info))


@pytest.mark.long
def test_datasets_have_contacts_by_name(slide):
    mechanism, found = slide
    data = found.to_xarray(mechanism)
    ends = data.sel(contact=["block.end0", "block.end1"])
    np.testing.assert_allclose(ends.contact_force.sel(axis="normal").sum("contact"), MASS * PRESS, rtol=1e-7)
    np.testing.assert_array_equal(ends.contact_slip.sel(tangent="tangent1"), found.info.slip[:, 1:, 0])
    np.testing.assert_array_equal(data.contact_gap.sel(contact="ball"), found.info.gap[:, 0])


@pytest.mark.long
def test_losses_of_outputs(slide):
    mechanism, found = slide
    force = ct.ContactForce.named(mechanism, "block")(found.info)[..., 0].sum(axis=-1)
    lost = tracking(found, force, 1.0)
    np.testing.assert_allclose(lost, (MASS * PRESS - 1.0) ** 2, rtol=1e-6)
    gap = ct.Gap.named(mechanism, "ball")
    reached = HEIGHT - 0.1 - PRESS * (STEPS * DT) ** 2 / 2.0
    lost = tracking(found, lambda state: gap(state.q), 0.1, over=final)
    np.testing.assert_allclose(lost, (reached - 0.1) ** 2, rtol=1e-10)
    with pytest.raises(ValueError, match=r"begin with the axes of the saved states, \(40,\), got \(39,\)"):
        tracking(found, force[1:], 1.0)


def test_a_gap_is_an_output_of_control_laws(slide):
    mechanism, found = slide
    state = jax.tree.map(lambda x: x[-1], found.state)
    gap = ct.Gap.named(mechanism, "ball")
    motion = jax.jit(lambda state: control.output_motion(mechanism, gap, state))(state)
    np.testing.assert_allclose(motion.value, found.info.gap[-1, :1], atol=1e-13)
    np.testing.assert_allclose(motion.rate, [-PRESS * STEPS * DT], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("form", [jm.Joints(), pytest.param(jm.Absolute(), marks=pytest.mark.exhaustive)])
def test_reports_and_reactions_contain_contact_and_limit_forces(form):
    """An arm leans on the limit of its ankle, and the foot stands on the ground: nothing accelerates."""
    bodies = [jm.Body("foot", 2.0, 0.02, (0.0, 0.05, 0.0)), jm.Body("arm", 1.0, 0.1, (0.2, 0.6, 0.0))]
    ankle = jm.Revolute("ankle", "foot", "arm", at=(0.1, 0.1), limits=(0.0, 1.0))
    sole = ct.Polygon(((-0.4, -0.05), (0.4, -0.05), (0.4, 0.05), (-0.4, 0.05)))
    stands = ct.Pair("sole", jm.GROUND, "foot", ct.Line(), sole, friction=MU)
    mechanism, q = jm.mechanism(
        jm.Description(space=jm.PLANE, bodies=bodies, joints=[ankle], contacts=[stands], gravity=(0.0, -G)),
        form,
    )
    state = jd.State(jnp.zeros(()), q, jnp.zeros(mechanism.sizes(q).nv))
    step = ct.Touching(jd.SemiImplicitEuler(), contact_solver=ct.ContactNewton(20))

    @jax.jit
    def at_rest(state):
        _, _, info = step.step(mechanism, state, step.init(mechanism, state), None, DT)
        return info, jm.reactions(mechanism, state, info)

    info, found = at_rest(state)
    assert info.status == 0
    # The compliance of the contacts gives way by 1e-8 of the velocity that gravity adds.
    np.testing.assert_allclose(info.a, 0.0, atol=1e-6 * G)
    np.testing.assert_allclose(found.of("ankle")[0], [0.0, G], atol=1e-6 * G)
    np.testing.assert_allclose(found.of("ankle")[1], 0.0, atol=1e-6 * G)
    # The limit carries the torque of the weight about the ankle.
    np.testing.assert_allclose(info.row_forces[-2:], [0.1 * G, 0.0], atol=1e-6 * G)
    np.testing.assert_allclose(info.force[:, 0].sum(), 3.0 * G, atol=1e-6 * G)
    with pytest.raises(ValueError, match=r"row_forces must have shape .*; to ignore .* pass info.lam"):
        jm.reactions(mechanism, state, info.lam, row_forces=info.row_forces[1:])
