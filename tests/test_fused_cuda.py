"""CUDA kernels without a GPU: the same source runs on the CPU, where loops over blocks and threads take the
place of a launch.
"""

import ctypes

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.fused import FallbackWarning, cuda, fuse
from jaxdae.fused.call import bound, traced

RUNTIME = r"""
#include <stddef.h>
#include <utility>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
struct dim3 { unsigned x, y, z; dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {} };
static dim3 blockIdx, blockDim, threadIdx;
template <class T> static T __ldg(const T* p) { return *p; }
typedef int cudaError_t;
typedef void* cudaStream_t;
enum { cudaSuccess = 0, cudaDevAttrMultiProcessorCount = 16 };
static const char* cudaGetErrorString(cudaError_t) { return "no error"; }
static cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
static cudaError_t cudaDeviceGetAttribute(int* value, int, int) { *value = 1; return cudaSuccess; }
template <class... A, size_t... K> static void one(void (*f)(A...), void** given, std::index_sequence<K...>) { f(*(A*)given[K]...); }
template <class... A> static cudaError_t cudaLaunchKernel(void (*f)(A...), dim3 grid, dim3 block, void** given, size_t, cudaStream_t) {
  blockDim = block;
  for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) one(f, given, std::index_sequence_for<std::remove_const_t<A>...>());
  return cudaSuccess;
}
"""
CALLER = r"""
#include "xla/ffi/api/c_api.h"
extern "C" XLA_FFI_Error* call(XLA_FFI_CallFrame*);
static XLA_FFI_Error* stream(XLA_FFI_Stream_Get_Args* asked) { asked->stream = NULL; return NULL; }
extern "C" int emulate(void** data, long inputs, int64_t worlds) {
  XLA_FFI_Api api = {};
  api.XLA_FFI_Stream_Get = stream;
  XLA_FFI_Buffer buffers[32] = {};
  void* at[32];
  for (int k = 0; k < 32; ++k) { buffers[k].data = data[k]; buffers[k].dims = &worlds; at[k] = &buffers[k]; }
  XLA_FFI_CallFrame frame = {};
  frame.api = &api;
  frame.args.args = at;
  frame.rets.rets = at + inputs;
  return call(&frame) != NULL;
}
"""
NVCC = """#!/bin/sh
[ "$1" = --version ] && exec g++ --version
for x in "$@"; do shift; case "$x" in -Xcompiler | -arch=* | -prec-*) ;; *) set -- "$@" "$x" ;; esac; done
exec g++ -I{folder} {folder}/caller.cpp -x c++ "$@" -O0
"""


@pytest.fixture
def emulator(tmp_path, monkeypatch):
    """Replace nvcc by a compiler for the CPU, and the GPU by one of compute capability 9.0."""
    (tmp_path / "cuda_runtime.h").write_text(RUNTIME)
    (tmp_path / "caller.cpp").write_text(CALLER)
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text(NVCC.format(folder=tmp_path))
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("JAXDAE_KERNELS", str(tmp_path / "kernels"))
    monkeypatch.setattr(cuda, "architecture", lambda: "sm_90")


def program(x, count, table, at):
    """Loops with saved numbers, branches, a loop of unknown length, gathers, integers and booleans, of one
    world.
    """

    def step(carry, k):
        y, up = carry
        up = jnp.logical_xor(up, y[0] > 0.0)
        y = y + 0.01 * jnp.stack(
            [jnp.sin(y[1]), jnp.where(up, y[0], -y[2]), jnp.sqrt(y[2] * y[2] + 1.0) / (2.0 + y[0] * y[0])]
        )
        y = jax.lax.cond(k % 3 == 0, lambda y: y * table[k], lambda y: y, y)
        return (y, up), (y, up, k + count)

    end, saved = jax.lax.scan(step, (x, count > 2), jnp.arange(50))
    root = jax.lax.while_loop(
        lambda r: jnp.abs(r * r - 2.0 - at[0]) > 1e-3, lambda r: 0.5 * (r + (2.0 + at[0]) / r), at[0] + 1.0
    )
    return end, saved, root, saved[0][count], table[count], jnp.maximum(x, jnp.nan), x.astype(int) % 2


def arguments(worlds, dtype):
    """Return arguments of all worlds; the table is the same in all."""
    draw = np.random.default_rng(0)
    x, at = draw.normal(size=(worlds, 3)), draw.uniform(1.0, 9.0, size=(worlds, 2))
    count, table = draw.integers(0, 9, worlds), np.linspace(0.9, 1.1, 50)
    return [jnp.asarray(x, dtype), jnp.asarray(count), jnp.asarray(table, dtype), jnp.asarray(at, dtype)]


def emulated(kernel, arguments, outputs):
    """Return the results of a CUDA kernel on the CPU."""
    worlds = len(arguments[0])
    results = [np.full((worlds, *aval.shape), 7, aval.dtype) for aval in outputs]
    memory = np.full((kernel.memory, worlds), np.nan, kernel.real)
    inputs = [np.ascontiguousarray(x) for x in arguments]
    pointers = [x.ctypes.data for x in (*inputs, *results, memory)]
    (file,) = (path for path in cuda.library.cache_folder().glob("*.so") if kernel.target.endswith(path.stem))
    assert not ctypes.CDLL(str(file)).emulate(
        (ctypes.c_void_p * 32)(*pointers), len(inputs), ctypes.c_int64(worlds)
    )
    return results


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.exhaustive)])
def test_cuda_kernels_equal_cpu_kernels(emulator, dtype):
    given = arguments(200, dtype)
    batched = (True, True, False, True)
    compiled, _ = traced(program, *[x[0] if each else x for x, each in zip(given, batched, strict=True)])
    kernel = compiled.kernel(batched, cuda)
    assert kernel.memory > 150
    found = emulated(kernel, given, compiled.outputs)
    expected = jax.vmap(fuse(program), in_axes=[0 if each else None for each in batched])(*given)
    for one, other in zip(found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(
            one, other, rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-6 if dtype == "float32" else 1e-14
        )
    assert np.isnan(found[-2]).all()
    call = jax.jit(
        jax.vmap(lambda *x: bound(compiled, list(x)), in_axes=[0 if each else None for each in batched])
    )
    text = call.trace(*given).lower(lowering_platforms=("cuda",)).as_text()
    (line,) = (line for line in text.splitlines() if kernel.target in line)
    assert (
        f"tensor<{kernel.memory}x200xf{dtype[-2:]}>" in line.split("->")[1]
    )  # XLA allocates the temporary memory.


def test_the_reason_of_a_fallback_is_stated(monkeypatch, tmp_path):
    function, x = jax.jit(jax.vmap(fuse(lambda x: x + 1.0))), jnp.zeros((4, 3))
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(FallbackWarning) as record:
        text = function.trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert "jaxdae_fused" not in text
    assert str(record[0].message) == (
        "no fused kernel: no nvcc found; install the CUDA toolkit, put nvcc on PATH, or set CUDA_HOME to "
        "the folder of the toolkit. "
        "XLA runs the program"
    )
