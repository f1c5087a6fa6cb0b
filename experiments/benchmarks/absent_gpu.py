"""Count the kernels of a step on a GPU without a GPU: XLA compiles for a described device.

    pip install 'jax[cuda12]==0.9.2' .     # the release of jax that is installed; `.` is the clone
    python experiments/benchmarks/absent_gpu.py [--worlds N] [--models pendulum four-bar Andrews]
    [--precisions float32 float64] [--for-cpu]

Prints seconds of CPU to trace and to compile and the kernels a step, of the models of `gpu.py`, of G1 and
Cassie where they are installed, and of two pendulums. What is left out is what only the device can tell:
time, and the choices that XLA makes by trying kernels.
"""

import argparse
import os
import time

# The extension for CUDA is loaded although there is no driver; what runs, runs on the CPU.
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from batch_models import MODELS, Missing, Model
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
from kernels import per_step
from side_by_side import markdown

import jaxdae

STEPS = 97  # no other loop runs as often
H200 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  clock_rate_ghz: 1.98
  l2_cache_size: 52428800
  device_memory_size: 151397597184
  memory_bandwidth: 4800000000000
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "H200"
"""
"""Data from NVIDIA's data sheet and tables of compute capability 9.0, as a `GpuTargetConfigProto` of XLA."""


def described() -> SingleDeviceSharding:
    """Return an H200 that programs can be compiled for, and make the library write programs for a GPU."""
    # The library asks what it writes programs for, and would hear of the CPU that runs this script.
    jax.default_backend = lambda: "gpu"
    return SingleDeviceSharding(
        topologies.get_topology_desc("", platform="cuda", target_config=H200, topology="1x1x1").devices[0]
    )


def compiled(model: Model, worlds: int, device: SingleDeviceSharding) -> tuple[float, float, str]:
    """Return trace time in s, compile time in s, and the optimized program of a batch for `STEPS` steps."""

    def end(state: jaxdae.State) -> jaxdae.Trajectory:
        return jaxdae.rollout(model.system, model.method, state, dt=model.dt, steps=STEPS, save_every=STEPS)

    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((worlds, *jnp.shape(x)), x.dtype, sharding=device), model.start
    )
    begin = time.process_time()
    lowered = jax.jit(jax.vmap(end), in_shardings=device, out_shardings=device).lower(shapes)
    traced = time.process_time()
    text = lowered.compile().as_text()
    return traced - begin, time.process_time() - traced, text


def main() -> None:
    """Count and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=100_000)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument(
        "--precisions", nargs="*", default=["float32", "float64"], choices=["float32", "float64"]
    )
    parser.add_argument(
        "--for-cpu",
        action="store_true",
        help="the program that the library writes for a CPU, compiled for the GPU",
    )
    asked = parser.parse_args()
    device = described()
    if asked.for_cpu:
        jax.default_backend = lambda: "cpu"
    rows = [["", "tracing, s", "compiling, s", "kernels/step"]]
    for name in asked.models:
        for precision in asked.precisions:
            jax.config.update("jax_enable_x64", precision == "float64")
            try:
                model = MODELS[name]()
            except Missing as error:
                print(f"{name}: {error}")
                break
            tracing, compiling, text = compiled(model, asked.worlds, device)
            rows.append(
                [f"{name}, {precision}", f"{tracing:.1f}", f"{compiling:.1f}", str(per_step(text, STEPS))]
            )
            print(*rows[-1], flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
