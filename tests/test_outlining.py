"""Outlined functions: one program for all calls, the same numbers, also in batches and loops and
differentiated.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.compile.noinline import outlined


def plain(x, y):
    # What is compiled itself, as jnp.where is, is copied into the one program.
    return jnp.where(x > 0.0, jnp.sin(x) * y, -x), x + y


def thrice(function):
    def run(x):
        for _ in range(3):
            x, _ = function(x, 0.5 * x)
        return x

    return run


def test_calls_share_one_program_with_the_same_results():
    once, x = outlined(plain), jnp.linspace(-1.0, 1.0, 5)
    compiled = jax.jit(thrice(once)).lower(x).compile()
    text = compiled.as_text()
    if jax.default_backend() == "cpu":
        assert text.count(" call(") == 3
    expected = thrice(plain)(x)
    np.testing.assert_allclose(compiled(x), expected, rtol=1e-15)
    stacked = jnp.stack([x, 2.0 * x])
    np.testing.assert_allclose(jax.jit(jax.vmap(thrice(once)))(stacked)[0], expected, rtol=1e-15)
    last, _ = jax.jit(lambda x: jax.lax.scan(lambda x, _: (once(x, 0.5 * x)[0], None), x, length=3))(x)
    np.testing.assert_allclose(last, expected, rtol=1e-15)
    slope = [jax.jacrev(thrice(function))(x) for function in (once, plain)]
    np.testing.assert_allclose(*slope, rtol=1e-14)
    tangent = [jax.jvp(thrice(function), (x,), (x,))[1] for function in (once, plain)]
    np.testing.assert_allclose(*tangent, rtol=1e-14)
