"""Solvers in configs: their options reach the library, and auto is resolved before anything runs."""

import pytest
from all_cases import all_cases
from catalogue import SOLVERS

import jaxdae
from jaxdae.app import load

CRANK = """
name: parallelogram
mechanism:
  bodies:
    - {name: crank0, mass: 1.0, inertia: 0.08, pose: [0, 0.5, 1.5707963267948966]}
    - {name: crank1, mass: 1.0, inertia: 0.08, pose: [1, 0.5, 1.5707963267948966]}
    - {name: coupler, mass: 1.0, inertia: 0.4, pose: [1, 1, 0]}
  joints:
    - {type: revolute, name: foot0, a: ground, b: crank0, at: [0, 0]}
    - {type: revolute, name: foot1, a: ground, b: crank1, at: [1, 0]}
    - {type: revolute, name: tip0, a: crank0, b: coupler, at: [0, 1]}
    - {type: revolute, name: tip1, a: crank1, b: coupler, at: [1, 1]}
duration: 0.1
dt: 0.01
"""
THIRD_BODY = "    - {name: crank2, mass: 1.0, inertia: 0.08, pose: [2, 0.5, 1.5707963267948966]}\n  joints:\n"
THIRD_JOINTS = """    - {type: revolute, name: foot2, a: ground, b: crank2, at: [2, 0]}
    - {type: revolute, name: tip2, a: crank2, b: coupler, at: [2, 1]}
duration"""
REDUNDANT = CRANK.replace("  joints:\n", THIRD_BODY).replace("duration", THIRD_JOINTS)


@pytest.fixture
def loaded(tmp_path):
    def load_text(text, *overrides):
        file = tmp_path / "config.yaml"
        file.write_text(text)
        config, worlds = load(str(file), overrides)
        return config, worlds.one()[1].integrator.solver

    return load_text


# Rows that are settings of others in a config: see `test_options`.
SETTINGS = ("null_space_qr", "null_space_normal")


@pytest.mark.long
@all_cases("name", [name for name in SOLVERS if name not in SETTINGS])
def test_names(loaded, name):
    config, solver = loaded(CRANK, f"solver={name}")
    assert type(solver) is type(SOLVERS[name].solver)
    assert config.solver.type == name


@pytest.mark.long
def test_options(loaded):
    _, solver = loaded(CRANK, "solver={type: null_space, decomposition: svd, tolerance: 1e-7}")
    assert float(solver.decomposition.tolerance) == 1e-7
    _, solver = loaded(CRANK, "solver={type: null_space, decomposition: qr}")
    assert isinstance(solver.decomposition, jaxdae.operators.HouseholderQR)
    _, solver = loaded(CRANK, "solver={type: proximal, regularization: 1e-6, iterations: 7}")
    assert (float(solver.regularization), solver.iterations) == (1e-6, 7)
    _, solver = loaded(CRANK, "solver={type: conjugate_gradient, max_iterations: 9}")
    assert solver.max_iterations == 9


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        pytest.param(CRANK, jaxdae.SchurComplement, "schur_complement", marks=pytest.mark.exhaustive),
        (REDUNDANT, jaxdae.LeastSquares, "least_squares"),
    ],
    ids=["independent", "dependent"],
)
def test_auto_is_resolved_in_the_config_too(loaded, text, kind, name):
    config, solver = loaded(text, "solver=auto")
    assert type(solver) is kind
    # The run folder then says what was used, and repeating the run cannot choose otherwise.
    assert config.solver.type == name
    if name == "least_squares":
        assert config.solver.tolerance == float(solver.tolerance)
