"""Layouts: the same worlds on any devices and in any chunks."""

import platform

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import two_devices

import jaxdae as jd

WORLDS, STEPS, DT = 10, 4, 0.01
CLOSED = jd.Projected(jd.RungeKutta.rk4())
EULER = jd.Projected(jd.SemiImplicitEuler())


def pendulum():
    return problems.Pendulum(*(jnp.asarray(x, float) for x in (1.3, 1.0, 9.81)))


def starts(worlds=WORLDS):
    angles = jnp.linspace(-2.0, 2.0, worlds)
    q = jnp.stack([jnp.sin(angles), -jnp.cos(angles)], axis=1)
    return jd.State(jnp.zeros(worlds), q, jnp.zeros_like(q))


def rolled(at, layout, system=None, method=CLOSED, **options):
    return jd.batch_rollout(system or pendulum(), method, at, dt=DT, steps=STEPS, layout=layout, **options)


@pytest.mark.long
@pytest.mark.parametrize(
    "chunk", [pytest.param(1, marks=pytest.mark.exhaustive), 4, pytest.param(7, marks=pytest.mark.exhaustive)]
)
def test_chunks_are_the_same_to_the_last_bit(chunk):
    problems.assert_same_bits(
        rolled(starts(), jd.Layout(chunk=chunk)), rolled(starts(), jd.Layout(chunk=WORLDS))
    )


MANY = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import problems
import jaxdae as jd
from jaxdae.compile.layout import local

worlds = 1000
mechanism, start = problems.AndrewsAngles(problems.andrews_parameters()), problems.reference("ivptest_andrews").start()
torque = mechanism.p["mom"] * jnp.linspace(1.0, 1.1, worlds)
at = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), start)
axes = (jd.tree.batch_axes(mechanism, "p.mom"), None, 0, None)
method = jd.Projected(jd.SemiImplicitEuler())

def rolled(chunk, devices=1, torque=torque):
    layout = jd.Layout(mesh=jax.sharding.Mesh(np.asarray(jax.devices()[:devices]), ("world",)), chunk=chunk)
    system = jd.tree.set_leaf(mechanism, "p.mom", torque)
    found = jd.batch_rollout(system, method, at, dt=1e-4, steps=20, layout=layout, in_axes=axes)
    jd.raise_if_failed(found)
    return [local(x) for x in jax.tree.leaves(found)]

def same(x, y):
    return all(np.array_equal(a, b) for a, b in zip(x, y, strict=True))

whole = rolled(64)
for given in DIFFERENT:
    assert same(rolled(*given), whole), given
assert same(rolled(64), whole), "run to run"
assert same([x[::-1] for x in rolled(64, torque=torque[::-1])], whole), "order"
print("the same")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("different", "flags"),
    [
        pytest.param([(7,), (1000,)], "", id="chunks"),
        # Without fused multiply-adds the programs for one device and for eight leave nothing to differ, see
        # docs/layout.md.
        pytest.param([(64, 8)], "--xla_cpu_max_isa=AVX", id="devices"),
    ],
)
def test_andrews_mechanism_is_the_same_to_the_last_bit(different, flags):
    """As users have it compiled; world by world in chunks of 7, 64 and 1000, in another order, once more, and
    over eight devices.
    """
    if flags and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("a flag for x86 CPUs")
    done = two_devices.run(MANY.replace("DIFFERENT", repr(different)), count=8, flags=flags)
    assert done.stdout.strip() == "the same", done.stderr


@pytest.mark.long
def test_a_chunk_goes_on_from_another():
    whole = rolled(starts(), jd.Layout(chunk=WORLDS))
    first = rolled(starts(), jd.Layout(chunk=4))
    last = jax.tree.map(lambda x: x[:, -1], first.state)
    problems.assert_same_bits(
        rolled(last, jd.Layout(chunk=4), memory=first.memory),
        rolled(last, jd.Layout(chunk=WORLDS), memory=whole.memory),
    )


