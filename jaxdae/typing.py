"""Names for the shapes that appear in signatures.

The annotations are read by jaxtyping and checked by beartype in the test suite only; at run time they cost
nothing. Axis names follow the table of symbols in `docs/first_steps.md`: `nq` coordinates, `nv` velocities,
`nu` inputs, `ng` position-level rows, `nw` velocity-level rows, `nc = ng + nw` constraint rows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from jax import Array
from jaxtyping import Float, Int

Leaf: TypeAlias = Any
"""A dataclass field that holds array data. It is not checked, because JAX fills fields with tracers, axis
specifications and sentinels while it takes pytrees apart and puts them together."""

Scalar: TypeAlias = Float[Array, ""]
Coordinates: TypeAlias = Float[Array, " nq"]
Velocity: TypeAlias = Float[Array, " nv"]
Input: TypeAlias = Any
Residual: TypeAlias = Float[Array, " ng"]
VelocityResidual: TypeAlias = Float[Array, " nw"]
Rows: TypeAlias = Float[Array, " nc"]
Jacobian: TypeAlias = Float[Array, "nc nv"]
Square: TypeAlias = Float[Array, "n n"]
Count: TypeAlias = Int[Array, ""]
