"""Kernels on CPUs: C++ with one vector lane per world, compiled by the system's compiler and called by XLA.

Each thread takes a contiguous range of worlds and runs LANES of them at a time through the whole program. A
lane sees the same operations wherever its world stands, so that results do not depend on the order or the
number of worlds.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jaxdae.fused import library
from jaxdae.fused.emit import Code
from jaxdae.fused.graph import Unsupported
from jaxdae.fused.library import Argument

COMPILERS = ("g++", "clang++", "c++")
FLAGS = (
    "-std=c++17",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-w",
    "-shared",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
)
OPTIMIZED = 12_000
"""Programs of at most so many operations are compiled with -O2, longer ones with -O1."""
VECTOR_BYTES = 64


def compiler() -> tuple[str, ...]:
    """Return the command of a C++ compiler: the environment variable CXX, or the first one found.

    The package `ziglang` contains Clang. For the four-bar, it takes as long as g++ to compile, and its
    kernels are as fast.

    Raises:
        Unsupported: no compiler is found.
    """
    chosen = os.environ.get("CXX", "").split()
    if chosen and not shutil.which(chosen[0]):
        raise Unsupported(
            f"the environment variable CXX names {chosen[0]}, which is not an executable; set CXX to g++ or "
            "clang++"
        )
    if chosen:
        return tuple(chosen)
    found = next((name for name in COMPILERS if shutil.which(name)), None)
    if found is not None:
        return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++")
    raise Unsupported(
        "no C++ compiler found; install g++, clang++ or `pip install ziglang`, or set the environment "
        "variable CXX"
    )


@cache
def _identity(command: tuple[str, ...]) -> str:
    """Return what distinguishes compilers and processors: the macros that the compiler defines."""
    return library.answer((*command, "-march=native", "-E", "-dM", "-x", "c++", os.devnull))


def compiler_version() -> str:
    """Return the version of the compiler.

    Raises:
        Unsupported: no compiler is found.
    """
    name, macro = compiler()[0], "#define __VERSION__ "
    found = [
        line.removeprefix(macro) for line in _identity(compiler()).splitlines() if line.startswith(macro)
    ]
    return f"{Path(name).name} {found[0].strip(chr(34))}" if found else Path(name).name


def source(code: Code, inputs: list[Argument], outputs: list[Argument], real: Any) -> str:
    """Return the C++ source of a kernel."""
    lanes = VECTOR_BYTES // np.dtype(real).itemsize
    head = [
        *library.types(real),
        f"#define LANES {lanes}",
        '#include "cpu.h"',
        *library.tables(code, "static const"),
        f"enum {{ INPUTS = {len(inputs)}, OUTPUTS = {len(outputs)}, TEMPORARIES = "
        f"{max(code.temporaries, 1)} }};",
        "static void rollout(void* const* in, void* const* out, const long* world, long count, R* "
        "temporary) {",
    ]
    return "\n".join(
        [*head, *library.arguments(inputs, outputs), *code.lines, "}", '#include "cpu_call.h"', ""]
    )


def compiled(text: str, operations: int) -> Path:
    """Return the shared library of a source, from the cache or by the compiler.

    Raises:
        Unsupported: no compiler, or the compiler fails.
    """
    command = (*compiler(), "-O2" if operations <= OPTIMIZED else "-O1", *FLAGS)
    return library.built(
        text,
        operations,
        ("call.h", "cpu.h", "cpu_call.h"),
        ".cpp",
        command,
        ("-lm", "-lpthread"),
        _identity(compiler()),
    )


def registered(file: Path) -> str:
    """Return the name under which XLA calls the kernel of a library."""
    return library.registered(file, "cpu")
