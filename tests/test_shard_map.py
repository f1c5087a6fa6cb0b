"""Rollouts inside of `jax.shard_map`, on two devices of a process of its own."""

import pytest
import two_devices

PROGRAM = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import jaxdae as jd

@jd.tree.pytree
class Pendulum(jd.System):
    mass: jax.Array
    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)
    def force(self, t, q, v, u):
        return jnp.stack([jnp.zeros_like(self.mass), -9.81 * self.mass])
    def constraint(self, t, q):
        return 0.5 * (q @ q - 1.0)[None]

system, method = Pendulum(jnp.asarray(1.3)), jd.Projected(jd.RungeKutta.rk4())
q = jnp.array([[0.0, -1.0], [1.0, 0.0], [0.6, -0.8], [0.0, 1.0]])

def batch(q):
    return jd.batch_rollout(system, method, jd.State(0.0, q, jnp.zeros_like(q)), dt=0.01, steps=3).state.q

def one(q):
    return jd.rollout(system, method, jd.State(0.0, q, jnp.zeros_like(q)), dt=0.01, steps=3).state.q

expected = np.asarray(batch(q))
for kind in (AxisType.Explicit, AxisType.Auto):
    mesh = jax.make_mesh((2,), ("world",), axis_types=(kind,))
    placed = jax.device_put(q, NamedSharding(mesh, P("world")))
    for run in (batch, jax.vmap(one)):
        with jax.set_mesh(mesh):
            found = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=P("world"), out_specs=P("world")))(placed)
        np.testing.assert_allclose(np.asarray(jax.device_get(found)), expected, atol=1e-14)
print("good")
"""


@pytest.mark.exhaustive
def test_every_device_rolls_out_its_own_worlds():
    done = two_devices.run(PROGRAM, flags=two_devices.FAST)
    assert done.stdout.endswith("good\n"), done.stderr[-2000:]


LARGER_TREE = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import jaxdae as jd
from test_worlds_last import branched

mechanism, q = branched()
v = jnp.asarray(np.random.default_rng(0).normal(size=(2, 24)))
states = jd.State(jnp.zeros(2), jnp.broadcast_to(q, (2, *q.shape)), v)
layout = jd.Layout(mesh=jax.make_mesh((2,), ("worlds",)))
found = jd.batch_rollout(mechanism, jd.SemiImplicitEuler(), states, dt=1e-3, steps=2, layout=layout).state

def reached(rollout, start, v, **where):
    start = jd.State(start.t, start.q, v)
    end = rollout(mechanism, jd.SemiImplicitEuler(), start, dt=1e-3, steps=2, save_every=2, **where).state
    return jnp.sum(end.q ** 2), end.v

def slopes(rollout, start, **where):
    run = jax.value_and_grad(lambda v: reached(rollout, start, v, **where), has_aux=True)
    (_, ends), slopes = jax.jit(run)(start.v)
    return ends, slopes

# The gradient of one world returns its end as well: one program less.
_, slopes_of_all = slopes(jd.batch_rollout, states, layout=layout)
alone, right = slopes(jd.rollout, jax.tree.map(lambda x: x[1], states))
np.testing.assert_allclose(found.v[1, -1], alone[-1], atol=1e-12)
np.testing.assert_allclose(slopes_of_all[1], right, atol=1e-12)
print("good")
"""


@pytest.mark.exhaustive
def test_every_device_rolls_out_and_differentiates_its_own_worlds_of_a_larger_tree():
    done = two_devices.run(LARGER_TREE, flags=two_devices.FAST)
    assert done.stdout.endswith("good\n"), done.stderr[-2000:]


SHARED = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import jaxdae as jd

@jd.tree.pytree
class Coupled(jd.System):
    stiffness: jax.Array
    mass: jax.Array
    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)
    def force(self, t, q, v, u):
        return -self.stiffness * q * jnp.array([1.0, 2.0])
    def constraint(self, t, q):
        return q[:1] - q[1:]

def total(found):
    return jnp.sum(jnp.sin(found.state.q)) + jnp.sum(found.state.v**2) + 0.1 * jnp.sum(found.info.lam)

def together(stiffness, dt, masses):
    system = Coupled(stiffness, masses)
    starts = jd.State(0.0, jnp.full((3, 2), 0.4), jnp.ones((3, 2)))
    axes = (jd.tree.batch_axes(system, "mass"), None, 0, None)
    return total(jd.batch_rollout(system, jd.SemiImplicitEuler(), starts, dt=dt, steps=4, in_axes=axes))

def one(stiffness, dt, mass):
    start = jd.State(0.0, jnp.full(2, 0.4), jnp.ones(2))
    return total(jd.rollout(Coupled(stiffness, mass), jd.SemiImplicitEuler(), start, dt=dt, steps=4))

def alone(stiffness, dt, masses):
    return sum(one(stiffness, dt, mass) for mass in masses)

assert len(jax.devices()) == 2
at = jnp.asarray(1.3), jnp.asarray(0.02), jnp.array([1.0, 1.5, 2.0])
found, right = (jax.jit(jax.grad(f, argnums=(0, 1, 2)))(*at) for f in (together, alone))
for x, y in zip(found, right, strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-12)
print("good")
"""


@pytest.mark.long
def test_gradients_by_what_worlds_share_are_summed_over_devices():
    """Of three worlds on two devices: numbers of the system, of which one is shared, and the step."""
    done = two_devices.run(SHARED, flags=two_devices.FAST)
    assert done.stdout.endswith("good\n"), done.stderr[-2000:]


CONTACT = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import jaxdae as jd
from jaxdae import contact, mechanisms as jm

disc = contact.Disc(0.1)
floor = contact.Pair("floor", jm.GROUND, "ball", contact.Line(), disc, friction=0.3, restitution=0.3)
ball = jm.Body("ball", 1.0, 0.1, pose=(0.0, 0.15, 0.0))
mechanism, q = jm.mechanism(jm.Description(bodies=[ball], contacts=[floor]))
method = contact.Touching(jd.SemiImplicitEuler())
mesh = jax.make_mesh((2,), ("worlds",), axis_types=(jax.sharding.AxisType.Auto,))
v = jnp.zeros((2, 3)).at[:, 0].set(jnp.arange(2.0))
start = jd.State(jnp.zeros(2), jnp.tile(q, (2, 1)), v)
found, expected = (
    jd.batch_rollout(mechanism, method, start, dt=1e-2, steps=30, layout=jd.Layout(mesh=on, kernel=None))
    for on in (mesh, None)
)
assert (found.info.status == 0).all() and abs(found.state.q[0, -1, 1] - 0.1) < 0.01  # it has touched the floor
np.testing.assert_allclose(found.state.q, expected.state.q, atol=1e-13)
print("good")
"""


@pytest.mark.exhaustive
def test_every_device_solves_the_contacts_of_its_own_worlds():
    done = two_devices.run(CONTACT, flags=two_devices.FAST)
    assert done.stdout.endswith("good\n"), done.stderr[-2000:]
