"""Fits: optimizers, batches, clipping, skipped steps, modes, many starts, and checkpoints."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from all_cases import all_cases

from jaxdae.tuning import AtLeast, Between, ByCount, Checkpoint, Forward, Positive, Reverse, fit
from jaxdae.tuning import checkpoint as checkpoints

ROOT = pathlib.Path(__file__).parents[2]
START = {"x": jnp.array([1.0, -2.0]), "fixed": jnp.asarray(3.0)}


def bowl(p):
    return jnp.sum((p["x"] - 0.5) ** 2) * p["fixed"]


def test_the_first_step_of_plain_descent():
    found = fit(bowl, START, optax.sgd(0.1), steps=1, trainable="x")
    # d/dx = 2 * 3 * (x - 0.5) = (3, -15), of norm sqrt(234).
    np.testing.assert_allclose(found.last["x"], [0.7, -0.5], rtol=1e-14)
    np.testing.assert_allclose(found.parameters["x"], START["x"])
    assert found.last["fixed"] == 3.0
    assert found.loss == found.history.loss[0] == pytest.approx(19.5)
    assert found.history.gradient_norm[0] == pytest.approx(np.sqrt(234.0), rel=1e-14)
    assert found.history.update_norm[0] == pytest.approx(0.1 * np.sqrt(234.0), rel=1e-14)
    assert np.isnan(found.history.learning_rate[0])
    assert (found.best_step, found.skipped, found.recorded) == (0, 0, None)


def test_clipping_keeps_the_direction():
    found = fit(bowl, START, optax.sgd(0.1), steps=1, trainable="x", clip=1.0)
    np.testing.assert_allclose(
        found.last["x"] - START["x"], -0.1 * np.array([3.0, -15.0]) / np.sqrt(234.0), rtol=1e-14
    )
    assert found.history.gradient_norm[0] == pytest.approx(np.sqrt(234.0), rel=1e-14)
    within = fit(bowl, START, optax.sgd(0.1), steps=1, trainable="x", clip=100.0)
    np.testing.assert_allclose(within.last["x"], [0.7, -0.5], rtol=1e-14)


@pytest.mark.parametrize("mode", [Forward(), Reverse(), ByCount(), ByCount(limit=1)], ids=str)
def test_bounds_hold_in_every_mode(mode):
    def far(p):
        return (p["a"] + 4.0) ** 2 + (p["b"] - 9.0) ** 2 + (p["c"] - 2.0) ** 2

    start = {"a": jnp.asarray(1.0), "b": jnp.asarray(1.0), "c": jnp.asarray(0.01)}
    bounds = {"a": AtLeast(0.0, scale=0.1), "b": Between(0.0, 5.0), "c": Positive()}
    found = fit(far, start, optax.adam(0.3), steps=150, trainable=bounds, mode=mode)
    assert 0.0 < found.parameters["a"] < 1e-3
    assert 4.9 < found.parameters["b"] < 5.0
    assert found.parameters["c"] == pytest.approx(2.0, abs=1e-2)


def test_the_rule_of_modes():
    assert ByCount(limit=3).chosen(3) == Forward()
    assert ByCount(limit=3).chosen(4) == Reverse()


def test_schedules_show_in_the_history_and_progress_tells():
    told = []
    optimizer = optax.inject_hyperparams(optax.sgd)(optax.linear_schedule(0.1, 0.0, 4))
    found = fit(
        bowl,
        START,
        optimizer,
        steps=4,
        trainable="x",
        progress=lambda k, step: told.append((k, float(step.loss))),
    )
    # Optax computes schedules in single precision.
    np.testing.assert_allclose(found.history.learning_rate, [0.1, 0.075, 0.05, 0.025], rtol=1e-7)
    assert told == list(enumerate(found.history.loss.tolist()))
    assert np.all(found.history.best == np.minimum.accumulate(found.history.loss))


def test_batches_are_averaged_and_may_change_with_the_step():
    targets = jnp.array([[1.0, 0.0], [3.0, 2.0]])

    def distance(p, target):
        return jnp.sum((p["x"] - target) ** 2)

    whole = fit(distance, START, optax.sgd(0.5), steps=1, trainable="x", batch=targets)
    np.testing.assert_allclose(whole.last["x"], [2.0, 1.0], rtol=1e-14)
    turns = fit(
        distance,
        START,
        optax.sgd(0.5),
        steps=3,
        trainable="x",
        batch=lambda k: targets[k % 2][None],
        record=lambda p: p["x"],
    )
    np.testing.assert_allclose(turns.recorded, [START["x"], targets[0], targets[1]], rtol=1e-14)


def test_a_line_search():
    found = fit(bowl, START, optax.lbfgs(), steps=8, trainable="x")
    np.testing.assert_allclose(found.parameters["x"], 0.5, rtol=0, atol=1e-12)


def test_steps_that_are_not_finite_are_skipped_and_walked_back():
    def cliff(p):
        return jnp.where(p["x"] < 2.0, -p["x"] + jnp.asarray(0.0), jnp.nan)

    optimizer = optax.inject_hyperparams(optax.sgd)(optax.linear_schedule(4.0, 0.0, 10))
    found = fit(cliff, {"x": jnp.asarray(1.0)}, optimizer, steps=5, record=lambda p: p["x"])
    # 1 -> 5, which is over the cliff -> 1 + 4 / 2 = 3, as well -> 1 + 4 / 4 = 2, too -> 1.5; the schedule
    # counts steps taken only.
    np.testing.assert_array_equal(found.recorded, [1.0, 5.0, 3.0, 2.0, 1.5])
    np.testing.assert_array_equal(found.history.skipped, [False, True, True, True, False])
    assert found.history.learning_rate[4] == pytest.approx(3.6)
    assert found.skipped == 3
    assert (found.parameters["x"], found.best_step, found.loss) == (1.5, 4, -1.5)


def test_gradients_that_are_not_finite_are_skipped_too():
    def edge(p):
        return jnp.sqrt(jnp.abs(p["x"] - 1.0)) + p["x"]

    with pytest.raises(
        ValueError, match=r"the loss \(1.0\) or its gradient \(norm inf\) is not finite at the start"
    ):
        fit(edge, {"x": jnp.asarray(1.0)}, optax.sgd(0.1), steps=2)


def test_many_starts_are_fits_of_their_own():
    x = jnp.array([[1.0, -2.0], [4.0, 0.0], [0.5, 0.5]])
    arguments = {"optimizer": optax.adam(0.2), "steps": 5, "trainable": "x", "clip": 2.0}
    fixed = jnp.array([3.0, 2.0, 1.0])
    many = fit(bowl, {"x": x, "fixed": fixed}, starts=3, stacked=["fixed"], **arguments)
    assert many.history.loss.shape == (5, 3)
    for k in range(3):
        alone = fit(bowl, {"x": x[k], "fixed": fixed[k]}, **arguments)
        np.testing.assert_allclose(many.parameters["x"][k], alone.parameters["x"], rtol=1e-13)
        np.testing.assert_allclose(many.loss[k], alone.loss, rtol=1e-13)
        assert many.best_step[k] == alone.best_step
    np.testing.assert_array_equal(many.parameters["fixed"], fixed)


MISTAKES = {
    "optimizer": ({"optimizer": optax.adam}, TypeError, "call it: optax.adam"),
    "no optimizer": ({"optimizer": "adam"}, TypeError, "must be an optax optimizer"),
    "steps": ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
    "starts": ({"starts": 1.5}, TypeError, "starts must be an integer, got 1.5"),
    "clip": ({"clip": 0.0}, ValueError, "clip must be positive"),
    "every": (
        {"checkpoint": Checkpoint("x.npz", every=0)},
        ValueError,
        "checkpoint.every must be at least 1, got 0",
    ),
    "vector": ({"loss": lambda p: p["x"]}, ValueError, r"loss must return a scalar, got \(2,\)"),
    "vector of an item": (
        {"loss": lambda p, item: p["x"], "batch": jnp.ones(3)},
        ValueError,
        r"loss must return a scalar, got \(3, 2\)",
    ),
    "leaf": ({"trainable": "y"}, ValueError, "no leaf 'y'; available: fixed, x"),
}


@all_cases("name", MISTAKES)
def test_mistakes_are_named(name):
    change, kind, message = MISTAKES[name]
    arguments = {"loss": bowl, "parameters": START, "optimizer": optax.sgd(0.1), "steps": 2} | change
    with pytest.raises(kind, match=message):
        fit(**arguments)


# Checkpoints.


def rosenbrock(p):
    return (1.0 - p["x"][0]) ** 2 + 100.0 * (p["x"][1] - p["x"][0] ** 2) ** 2


def resumable(file, steps, **changes):
    arguments = {"loss": rosenbrock, "parameters": START, "trainable": "x", "clip": 10.0} | changes
    optimizer = arguments.pop(
        "optimizer", optax.inject_hyperparams(optax.adam)(optax.cosine_decay_schedule(0.1, 40))
    )
    checkpoint = None if file is None else Checkpoint(file, every=3)
    return fit(optimizer=optimizer, steps=steps, checkpoint=checkpoint, record=lambda p: p["x"], **arguments)


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def everything(found):
    return (
        found.parameters,
        found.last,
        found.loss,
        found.best_step,
        found.skipped,
        found.history,
        found.recorded,
    )


def test_a_continued_fit_is_the_uninterrupted_one(tmp_path):
    whole = resumable(None, 20)
    resumable(tmp_path / "fit.npz", 8)
    same(everything(resumable(tmp_path / "fit.npz", 20)), everything(whole))
    # And once more, where nothing is left to do.
    same(everything(resumable(tmp_path / "fit.npz", 20)), everything(whole))
    assert [path.name for path in tmp_path.iterdir()] == ["fit.npz"]


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    file = tmp_path / "fit.npz"
    resumable(file, 3)
    others = {
        "its fit started from different numbers": {"parameters": START | {"fixed": jnp.asarray(4.0)}},
        "a different loss, optimizer": {"clip": 9.0},
        "a different loss, optimizer, bound": {"optimizer": optax.adam(0.1)},
        "a different loss": {"loss": lambda p: rosenbrock(p) + 1e-9},
    }
    for message, change in others.items():
        with pytest.raises(ValueError, match=message):
            resumable(file, 6, **change)
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"is not a (valid )?checkpoint of a fit"):
        resumable(file, 6)


def test_a_checkpoint_from_which_no_fit_goes_on(tmp_path):
    file = tmp_path / "fit.npz"
    resumable(file, 3)
    meta, arrays = checkpoints.load(file)
    identity = {key: meta[key] for key in ("program", "numbers", "jax")}
    carried = [
        arrays[name]
        for name in sorted(arrays, key=lambda name: (len(name), name))
        if name.startswith("carried_")
    ]
    history = {name.removeprefix("history_"): x for name, x in arrays.items() if name.startswith("history_")}
    nan = [np.full_like(x, np.nan) if x.dtype.kind == "f" else x for x in carried]
    for numbers, told, message in (
        (nan, history, "non-finite numbers"),
        ([x[None] for x in carried], history, r"as carried_0, expected int32\(\)"),
        (carried[:-1], history, "holds nothing as carried_"),
        (carried, {name: x[:-1] for name, x in history.items()}, "holds 3 steps"),
        (carried, {}, "holds 3 steps"),
    ):
        checkpoints.write(file, numbers, told, identity)
        with pytest.raises(checkpoints.CheckpointError, match=message):
            resumable(file, 6)
    for damage in (
        lambda: file.write_bytes(b""),
        lambda: file.symlink_to("/dev/zero"),
        lambda: os.mkfifo(file),
        file.mkdir,
    ):
        file.unlink()
        damage()
        with pytest.raises(checkpoints.CheckpointError, match=r"is not a (valid )?checkpoint of a fit"):
            checkpoints.load(file)


PROGRAM = """
import pathlib, sys, time
import jax, jax.numpy as jnp, numpy as np, optax
jax.config.update("jax_enable_x64", True)
from jaxdae.tuning import Checkpoint, Positive, fit

