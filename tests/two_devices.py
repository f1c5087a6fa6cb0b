"""Programs in a process of their own, in which the CPU counts as two devices: that is decided before JAX starts."""

import os
import pathlib
import subprocess
import sys


def run(program):
    """Returns the process after it has run a program that may import the library and the modules of the tests."""
    root = pathlib.Path(__file__).resolve().parent
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(root), str(root.parent)]),
    }
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600, check=False)
