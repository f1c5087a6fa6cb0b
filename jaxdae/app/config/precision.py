"""The floating-point precision of a run. Only this module changes JAX's configuration for it."""

import contextlib
from collections.abc import Iterator

import jax

from jaxdae.app.config.schema import Config


@contextlib.contextmanager
def precision(config: Config) -> Iterator[None]:
    """Set the precision of a config inside the context, and restore the previous one afterwards."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", config.precision == "float64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
