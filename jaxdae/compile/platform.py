"""What programs are compiled for, where the fastest way to write something depends on it.

A CPU runs the operations of a program one after the other and fuses little; what costs is the work. A GPU or
TPU is asked to begin a kernel for everything that its compiler does not fuse, and a step of a small mechanism
is over before as many have begun; what costs is their number. Results are the same to round-off either way,
and a program that is lowered for another platform than the default one is right, but not the fastest.
"""

from typing import Any

import jax


def on_accelerator() -> bool:
    """Return whether the traced function will run on an accelerator through XLA, not as a fused kernel."""
    return jax.default_backend() != "cpu" and not for_kernel()


_FOR_KERNEL = jax.make_user_context(False)


def for_kernel() -> bool:
    """Return whether the traced function becomes a fused kernel, whose cost is its scalar operation count."""
    return _FOR_KERNEL.value


def tracing_for_kernel() -> Any:
    """Return a context in which `for_kernel` is true.

    Traces and compiled functions in it are separate from all others.
    """
    return _FOR_KERNEL(True)
