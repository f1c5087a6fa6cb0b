"""The floating-point precision of a run: the only place that touches JAX's configuration."""

import contextlib
from collections.abc import Iterator

import jax

from jaxdae.app.schema import Config


@contextlib.contextmanager
def precision(config: Config) -> Iterator[None]:
    """Sets the precision of a config for everything that is traced inside, and the old one afterwards."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", config.precision == "float64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
