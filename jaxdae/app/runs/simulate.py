"""Simulate the worlds of a config block by block, to show progress and to write results during the run.

A block is one compiled rollout of a fixed number of steps, including the reported quantities of each saved
state. The host only loops over blocks. The result equals the result of one rollout over all steps.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app.config.schema import Config
from jaxdae.app.model import config_laws
from jaxdae.app.model.build import Worlds, cut
from jaxdae.app.runs import interrupts
from jaxdae.app.runs.energy_account import Account, account_of, accounted, relative_error
from jaxdae.app.runs.result_grid import Range
from jaxdae.app.runs.run_identity import selected_kernel
from jaxdae.app.runs.saved_fields import contact_forces, observe
from jaxdae.compile.layout import lanes, local
from jaxdae.compile.platform import on_accelerator
from jaxdae.contact import ContactInfo
from jaxdae.fused import FallbackWarning

_THREADS = "JAXDAE_KERNEL_THREADS"
_ALONE = {"devices": 1, "chunk": 1, "chunks": 1, "added_worlds": 0}
Sink = Callable[[np.ndarray, dict[str, np.ndarray]], None]


@dataclasses.dataclass
class Summary:
    """The summary of a simulation.

    Attributes:
        largest_violation: the maximum over all worlds and steps, in units of the rows.
        largest_velocity_violation: the maximum for the velocity constraints.
        largest_velocity: the maximum over all worlds and saved states, in m/s or rad/s.
        energy_balance_error: largest |E - E(0) - work| in J over all steps, of the world with the worst
            balance.
        energy_exchanged: the energy in J that this world exchanged: the largest of its kinetic energy, the
            range of its potential energy and the range of the work on it.
        energy_balance_relative: `energy_balance_error` over `energy_exchanged`.
        energy_balance_world: the number of this world.
        status: the number of worlds per final status.
        failure: the first failure in words; empty without a failure.
        failed_first: its saved entry and its world, to find the first failure among several parts; empty
            without a failure.
        steps: the number of completed steps.
        compile_s: compilation time in s.
        simulate_s: simulation time in s.
        layout: the number of devices, worlds per device at a time, chunks, added copies of worlds and
            threads, and the bytes that the compiled program needs in all threads. `kernel` is "fused" or
            "xla"; `fallback` is the reason why XLA runs a config that selects fused kernels.
    """

    largest_violation: float = 0.0
    largest_velocity_violation: float = 0.0
    largest_velocity: float = 0.0
    energy_balance_error: float = 0.0
    energy_exchanged: float = 0.0
    energy_balance_relative: float = 0.0
    energy_balance_world: int = 0
    status: dict[str, int] = dataclasses.field(default_factory=dict)
    failure: str = ""
    failed_first: list[int] = dataclasses.field(default_factory=list)
    steps: int = 0
    compile_s: float = 0.0
    simulate_s: float = 0.0
    layout: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Carried:
    """The state of a simulation after a block, from which it resumes bit for bit.

    Attributes:
        state: the states (world, ...).
        status: the status of each world (world,).
        memory: the memories of the integrators, with their energy accounts, (world, ...).
    """

    state: jaxdae.State
    status: Any
    memory: Any


@dataclasses.dataclass(frozen=True)
class Part:
    """The simulated worlds of a run, and their starting point.

    Attributes:
        first: the number of the first world of the part.
        of: the number of worlds of the run.
        carried: the state to resume from; None at the start.
        done: the number of steps completed before.
    """

    first: int = 0
    of: int = 0
    carried: Carried | None = None
    done: int = 0


class Simulator:
    """The compiled program of a config, for any of its worlds; use it inside `precision`.

    Args:
        config: the config.
        block: the number of saved states per block.
        mesh: the devices; None for all devices that JAX sees.
        threads: the number of threads that share the worlds. Each thread runs the program of its share. Use
            several threads on a CPU, where the compiler distributes only large operations of one program over
            cores.
        most: the number of worlds of the largest part, whose program also serves parts that are one chunk of
            worlds smaller; 0 for a single part.
    """

    def __init__(
        self,
        config: Config,
        block: int,
        mesh: jax.sharding.Mesh | None = None,
        threads: int = 1,
        most: int = 0,
    ):
        """Store the settings; compile nothing yet."""
        self._config, self._block, self._threads, self._most = config, block, threads, most
        self._layout = jaxdae.Layout(mesh=mesh, chunk=config.layout.chunk, kernel=selected_kernel(config))
        self._fallback = ""
        self._programs: dict[int, Any] = {}
        self._memory: Any = None

    def carried(self, worlds: Worlds) -> Carried:
        """Return the carried state of worlds at their start."""
        worlds = self._accounted(worlds)
        if self._memory is None:  # shared by all parts: one trace per number of worlds
            self._memory = jax.jit(partial(_first_memory, (worlds.system_axes, worlds.integrator_axes)))
        memory = self._memory(worlds.system, worlds.integrator, worlds.state)
        return Carried(worlds.state, jnp.zeros(worlds.size, jnp.int32), memory)

    def _accounted(self, worlds: Worlds) -> Worlds:
        """Return worlds whose integrators keep an energy account."""
        method, axes = (accounted(each, self._config) for each in (worlds.integrator, worlds.integrator_axes))
        return dataclasses.replace(worlds, integrator=method, integrator_axes=axes)

    def run(
        self,
        worlds: Worlds,
        sink: Sink,
        progress: Callable[[int], None] = lambda done: None,
        summary: Summary | None = None,
        part: Part | None = None,
        saved: Callable[[Carried], None] = lambda carried: None,
    ) -> Summary:
        """Simulate worlds to the end of the run, and return the summary.

        Args:
            worlds: the worlds.
            sink: receives blocks of saved states: instants (time,) in s, and arrays (world, time, ...) by the
                names of `jaxdae.app.runs.results.variables`. The first block begins with the start state.
            progress: receives the number of completed steps after each block.
            summary: updated after each block, so that the caller has a summary even after an interrupt; by
                default, a new one.
            part: the part that these worlds form; by default, all worlds of the config, from their start.
            saved: receives the carried state after each block.
        """
        config = self._config
        summary = Summary() if summary is None else summary
        part = Part(of=worlds.size) if part is None else part
        steps, every = config.steps, config.save_every
        dt = jnp.asarray(config.dt, worlds.state.q.dtype)
        started = time.perf_counter()
        at = self.carried(worlds) if part.carried is None else part.carried
        worlds = self._accounted(worlds)
        shares, summary.layout = self._divided(worlds)
        each = [worlds.part(*share) for share in shares]
        stand: list[Any] = [
            jax.tree.map(lambda x, a=a, b=b: cut(x, a, b), (at.state, at.status, at.memory))
            for a, b in shares
        ]
        run = self._compiled(each[0], stand[0], dt)
        summary.layout |= {"program_bytes": summary.layout["threads"] * _bytes(run)} | self._kernel()
        summary.compile_s += time.perf_counter() - started
        interrupts.check()

        track = _Track(config, worlds, summary, sink, part)
        done = part.done
        before, started = summary.simulate_s, time.perf_counter()

        def advance(index: int) -> tuple[Any, Any]:
            state, status, memory, block = run(each[index].system, each[index].integrator, *stand[index], dt)
            return (state, status, memory), jax.tree.map(local, block)

        while done < steps:
            with _one_thread_per_kernel():
                found = _side_by_side(advance, len(shares), summary.layout["threads"])
            stand, blocks = [end for end, _ in found], [block for _, block in found]
            count = min(self._block, (steps - done) // every)
            block = _whole(blocks, worlds.size)
            with interrupts.held():
                track.take(config.dt * (done + every * np.arange(count + 1)), block)
                done += count * every
                summary.steps, summary.simulate_s = done, before + time.perf_counter() - started
                state, status, memory = _whole(stand, worlds.size)
                saved(Carried(state, status, memory))
            progress(done)
        return summary

    def _divided(self, worlds: Worlds) -> tuple[list[Range], dict[str, Any]]:
        """Return the worlds (first, past the last) of each program call, and their placement for the record.

        On a CPU, each call handles one chunk: a loop over chunks inside the program rounds differently than
        the program of one chunk.
        """
        q, nv = worlds.state.q, worlds.state.v.shape[-1]
        together = 1 if on_accelerator() else lanes(q.dtype)
        shares = _shares(worlds.size, self._threads, together)
        largest = _shares(self._most, self._threads, together) if self._most > 1 else []
        if len(largest) == len(shares) and worlds.size > largest[-1][0] and worlds.size > 1:
            shares = largest
        each = shares[0][1] - shares[0][0]
        if each == 1:
            return shares, _ALONE | {"threads": len(shares)}
        placed = self._layout.placement(each, nv, q.dtype)
        told = placed.record() | {"threads": len(shares)}
        if placed.devices > 1 or on_accelerator():
            return shares, told
        return [(first, first + placed.chunk) for first in range(0, worlds.size, placed.chunk)], told

    def _compiled(self, worlds: Worlds, stand: Any, dt: Any) -> Any:
        """Return the compiled program for this number of worlds."""
        if worlds.size not in self._programs:
            axes, every = (worlds.system_axes, worlds.integrator_axes), self._config.save_every
            block = partial(_block, axes, self._layout, self._block * every, every)
            with warnings.catch_warnings(record=True) as noted:
                warnings.simplefilter("always", FallbackWarning)
                program = jax.jit(block).lower(worlds.system, worlds.integrator, *stand, dt).compile()
            self._programs = {worlds.size: program}
            fallbacks = [each for each in noted if issubclass(each.category, FallbackWarning)]
            for each in noted:
                # With `kernel: auto`, do not warn about a program that cannot become a kernel.
                if each not in fallbacks or self._config.layout.kernel == "fused":
                    warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
            self._fallback = str(fallbacks[0].message) if fallbacks else ""
        return self._programs[worlds.size]

    def _kernel(self) -> dict[str, str]:
        """Return the kernel of the compiled program for the record, and the reason for a fallback."""
        if self._layout.kernel is None or self._fallback:
            return {"kernel": "xla"} | ({"fallback": self._fallback} if self._fallback else {})
        return {"kernel": "fused"}


@contextlib.contextmanager
def _one_thread_per_kernel() -> Iterator[None]:
    """Run kernels on one core each, because the threads of the command use all cores."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        os.environ.pop(_THREADS)
        if before is not None:
            os.environ[_THREADS] = before


