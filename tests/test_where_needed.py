"""A costly function runs only for the worlds of a batch that need it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.compile.where_needed import where_needed


@pytest.fixture
def calls():
    """A function with an iterative part, and the list of the numbers for which it ran."""
    seen = []

    def halved(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x)
        return jax.lax.while_loop(lambda y: y > 1.0, lambda y: y / 2.0, x)

    return halved, seen


@pytest.mark.parametrize("needed", [[False] * 5, [False, True, False, True, False], [True] * 5])
def test_only_worlds_that_need_it_are_evaluated(calls, needed):
    function, seen = calls
    x = jnp.asarray([3.0, 5.0, jnp.nan, 16.0, 7.0])

    def one(needed, x):
        return where_needed(needed, function, -x, x)

    found = jax.block_until_ready(jax.jit(jax.vmap(one))(jnp.asarray(needed), x))
    jax.effects_barrier()
    expected = np.where(needed, [0.75, 0.625, np.nan, 1.0, 0.875], [-3.0, -5.0, np.nan, -16.0, -7.0])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.sort(seen), np.sort(np.asarray(x)[np.asarray(needed)]))


def test_nested_batches_and_arguments_that_all_worlds_share(calls):
    function, seen = calls

    def inner(y):
        return where_needed(y > 20.0, function, y, y)

    def one(x, scale):
        return where_needed(x > 2.0, lambda x, scale: inner(x * scale), x, x, scale)

    x = jnp.asarray([[1.0, 3.0], [5.0, 2.0], [7.0, 0.0]])
    found = jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(0, None)))(x, 4.0)
    jax.effects_barrier()
    np.testing.assert_array_equal(found, [[1.0, 12.0], [20.0, 2.0], [0.875, 0.0]])
    assert seen == [28.0]


def test_one_world_skips_what_it_does_not_need(calls):
    function, seen = calls
    one = jax.jit(lambda x: where_needed(x > 4.0, function, {"y": x}["y"], x))
    assert [float(one(x)) for x in (3.0, 6.0)] == [3.0, 0.75]
    jax.effects_barrier()
    assert seen == [6.0]
