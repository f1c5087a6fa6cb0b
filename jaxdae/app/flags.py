"""Flags of XLA that suit small mechanisms on a CPU, set by the command before JAX starts.

XLA's scheduler runs the operations of a program side by side where it can; those of a mechanism are too short for that, and keeping them
apart costs more than they do. Its newer emitters of fused loops, which JAX 0.12 always takes, compile longer to the same speed. Measured
with a crank-rocker, RK4 with projections, JAX 0.9.2: one world 18.9 us a step as JAX comes and 12.0 with both flags, 64 and 1024 worlds
2.5 us and 2.2 of CPU time a world and step, its gradient compiled in 4.6 s and 3.7. With JAX 0.12 and the first flag one world of a
five-bar takes 0.7 of the time by that method, 64 worlds 0.9. No bit of any result was seen to depend on the first flag.

JAX does not start where it finds a flag that it does not know, so they are set for releases that were tried. What a user says in
`XLA_FLAGS` counts.
"""

import importlib.metadata
import os

SCHEDULER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
EMITTERS = "--xla_cpu_use_fusion_emitters=false"

KNOWN = {"0.9": (SCHEDULER, EMITTERS), "0.12": (SCHEDULER,)}
"""The flags that a release of JAX knows, by the first two numbers of its version."""


def for_small_programs() -> None:
    """Adds the flags to `XLA_FLAGS` that this release of JAX knows; call it before JAX runs anything."""
    release = ".".join(importlib.metadata.version("jax").split(".")[:2])
    given = os.environ.get("XLA_FLAGS", "")
    missing = [flag for flag in KNOWN.get(release, ()) if flag.split("=")[0] not in given]
    if missing:
        # First: XLA reads nothing that stands behind a word that is no flag.
        os.environ["XLA_FLAGS"] = " ".join([*missing, given]).strip()
