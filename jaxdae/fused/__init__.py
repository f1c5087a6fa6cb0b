"""Fused kernels: a function of one world, written in JAX, as one kernel that runs many worlds."""

from jaxdae.fused.call import FallbackWarning, fuse, fused_over_worlds, warn_of_fallback
from jaxdae.fused.graph import Unsupported

__all__ = ["FallbackWarning", "Unsupported", "fuse", "fused_over_worlds", "warn_of_fallback"]