def loss(p):
    return jnp.sum((jnp.sin(3.0 * p["x"]) - jnp.cumsum(p["x"]) / 7.0) ** 2)

folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
start = {"x": jnp.linspace(0.1, 1.3, 7)}
found = fit(
    loss,
    start,
    optax.adam(optax.exponential_decay(0.05, 50, 0.5)),
    steps=steps,
    trainable={"x": Positive()},
    progress=lambda k, step: (print(k, flush=True), time.sleep(0.005)),
    checkpoint=Checkpoint(folder / "fit.npz", every=3),
)
np.savez(folder / "result.npz", *jax.tree.leaves((found.parameters, found.last, found.loss, found.history)))
"""


@pytest.mark.long
def test_a_killed_fit_continues_bit_for_bit(tmp_path):
    """kill -9 in the middle of a process, a second one that continues, and a third that is left alone."""
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "killed").mkdir()
    (tmp_path / "whole").mkdir()

    def command(folder):
        return [sys.executable, str(tmp_path / "program.py"), str(tmp_path / folder), "150"]

    with subprocess.Popen(command("killed"), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 40:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    with np.load(tmp_path / "killed" / "fit.npz") as stored:
        history = stored["history_0"]
    assert len(history) >= 39
    assert np.all(np.isfinite(history))
    assert not (tmp_path / "killed" / "result.npz").exists()
    for folder, first in (("killed", 40), ("whole", 0)):
        done = subprocess.run(command(folder), capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stderr
        # Three steps from one checkpoint to the next.
        assert int(done.stdout.split()[0]) >= first - 2 * (first > 0)
    files = [tmp_path / folder / "result.npz" for folder in ("killed", "whole")]
    with np.load(files[0]) as a, np.load(files[1]) as b:
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["fit.npz", "result.npz"]
