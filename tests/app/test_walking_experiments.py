"""Return maps of a walker and of a rimless wheel, against references in extended precision."""

import importlib.util
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd

ROOT = pathlib.Path(__file__).parents[2]


def experiment(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "experiments" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    reference = json.loads((ROOT / "tests" / "reference" / "contact" / f"{name}.json").read_text())
    return module, reference["cases"]


def scalars(case):
    return {entry["name"]: entry["value"] for entry in case["scalars"]}


@pytest.mark.exhaustive
def test_gaits_of_the_simplest_walker():
    """Newton's method from two digits finds both gaits, of which one is unstable, and their eigenvalues."""
    module, cases = experiment("simplest_walker")
    walker = module.Walker(jnp.asarray(0.009))

    @jax.jit
    @jax.vmap
    def mapped(x):
        def both(x):
            image, end = module.stride(walker, x, 1e-3, 4500)
            return image, (image, end)

        return jax.jacfwd(both, has_aux=True)(x)

    x = jnp.array([[0.2, -0.2], [0.194, -0.204]])
    for _ in range(7):
        jacobian, (image, end) = mapped(x)
        x = x + jnp.linalg.solve(jnp.eye(2) - jacobian, (image - x)[..., None])[..., 0]
    np.testing.assert_array_equal(end.info.status, jd.Status.OK)
    for k, case in enumerate(cases):
        exact = scalars(case)
        # RK4 at 1e-3: (h omega)^4 = 1e-12; the strong curvature of the map multiplies its error by up to 10.
        wanted = [exact["theta_star"], exact["theta_rate_star"]]
        np.testing.assert_allclose(x[k], wanted, rtol=0, atol=1e-13)
        np.testing.assert_allclose(end.state.t[k], exact["period"], rtol=0, atol=1e-12)
        eigenvalues = np.sort_complex(np.linalg.eigvals(jacobian[k]))
        wanted = np.sort_complex([complex(*exact[f"eigenvalue_{i}"]) for i in (1, 2)])
        np.testing.assert_allclose(eigenvalues, wanted, rtol=0, atol=1e-11)


@pytest.mark.exhaustive
def test_starts_near_the_stable_gait_reach_it():
    module, cases = experiment("simplest_walker")
    fixed, other = (jnp.array([scalars(c)["theta_star"], scalars(c)["theta_rate_star"]]) for c in cases)
    starts = jnp.stack([fixed, fixed + 1e-3, other, fixed - jnp.array([0.05, 0.0])])
    arrived = module.attracted(module.Walker(jnp.asarray(0.009)), fixed, starts, 0.05, 160, 15)
    assert arrived[0] == 0
    assert 0 < arrived[1] < 10  # 0.589 per step
    np.testing.assert_array_equal(arrived[2:], -1)


@pytest.fixture(scope="module")
def wheel():
    module, cases = experiment("rimless_wheel")
    numbers = (jnp.asarray(1.0), jnp.asarray(0.1), 9.81 * jnp.array([np.sin(0.08), -np.cos(0.08)]))
    return module, cases, lambda ends: module.Wheel(*numbers, 8, ends)


@pytest.mark.exhaustive
def test_return_map_of_the_rimless_wheel(wheel):
    module, (case, _), system = wheel
    exact = scalars(case)
    rate, slope, period = module.periodic(system(2), 1.5, 2e-3, 700, 6)
    # RK4 at 2e-3: (h omega)^4 = 2e-10 / 120 for omega^2 = g / l.
    np.testing.assert_allclose(rate, exact["rate_after"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(period, exact["period"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(slope, exact["eigenvalue"], rtol=0, atol=1e-10)


@pytest.mark.exhaustive
def test_motion_of_the_rimless_wheel(wheel):
    """Friction keeps the feet: slip rows follow the height rows, and two feet on the ground are redundant."""
    module, (_, case), system = wheel
    initial = case["initial_conditions"]
    start = jd.State(jnp.zeros(()), jnp.asarray(initial["q"]), jnp.asarray(initial["v"]))
    motion = module.moved(system(8), start, 2e-3, 1500)
    for state in case["reference"]["states"]:
        k = round(state["t"] / 2e-3) - 1
        np.testing.assert_allclose(motion.state.q[k], state["q"], rtol=0, atol=1e-10)
        np.testing.assert_allclose(motion.state.v[k], state["v"], rtol=0, atol=1e-10)
    instants = np.unique(motion.info.switched)[1:]
    np.testing.assert_allclose(instants, [x["t"] for x in case["reference"]["events"]], rtol=0, atol=1e-10)
    total = np.asarray(motion.info.impulse)
    at = np.flatnonzero(np.any(np.diff(total, axis=0) != 0.0, axis=1)) + 1
    after = module.after_impacts(system(8), motion, at)
    for k, event in enumerate(case["reference"]["events"]):
        np.testing.assert_allclose(after[k], -float(event["v_plus_hp"][2]), rtol=0, atol=1e-10)
        impulse = total[at[k]] - total[at[k] - 1]
        normal, along = np.array(event["impulses_hp"][f"spoke{k + 1}"], float)
        np.testing.assert_allclose(impulse[[k + 1, k + 9]], [normal, along], rtol=0, atol=1e-10)
