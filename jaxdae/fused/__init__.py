"""Fused kernels: a function of one world, written in JAX, as one kernel that runs many worlds."""

from jaxdae.fused.call import FallbackWarning, fused, fused_over_worlds

__all__ = ["FallbackWarning", "fused", "fused_over_worlds"]
