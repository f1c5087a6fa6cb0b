"""`batch_rollout` by fused kernels against XLA: motions, statuses, frozen worlds, memory, resumption and
derivatives.
"""

import dataclasses
import operator
import os
import subprocess
import sys
import typing
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import SYSTEMS
from problems import cast
from small_systems import consistent, everything, without_typechecker

import jaxdae as jd
from jaxdae.fused import FallbackWarning, fuse

FUSED = jd.Layout(kernel=jd.Fused())


@jd.tree.pytree(kw_only=True)
class Pendulum(jd.System):
    """A point on a circle, in absolute coordinates, with damping and a motor along x."""

    mass: Any
    gravity: Any
    damping: Any

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        f = jnp.stack([0.0 * q[0], -self.mass * self.gravity]) - self.damping * v
        return f if u is None else f.at[0].add(u[0])

    def constraint(self, t, q):
        return jnp.stack([0.5 * (q @ q - 1.0)])


@jd.tree.pytree
class Law:
    """A spring and a damper with gains."""

    gains: Any

    def __call__(self, t, state):
        return jnp.stack([-self.gains[0] * state.q[0] - self.gains[1] * state.v[0]])


def pendulum(dtype=jnp.float64, **changed):
    numbers = {"mass": 1.3, "gravity": 9.81, "damping": 0.2} | changed
    return Pendulum(**{name: jnp.asarray(x, dtype) for name, x in numbers.items()})


def swings(worlds, dtype=jnp.float64):
    angle = jnp.linspace(-1.0, 1.2, worlds, dtype=dtype)
    rate = jnp.linspace(0.5, -0.7, worlds, dtype=dtype)
    q = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], 1)
    v = rate[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], 1)
    return jd.State(jnp.zeros(worlds, dtype), q, v)


def agree(a, b, tolerance):
    """Fail unless two pytrees have equal integers, and floating-point numbers within a tolerance, NaN
    included.
    """
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype, path
        if x.dtype.kind == "f":
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=str(path))
        else:
            np.testing.assert_array_equal(x, y, err_msg=str(path))


def motion(trajectory):
    """Return states and statuses; iterations and norms of residuals at round-off are no part of them."""
    return trajectory.state, trajectory.info.status


def equal(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


METHOD = jd.Projected(jd.RungeKutta.rk4())
# Tests of as many worlds share their programs.
WORLDS = 100
TOLERANCE = {jnp.float64: 1e-11, jnp.float32: 3e-5}


def both(system, method, start, controls=None, **options):
    """Return the motions by XLA and by a kernel."""
    options = {"dt": 0.01, "steps": 8} | options
    return [
        motion(jd.batch_rollout(system, method, start, controls, layout=layout, **options))
        for layout in (jd.Layout(), FUSED)
    ]


def options_of_rollouts(dtype):
    """Return options of `batch_rollout` for five worlds."""
    random = np.random.default_rng(0)
    system = dataclasses.replace(pendulum(dtype), gravity=jnp.linspace(1.0, 12.0, 5, dtype=dtype))
    return {
        "shared inputs": {"controls": jnp.asarray(random.normal(size=(8, 1)), dtype), "save_every": 4},
        "own inputs": {
            "controls": jnp.asarray(random.normal(size=(5, 8, 1)), dtype),
            "in_axes": (None, None, 0, 0),
            "segment": 4,
        },
        "law": {"controls": Law(jnp.asarray([2.0, 0.3], dtype))},
        "gravity": {"system": system, "in_axes": (jd.tree.batch_axes(system, "gravity"), None, 0, None)},
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        pytest.param(jnp.float64, "shared inputs", marks=pytest.mark.exhaustive),
        (jnp.float64, "own inputs"),
        (jnp.float32, "law"),
        pytest.param(jnp.float64, "gravity", marks=pytest.mark.exhaustive),
    ],
)
def test_motions_equal_those_of_xla(dtype, name):
    given = options_of_rollouts(dtype)[name]
    expected, found = both(
        given.pop("system", pendulum(dtype)), METHOD, swings(5, dtype), given.pop("controls", None), **given
    )
    agree(found, expected, TOLERANCE[dtype])


@pytest.mark.long
def test_rows_of_all_kinds():
    one = consistent()
    start = jd.State(jnp.full(3, one.t), jnp.stack([one.q] * 3), jnp.stack([one.v, 1.1 * one.v, 0.9 * one.v]))
    expected, found = both(everything(), METHOD, start, steps=5)
    agree(found, expected, 1e-11)


@pytest.mark.long
def test_failing_worlds_freeze_alone():
    """A start off the circle, NaN and an infinite velocity fail at once; their neighbors do not notice."""
    start = swings(WORLDS)
    bad = dataclasses.replace(
        start, q=start.q.at[3].multiply(1.5).at[41, 0].set(jnp.nan), v=start.v.at[77].set(jnp.inf)
    )
    expected, found = both(pendulum(), METHOD, bad)
    agree(found, expected, 1e-11)
    assert {int(k) for k in np.nonzero(np.asarray(found[1])[:, -1])[0]} == {3, 41, 77}
    good = np.delete(np.arange(WORLDS), [3, 41, 77])
    _, clean = both(pendulum(), METHOD, start)
    equal(jax.tree.map(lambda x: x[good], found), jax.tree.map(lambda x: x[good], clean))


