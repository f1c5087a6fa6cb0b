"""The experiment `linkage_synthesis`: assembly against the closed form, starts that keep the branch, and a
search from a few of them.
"""

import importlib.util
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "linkage_synthesis", ROOT / "experiments" / "linkage_synthesis.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def linkage(experiment, side):
    numbers = {"direction": 0.3, "ground": 1.1, "ratio": 0.4, "spread": 0.3, "skew": -0.2, "side": side}
    arrays = {"pivot": [0.2, -0.1], "point": [0.5, 0.35], "angles": [0.4, 2.0]}
    return experiment.Linkage(**{name: jnp.asarray(value) for name, value in (numbers | arrays).items()})


def closed_form(one, angle):
    """Returns the tracing point from the intersection of the circles about B and D."""
    crank, coupler, rocker, ground = one.lengths()
    direction = lambda x: jnp.stack([jnp.cos(x), jnp.sin(x)])  # noqa: E731
    across = lambda x: jnp.stack([-x[1], x[0]])  # noqa: E731
    b = one.pivot + crank * direction(one.direction + angle)
    d = one.pivot + ground * direction(one.direction)
    span = jnp.linalg.norm(d - b)
    ahead = (coupler**2 - rocker**2 + span**2) / (2.0 * span)
    reach = jnp.sqrt(coupler**2 - ahead**2)
    arm = (ahead * (d - b) + one.side * reach * across(d - b)) / (span * coupler)
    return b + one.point[0] * arm + one.point[1] * across(arm)


@pytest.mark.long
@pytest.mark.parametrize("side", [1.0, pytest.param(-1.0, marks=pytest.mark.exhaustive)])
def test_assembly_and_its_derivative_are_those_of_the_closed_form(experiment, side):
    one, angles = linkage(experiment, side), jnp.linspace(0.0, 6.0, 7)

    def points(trace):
        return jax.jit(lambda x: jax.vmap(lambda angle: trace(x, angle))(angles))

    of_loop, of_circles = (
        points(lambda x, angle: x.assembled(angle)["point"]),
        points(lambda x, angle: closed_form(x, angle)),
    )
    np.testing.assert_allclose(of_loop(one), of_circles(one), rtol=0.0, atol=1e-13)
    names = ("pivot", "direction", "ground", "ratio", "spread", "skew", "point")

    def jacobian(function):
        free = {name: getattr(one, name) for name in names}
        return jax.jacfwd(lambda x: function(experiment.Linkage(**(vars(one) | x))))(free)

    ours, theirs = jacobian(of_loop), jacobian(of_circles)
    for name in names:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0.0, atol=1e-11, err_msg=name)


def test_the_unknowns_allow_crank_rockers_only(experiment):
    for ratio in (0.06, 0.5, 0.94):
        for skew in (-0.97, 0.0, 0.97):
            changes = {"ratio": jnp.asarray(ratio), "skew": jnp.asarray(skew), "spread": jnp.asarray(0.03)}
            crank, coupler, rocker, ground = experiment.Linkage(
                **(vars(linkage(experiment, 1.0)) | changes)
            ).lengths()
            assert crank < min(coupler, rocker, ground)
            assert abs(coupler - rocker) < ground - crank
            assert ground + crank < coupler + rocker


def test_order_along_the_turn(experiment):
    angles = np.array(
        [[0.1, 1.0, 3.0, 6.0], [6.0, 3.0, 1.0, 0.1], [-0.1, 0.2, 9.0, 4.0], [0.1, 3.0, 1.0, 6.0]]
    )
    np.testing.assert_array_equal(experiment.in_order(angles), [True, True, True, False])


def run(experiment, monkeypatch, out, *changes):
    monkeypatch.chdir(ROOT)
    arguments = [
        "linkage_synthesis.py",
        "--out",
        str(out),
        *(x for change in changes for x in ("--set", change)),
    ]
    monkeypatch.setattr(sys, "argv", arguments)
    return experiment.main()


@pytest.mark.exhaustive
def test_a_run(experiment, monkeypatch, tmp_path, capsys):
    changes = ("experiment.starts=6", "experiment.turn=12", "experiment.offsets=6")
    assert run(experiment, monkeypatch, tmp_path, *changes) == 0
    (folder,) = tmp_path.iterdir()
    assert {"linkage_synthesis.png", "linkage_synthesis.gif", "report.md", "run.json"} <= {
        path.name for path in folder.iterdir()
    }
    record = json.loads((folder / "run.json").read_text())
    assert len(record["linkages"]) >= 3
    for row in record["linkages"]:
        assert float(row["error, mm"]) <= 1.0
        assert 0.8 < float(row["ground, m"]) < 1.2
        assert float(row["least |sine|"]) > 0.0
    assert f"From {len(record['linkages'])} of 6 starts" in record["findings"][0].replace("**", "")
    assert str(folder) in capsys.readouterr().out


@pytest.mark.long
def test_mistakes_in_the_settings_are_named(experiment, monkeypatch, tmp_path, capsys):
    for change, message in (
        (
            "experiment.ground=[1.2, 0.8]",
            "experiment.ground: Value error, must be two positive lengths, the smaller one first",
        ),
        ("experiment.points=[[0.0, 0.0]]", "experiment.points: List should have at least 2 items"),
        ("experiment.starts=0", "experiment.starts: Input should be greater than 0"),
    ):
        assert run(experiment, monkeypatch, tmp_path, change) == 2
        assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())
