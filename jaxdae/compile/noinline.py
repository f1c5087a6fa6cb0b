"""Functions that XLA compiles once per program, however often the program calls them.

XLA inlines every function at all its call sites and compiles each copy. For a step that factorizes three
matrices and solves with them five times, copies would take most of the compile time. If a call forbids
inlining, CPU programs contain the function once. Its arguments and results are then arrays in memory, so
consumers do not recompute its results.

Other devices inline the function as usual; whether their compilers would keep calls has not been tested. XLA
in JAX 0.9 also inlines it with `--xla_cpu_use_fusion_emitters=false`, one of the flags of the command. A
factorization of ten rows compiles in 0.39, 0.76 and 1.31 s if a program calls it once, twice and four times,
and in 0.62, 0.71 and 0.77 s without the flag. The results are the same with and without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata


def outlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Prevent XLA on CPUs from inlining this function at its call sites.

    JAX traces the function once per set of argument shapes, and CPU programs compile it once.

    Args:
        function: takes arrays and returns a pytree of arrays.

    A call costs some tenths of a microsecond, and XLA does not fuse across it. Use it for functions of at
    least some dozens of operations.
    """

    @jax.jit
    def unit(*arguments: Any) -> Any:
        # Calls inside the function are inlined as usual.
        with set_xla_metadata(inlineable=None):
            return function(*arguments)

    def apart(*arguments: Any) -> Any:
        with set_xla_metadata(inlineable="false"):
            return unit(*arguments)

    def call(*arguments: Any) -> Any:
        return jax.lax.platform_dependent(*arguments, cpu=apart, default=unit)

    return call
