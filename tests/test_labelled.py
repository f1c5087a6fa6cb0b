"""Trajectories as data sets."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
from jaxdae import mechanisms as jm


def trajectory(*lead):
    """Returns numbers in the shape of what a pendulum does."""
    state = jaxdae.State(
        jnp.broadcast_to(jnp.arange(3.0), lead),
        jnp.arange(3.0 * np.prod(lead)).reshape(*lead, 3),
        jnp.ones((*lead, 3)),
    )
    zero = jnp.zeros(lead)
    info = jaxdae.interfaces.StepInfo(
        jnp.ones((*lead, 3)), 2.0 * jnp.ones((*lead, 2)), zero, zero, zero.astype(int), zero.astype(int)
    )
    return jaxdae.Trajectory(state, info)


def test_names_and_units_are_those_of_the_mechanism():
    bob = jm.Body("bob", mass=2.0, inertia=0.1, pose=(1.0, 0.0, 0.0))
    mechanism, _ = jm.planar_mechanism([bob], [jm.Revolute("pin", jm.GROUND, "bob", at=(0, 0))], [])
    data = trajectory(2, 3).to_xarray(mechanism)
    assert dict(data.sizes) == {"world": 2, "time": 3, "coordinate": 3, "velocity": 3, "row": 2}
    np.testing.assert_array_equal(data.time.values, [0, 1, 2])
    assert float(data.q.sel(coordinate="bob.theta").isel(world=1, time=2)) == 17.0
    assert str(data.coordinate_unit.sel(coordinate="bob.theta").item()) == "rad"
    assert float(data.lam.sel(row="pin.y", time=1.0).isel(world=0)) == 2.0
    assert data.status.dtype.kind == "i"


def test_numbers_where_nobody_has_named_them():
    data = trajectory(3).to_xarray()
    assert data.q.dims == ("time", "coordinate")
    assert list(data.row.values) == ["row 0", "row 1"]
    assert float(data.q.sel(coordinate="q1", time=0.0)) == pytest.approx(1.0)


def test_times_are_those_of_worlds_that_go_on():
    """A world that failed stops its clock."""
    whole = trajectory(2, 3)
    stopped = whole.state.t.at[0, 1:].set(whole.state.t[0, 0])
    data = dataclasses.replace(whole, state=dataclasses.replace(whole.state, t=stopped)).to_xarray()
    np.testing.assert_array_equal(data.time, whole.state.t[1])