@pytest.mark.long
def test_gradients_go_through_chunks():
    def loss(at, system, layout):
        return jnp.sum(rolled(at, layout, system, EULER).state.v ** 2)

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
    assert record(10, chunk=7) == (1, 4, 3, 2)
    assert record(12, chunk=4, remainder=jd.Remainder.REFUSE) == (1, 4, 3, 0)
    assert record(10, chunk=1) == (1, 4, 3, 2)
    assert record(1) == (1, 1, 1, 0)
    assert record(300) == (1, 100, 3, 0)
    assert record(1024) == (1, 256, 4, 0)
    _, chunk, chunks, added = record(5003)
    assert 32 <= chunk < 1024
    assert chunk * chunks == 5003 + added
    assert added < 4 * chunks
    assert record(5000, nv=900)[1] < record(5000, nv=90)[1] < chunk


def test_mistakes():
    with pytest.raises(
        ValueError, match="10 worlds cannot be divided evenly among 1 devices and chunks of 4"
    ):
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
from jaxdae.compile.layout import local
from test_layout import EULER, rolled, starts

one = jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("world",))
for worlds in (10, 9):
    here = rolled(starts(worlds), jd.Layout(mesh=one), method=EULER)
    for chunk in (None, 2, 5):
        spread = rolled(starts(worlds), jd.Layout(chunk=chunk), method=EULER)
        assert len(spread.state.q.sharding.device_set) == 2, spread.state.q.sharding
        jd.raise_if_failed(spread)
        np.testing.assert_array_equal(local(spread.state.q), local(here.state.q))
try:
    rolled(starts(9), jd.Layout(remainder=jd.Remainder.REFUSE))
except ValueError as error:
    assert "9 worlds cannot be divided evenly among 2 devices" in str(error), error
else:
    raise AssertionError
print("the same")
"""


BROKEN = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import jaxdae as jd
from test_layout import pendulum, rolled, starts

at, system = starts(13), pendulum()
axes = (jd.tree.batch_axes(system, "mass"), None, 0, None)
masses = jnp.linspace(1.0, 1.2, 13)
sound = rolled(at, jd.Layout(), jd.tree.set_leaf(system, "mass", masses), in_axes=axes)
jd.raise_if_failed(sound)
for world in (5, 12):  # Of the last one there are copies: 13 worlds on eight devices are 32.
    found = rolled(at, jd.Layout(), jd.tree.set_leaf(system, "mass", masses.at[world].set(jnp.nan)), in_axes=axes)
    assert len(found.state.q.sharding.device_set) == 8
    others = np.arange(13) != world
    for x, expected in zip(jax.tree.leaves((found.state, found.info)), jax.tree.leaves((sound.state, sound.info)), strict=True):
        np.testing.assert_array_equal(np.asarray(x)[others], np.asarray(expected)[others])
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(found.info.status)[:, -1] != jd.Status.OK), [world])
    np.testing.assert_array_equal(found.state.q[world], np.broadcast_to(at.q[world], found.state.q[world].shape))
    try:
        jd.raise_if_failed(found)
    except RuntimeError as error:
        assert f"world {world}" in str(error), error
    else:
        raise AssertionError
try:
    rolled(at, jd.Layout(remainder=jd.Remainder.REFUSE))
except ValueError as error:
    assert "13 worlds cannot be divided evenly among 8 devices" in str(error), error
else:
    raise AssertionError
print("the same")
"""


@pytest.mark.exhaustive
def test_one_world_of_nan_among_many_on_eight_devices():
    done = two_devices.run(BROKEN, count=8, flags=two_devices.FAST)
    assert done.stdout.strip() == "the same", done.stderr


@pytest.mark.long
def test_devices_and_chunks():
    done = two_devices.run(DEVICES, flags=two_devices.FAST)
    assert done.stdout.strip() == "the same", done.stderr
