"""Losses averaged over the worlds of several devices: the same numbers as on one, and one exchange a
gradient.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import two_devices

from jaxdae import tuning
from jaxdae.tuning import averaging

PROGRAM = """
import math
import re
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import optax
import problems
import jaxdae as jd
from jaxdae import tuning
from jaxdae.tuning import averaging

pendulum = problems.Pendulum(*(jnp.asarray(x, float) for x in (1.3, 1.0, 9.81)))
start = jd.State(jnp.zeros(()), jnp.array([0.6, -0.8]), jnp.array([0.4, 0.3]))
method = jd.Projected(jd.SemiImplicitEuler())
weights = 9.81 * jnp.linspace(0.9, 1.1, 5)
EXCHANGES = ("all-reduce(", "all-gather(", "all-to-all(", "collective-permute(", "reduce-scatter(")

def loss(numbers, weight):
    system = jd.tree.set_leaf(pendulum, "gravity", numbers["scale"] * weight)
    trajectory = jd.rollout(system, method, start, dt=2e-3, steps=10, save_every=10)
    return tuning.nan_if_failed(trajectory, jnp.sum(trajectory.state.v[-1] ** 2))

def program(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().as_text()

def exchanges(text):
    return [text.count(name) for name in EXCHANGES]

def exchanged_bytes(text):
    (types,) = re.findall(r"= (.*) all-reduce\\(", text)
    return sum(8 * math.prod(map(int, filter(None, shape.split(",")))) for shape in re.findall(r"f64\\[([\\d,]*)\\]", types))

at, mesh = {"scale": jnp.ones(())}, jax.make_mesh((2,), ("world",))
one = jax.sharding.Mesh(jax.devices()[:1], ("world",))
for mode in (tuning.Reverse(), tuning.Forward()):
    alone, divided = (
        tuning.fit(loss, at, optax.adam(1e-2), steps=3, batch=weights, mode=mode, mesh=over) for over in (None, mesh)
    )
    np.testing.assert_allclose(divided.history.loss[0], alone.history.loss[0], rtol=1e-15)
    np.testing.assert_allclose(divided.history.loss, alone.history.loss, rtol=1e-14)
    np.testing.assert_allclose(divided.history.gradient_norm, alone.history.gradient_norm, rtol=1e-12)
# The loss and one number, whatever five worlds of two coordinates do.
text = program(lambda x: averaging.value_and_grad(tuning.Reverse(), loss, x, weights, mesh), at)
assert (exchanges(text), exchanged_bytes(text)) == ([1, 0, 0, 0, 0], 16), text

def rolled(layout, count):
    system = jd.tree.set_leaf(pendulum, "gravity", weights[:count])
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), start)
    axes = (jd.tree.batch_axes(system, "gravity"), None, 0, None)
    return (lambda s, x: jd.batch_rollout(s, method, x, dt=2e-3, steps=10, in_axes=axes, layout=layout).state.q), system, many

# Worlds that cannot be divided evenly among the devices, too.
divided, alone = (batch(*given) for batch, *given in (rolled(layout, 5) for layout in (jd.Layout(mesh=mesh), jd.Layout(mesh=one))))
np.testing.assert_allclose(divided, alone, rtol=1e-12)
assert exchanges(program(*rolled(jd.Layout(mesh=mesh), 4))) == [0, 0, 0, 0, 0]

# One world of NaN: its loss is NaN and so is the mean, on every number of devices; a copy of it counts no more than it does.
broken = weights.at[4].set(jnp.nan)
for over in (None, mesh):
    assert np.isnan(averaging.mean(loss, at, broken, over))
print("good")
"""


@pytest.mark.long
def test_two_devices_find_what_one_finds_with_one_exchange_a_gradient():
    done = two_devices.run(PROGRAM, flags=two_devices.FAST)
    assert done.stdout.endswith("good\n"), done.stderr[-2000:]


def test_a_mesh_of_one_device_and_what_has_no_items():
    mesh, items = jax.make_mesh((1,), ("world",)), jnp.arange(3.0)

    def loss(x, item):
        return x["a"] * item**2

    at = {"a": jnp.asarray(2.0)}
    for over in (None, mesh):
        value, gradient = averaging.value_and_grad(tuning.Reverse(), loss, at, items, over)
        np.testing.assert_allclose((value, gradient["a"]), (10 / 3, 5 / 3), rtol=1e-15)
        np.testing.assert_allclose(averaging.mean(loss, at, items, over), 10 / 3, rtol=1e-15)
        with pytest.raises(ValueError, match=r"loss must return a scalar, got \(3, 2\)"):
            averaging.mean(lambda x, item: jnp.stack([item, item]), at, items, over)
    for wrong in ({"batch": None}, {"batch": items, "starts": 2}):
        with pytest.raises(
            ValueError, match="mesh divides the items of a batch; give batch, and omit starts"
        ):
            tuning.fit(loss, at, optax.sgd(0.1), steps=1, mesh=mesh, **wrong)
