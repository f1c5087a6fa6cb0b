"""Fused kernels: a function of one world, written in JAX, as one kernel that runs many worlds."""

from jaxdae.fused.call import FallbackWarning, chosen_kernel, fuse, fused_over_worlds, warn_of_fallback
from jaxdae.fused.graph import Unsupported

__all__ = ["FallbackWarning", "Unsupported", "chosen_kernel", "fuse", "fused_over_worlds", "warn_of_fallback"]