@pytest.mark.long
def test_worlds_do_not_depend_on_their_neighbors():
    """The order and the number of worlds change no bit."""
    start, order = swings(37), np.random.default_rng(2).permutation(37)

    def run(start):
        return motion(jd.batch_rollout(pendulum(), METHOD, start, dt=0.01, steps=8, layout=FUSED))

    every = run(start)
    equal(run(jax.tree.map(lambda x: x[order], start)), jax.tree.map(lambda x: x[order], every))
    for worlds in (1, 2, 9):
        few = slice(worlds)
        equal(
            run(jax.tree.map(operator.itemgetter(few), start)), jax.tree.map(operator.itemgetter(few), every)
        )


@pytest.mark.long
def test_a_nan_among_many_worlds_stays_in_its_world():
    """Among 1e5 worlds, NaN in one world changes no bit of the others, nor does the order of the worlds or
    the chunk.
    """
    worlds, bad = 100_000, 77_777
    start, others = swings(worlds), np.delete(np.arange(worlds), bad)

    def run(start, chunk=None):
        layout = jd.Layout(chunk=chunk, kernel=jd.Fused())
        return motion(
            jd.batch_rollout(pendulum(), METHOD, start, dt=0.01, steps=50, save_every=50, layout=layout)
        )

    clean = run(start)
    found = run(dataclasses.replace(start, q=start.q.at[bad, 1].set(jnp.nan)))
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(found[1])[:, -1]), [bad])
    equal(jax.tree.map(lambda x: x[others], found), jax.tree.map(lambda x: x[others], clean))
    order = np.random.default_rng(3).permutation(worlds)
    equal(run(jax.tree.map(lambda x: x[order], start)), jax.tree.map(lambda x: x[order], clean))
    equal(run(start, chunk=1_000), clean)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param("pendulum", METHOD, id="pendulum"),
        pytest.param("everything", METHOD, id="everything", marks=pytest.mark.exhaustive),
        pytest.param(
            "crank_rocker",
            jd.Projected(jd.SemiImplicitEuler()),
            id="crank_rocker",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_thousand_steps_agree_with_xla(name, method):
    """Over 1,000 steps, double precision agrees to 1e-12; single precision is as far from it as XLA's."""
    if name == "pendulum":
        system, start = pendulum(), jax.tree.map(operator.itemgetter(0), swings(1))
    else:
        system, start = SYSTEMS[name]()
    every = jd.rollout(system, METHOD, start, dt=1e-3, steps=140, save_every=20).state
    starts = jax.tree.map(lambda x, y: jnp.concatenate([jnp.asarray(x)[None], y]), start, every)

    def states(dtype):
        system_, starts_, method_ = cast((system, starts, method), dtype)
        by_xla, by_kernel = both(system_, method_, starts_, dt=1e-3, steps=1_000, save_every=100)
        assert not np.any(by_xla[1])
        np.testing.assert_array_equal(by_kernel[1], by_xla[1])
        return [[np.asarray(x, float) for x in (state.q, state.v)] for state, _ in (by_xla, by_kernel)]

    (by_xla, by_kernel), single = states(jnp.float64), states(jnp.float32)
    for k, expected in enumerate(by_xla):
        scale = np.max(np.abs(expected))
        assert np.max(np.abs(by_kernel[k] - expected)) <= 1e-12 * scale
        of_xla, of_kernel = (np.max(np.abs(found[k] - expected)) / scale for found in single)
        assert of_kernel <= 2.0 * of_xla <= 1e-5


@pytest.mark.long
def test_memory_continues_a_rollout_bit_by_bit():
    method = jd.GeneralizedAlpha()
    options = {"dt": 0.01, "layout": FUSED}
    start = swings(3)
    whole = jd.batch_rollout(pendulum(), method, start, steps=8, **options)
    first = jd.batch_rollout(pendulum(), method, start, steps=4, **options)
    last = jax.tree.map(lambda x: x[:, -1], first.state)
    second = jd.batch_rollout(pendulum(), method, last, steps=4, memory=first.memory, **options)
    equal(second.state, jax.tree.map(lambda x: x[:, 4:], whole.state))
    equal(second.memory, whole.memory)


def loss(system, start, controls, layout):
    method = jd.Projected(jd.SemiImplicitEuler())
    found = jd.batch_rollout(system, method, start, controls, dt=0.01, steps=2, layout=layout)
    return jnp.sum(found.state.q[:, -1] ** 2 * jnp.asarray([1.0, 2.0])) + jnp.sum(found.state.v[:, -1] ** 3)


@pytest.mark.long
def test_gradients():
    """Reverse mode with respect to the system, the start and the controls, below jit, and of failed worlds."""
    start, controls = swings(3), 0.1 * jnp.ones((2, 1))
    start = dataclasses.replace(start, q=start.q.at[1].multiply(2.0))
    expected, found = [
        jax.jit(jax.value_and_grad(lambda a, b, c, layout=layout: loss(a, b, c, layout), argnums=(0, 1, 2)))(
            pendulum(), start, controls
        )
        for layout in (jd.Layout(), FUSED)
    ]
    agree(found, expected, 1e-10)


@pytest.mark.long
@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_forward_and_second_derivatives(order):
    """With respect to gravity and the scale of the controls."""
    start, controls = swings(3), 0.1 * jnp.ones((2, 1))

    def derivatives(layout):
        def at(x):
            return loss(pendulum(gravity=x[0]), start, x[1] * controls, layout)

        x = jnp.asarray([1.3, 1.3])
        if order == 2:
            return jax.hessian(at)(x), jax.vmap(jax.grad(at))(jnp.asarray([[1.0, 1.0], [1.5, 1.5]]))
        return [jax.jvp(at, (x,), (direction,)) for direction in jnp.eye(2)]

    agree(derivatives(FUSED), derivatives(jd.Layout()), 1e-9)


def test_what_cannot_be_fused_runs_by_xla_and_says_why(monkeypatch):
    def called_back(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")

    def random(x):
        return x + jax.random.normal(jax.random.key(0), x.shape, x.dtype)

    x = jnp.linspace(0.0, 1.0, 6).reshape(3, 2)
    for function, reason in (
        (called_back, "no fused kernel: primitive pure_callback. XLA runs the program"),
        (
            lambda x: jnp.argsort(jnp.tile(x, 20)).astype(x.dtype),
            "no fused kernel: sort by several keys, or of more than 16 entries. XLA runs the program",
        ),
        (
            lambda x: x.astype(jnp.complex128).real,
            "no fused kernel: numbers of type complex128. XLA runs the program",
        ),
        (
            lambda x: (x, x.astype(jnp.float32)),
            "no fused kernel: floating-point numbers of the types float32, float64; use only one of "
            "float32 and float64."
            " XLA runs the program",
        ),
    ):
        with pytest.warns(FallbackWarning) as seen:
            found = jax.vmap(fuse(function))(x)
        assert {str(w.message) for w in seen} == {reason}
        agree(found, jax.vmap(function)(x), 1e-15)
    with pytest.warns(FallbackWarning, match=r"^no fused kernel: "):
        agree(jax.vmap(fuse(random))(x), jax.vmap(random)(x), 1e-15)
    monkeypatch.setenv("CXX", "/nonexistent")
    with pytest.warns(
        FallbackWarning,
        match=r"^no fused kernel: the environment variable CXX names /nonexistent, which is not an "
        r"executable; set CXX to g\+\+",
    ):
        agree(jax.vmap(fuse(jnp.tanh))(x), jnp.tanh(x), 1e-15)


@pytest.mark.long
def test_the_automatic_choice_depends_on_work_size_and_compiler(monkeypatch):
    """The automatic choice falls back to XLA without a warning."""

    def rolled(kernel):
        layout = jd.Layout(kernel=kernel)
        return motion(jd.batch_rollout(pendulum(), METHOD, swings(WORLDS), dt=0.01, steps=8, layout=layout))

    by_xla, fused = rolled(None), rolled(jd.Fused())
    assert np.any(np.asarray(by_xla[0].q) != np.asarray(fused[0].q))
    equal(rolled(jd.Automatic(work=8 * WORLDS)), fused)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in (
            jd.Automatic(),
            jd.Automatic(work=8 * WORLDS + 1),
            jd.Automatic(work=8 * WORLDS, largest=20),
        ):
            equal(rolled(kernel), by_xla)
        monkeypatch.setenv("CXX", "/nonexistent")
        equal(rolled(jd.Automatic(work=8 * WORLDS)), by_xla)


def test_layouts_refuse_other_kernels():
    with (
        without_typechecker(),
        pytest.raises(TypeError, match=r"^layout: kernel must be of type .*Automatic, got 'fused'$"),
    ):
        jd.batch_rollout(
            pendulum(),
            METHOD,
            swings(2),
            dt=0.01,
            steps=1,
            layout=jd.Layout(kernel=typing.cast(Any, "fused")),
        )


TWO = """
import sys
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
from jaxdae.fused import fuse
print(float(jax.vmap(fuse(lambda x: jnp.sin(3 * x) + 1))(jnp.ones(5))[4]))
"""


@pytest.mark.long
def test_processes_share_the_cache(tmp_path):
    """Two processes that compile the same kernel at once, and a third one later, leave one library."""
    environment = os.environ | {"JAXDAE_KERNELS": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    start = [
        subprocess.Popen([sys.executable, "-c", TWO], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [process.communicate()[0] for process in start]
    assert printed == [printed[0]] * 2
    assert abs(float(printed[0]) - np.sin(3) - 1) < 1e-15
    assert [file.suffix for file in tmp_path.iterdir()] == [".so"]
