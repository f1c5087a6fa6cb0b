"""Where compiled programs are kept, so that the command compiles a program once and not in every run.

JAX's persistent compilation cache; what a user says in its environment variables counts, and JAX_ENABLE_COMPILATION_CACHE=false
switches it off. Programs depend on the machine, so that a
home that many machines share has a folder for each kind of processor, and for each release of jaxlib. Many processes may use it at once:
an entry is named after all that the program depends on, and what cannot be read, such as one that was half written when its process was
killed, is compiled anew with a warning. Nothing is ever removed; the folder may be, at any time.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Mapping

import jax

FOLDER = "JAX_COMPILATION_CACHE_DIR"
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_CPU_INFO = pathlib.Path("/proc/cpuinfo")


def folder(environment: Mapping[str, str]) -> pathlib.Path:
    """Returns where programs are kept on this machine: below XDG_CACHE_HOME, or ~/.cache where that says nothing absolute."""
    base = pathlib.Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = pathlib.Path("~/.cache").expanduser()
    return base / "jaxdae" / f"jaxlib-{importlib.metadata.version('jaxlib')}-{_processor()}"


def use() -> None:
    """Lets JAX keep compiled programs; call it before JAX compiles anything. Where no folder can be made, there is no cache."""
    given = os.environ
    if FOLDER not in given:
        place = folder(given)
        # Where XLA logs, it reports every program that it loads as an error: the script `jaxdae` keeps it from that.
        if given.get(LOG_LEVEL) != "3" or not _is_ours(place):
            return
        jax.config.update("jax_compilation_cache_dir", str(place))
    # All programs, however small: a run has dozens of them, each of a tenth of a second.
    for name, value in (("jax_persistent_cache_min_compile_time_secs", 0.0), ("jax_persistent_cache_min_entry_size_bytes", -1)):
        if name.upper() not in given:
            jax.config.update(name, value)


def _is_ours(place: pathlib.Path) -> bool:
    """Returns whether a folder, which is made where there is none, can be written."""
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.access(place, os.W_OK)


def _processor() -> str:
    """Returns a short name for what processors of this kind can do."""
    known = platform.machine()
    with contextlib.suppress(OSError):
        lines = _CPU_INFO.read_text(errors="replace").splitlines()
        known += next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return hashlib.sha256(known.encode()).hexdigest()[:10]
