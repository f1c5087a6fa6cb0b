"""Shared libraries of kernels: their arguments and tables in C, the cache folder, and the call of a compiler.

Compiled kernels are files in a cache folder, named by a hash of source, compiler and flags. A file appears
there by an atomic rename, so that several processes may compile at the same time.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import logging
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxdae.fused.emit import Code, literal
from jaxdae.fused.graph import Unsupported

LOG = logging.getLogger("jaxdae.fused")
HERE = Path(__file__).parent
C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "bool": "unsigned char",
}


@dataclasses.dataclass(frozen=True)
class Argument:
    """An input or output of a kernel: its dtype, numbers per world, and whether all worlds share them."""

    dtype: str
    size: int
    shared: bool


def types(real: Any) -> list[str]:
    """Return the definitions of the floating-point number and of the integer of the same size."""
    name = np.dtype(real).name
    return [
        "#include <stdint.h>",
        f"#define REAL {C_TYPES[name]}",
        f"#define INTEGER {name.replace('float', 'int')}_t",
    ]


def tables(code: Code, declaration: str) -> list[str]:
    """Return the constants of a kernel as arrays."""
    c_type = {"F": "R", "I": "Z", "B": "Z"}
    return [
        f"{declaration} {c_type[kind]} T{k}[] = {{{', '.join(map(literal, values))}}};"
        for k, (kind, values) in enumerate(code.tables)
    ]


def arguments(inputs: list[Argument], outputs: list[Argument]) -> list[str]:
    """Return the definitions of arguments and results with the backend macros SHARED_ARRAY and EACH_ARRAY."""
    lines = []
    for k, argument in enumerate(inputs):
        kind = f"const {C_TYPES[argument.dtype]}"
        if argument.shared:
            lines.append(f" SHARED_ARRAY({kind}, ARG{k}, in[{k}]);")
        else:
            lines.append(f" EACH_ARRAY({kind}, ARG{k}, in[{k}], {argument.size});")
    return [
        *lines,
        *[f" EACH_ARRAY({C_TYPES[x.dtype]}, OUT{k}, out[{k}], {x.size});" for k, x in enumerate(outputs)],
    ]


def cache_folder() -> Path:
    """Return the folder of compiled kernels, JAXDAE_KERNELS or `jaxdae/kernels` in the user's cache."""
    named = os.environ.get("JAXDAE_KERNELS")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxdae" / "kernels"


def first_error(messages: str) -> str:
    """Return the first error among the messages of a compiler."""
    lines = messages.strip().splitlines()
    return next((x for x in lines if "error" in x), lines[-1] if lines else "no message")[:300]


def answer(command: tuple[str, ...]) -> str:
    """Return the standard output of a compiler.

    Raises:
        Unsupported: the compiler does not start, or it fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unsupported(f"the compiler {command[0]} did not start: {error.strerror}") from None
    if done.returncode:
        raise Unsupported(f"the compiler {command[0]} failed: {first_error(done.stderr + done.stdout)}")
    return done.stdout


def built(
    text: str,
    operations: int,
    headers: tuple[str, ...],
    suffix: str,
    command: tuple[str, ...],
    libraries: tuple[str, ...],
    identity: str,
) -> Path:
    """Return the shared library of a source, from the cache or by a compiler.

    Args:
        text: the source.
        operations: its scalar operations, for the log.
        headers: the files of this folder that the source includes.
        suffix: the suffix of the source file, by which the compiler knows its language.
        command: the compiler and its flags.
        libraries: the options behind the source.
        identity: what else distinguishes compilers and processors.

    Raises:
        Unsupported: the compiler fails, or there is no cache folder.
    """
    interface = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    files = [path.read_text() for path in (*(HERE / header for header in headers), interface)]
    name = hashlib.sha256("\0".join([text, *files, identity, *command, *libraries]).encode()).hexdigest()[:32]
    folder = cache_folder()
    library = folder / f"{name}.so"
    if library.exists():
        return library
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unsupported(
            f"the cache folder {folder} cannot be created ({error}); set JAXDAE_KERNELS to another folder"
        ) from None
    LOG.info("compiling a kernel of %s operations", f"{operations:,}")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        file, made = Path(work) / f"kernel{suffix}", Path(work) / "kernel.so"
        file.write_text(text)
        include = (f"-I{HERE}", f"-I{jax.ffi.include_dir()}")
        answer((*command, *include, str(file), "-o", str(made), *libraries))
        os.replace(made, library)
    return library


_LOADED: dict[str, ctypes.CDLL] = {}
_LOCK = threading.Lock()


def registered(library: Path, platform: str) -> str:
    """Return the name under which XLA calls the kernel of a library on a platform, "cpu" or "CUDA"."""
    name = f"jaxdae_fused_{library.stem}"
    with _LOCK:
        if name not in _LOADED:
            _LOADED[name] = ctypes.CDLL(str(library))
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(_LOADED[name].call), platform=platform)
    return name
