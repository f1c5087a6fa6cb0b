"""Kernels on CPUs: C++ with one vector lane per world, compiled by the system's compiler and called by XLA.

Each thread takes a contiguous range of worlds and runs LANES of them at a time through the whole program. A lane sees the same operations
wherever its world stands, so that results do not depend on the order or the number of worlds.

Compiled kernels are files in a cache folder, named by a hash of source, compiler and flags. A file appears there by an atomic rename, so
that several processes may compile at the same time.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxdae.fused.emit import Code
from jaxdae.fused.graph import Unsupported

COMPILERS = (("g++",), ("clang++",), ("c++",), ("zig", "c++"))
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
OPTIMIZED = 8000
"""Programs of at most so many operations are compiled with -O2, longer ones with -O1."""
VECTOR_BYTES = 64
_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "uint8": "uint8_t",
    "int8": "int8_t",
    "bool": "unsigned char",
}


@dataclasses.dataclass(frozen=True)
class Argument:
    """An input or output of a kernel: its dtype, numbers per world, and whether all worlds share them."""

    dtype: str
    size: int
    shared: bool


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


def _first_error(messages: str) -> str:
    """Return the first error among the messages of a compiler."""
    lines = messages.strip().splitlines()
    return next((x for x in lines if "error" in x), lines[-1] if lines else "no message")[:300]


@cache
def _identity(command: tuple[str, ...]) -> str:
    """Return what distinguishes compilers and processors: the macros that the compiler defines."""
    try:
        done = subprocess.run(
            [*command, "-march=native", "-E", "-dM", "-x", "c++", os.devnull], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise Unsupported(f"the compiler {' '.join(command)} does not start: {error.strerror}") from None
    if done.returncode:
        raise Unsupported(f"the compiler {' '.join(command)} fails: {_first_error(done.stderr)}")
    return done.stdout


def cache_folder() -> Path:
    """Return the folder of compiled kernels: JAXDAE_KERNELS, or `jaxdae/kernels` in the user's cache folder."""
    named = os.environ.get("JAXDAE_KERNELS")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxdae" / "kernels"


def source(code: Code, inputs: list[Argument], outputs: list[Argument], real: Any) -> str:
    """Return the C++ source of a kernel."""
    name = np.dtype(real).name
    integer = {"float32": "int32_t", "float64": "int64_t"}[name]
    lanes = VECTOR_BYTES // np.dtype(real).itemsize
    c_type = {"F": "R", "I": "Z", "B": "Z"}
    tables = [
        f"static const {c_type[kind]} T{k}[] = {{{', '.join(_number(x) for x in values)}}};" for k, (kind, values) in enumerate(code.tables)
    ]
    bind = []
    for k, argument in enumerate(inputs):
        kind = f"const {_C_TYPES[argument.dtype]}"
        if argument.shared:
            bind.append(f" {kind}* const ARG{k} = ({kind}*)in[{k}];")
        else:
            bind.append(f" const Each<{kind}> ARG{k} = {{({kind}*)in[{k}], {argument.size}, world, count}};")
    for k, argument in enumerate(outputs):
        kind = _C_TYPES[argument.dtype]
        bind.append(f" const Each<{kind}> OUT{k} = {{({kind}*)out[{k}], {argument.size}, world, count}};")
    head = [
        "#include <stdint.h>",
        f"#define REAL {_C_TYPES[name]}",
        f"#define INTEGER {integer}",
        f"#define LANES {lanes}",
        '#include "cpu.h"',
        *tables,
        f"enum {{ INPUTS = {len(inputs)}, OUTPUTS = {len(outputs)}, TEMPORARIES = {max(code.temporaries, 1)}, WORK = {_work(code)} }};",
        "static void rollout(void* const* in, void* const* out, const long* world, long count, R* temporary) {",
    ]
    return "\n".join([*head, *bind, *code.lines, "}", '#include "cpu_call.h"', ""])


def _work(code: Code) -> int:
    return max(sum(code.operations.values()), 1)


def _number(x: Any) -> str:
    if isinstance(x, np.bool_):
        return "-1" if x else "0"
    if isinstance(x, np.floating):
        return "NAN" if np.isnan(x) else ("INFINITY" if x > 0 else "-INFINITY") if np.isinf(x) else repr(float(x))
    return str(int(x))


def compiled(text: str, operations: int) -> Path:
    """Return the shared library of a source, from the cache or by the compiler.

    Raises:
        Unsupported: no compiler, or the compiler fails.
    """
    command = compiler()
    here = Path(__file__).parent
    flags = ("-O2" if operations <= OPTIMIZED else "-O1", *FLAGS)
    parts = [text, (here / "cpu.h").read_text(), (here / "cpu_call.h").read_text(), _identity(command), *flags]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    folder = cache_folder()
    library = folder / f"{name}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        file, made = Path(work) / "kernel.cpp", Path(work) / "kernel.so"
        file.write_text(text)
        include = [f"-I{here}", f"-I{jax.ffi.include_dir()}"]
        done = subprocess.run(
            [*command, *flags, *include, str(file), "-o", str(made), "-lm", "-lpthread"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Unsupported(f"the compiler {' '.join(command)} fails: {_first_error(done.stderr)}")
        os.replace(made, library)
    return library


_LOADED: dict[str, ctypes.CDLL] = {}


def registered(library: Path) -> str:
    """Return the name under which XLA calls the kernel of a library."""
    name = f"jaxdae_fused_{library.stem}"
    if name not in _LOADED:
        _LOADED[name] = ctypes.CDLL(str(library))
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(_LOADED[name].call), platform="cpu")
    return name
