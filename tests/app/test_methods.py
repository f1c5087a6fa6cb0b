"""Integrators in configs: every name and option reaches the library."""

import types

import diffrax
import jax
import pytest
from all_cases import all_cases
from catalogue import METHODS, POSITIONS, every

import jaxdae as jd
import jaxdae.control
from jaxdae.app.config.schema import Config
from jaxdae.app.model.build import integrator, stepping

BODY = {"name": "rod", "mass": 1.0, "inertia": 0.1, "pose": [1, 0, 0], "free": True}
FREE = {"name": "test", "mechanism": {"bodies": [BODY]}, "duration": 1.0, "dt": 0.01}


def built(method, **others):
    return integrator(Config.model_validate(FREE | {"integrator": method} | others).model_dump())


# Rows that are settings of others in a config: see `test_options`.
SETTINGS = ("discrete_euler_lagrange_trapezoidal", "generalized_alpha_undamped", "kahan_li6_of_midpoint")


@all_cases(
    "name",
    [name for name in every(METHODS, lambda method: POSITIONS in method.closed) if name not in SETTINGS],
)
def test_methods_that_keep_the_constraints_are_not_projected(name):
    expected = METHODS[name].integrator
    # Configs give the parts of compositions more corrections.
    method = (
        {"type": name, "iterations": expected.integrator.iterations}
        if METHODS[name].family == "composition"
        else name
    )
    assert jax.tree.structure(built(method)) == jax.tree.structure(expected)


@pytest.mark.parametrize(
    ("name", "kind"), [("adaptive", jd.diffrax.Adaptive), ("velocity_stepping", jd.control.VelocityStepping)]
)
def test_methods_that_are_projected_within_are_not(name, kind):
    assert type(built(name)) is kind


@all_cases("name", every(METHODS, lambda method: POSITIONS not in method.closed))
def test_methods_that_drift_are(name):
    method, bare = built(name), built({"type": name, "projection": "none"})
    assert isinstance(method, jd.Projected)
    for found in (method.integrator, bare):
        assert jax.tree.structure(found) == jax.tree.structure(METHODS[name].integrator)


def test_the_method_of_munthe_kaas_is_the_classical_one():
    assert built("rkmk4").integrator.tableau == jd.RungeKutta.rk4().tableau


def test_options():
    assert built("shake").velocity_level is False
    assert built({"type": "rattle", "iterations": 3}).iterations == 3
    assert isinstance(
        built({"type": "discrete_euler_lagrange", "lagrangian": "trapezoidal"}).lagrangian,
        jd.TrapezoidalLagrangian,
    )
    method = built({"type": "generalized_alpha", "rho_inf": 0.5, "factorizations": 2, "tolerance": 1e-6})
    assert (float(method.rho_inf), method.newton.factorizations, float(method.newton.tolerance)) == (
        0.5,
        2,
        1e-6,
    )
    method = built({"type": "backward_euler", "newton": "saddle_point", "iterations": 9})
    assert isinstance(method.newton, jd.SaddlePointNewton)
    assert method.newton.iterations == 9
    with pytest.raises(ValueError, match=r"factorizations 2 with newton saddle_point"):
        built({"type": "radau_iia", "newton": "saddle_point", "factorizations": 2})
    method = built({"type": "kahan_li6", "of": "implicit_midpoint", "iterations": 7}, solver="dense_kkt")
    assert method.coefficients == jd.Composition.kahan_li6(jd.Rattle()).coefficients
    assert isinstance(method.integrator, jd.ImplicitMidpoint)
    assert method.integrator.newton.iterations == 7
    assert isinstance(method.solver, jd.DenseKKT)
    assert float(built({"type": "velocity_stepping", "beta": 0.2}).beta) == 0.2
    with pytest.raises(ValueError, match="less than 2"):
        built({"type": "velocity_stepping", "beta": 2.0})
    method = built({"type": "radau_iia", "projection": {"position": "none"}})
    assert isinstance(method, jd.Projected)
    assert method.projection.position is None
    method = built(
        {
            "type": "adaptive",
            "method": "tsit5",
            "rtol": 1e-5,
            "atol": 1e-4,
            "max_steps": 9,
            "projection": "none",
        }
    )
    assert isinstance(method.method, diffrax.Tsit5)
    assert (float(method.rtol), float(method.atol), method.max_steps, method.projection) == (
        1e-5,
        1e-4,
        9,
        None,
    )


def test_routes():
    for name, kind in (
        ("sequential", jd.textbook.Sequential),
        ("projected_step", jd.textbook.ProjectedStep),
        ("projected_derivative", jd.textbook.ProjectedDerivative),
    ):
        method = built(
            {"type": name, "of": "heun"},
            solver="dense_kkt",
            stabilization={"type": "baumgarte", "alpha": 1.0, "beta": 1.0},
        )
        assert type(method) is kind
        assert method.integrator.tableau == jd.RungeKutta.heun().tableau
        assert isinstance(method.integrator.solver, jd.DenseKKT)
        assert isinstance(method.integrator.stabilization, jd.Baumgarte)
    with pytest.raises(ValueError, match=r"projected_derivative of taylor.*choose rk4"):
        built({"type": "projected_derivative", "of": "taylor"})


def test_a_stabilization_needs_a_method_that_lets_constraints_drift():
    feedback = {"type": "baumgarte", "alpha": 1.0, "beta": 1.0}
    assert isinstance(built("adaptive", stabilization=feedback).stabilization, jd.Baumgarte)
    with pytest.raises(
        ValueError,
        match=r"stabilization baumgarte with integrator rattle.*remove stabilization: rattle satisfies",
    ):
        built("rattle", stabilization=feedback)


def test_contact_stepping():
    shapes = {"shape_a": {"type": "line"}, "shape_b": {"type": "disc", "radius": 0.1}}
    floor = {"name": "floor", "a": "ground", "b": "rod", **shapes}
    given = {"type": "contact_stepping", "corrections": 3}
    mechanism, touching = {"bodies": [BODY], "contacts": [floor]}, types.SimpleNamespace(touches=True)
    step = {"solver": {"type": "robust", "interior": 0}, "most": 1, "tolerance": 1e-4}
    values = FREE | {"integrator": given, "mechanism": mechanism, "contact_step": step}
    method = stepping(Config.model_validate(values).model_dump(), touching)
    robust = jd.contact.Robust.quick()
    expected = jd.contact.ContactStepping(corrections=3, contact_solver=robust, most=1, tolerance=1e-4)
    assert repr(method) == repr(expected)
    with pytest.raises(ValueError, match="contact_stepping without contacts"):
        built(given)
    with pytest.raises(ValueError, match="contact_stepping with the restitution of floor"):
        built(given, mechanism={"bodies": [BODY], "contacts": [floor | {"restitution": 0.5}]})
