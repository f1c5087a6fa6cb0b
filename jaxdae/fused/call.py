"""A function of one world as a primitive of JAX that runs as one kernel.

`fuse(f)` traces f once per structure and binds its jaxpr to the primitive `fused`. The rules of the primitive
are:

* Batching: the worlds are the leading axis of every batched argument. Nested batches are one batch.
* Forward mode: the tangents of the outputs are another function of one world, f'(x) dx, and another kernel.
* Reverse mode: the transpose of f'(x) dx is the kernel of the pullback, which runs forward and backward
  through the program and keeps its residuals in the memory of the kernel.
* Lowering: on a CPU or an NVIDIA GPU, the kernel, see `cpu.py` and `cuda.py`; elsewhere, or if the program
  cannot become a kernel, `jax.vmap` of the jaxpr.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from jaxdae.compile.layout import Automatic, Fused
from jaxdae.compile.platform import tracing_for_kernel
from jaxdae.fused import cpu, cuda
from jaxdae.fused.emit import Code, emit
from jaxdae.fused.graph import Graph, Unsupported, kind_of
from jaxdae.fused.library import Argument
from jaxdae.fused.lower import Lowering

LARGEST = Fused.largest
NODES = 15
"""The largest number of nodes per operation while lowering, among them one node per saved number."""


class FallbackWarning(UserWarning):
    """A program runs by XLA, because it cannot become a kernel; the message states the reason."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A compiled kernel.

    Attributes:
        target: the name under which XLA calls it.
        memory: the numbers per world in temporary memory that the caller provides.
        real: their type.
    """

    target: str
    memory: int
    real: Any


class Program:
    """A closed jaxpr of one world, with its kernels and its derivatives."""

    def __init__(self, jaxpr: Any) -> None:
        self.jaxpr = jaxpr
        self._codes: dict[tuple[bool, ...], tuple[Code, Any]] = {}
        self._kernels: dict[Any, Kernel] = {}
        self._tangents: dict[tuple[bool, ...], Program] = {}
        self._pullbacks: dict[tuple[bool, ...], Program] = {}

    @cached_property
    def outputs(self) -> list[Any]:
        """Shapes and dtypes of the outputs of one world."""
        return [v.aval for v in self.jaxpr.jaxpr.outvars]

    def __call__(self, *arguments: Any) -> list[Any]:
        """Return the outputs of one world, by XLA."""
        return core.jaxpr_as_fun(self.jaxpr)(*arguments)

    def code(self, batched: tuple[bool, ...], largest: int = LARGEST) -> tuple[Code, Any]:
        """Return the code and its floating-point type, for the arguments that differ between worlds.

        Raises:
            Unsupported: the program cannot become a kernel, or it has more operations than `largest`.
        """
        if batched not in self._codes:
            real = _real(self.jaxpr)
            graph = Graph(real, NODES * largest)
            arguments = []
            for variable, each in zip(self.jaxpr.jaxpr.invars, batched, strict=True):
                shape = variable.aval.shape
                memory = graph.buffer("arg", math.prod(shape), kind_of(variable.aval.dtype), not each)
                entries = np.empty(shape, object)
                entries.reshape(-1)[:] = [graph.load(memory, k) for k in range(memory.size)]
                arguments.append(entries)
            with (
                jax.ensure_compile_time_eval()
            ):  # Rules apply primitives to places of entries, also while JAX traces.
                code = emit(graph, Lowering(graph, "cpu").closed(self.jaxpr, arguments))
            total = sum(code.operations.values())
            if total > largest:
                raise Unsupported(f"{total} operations; at most {largest}")
            self._codes[batched] = code, real
        return self._codes[batched]

    def kernel(self, batched: tuple[bool, ...], backend: Any, largest: int = LARGEST) -> Kernel:
        """Return the compiled kernel.

        Args:
            batched: which arguments differ between worlds.
            backend: the module `cpu` or `cuda`.
            largest: the largest number of operations.

        Raises:
            Unsupported: the program cannot become a kernel, or the compiler is missing.
        """
        if (batched, backend) not in self._kernels:
            code, real = self.code(batched, largest)
            inputs = [
                _argument(v.aval, each) for v, each in zip(self.jaxpr.jaxpr.invars, batched, strict=True)
            ]
            outputs = [_argument(aval, True) for aval in self.outputs]
            text = backend.source(code, inputs, outputs, real)
            target = backend.registered(backend.compiled(text, sum(code.operations.values())))
            self._kernels[batched, backend] = Kernel(target, code.temporaries if backend is cuda else 0, real)
        return self._kernels[batched, backend]

    def tangent(self, moving: tuple[bool, ...]) -> Program:
        """Return the program (x, dx of the moving arguments) -> tangents of the floating-point outputs."""
        if moving not in self._tangents:
            places = [k for k, moves in enumerate(moving) if moves]
            floats = [k for k, aval in enumerate(self.outputs) if jnp.issubdtype(aval.dtype, jnp.floating)]

            def push(arguments: Any, dots: Any) -> Any:
                def outputs(*values: Any) -> Any:
                    found = self(*_replaced(arguments, places, values))
                    return [found[k] for k in floats]

                return jax.jvp(outputs, [arguments[k] for k in places], dots)[1]

            avals = [v.aval for v in self.jaxpr.jaxpr.invars]
            self._tangents[moving] = _program(push, avals, [avals[k] for k in places])
        return self._tangents[moving]

    def pullback(self, linear: tuple[bool, ...]) -> Program:
        """Return the transpose: (other arguments, output cotangents) -> linear cotangents."""
        if linear not in self._pullbacks:
            places = [k for k, is_linear in enumerate(linear) if is_linear]
            rest = [k for k, is_linear in enumerate(linear) if not is_linear]
            avals = [v.aval for v in self.jaxpr.jaxpr.invars]

            def pull(others: Any, cotangents: Any) -> Any:
                def outputs(*values: Any) -> Any:
                    arguments: list[Any] = [None] * len(avals)
                    return self(*_replaced(_replaced(arguments, rest, others), places, values))

                return jax.linear_transpose(outputs, *[_shape(avals[k]) for k in places])(cotangents)

            self._pullbacks[linear] = _program(pull, [avals[k] for k in rest], self.outputs)
        return self._pullbacks[linear]


def fuse(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of one world whose batches, made by `jax.vmap`, run as one kernel.

    Args:
        function: takes and returns pytrees of arrays; no callbacks and no random numbers inside.

    A batch runs each world through the whole program, with intermediate values in registers. Differentiable,
    forward and reverse; the derivatives are kernels, too. A program that cannot become a kernel runs by XLA,
    with a `FallbackWarning` that states the reason. Zero times a number is zero where the zero is part of the
    structure of the program, even if the number is NaN.
    """
    programs: dict[Any, Any] = {}

    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        leaves = [jnp.asarray(x) for x in leaves]
        key = structure, tuple((x.shape, x.dtype, x.weak_type) for x in leaves)
        if key not in programs:
            programs[key] = traced(function, *arguments)
        program, out_structure = programs[key]
        return jax.tree.unflatten(out_structure, bound(program, leaves))

    return call


