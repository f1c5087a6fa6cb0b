"""The recipes of docs/results.md, run as they are written; `make test-recipes` installs what they need."""

import importlib.util
import pathlib
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
from jaxdae import mechanisms as jm

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "results.md"
pytestmark = pytest.mark.long


def recipe(package, **names):
    """Runs the block of the page that imports a package; returns its names."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if re.search(rf"^import {package}\b", block, re.MULTILINE)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries
        exec(compile(code, f"{PAGE.name}: {package}", "exec"), names)
    return names


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with its results as CSV and NPZ, where there is somebody to read them."""
    if not any(importlib.util.find_spec(name) for name in ("pyarrow", "rerun")):
        pytest.skip("neither pyarrow nor rerun is installed: make test-recipes installs them")
    from typer.testing import CliRunner

    from jaxdae.app.cli import app

    out = tmp_path_factory.mktemp("recipes")
    short = ("duration=0.05", "save_every=10", "batch.size=2", "output.overlay=[0]")
    arguments = [word for one in short for word in ("--set", one)]
    config = PAGE.parents[1] / "configs" / "crank_rocker.yaml"
    assert CliRunner().invoke(app, ["run", str(config), "--out", str(out), *arguments]).exit_code == 0
    (folder,) = out.iterdir()
    for form in ("csv", "npz"):
        assert CliRunner().invoke(app, ["export", str(folder), "--format", form]).exit_code == 0
    return folder


def test_parquet(run, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="not installed: make test-recipes installs it")
    monkeypatch.chdir(tmp_path)
    frame = recipe("pandas", run=run)["pandas"].read_parquet("results.parquet")
    arrays = np.load(run / "results.npz")
    assert len(frame) == arrays["q"].shape[0] * arrays["q"].shape[1]
    name = str(arrays["coordinate"][2])
    np.testing.assert_array_equal(frame[f"q.{name}"][frame.world == 1], arrays["q"][1, :, 2])


def test_rerun(run, tmp_path, monkeypatch):
    pytest.importorskip("rerun", reason="not installed: make test-recipes installs it")
    monkeypatch.chdir(tmp_path)
    recipe("rerun", run=run)
    chunks = importlib.import_module("rerun.chunk").RrdReader("motion.rrd").stream()
    arrays, found = np.load(run / "results.npz"), {}
    for chunk in chunks:
        columns = chunk.to_record_batch().to_pydict()
        if "Scalars:scalars" in columns:
            found[chunk.entity_path] = np.ravel(columns["Scalars:scalars"])
    assert set(found) == {f"/q/{name}" for name in arrays["coordinate"]}
    for k, name in enumerate(arrays["coordinate"]):
        np.testing.assert_array_equal(found[f"/q/{name}"], arrays["q"][0, :, k])


def test_torch_step_has_the_derivative_of_jax():
    torch = pytest.importorskip("torch", reason="not installed: make test-recipes installs it")
    rod = jm.Body("rod", mass=1.0, inertia=1 / 12, pose=(0.5, 0.0, 0.0))
    mechanism, _ = jm.planar_mechanism(
        [rod],
        [jm.Revolute("hinge", jm.GROUND, "rod", at=(0.0, 0.0))],
        [jm.Torque("motor", jm.GROUND, "rod", torque=0.0, input=0)],
    )
    integrator = jaxdae.Projected(jaxdae.RungeKutta.rk4())
    step = recipe("torch")["torch_step"](mechanism, integrator, 1e-2, steps=3)
    angle, torque = (torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (0.3, 2.0))

    def placed(angle, module):
        return module.concatenate([0.5 * module.cos(angle), 0.5 * module.sin(angle), angle])

    v = torch.zeros(3, dtype=torch.float64)
    at, rates = placed(angle, torch), v
    for _ in range(2):
        at, rates = step(at, rates, torque)
    loss = (at[2] - 1.0) ** 2 + 0.1 * rates[2] ** 2
    loss.backward()

    def same(angle, torque):
        start = jaxdae.State(0.0, placed(angle, jnp), jnp.zeros(3))
        end = jaxdae.rollout(mechanism, integrator, start, jnp.broadcast_to(torque, (6, 1)), dt=1e-2).state
        return (end.q[-1, 2] - 1.0) ** 2 + 0.1 * end.v[-1, 2] ** 2

    value, slopes = jax.value_and_grad(same, argnums=(0, 1))(jnp.array([0.3]), jnp.array([2.0]))
    # The same operations, compiled apart.
    np.testing.assert_allclose(loss.item(), value, rtol=1e-13)
    np.testing.assert_allclose([angle.grad.item(), torque.grad.item()], np.concatenate(slopes), rtol=1e-11)
