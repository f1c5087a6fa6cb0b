"""Trained leaves: named by path, bounded by construction."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases

import jaxdae
from jaxdae.tuning import AtLeast, AtMost, Between, Entries, Positive, Unbounded, reparametrize

PARAMETERS = {
    "gains": jaxdae.Baumgarte(10.0, jnp.asarray(5.0)),
    "state": jaxdae.State(jnp.asarray(0.0), jnp.array([0.5, -0.25, 2.0]), jnp.zeros(3)),
    "steps": 7,
}

BOUNDS = {
    "positive": (Positive(), [1e-8, 1.0, 3e7]),
    "at least": (AtLeast(-1.0, scale=0.1), [-1.0 + 1e-9, 0.0, 1e4]),
    "at least an array": (AtLeast(np.array([-2.0, 0.0, 1.0])), [-1.0, 0.5, 2.0]),
    "at most": (AtMost(2.0), [2.0 - 1e-9, 1.0, -1e4]),
    "between": (Between(-1.0, 3.0), [-1.0 + 1e-9, 1.0, 3.0 - 1e-9]),
    "unbounded": (Unbounded(), [-1e10, 0.0, 1.0]),
}


@all_cases("name", BOUNDS)
def test_values_come_back_and_grow_with_their_free_variables(name):
    bound, values = BOUNDS[name]
    x = jnp.asarray(values)
    z = bound.free(x)
    # Relative to the distance from the bound, of which the difference x - bound keeps eps |bound| / distance.
    np.testing.assert_allclose(bound.constrained(z), x, rtol=1e-13, atol=1e-15)
    slope = (
        jax.vmap(jax.grad(bound.constrained))(z)
        if name != "at least an array"
        else jnp.diagonal(jax.jacfwd(bound.constrained)(z))
    )
    assert (np.asarray(slope) > 0).all()
    assert np.isfinite(slope).all()
    assert bound.outside(np.asarray(x)) == ""


def test_scales_of_the_free_variables():
    # Far from the bound the leaf moves as its free variable does; in the middle of an interval four times
    # slower, per its width.
    assert jax.grad(AtLeast(0.0, scale=0.01).constrained)(5.0) == 1.0
    assert jax.grad(Between(0.0, 8.0).constrained)(0.0) == pytest.approx(2.0, rel=1e-15)
    # Free variables of any size stay in the range.
    assert Between(0.0, 1.0).constrained(jnp.asarray(800.0)) == 1.0
    assert AtMost(0.0).constrained(jnp.asarray(800.0)) == 0.0
    assert AtLeast(1.0).constrained(jnp.asarray(-800.0)) == 1.0


def test_leaves_are_replaced_and_the_others_stay():
    chosen = reparametrize(
        PARAMETERS,
        {"gains.beta": Positive(), "state.q": Entries(np.array([True, False, True]), Between(-3.0, 3.0))},
    )
    free = chosen.split(PARAMETERS)
    assert {path: x.shape for path, x in free.items()} == {"gains.beta": (), "state.q": (2,)}
    moved = chosen.join(
        PARAMETERS, {"gains.beta": free["gains.beta"] + 1.0, "state.q": free["state.q"].at[1].set(0.0)}
    )
    assert moved["gains"].beta == pytest.approx(5.0 * np.e, rel=1e-15)
    assert moved["gains"].alpha == 10.0
    np.testing.assert_allclose(moved["state"].q, [0.5, -0.25, 0.0], rtol=0, atol=1e-15)
    assert moved["steps"] == 7


def test_what_is_trained_where_nothing_is_said():
    chosen = reparametrize(PARAMETERS)
    assert chosen.paths == ("gains.alpha", "gains.beta", "state.t", "state.q", "state.v")
    assert reparametrize(PARAMETERS, "gains").paths == ("gains.alpha", "gains.beta")
    assert reparametrize(PARAMETERS, {"state": AtLeast(-1.0)}).paths == ("state.t", "state.q", "state.v")


MISTAKES = {
    "unknown leaf": (
        "gains.alfa",
        ValueError,
        "no leaf 'gains.alfa'; did you mean 'gains.alpha'. available: gains.alpha, gains.beta, state.t",
    ),
    "nothing": ([], ValueError, "must name at least one leaf"),
    "nothing by a mapping": ({}, ValueError, "must name at least one leaf"),
    "twice": (["gains.alpha", "gains.alpha"], ValueError, "'gains.alpha' is named twice"),
    "twice by a subtree": (["gains", "gains.alpha"], ValueError, "'gains.alpha' is named twice"),
    "an integer": ("steps", TypeError, "the leaf 'steps' is int.*, expected floating point; write 0.0"),
    "no path": ([3], TypeError, "dotted path, got 3"),
    "on the bound": ({"state.v": Positive()}, ValueError, r"'state.v' must be above 0, and starts at \[0"),
    "below": ({"gains.alpha": AtLeast(11.0)}, ValueError, "'gains.alpha' must be above 11, and starts at 10"),
    "above": ({"gains.alpha": AtMost(9.5)}, ValueError, "'gains.alpha' must be below 9.5, and starts at 10"),
    "outside": (
        {"gains.alpha": Between(0.0, 10.0)},
        ValueError,
        "'gains.alpha' must be between 0 and 10, and starts at 10",
    ),
    "swapped": (
        {"gains.alpha": Between(20.0, 0.0)},
        ValueError,
        "a lower bound 20 that is not below its upper bound 0",
    ),
    "scale below": (
        {"gains.alpha": AtLeast(0.0, scale=-1.0)},
        ValueError,
        "has a bound whose scale -1 is not positive",
    ),
    "scale above": (
        {"gains.alpha": AtMost(20.0, scale=0.0)},
        ValueError,
        "has a bound whose scale 0 is not positive",
    ),
    "empty mask": ({"state.q": Entries(np.zeros(3, bool))}, ValueError, "the mask of 'state.q' selects none"),
    "mask of a wrong shape": (
        {"state.q": Entries(np.ones(2, bool))},
        ValueError,
        r"boolean of shape \(3,\), got bool of shape \(2,\)",
    ),
    "masked entry": (
        {"state.q": Entries(np.array([True, True, False]), Positive())},
        ValueError,
        "'state.q' must be above 0",
    ),
    "no bound": ({"gains.alpha": (0.0, 1.0)}, TypeError, "must be a value such as Positive()"),
    "a class": ({"gains.alpha": Positive}, TypeError, "must be a value such as Positive()"),
}


@all_cases("name", MISTAKES)
def test_mistakes_are_named(name):
    trainable, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        reparametrize(PARAMETERS, trainable)


def test_start_values_that_are_not_finite():
    lost = PARAMETERS | {"gains": dataclasses.replace(PARAMETERS["gains"], alpha=jnp.nan)}
    for bound in (Unbounded(), Positive(), Between(0.0, 1.0)):
        with pytest.raises(ValueError, match=r"'gains\.alpha' "):
            reparametrize(lost, {"gains.alpha": bound})


def test_stacks_of_starts():
    stack = {"x": jnp.ones((4, 2)), "y": jnp.zeros(3)}
    assert reparametrize(stack, {"x": Entries(np.array([True, False]))}, starts=4).paths == ("x",)
    with pytest.raises(ValueError, match=r"the leaf 'y' has shape \(3,\), expected 4 starts"):
        reparametrize(stack, "y", starts=4)