def fused_over_worlds(
    function: Callable[..., Any], arguments: Any, axes: list[int | None], largest: int = LARGEST
) -> Callable[..., Any]:
    """Return `jax.vmap(fuse(function))` for arguments of this structure, with a compiled kernel.

    Args:
        function: a function of one world.
        arguments: the arguments of all worlds, of which shapes and dtypes matter.
        axes: the axis of the worlds of each leaf, None for a leaf that all worlds share.
        largest: the largest number of operations of the kernel.

    Raises:
        Unsupported: the function cannot become a kernel; the message states the reason.
    """
    backend = _backend()
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [
        jax.ShapeDtypeStruct(
            jnp.shape(x) if axis is None else np.delete(jnp.shape(x), axis),
            jnp.result_type(x),
            weak_type=jax.typeof(x).weak_type,
        )
        for x, axis in zip(leaves, axes, strict=True)
    ]
    program, out = traced(function, *jax.tree.unflatten(structure, shapes))
    program.kernel(tuple(axis is not None for axis in axes), backend, largest)

    def call(*given: Any) -> Any:
        worlds = jax.vmap(lambda *x: bound(program, list(x)), in_axes=tuple(axes))
        return jax.tree.unflatten(out, worlds(*[jnp.asarray(x) for x in jax.tree.leaves(given)]))

    return call