def _bytes(program: Any) -> int:
    """Return the bytes that one call of a compiled program needs."""
    needs = program.memory_analysis()
    return needs.temp_size_in_bytes + needs.argument_size_in_bytes + needs.output_size_in_bytes


def _shares(size: int, threads: int, together: int) -> list[Range]:
    """Return the worlds of each thread (first, past the last), in shares of equal size for one program.

    If the run has fewer worlds than the shares, the program also computes copies of the last world. No share
    has only one world (unless the run has one), and all shares are multiples of `together`. The bits of a
    world therefore do not depend on the number of worlds.
    """
    each = -(-size // threads)
    each = -(-each // together) * together if size > 1 else 1
    each = max(each, min(size, 2))
    return [(first, first + each) for first in range(0, size, each)]


def _side_by_side(function: Callable[[int], Any], count: int, threads: int) -> list[Any]:
    """Return the results of a function for the indices below `count`, computed in several threads."""
    if threads == 1:
        return [function(index) for index in range(count)]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, range(count)))


def _whole(trees: Any, size: int) -> Any:
    """Return the joined results of all threads for `size` worlds, (world, ...), on the host."""
    if len(trees) == 1:
        return jax.tree.map(lambda x: local(x)[:size], trees[0])
    return jax.tree.map(lambda *x: np.concatenate([local(part) for part in x])[:size], *trees)


