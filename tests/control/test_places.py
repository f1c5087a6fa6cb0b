"""Indices that name nothing: an error that says what, which index, and how many there are."""

import jax
import jax.numpy as jnp
import pytest
from all_cases import all_cases
from small_systems import oscillating, oscillator, without_typechecker

import jaxdae.control as jc

TWO_BODIES = jnp.arange(6.0)
POINT = jnp.zeros(2)


def stepping(index, u):
    goal = jc.Goal(jc.Coordinates((0,)), jc.InputTarget(index))
    return jc.goal_rows(oscillator(), (goal,), oscillating(), u)


PLACES = {
    "coordinate": (
        lambda: jc.Coordinates((0, 6))(TWO_BODIES),
        "Coordinates.of = 6 is not a valid coordinate index; there are 6, counted from 0",
    ),
    "coordinate from the end": (
        lambda: jc.Coordinates((-1,))(TWO_BODIES),
        "Coordinates.of = -1 is not a valid coordinate index; there are 6",
    ),
    "minus": (
        lambda: jc.Coordinates((0, 1), (-1, 9))(TWO_BODIES),
        "Coordinates.minus = 9 is not a valid coordinate index; there are 6, counted from 0, or -1 for none",
    ),
    "minus from the end": (
        lambda: jc.Coordinates((0,), (-2,))(TWO_BODIES),
        "Coordinates.minus = -2 is not a valid coordinate index; there are 6",
    ),
    "one minus for two": (
        lambda: jc.Coordinates((0, 1), (2,))(TWO_BODIES),
        "Coordinates.minus must have as many entries as Coordinates.of, 2",
    ),
    "body": (
        lambda: jc.BodyPoint(7, POINT)(TWO_BODIES),
        "BodyPoint.body = 7 is not a valid body index; there are 2, counted from 0",
    ),
    "body from the end": (
        lambda: jc.BodyPoint(-1, POINT)(TWO_BODIES),
        "BodyPoint.body = -1 is not a valid body index; there are 2",
    ),
    "frame": (
        lambda: jc.BodyFrame(2, POINT)(TWO_BODIES),
        "BodyFrame.body = 2 is not a valid body index; there are 2",
    ),
    "first body of a joint": (
        lambda: jc.JointCoordinate(2, 0, None)(TWO_BODIES),
        "JointCoordinate.a = 2 is not a valid body index; there are 2",
    ),
    "second body of a joint": (
        lambda: jc.JointCoordinate(None, -1, None)(TWO_BODIES),
        "JointCoordinate.b = -1 is not a valid body index; there are 2",
    ),
    "input": (
        lambda: stepping(2, jnp.ones(2)),
        "InputTarget.index = 2 is not a valid goal input index; there are 2",
    ),
    "one input of several": (
        lambda: stepping((0, 5), jnp.ones(2)),
        "InputTarget.index = 5 is not a valid goal input index; there are 2",
    ),
    "input from the end": (
        lambda: stepping(-1, jnp.ones(2)),
        "InputTarget.index = -1 is not a valid goal input index; there are 2",
    ),
    "huge input": (lambda: stepping(10**5000, jnp.ones(2)), "InputTarget.index = a huge int is not a valid"),
    "count of inputs": (
        lambda: jc.Goal(jc.Coordinates((0,)), jc.InputTarget((-3, 1))).input_count,
        "InputTarget.index = -3 is not a valid goal input index",
    ),
    "inputs": (
        lambda: stepping(0, jnp.ones(())),
        "Goal.target is read from the inputs, which must be a vector (nu,), got shape ()",
    ),
}


@all_cases(("look", "message"), PLACES.values(), ids=PLACES)
def test_a_place_that_does_not_exist(look, message):
    with without_typechecker():
        for call in (look, jax.jit(look)):
            with pytest.raises(ValueError) as caught:  # noqa: PT011
                call()
            assert message in str(caught.value)


KINDS = {
    "no tuple": (lambda: jc.Coordinates(0), "Coordinates.of must be a tuple, got 0"),
    "half": (
        lambda: jc.Coordinates((0.5,))(TWO_BODIES),
        "Coordinates.of must hold indices (0, 1, ...), got 0.5",
    ),
    "true": (
        lambda: jc.BodyPoint(True, POINT)(TWO_BODIES),
        "BodyPoint.body must hold indices (0, 1, ...), got True",
    ),
    "name": (
        lambda: jc.BodyPoint("arm", POINT)(TWO_BODIES),
        "BodyPoint.body must hold indices (0, 1, ...), got 'arm'",
    ),
}


@all_cases(("look", "message"), KINDS.values(), ids=KINDS)
def test_what_is_no_index(look, message):
    with without_typechecker(), pytest.raises(TypeError) as caught:
        look()
    assert message in str(caught.value)