def _backend() -> Any:
    """Return the module of the kernels for the default platform."""
    found = {"cpu": cpu, "gpu": cuda}.get(jax.default_backend())
    if found is None:
        raise Unsupported(
            f"fused kernels run on CPUs and NVIDIA GPUs, and the default platform is {jax.default_backend()}"
        )
    return found


def compiler_version() -> str:
    """Return the version of the compiler of kernels for the default platform.

    Raises:
        Unsupported: the compiler is missing, or the platform has no kernels.
    """
    return _backend().compiler_version()


def chosen_kernel(kernel: Fused | Automatic | None, work: int) -> Fused | None:
    """Return the kernel that runs a batch, None for XLA.

    Args:
        kernel: the kernel of a `Layout`.
        work: the product of worlds and steps.
    """
    if not isinstance(kernel, Automatic):
        return kernel
    try:
        found = work >= kernel.work and jax.default_backend() == "cpu" and bool(cpu.compiler())
    except Unsupported:
        found = False
    return Fused(kernel.largest) if found else None


def warn_of_fallback(reason: str) -> None:
    """Warn that XLA runs a program, and state the reason."""
    warnings.warn(f"no fused kernel: {reason}. XLA runs the program", FallbackWarning, stacklevel=3)


def traced(function: Callable[..., Any], *arguments: Any) -> tuple[Program, Any]:
    """Return the program of a function for the arguments or shapes of one world, and its result structure."""
    with tracing_for_kernel():
        jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return Program(jaxpr), jax.tree.structure(shape)


def bound(program: Program, leaves: list[Any]) -> list[Any]:
    """Return the outputs of a program at the leaves of its arguments."""
    return fused_p.bind(*leaves, program=program, batched=(False,) * len(leaves))


# The primitive. Batched arguments and outputs have the axis of the worlds in front; without batched arguments
# no output has it.

fused_p = core.Primitive("fused")
fused_p.multiple_results = True


def _worlds(arguments: Any, batched: tuple[bool, ...]) -> int | None:
    return next((x.shape[0] for x, each in zip(arguments, batched, strict=True) if each), None)


@fused_p.def_abstract_eval
def _abstract(*avals: Any, program: Program, batched: tuple[bool, ...]) -> Any:
    worlds = _worlds(avals, batched)
    leading = () if worlds is None else (worlds,)
    return [aval.update(shape=(*leading, *aval.shape)) for aval in program.outputs]


def _by_xla(*arguments: Any, program: Program, batched: tuple[bool, ...]) -> Any:
    if not any(batched):
        return program(*arguments)
    return jax.vmap(program, in_axes=[0 if each else None for each in batched])(*arguments)


def _by_kernel(backend: Any, *arguments: Any, program: Program, batched: tuple[bool, ...]) -> Any:
    try:
        kernel = program.kernel(batched, backend)
    except Unsupported as reason:
        warn_of_fallback(str(reason))
        return _by_xla(*arguments, program=program, batched=batched)
    worlds = _worlds(arguments, batched)
    count = 1 if worlds is None else worlds
    shapes = [jax.ShapeDtypeStruct((count, *aval.shape), aval.dtype) for aval in program.outputs]
    memory = [jax.ShapeDtypeStruct((kernel.memory, count), kernel.real)] if kernel.memory else []
    found = jax.ffi.ffi_call(kernel.target, [*shapes, *memory])(*arguments)[: len(shapes)]
    return found if worlds is not None else [x[0] for x in found]


@fused_p.def_impl
def _run(*arguments: Any, **params: Any) -> Any:
    return jax.jit(lambda *x: fused_p.bind(*x, **params))(*arguments)


def _batching(arguments: Any, axes: Any, *, program: Program, batched: tuple[bool, ...]) -> Any:
    size = next(x.shape[axis] for x, axis in zip(arguments, axes, strict=True) if axis is not None)
    first = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(arguments, axes, strict=True)]
    worlds = _worlds([x[0] if axis is not None else x for x, axis in zip(first, axes, strict=True)], batched)
    if worlds is None:
        found = fused_p.bind(*first, program=program, batched=tuple(axis is not None for axis in axes))
        return found, [0] * len(found)
    # Every pair of (new, old) world is a world.
    flat, every = [], []
    for x, axis, each in zip(first, axes, batched, strict=True):
        if axis is None and each:
            x = jnp.broadcast_to(x, (size, *x.shape))
        elif axis is not None and not each:
            x = jnp.broadcast_to(x[:, None], (size, worlds, *x.shape[1:]))
        every.append(axis is not None or each)
        flat.append(x.reshape(size * worlds, *x.shape[2:]) if every[-1] else x)
    found = fused_p.bind(*flat, program=program, batched=tuple(every))
    return [x.reshape(size, worlds, *x.shape[1:]) for x in found], [0] * len(found)


