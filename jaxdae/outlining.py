"""Functions that are compiled once, however often a program calls them.

XLA copies every function into all the places where it is called, and compiles each copy: of a step that factorizes three matrices and
solves with them five times, most of the compile time would be copies. Where a call says that it is not to be copied, CPUs keep one
program of it. Its arguments and results are then arrays in memory, which is the other thing that it is good for: nothing that it returns is
computed again by those who read it.

Other devices copy as before: whether their compilers keep calls was not tried. So does XLA of JAX 0.9 with
`--xla_cpu_use_fusion_emitters=false`, one of the flags of the command: a unit of a factorization of ten rows compiles in 0.39, 0.76 and
1.31 s where it is called once, twice and four times, and in 0.62, 0.71 and 0.77 s without the flag. The numbers are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata


def outlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of arrays that is traced once for all arguments of the same shapes, and on CPUs compiled once.

    Args:
        function: takes arrays and returns a pytree of arrays.

    A call costs some tenths of a microsecond and keeps XLA from fusing across it: for work of some dozens of operations at least.
    """

    @jax.jit
    def unit(*arguments: Any) -> Any:
        # What is called in it is copied as anywhere else.
        with set_xla_metadata(inlineable=None):
            return function(*arguments)

    def apart(*arguments: Any) -> Any:
        with set_xla_metadata(inlineable="false"):
            return unit(*arguments)

    def call(*arguments: Any) -> Any:
        return jax.lax.platform_dependent(*arguments, cpu=apart, default=unit)

    return call