# compiled


def _first_memory(axes: Any, system: Any, integrator: Any, state: Any) -> Any:
    """Return the memory of the integrator before the first step, (world, ...)."""
    return jax.vmap(lambda s, i, x: i.init(s, x), in_axes=(*axes, 0))(system, integrator, state)


def _block(
    axes: Any,
    layout: jaxdae.Layout,
    steps: int,
    every: int,
    system: Any,
    integrator: Any,
    state: Any,
    status: Any,
    memory: Any,
    dt: Any,
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return state, status and memory after a block, and its saved quantities (world, time, ...).

    The saved quantities include the start of the block.
    """
    counts: Any = {"steps": steps, "save_every": every}
    if status.shape[0] == 1 and layout.kernel is None:
        one, method = (_first(tree, kind) for tree, kind in zip((system, integrator), axes, strict=True))
        start, carried = jax.tree.map(lambda x: x[0], (state, memory))
        trajectory = jax.tree.map(
            lambda x: x[None], jaxdae.rollout(one, method, start, dt=dt, memory=carried, **counts)
        )
    else:
        given: Any = {"memory": memory, "layout": layout} | counts
        trajectory = jaxdae.batch_rollout(system, integrator, state, dt=dt, in_axes=(*axes, 0, None), **given)
    # A world that failed in an earlier block keeps its state and status.
    failed = status != jaxdae.Status.OK
    info = trajectory.info
    saved = jax.tree.map(lambda x, old: jnp.where(_over(failed, x), old[:, None], x), trajectory.state, state)
    found: dict[str, Any] = {
        "violation": jnp.where(failed[:, None], 0.0, info.violation),
        "velocity_violation": jnp.where(failed[:, None], 0.0, info.velocity_violation),
        "status": jnp.where(failed[:, None], status[:, None], info.status),
    }
    begin = {name: jnp.zeros_like(x[:, :1]) for name, x in found.items()} | {"status": status[:, None]}
    found = {name: jnp.concatenate([begin[name], x], axis=1) for name, x in found.items()}
    with_start = jax.tree.map(lambda old, x: jnp.concatenate([old[:, None], x], axis=1), state, saved)
    begun = config_laws.memory_at_start(integrator, memory)
    laws_memory = jax.tree.map(
        lambda old, x: jnp.concatenate([old[:, None], x], axis=1), begun, config_laws.memory_after(info)
    )
    last = jax.tree.map(lambda x: x[:, -1], saved)
    contacts = config_laws.contacts_after(info)
    forces = None
    if isinstance(contacts, ContactInfo):
        # No step ends at the start.
        forces = jnp.pad(contacts.row_forces, ((0, 0), (1, 0), (0, 0)))
    found |= observe(axes, system, integrator, (with_start, laws_memory, forces), dt)
    found |= contact_forces(system, contacts, dt)
    # The account of a failed world ends with its last good state.
    memory_now = jax.tree.map(lambda x, old: jnp.where(_over(failed, x), old, x), trajectory.memory, memory)
    begin, end = account_of(integrator, memory), account_of(integrator, memory_now)
    if begin is None or end is None:
        found["work"] = jnp.zeros_like(found["violation"])
    else:
        found["account"] = _accounts(begin, info.account, end, found["status"])
        found["work"] = found["account"].work
    return last, found["status"][:, -1], memory_now, found


def _accounts(begin: Account, after: Account, end: Account, status: Any) -> Account:
    """Return the accounts (world, time) at the start of a block and at its saved states.

    After a failure, a world keeps the account `end` of its last good state.
    """

    def joined(old: Any, new: Any, last: Any) -> Any:
        whole = jnp.concatenate([old[:, None], new], axis=1)
        good = (status == jaxdae.Status.OK).reshape(status.shape + (1,) * (whole.ndim - 2))
        return jnp.where(good, whole, last[:, None])

    return jax.tree.map(joined, begin, after, end)


def _over(flags: Any, like: Any) -> Any:
    return flags.reshape(flags.shape + (1,) * (like.ndim - 1))


def _first(tree: Any, axes: Any) -> Any:
    return jax.tree.map(lambda axis, x: x if axis is None else x[0], axes, tree, is_leaf=lambda x: x is None)


# on the host


class _Track:
    """Pass blocks to the sink, and update the extremes over all blocks."""

    def __init__(self, config: Config, worlds: Worlds, summary: Summary, sink: Sink, part: Part):
        self._config, self._worlds, self._summary, self._sink, self._part = (
            config,
            worlds,
            summary,
            sink,
            part,
        )
        self._is_first = part.carried is None

    def take(self, instants: np.ndarray, block: dict[str, Any]) -> None:
        """Process a block: instants (time,) with its start, arrays (world, time or more, ...), accounts."""
        accounts, last = block.pop("account", None), len(instants) - 1
        block = {name: x[:, : len(instants)] for name, x in block.items()}
        if self._is_first:
            for name in ("violation", "velocity_violation"):
                at_start = getattr(self._worlds.closed, name)[:, None].astype(block[name].dtype)
                block[name] = np.concatenate([at_start, block[name][:, 1:]], axis=1)
        else:
            instants, block = instants[1:], {name: x[:, 1:] for name, x in block.items()}
        self._look(instants, block)
        if accounts is not None:
            # A block may extend beyond the end of the run.
            self._balance(jax.tree.map(lambda x: x[:, last], accounts))
        self._is_first = False
        self._sink(instants, block)

    def _look(self, instants: np.ndarray, block: dict[str, np.ndarray]) -> None:
        summary = self._summary
        for field, name in (
            ("largest_violation", "violation"),
            ("largest_velocity_violation", "velocity_violation"),
            ("largest_velocity", "v"),
        ):
            setattr(
                summary, field, max(getattr(summary, field), float(np.max(np.abs(block[name]), initial=0.0)))
            )
        failed = np.argwhere(block["status"] != jaxdae.Status.OK)
        if failed.size and not summary.failure:
            world, entry = failed[np.argmin(failed[:, 1])]
            code = jaxdae.Status(int(block["status"][world, entry]))
            where = f" in world {self._part.first + world} of {self._part.of}" if self._part.of > 1 else ""
            after = max(instants[entry] - self._config.dt * self._config.save_every, 0.0)
            summary.failure = f"{code.name} after t = {after:.6g} s{where}: {code.meaning}"
            number = round(float(instants[entry]) / (self._config.dt * self._config.save_every))
            summary.failed_first = [number, self._part.first + int(world)]
        codes, counts = np.unique(block["status"][:, -1], return_counts=True)
        names = [jaxdae.Status(int(code)).name for code in codes]
        summary.status = dict(zip(names, counts.tolist(), strict=True))

    def _balance(self, account: Account) -> None:
        """Record the world with the worst energy balance so far."""
        relative, exchanged = relative_error(account, self._config.precision)
        world = int(np.argmax(relative))
        self._summary.energy_balance_relative = float(relative[world])
        self._summary.energy_balance_error = float(account.error[world])
        self._summary.energy_exchanged = float(exchanged[world])
        self._summary.energy_balance_world = self._part.first + world
