"""Layouts: the same worlds on any devices and in any chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import two_devices

import jaxdae as jd

WORLDS, STEPS, DT = 10, 4, 0.01
CLOSED = jd.Projected(jd.RungeKutta.rk4())


def pendulum():
    return problems.Pendulum(*(jnp.asarray(x, float) for x in (1.3, 1.0, 9.81)))


def starts(worlds=WORLDS):
    angles = jnp.linspace(-2.0, 2.0, worlds)
    q = jnp.stack([jnp.sin(angles), -jnp.cos(angles)], axis=1)
    return jd.State(jnp.zeros(worlds), q, jnp.zeros_like(q))


def rolled(at, layout, system=None, **options):
    return jd.batch_rollout(system or pendulum(), CLOSED, at, dt=DT, steps=STEPS, layout=layout, **options)


def assert_same_bits(x, y):
    for name, a, b in zip(jd.leaf_paths(x), jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("chunk", [1, 4, 7])
def test_chunks_are_the_same_to_the_last_bit(chunk):
    assert_same_bits(rolled(starts(), jd.Layout(chunk=chunk)), rolled(starts(), jd.Layout(chunk=WORLDS)))


@pytest.mark.long
def test_a_mechanism_in_chunks_is_the_same_to_the_last_bit():
    mechanism, start = problems.CrankRocker().build()
    mass = mechanism.mass[None] * jnp.linspace(1.0, 1.1, WORLDS)[:, None]
    system = jd.set_leaf(mechanism, "mass", mass)
    at = jax.tree.map(lambda x: jnp.broadcast_to(x, (WORLDS, *x.shape)), start)
    axes = (jd.batch_axes(system, "mass"), None, 0, None)
    whole = rolled(at, jd.Layout(chunk=WORLDS), system, in_axes=axes)
    assert_same_bits(rolled(at, jd.Layout(chunk=7), system, in_axes=axes), whole)
    backwards = rolled(at, jd.Layout(chunk=7), jd.set_leaf(mechanism, "mass", mass[::-1]), in_axes=axes)
    assert_same_bits(jax.tree.map(lambda x: x[::-1], backwards), whole)


def test_a_chunk_goes_on_from_another():
    whole = rolled(starts(), jd.Layout(chunk=WORLDS))
    first = rolled(starts(), jd.Layout(chunk=4))
    last = jax.tree.map(lambda x: x[:, -1], first.state)
    assert_same_bits(rolled(last, jd.Layout(chunk=4), memory=first.memory), rolled(last, jd.Layout(chunk=WORLDS), memory=whole.memory))


@pytest.mark.long
def test_gradients_go_through_chunks():
    def loss(at, system, layout):
        return jnp.sum(rolled(at, layout, system).state.v ** 2)

    gradient = jax.grad(loss, argnums=(0, 1))
    split, whole = (gradient(starts(), pendulum(), jd.Layout(chunk=chunk)) for chunk in (4, WORLDS))
    for x, y in zip(jax.tree.leaves(split), jax.tree.leaves(whole), strict=True):
        # What worlds share is summed up in another order.
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)


def test_what_is_chosen():
    def record(worlds, nv=9, **fields):
        return tuple(jd.Layout(**fields).placement(worlds, nv, jnp.float64).record().values())

    # Devices, worlds at a time, chunks, copies of the last world.
    assert record(10, chunk=4) == (1, 4, 3, 2)
    assert record(10, chunk=7) == (1, 5, 2, 0)
    assert record(12, chunk=4, remainder=jd.Remainder.REFUSE) == (1, 4, 3, 0)
    assert record(10, chunk=1) == (1, 2, 5, 0)
    assert record(1) == (1, 1, 1, 0)
    assert record(1024) == (1, 256, 4, 0)
    _, chunk, chunks, added = record(5003)
    assert 32 <= chunk < 1024
    assert chunk * chunks == 5003 + added
    assert added < chunks
    assert record(5000, nv=90)[1] < chunk


def test_mistakes():
    with pytest.raises(ValueError, match="10 worlds do not divide among 1 devices and chunks of 4"):
        rolled(starts(), jd.Layout(chunk=4, remainder=jd.Remainder.REFUSE))
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        rolled(starts(), jd.Layout(chunk=0))
    with pytest.raises(ValueError, match="memory of a trajectory of these 10 worlds"):
        rolled(starts(), jd.Layout(), memory=jnp.zeros(3))


DEVICES = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import jaxdae as jd
from jaxdae.batching.layout import local
from test_layout import rolled, starts

one = jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("world",))
for worlds in (10, 9):
    here = rolled(starts(worlds), jd.Layout(mesh=one))
    for chunk in (None, 2, 5):
        spread = rolled(starts(worlds), jd.Layout(chunk=chunk))
        assert len(spread.state.q.sharding.device_set) == 2, spread.state.q.sharding
        jd.raise_if_failed(spread)
        np.testing.assert_array_equal(local(spread.state.q), local(here.state.q))
try:
    rolled(starts(9), jd.Layout(remainder=jd.Remainder.REFUSE))
except ValueError as error:
    assert "9 worlds do not divide among 2 devices" in str(error), error
else:
    raise AssertionError
print("the same")
"""


@pytest.mark.long
def test_devices_and_chunks():
    done = two_devices.run(DEVICES)
    assert done.stdout.strip() == "the same", done.stderr
