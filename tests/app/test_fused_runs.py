"""Runs of the command by fused kernels: resumed, divided and recorded like runs by XLA."""

import re

import jax
import numpy as np
import problems
import pydantic
import pytest
import xarray as xr
from small_runs import SWING, assert_equal, command, only

import jaxdae
from jaxdae.app.config.schema import Config, Layout
from jaxdae.app.jobs import shares
from jaxdae.app.model.load_config import load
from jaxdae.app.runs import run_folder
from jaxdae.app.runs.run_identity import identity
from jaxdae.fused import FallbackWarning

REASON = (
    "no fused kernel: the environment variable CXX names /no/compiler, which is not an executable; set "
    "CXX to g++ or clang++"
)
BODY = {"name": "b", "mass": 1, "inertia": 1, "pose": [0, 0, 0], "free": True}
FREE = {"name": "a", "mechanism": {"bodies": [BODY]}, "duration": 1.0, "dt": 0.1}
FUSED = SWING.replace("size: 100", "size: 20") + "layout: {kernel: fused}\n"


def test_the_kernel_is_a_part_of_the_identity(monkeypatch):
    """The last digits depend on it. Jobs with and without a kernel therefore do not share a folder, which
    `config` names.
    """
    long = {"batch": {"size": 100_000}}
    plain, fused, chunked, automatic = (
        identity(Config.model_validate(FREE | fields))
        for fields in ({}, {"layout": {"kernel": "fused"}}, {"layout": {"kernel": "none", "chunk": 3}}, long)
    )
    assert plain == chunked
    assert automatic["kernel"] == fused["kernel"]
    assert identity(Config.model_validate(FREE | long | {"layout": {"kernel": "none"}}))["kernel"] == "none"
    assert {key for key in plain if plain[key] != fused[key]} == {"config", "kernel"}
    assert (plain["kernel"], fused["kernel"].startswith("fused, ")) == ("none", True)
    monkeypatch.setenv("CXX", "/no/compiler")
    without = identity(Config.model_validate(FREE | {"layout": {"kernel": "fused"}}))
    assert {key for key in fused if fused[key] != without[key]} == {"kernel"}
    assert without["kernel"] == "fused, no compiler"
    with pytest.raises(pydantic.ValidationError, match="Input should be 'auto', 'none' or 'fused'"):
        Layout.model_validate({"kernel": "cuda"})


@pytest.mark.long
def test_every_rollout_without_a_kernel_states_the_reason(monkeypatch):
    """Not only the first one, which is traced."""
    monkeypatch.setenv("CXX", "/no/compiler")
    starts = jaxdae.State(np.zeros(3), np.tile([0.0, -1.0], (3, 1)), np.outer([0.1, 0.2, 0.3], [1.0, 0.0]))
    given = problems.Pendulum(*np.array([1.3, 1.0, 9.81])), jaxdae.SemiImplicitEuler(), starts
    expected = jaxdae.batch_rollout(*given, dt=1e-3, steps=2)
    for _ in range(2):
        with pytest.warns(FallbackWarning, match=re.escape(REASON)):
            found = jaxdae.batch_rollout(
                *given, dt=1e-3, steps=2, layout=jaxdae.Layout(kernel=jaxdae.Fused())
            )
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the config and its own cache of kernels; the loops are closed once."""
    place = tmp_path_factory.mktemp("fused")
    (place / "swing.yaml").write_text(FUSED)
    swing = load(str(place / "swing.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxdae.app.model.load_config.load", lambda *arguments: swing)
        patch.setenv("JAXDAE_KERNELS", str(place / "kernels"))
        yield place


class Killed(BaseException):
    """Stands for the end of a process that cannot do anything more."""


@pytest.mark.exhaustive
def test_a_fused_run_is_resumed_and_divided_bit_for_bit(place, tmp_path, monkeypatch):
    code, out, err = command("run", place / "swing.yaml", "--out", tmp_path / "whole")
    whole = only(tmp_path / "whole")
    assert (code, err) == (0, "")
    assert len(re.findall(r"compiling a kernel of [\d,]+ operations\n", out)) == 1
    record = run_folder.read_record(whole)
    assert record["layout"]["kernel"] == "fused"
    assert "fallback" not in record["layout"]
    assert record["identity"]["kernel"].startswith("fused, ")
    # On one core, with the kernel from the cache.
    code, out, _ = command("run", place / "swing.yaml", "--out", tmp_path / "one", "--devices", 1)
    assert (code, "compiling a kernel" in out) == (0, False)
    assert_equal(only(tmp_path / "one"), whole)
    # Killed after seven blocks.
    add, blocks = shares.Metrics.add, []

    def killing(self, *arguments):
        add(self, *arguments)
        blocks.append(arguments)
        if len(blocks) == 7:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shares, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        patch.setattr(shares.Metrics, "add", killing)
        with pytest.raises(Killed):
            command("run", place / "swing.yaml", "--out", tmp_path / "killed")
    assert command("run", "--resume", only(tmp_path / "killed"))[0] == 0
    assert_equal(only(tmp_path / "killed"), whole)
    # By XLA, to round-off.
    config, worlds = load(str(place / "swing.yaml"))
    plain = config.model_copy(update={"layout": config.layout.model_copy(update={"kernel": "none"})})
    monkeypatch.setattr("jaxdae.app.model.load_config.load", lambda *arguments: (plain, worlds))
    assert command("run", place / "swing.yaml", "--out", tmp_path / "xla")[0] == 0
    assert run_folder.read_record(only(tmp_path / "xla"))["layout"]["kernel"] == "xla"
    with (
        xr.open_zarr(whole / "results.zarr") as fused,
        xr.open_zarr(only(tmp_path / "xla") / "results.zarr") as by_xla,
    ):
        for name in ("q", "v", "a", "lam", "work"):
            np.testing.assert_allclose(fused[name].values, by_xla[name].values, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(fused.status, by_xla.status)


@pytest.mark.exhaustive
def test_the_record_states_why_xla_runs_a_config(place, tmp_path, monkeypatch):
    """Also in the second run of a process, which traces no program."""
    monkeypatch.setenv("CXX", "/no/compiler")
    config, worlds = load(str(place / "swing.yaml"), ("batch.size=3",))
    monkeypatch.setattr("jaxdae.app.model.load_config.load", lambda *arguments: (config, worlds))
    for name in ("first", "second"):
        with pytest.warns(FallbackWarning, match=re.escape(REASON)):
            assert command("run", place / "swing.yaml", "--out", tmp_path / name)[0] == 0
        record = run_folder.read_record(only(tmp_path / name))
        assert record["layout"]["kernel"] == "xla"
        assert record["layout"]["fallback"] == f"{REASON}. XLA runs the program"
        assert record["identity"]["kernel"] == "fused, no compiler"
