"""Kernels on CPUs: C++ with one vector lane per world, compiled by the system's compiler and called by XLA.

Each thread takes a contiguous range of worlds and runs LANES of them at a time through the whole program. A lane sees the same operations
wherever its world stands, so that results do not depend on the order or the number of worlds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jaxdae.fused import library
from jaxdae.fused.emit import Code
from jaxdae.fused.graph import Unsupported
from jaxdae.fused.library import Argument

COMPILERS = (("g++",), ("clang++",), ("c++",), ("zig", "c++"))
FLAGS = ("-std=c++17", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-w", "-shared", "-fPIC", "-fno-exceptions", "-fno-rtti")
OPTIMIZED = 8000
"""Programs of at most so many operations are compiled with -O2, longer ones with -O1."""
VECTOR_BYTES = 64


def compiler() -> tuple[str, ...]:
    """Return the command of a C++ compiler: the environment variable CXX, or the first one found.

    Raises:
        Unsupported: there is none.
    """
    chosen = os.environ.get("CXX", "").split()
    found = [tuple(chosen)] if chosen else [command for command in COMPILERS if shutil.which(command[0])]
    if not found:
        raise Unsupported("no C++ compiler found; install g++ or clang++, or name one in the environment variable CXX")
    return found[0]


@cache
def _identity(command: tuple[str, ...]) -> str:
    """Return what distinguishes compilers and processors: the macros that the compiler defines."""
    done = subprocess.run([*command, "-march=native", "-E", "-dM", "-x", "c++", os.devnull], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unsupported(f"the compiler {' '.join(command)} fails: {done.stderr.strip()[-300:]}")
    return done.stdout


def source(code: Code, inputs: list[Argument], outputs: list[Argument], real: Any) -> str:
    """Return the C++ source of a kernel."""
    lanes = VECTOR_BYTES // np.dtype(real).itemsize
    head = [
        *library.types(real),
        f"#define LANES {lanes}",
        '#include "cpu.h"',
        *library.tables(code, "static const"),
        f"enum {{ INPUTS = {len(inputs)}, OUTPUTS = {len(outputs)}, TEMPORARIES = {max(code.temporaries, 1)}, WORK = {_work(code)} }};",
        "static void rollout(void* const* in, void* const* out, const long* world, long count, R* temporary) {",
    ]
    return "\n".join([*head, *library.arguments(inputs, outputs), *code.lines, "}", '#include "cpu_call.h"', ""])


def _work(code: Code) -> int:
    return max(sum(code.operations.values()), 1)


def compiled(text: str, operations: int) -> Path:
    """Return the shared library of a source, from the cache or by the compiler.

    Raises:
        Unsupported: no compiler, or the compiler fails.
    """
    command = compiler()
    flags = ("-O2" if operations <= OPTIMIZED else "-O1", *FLAGS)
    headers = ("cpu.h", "cpu_call.h")
    return library.built(text, headers, ".cpp", (*command, *flags), ("-lm", "-lpthread"), _identity(command))


def registered(file: Path) -> str:
    """Return the name under which XLA calls the kernel of a library."""
    return library.registered(file, "cpu")
