"""Levenberg-Marquardt: against SciPy and closed forms, its covariance against statistics, its failures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import jaxdae
from jaxdae.tuning import Between, Entries, Positive, least_squares

TIMES = jnp.linspace(0.0, 2.0, 40)
TRUE = {"amplitude": 2.0, "rate": 1.5, "offset": -0.3}


def model(p):
    return p["amplitude"] * jnp.exp(-p["rate"] * TIMES) + p["offset"]


@pytest.fixture(scope="module")
def data():
    return model(TRUE) + 0.01 * np.random.default_rng(0).standard_normal(40)


def test_it_finds_what_scipy_finds(data):
    start = {"amplitude": jnp.asarray(1.0), "rate": jnp.asarray(1.0), "offset": jnp.asarray(0.1)}
    bounds = {"amplitude": Positive(), "rate": Between(0.0, 10.0), "offset": Between(-1.0, 1.0)}
    found = least_squares(lambda p: model(p) - data, start, trainable=bounds)
    assert found.status == jaxdae.Status.OK
    assert found.paths == ("amplitude", "offset", "rate")
    names = found.paths
    fitted, covariance = scipy.optimize.curve_fit(
        lambda t, *x: np.asarray(model(dict(zip(names, x, strict=True)))), TIMES, data, p0=[1.0, 0.1, 1.0]
    )
    # SciPy stops at a relative reduction of 1e-8 and takes forward differences.
    np.testing.assert_allclose([found.parameters[name] for name in names], fitted, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-4)
    np.testing.assert_allclose(
        [found.standard_error[name] for name in names], np.sqrt(np.diag(covariance)), rtol=1e-4
    )
    assert found.standard_deviation == pytest.approx(np.sqrt(2.0 * found.cost / 37), rel=1e-12)
    assert found.gradient < 1e-7


def test_a_line_in_closed_form():
    x, y = jnp.array([0.0, 1.0, 2.0, 4.0]), jnp.array([1.0, 2.0, 2.0, 5.0])
    design = np.stack([np.ones(4), x], axis=1)
    found = least_squares(
        lambda p: jnp.asarray(design) @ p["c"] - y, {"c": jnp.zeros(2)}, standard_deviation=0.5
    )
    expected = np.linalg.lstsq(design, np.asarray(y), rcond=None)[0]
    # Iterations end where a step is below sqrt(eps) of the numbers.
    np.testing.assert_allclose(found.parameters["c"], expected, rtol=1e-8)
    np.testing.assert_allclose(found.covariance, 0.25 * np.linalg.inv(design.T @ design), rtol=1e-12)


def test_the_delta_method_gives_the_covariance_of_the_leaf_itself():
    y = jnp.array([2.0, 2.2, 1.9, 2.1])
    plain = least_squares(lambda p: p["x"] - y, {"x": jnp.asarray(1.0)})
    logarithmic = least_squares(lambda p: p["x"] - y, {"x": jnp.asarray(1.0)}, trainable={"x": Positive()})
    np.testing.assert_allclose(plain.parameters["x"], 2.05, rtol=1e-8)
    np.testing.assert_allclose(plain.standard_error["x"], np.std(np.asarray(y), ddof=1) / 2.0, rtol=1e-8)
    np.testing.assert_allclose(logarithmic.covariance, plain.covariance, rtol=1e-7)


@pytest.fixture(scope="module")
def many(data):
    """Sixteen starts in one program, with data of their own; also bad ones."""

    def residual(p):
        return model(p["curve"]) - p["data"]

    def one(rate, curve):
        start = {
            "curve": {"amplitude": jnp.asarray(1.0), "rate": rate, "offset": jnp.asarray(0.0)},
            "data": curve,
        }
        return least_squares(residual, start, trainable="curve", iterations=60)

    noise = 0.01 * np.random.default_rng(1).standard_normal((16, 40))
    return jax.jit(jax.vmap(one))(jnp.linspace(0.3, 4.0, 16), model(TRUE) + noise)


def test_many_starts_at_once(many):
    assert np.all(np.asarray(many.status) == jaxdae.Status.OK)
    assert many.covariance.shape == (16, 3, 3)
    rate = np.asarray(many.parameters["curve"]["rate"])
    error = np.asarray(many.standard_error["curve.rate"])
    # A normal variable is beyond three of its standard deviations once in 370 times.
    assert np.all(np.abs(rate - 1.5) < 3.0 * error)
    assert np.std(rate) == pytest.approx(np.mean(error), rel=0.5)
    assert np.asarray(many.iterations).max() < 20


def test_entries_and_fixed_leaves():
    start = {"x": jnp.array([5.0, 7.0]), "y": jnp.asarray(2.0)}
    found = least_squares(
        lambda p: p["x"] * p["y"] - jnp.array([2.0, 3.0]),
        start,
        trainable={"x": Entries(np.array([False, True]))},
    )
    np.testing.assert_allclose(found.parameters["x"], [5.0, 1.5], rtol=1e-8)
    assert found.parameters["y"] == 2.0
    assert found.standard_error["x"].shape == (1,)


def test_what_the_data_do_not_determine():
    start = {"a": jnp.asarray(1.0), "b": jnp.asarray(1.0)}
    sums = least_squares(
        lambda p: (p["a"] + p["b"]) * jnp.array([1.0, 1.0, 2.0]) - jnp.array([3.0, 3.1, 6.0]), start
    )
    assert sums.parameters["a"] + sums.parameters["b"] == pytest.approx(18.1 / 6.0, rel=1e-6)
    assert np.all(np.isinf(sums.covariance))
    few = least_squares(lambda p: jnp.stack([p["a"] + p["b"] - 3.0]), start)
    assert few.cost < 1e-20
    assert np.all(np.isinf(few.covariance))
    as_many = least_squares(lambda p: jnp.stack([p["a"] - 1.5, p["b"] - 3.0]), start)
    assert np.all(np.isinf(as_many.covariance))


def test_trials_that_are_not_finite_shorten_the_step():
    # From 4 the undamped step of log(x) ends at 4 - 4 log 4 < 0, where there is no logarithm.
    found = least_squares(lambda p: jnp.log(p["x"])[None], {"x": jnp.asarray(4.0)}, damping=1e-12)
    assert found.status == jaxdae.Status.OK
    assert found.parameters["x"] == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_short_steps_before_an_edge_are_no_convergence(dtype):
    # The minimum is x = 2 / 1.09, where residuals are not finite: trials come to rest before x = 1.
    def residual(p):
        return jnp.stack([jnp.where(p["x"] < 1.0, p["x"] - 2.0, jnp.nan), 0.3 * p["x"]])

    found = least_squares(residual, {"x": jnp.asarray(0.5, dtype)}, iterations=100)
    assert found.status == jaxdae.Status.NOT_CONVERGED
    assert found.parameters["x"] == pytest.approx(1.0, abs=1e-3)
    assert found.gradient > 0.8


def test_steps_are_shortened():
    # Undamped, the first step would be 6 in log x.
    start, bounds = {"x": jnp.asarray(np.exp(-6.0))}, {"x": Positive()}
    run = {
        n: least_squares(lambda p: jnp.log(p["x"])[None], start, trainable=bounds, iterations=n, max_step=0.5)
        for n in (1, 4, 30)
    }
    np.testing.assert_allclose([np.log(run[n].parameters["x"]) for n in (1, 4)], [-5.5, -4.0], rtol=1e-12)
    assert run[30].status == jaxdae.Status.OK
    assert run[30].iterations <= 16
    np.testing.assert_allclose(run[30].parameters["x"], 1.0, rtol=1e-8)


@pytest.mark.long
def test_few_residuals_of_many_numbers():
    """By reverse mode."""
    weights = jnp.linspace(0.5, 2.0, 8)
    found = least_squares(lambda p: (weights @ p["x"] - 1.0)[None], {"x": jnp.zeros(8)}, damping=1e-12)
    assert found.status == jaxdae.Status.OK
    np.testing.assert_allclose(weights @ found.parameters["x"], 1.0, rtol=1e-8)
    bent = least_squares(
        lambda p: jnp.sin(jnp.sum(p["x"]) + jnp.arange(2.0)), {"x": jnp.zeros(8)}, iterations=20
    )
    # The minimum of sin(s)^2 + sin(s + 1)^2.
    np.testing.assert_allclose(jnp.sum(bent.parameters["x"]), -0.5, rtol=1e-6)


def test_too_few_iterations_are_told(data):
    start = {"amplitude": jnp.asarray(1.0), "rate": jnp.asarray(5.0), "offset": jnp.asarray(0.1)}
    assert least_squares(lambda p: model(p) - data, start, iterations=2).status == jaxdae.Status.NOT_CONVERGED


@pytest.mark.long
def test_mistakes_are_named():
    for change in ({"iterations": 0}, {"damping": -1.0}, {"max_step": 0.0}, {"tolerance": 0.0}):
        with pytest.raises(ValueError, match=f"{next(iter(change))} must be positive"):
            least_squares(lambda p: p["x"], {"x": jnp.ones(2)}, **change)
    with pytest.raises(ValueError, match="no leaf 'z'"):
        least_squares(lambda p: p["x"], {"x": jnp.ones(2)}, trainable="z")