def _jvp(primals: Any, tangents: Any, *, program: Program, batched: tuple[bool, ...]) -> Any:
    found = fused_p.bind(*primals, program=program, batched=batched)
    moving = tuple(type(dx) is not ad.Zero for dx in tangents)
    dots = [dx for dx, moves in zip(tangents, moving, strict=True) if moves]
    each = (*batched, *[b for b, moves in zip(batched, moving, strict=True) if moves])
    pushed = iter(fused_p.bind(*primals, *dots, program=program.tangent(moving), batched=each))
    is_float = [jnp.issubdtype(aval.dtype, jnp.floating) for aval in program.outputs]
    return found, [
        next(pushed) if moves else ad.Zero(jax.typeof(x).to_tangent_aval())
        for x, moves in zip(found, is_float, strict=True)
    ]


def _transpose(cotangents: Any, *arguments: Any, program: Program, batched: tuple[bool, ...]) -> Any:
    linear = tuple(ad.is_undefined_primal(x) for x in arguments)
    others = [x for x, is_linear in zip(arguments, linear, strict=True) if not is_linear]
    worlds = _worlds([x.aval if ad.is_undefined_primal(x) else x for x in arguments], batched)
    sides = [ad.instantiate_zeros(x) for x in cotangents]
    each = (
        *[b for b, is_linear in zip(batched, linear, strict=True) if not is_linear],
        *[worlds is not None] * len(sides),
    )
    found = iter(fused_p.bind(*others, *sides, program=program.pullback(linear), batched=each))
    result: list[Any] = []
    for b, is_linear in zip(batched, linear, strict=True):
        if not is_linear:
            result.append(None)
            continue
        x = next(found)
        result.append(x if b or worlds is None else jnp.sum(x, axis=0))
    return result


ad.primitive_jvps[fused_p] = _jvp
ad.primitive_transposes[fused_p] = _transpose
batching.primitive_batchers[fused_p] = _batching
mlir.register_lowering(fused_p, mlir.lower_fun(_by_xla, multiple_results=True))
mlir.register_lowering(
    fused_p, mlir.lower_fun(partial(_by_kernel, cpu), multiple_results=True), platform="cpu"
)
mlir.register_lowering(
    fused_p, mlir.lower_fun(partial(_by_kernel, cuda), multiple_results=True), platform="cuda"
)


# Details.


def _program(function: Callable[..., Any], *avals: list[Any]) -> Program:
    with tracing_for_kernel():
        return Program(jax.make_jaxpr(function)(*[[_shape(aval) for aval in group] for group in avals]))


def _shape(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _replaced(values: Any, places: list[int], new: Any) -> list[Any]:
    out = list(values)
    for k, x in zip(places, new, strict=True):
        out[k] = x
    return out


def _argument(aval: Any, each: bool) -> Argument:
    return Argument(np.dtype(aval.dtype).name, math.prod(aval.shape), not each)


def _real(jaxpr: Any) -> Any:
    """Return the floating-point type of a program.

    Raises:
        Unsupported: the program has several of them, or no number of such a type.
    """
    floats = [
        v.aval
        for v in (*jaxpr.jaxpr.invars, *jaxpr.jaxpr.outvars)
        if jnp.issubdtype(v.aval.dtype, jnp.floating)
    ]
    found = {aval.dtype for aval in floats if not aval.weak_type} or {aval.dtype for aval in floats}
    names = {np.dtype(x).name for x in found}
    if len(names) != 1 or not names <= {"float32", "float64"}:
        raise Unsupported(
            f"floating-point numbers of the types {', '.join(sorted(names)) or 'none'}; use only one of "
            "float32 and float64"
        )
    return np.dtype(names.pop())
