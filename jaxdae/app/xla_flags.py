"""XLA flags for small mechanisms on a CPU. The command sets them before JAX starts.

XLA's scheduler runs independent operations concurrently. The operations of a mechanism are too short for
this: the synchronization costs more than the operations. XLA's newer fusion emitters, which JAX 0.12 always
uses, compile more slowly and give the same speed. The following times are for a crank-rocker, RK4 with
projections and JAX 0.9.2, first with the defaults of JAX and then with both flags:

- one world: 18.9 us and 12.0 us per step
- 64 and 1024 worlds: 2.5 us and 2.2 us of CPU time per world and step
- compilation of the gradient: 4.6 s and 3.7 s

With JAX 0.12 and the first flag, the time of a five-bar with this method drops to 0.7 of the default for one
world and to 0.9 for 64 worlds. No result changed in any bit with the first flag.

JAX does not start with an unknown flag. The flags are therefore set only for tested releases. Flags that you
set in `XLA_FLAGS` take precedence.
"""

import importlib.metadata
import os

SCHEDULER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
EMITTERS = "--xla_cpu_use_fusion_emitters=false"

KNOWN = {"0.9": (SCHEDULER, EMITTERS), "0.12": (SCHEDULER,)}
"""The supported flags per JAX release, by the first two numbers of its version."""


def for_small_programs() -> None:
    """Add the flags that this JAX release supports to `XLA_FLAGS`; call this before JAX runs anything."""
    release = ".".join(importlib.metadata.version("jax").split(".")[:2])
    given = os.environ.get("XLA_FLAGS", "")
    missing = [flag for flag in KNOWN.get(release, ()) if flag.split("=")[0] not in given]
    if missing:
        # Put them first: XLA ignores everything after a word that is not a flag.
        os.environ["XLA_FLAGS"] = " ".join([*missing, given]).strip()
