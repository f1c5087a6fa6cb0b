"""Gradient descent on any leaf: `fit(loss, parameters, optimizer, steps=...)`.

One step, compiled once:

    loss and gradient at the trained numbers -> norm -> clipping -> optimizer -> new numbers

Three things make it fit for rollouts.

* Trained numbers live in free variables, so that bounds hold (`reparametrize`).
* A step whose loss, gradient or update is not finite is skipped. The optimizer's state stays as it was. The numbers go back to the last
  good ones plus half of the step that left them, after two skips a quarter, and so on: a fit that ran into a region where rollouts fail
  walks back out of it.
* The numbers with the smallest loss so far are kept.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdae._pytree import batch_axes, pytree
from jaxdae.requirements import checked_count, offers
from jaxdae.tuning import averaging
from jaxdae.tuning import checkpoint as checkpoints
from jaxdae.tuning.checkpoint import Checkpoint, CheckpointError
from jaxdae.tuning.differentiation import ByCount, Mode
from jaxdae.tuning.parameters import Reparametrization, Trainable, reparametrize
from jaxdae.typing import Leaf


@pytree
class FitStep:
    """What happened in one step of a fit; of many starts each field has their axis.

    Attributes:
        loss: the loss before the step.
        gradient_norm: Euclidean norm of its gradient in the free variables, before clipping.
        update_norm: the same of the step taken.
        learning_rate: of optimizers made by `optax.inject_hyperparams`; NaN of others, whose state does not hold it.
        skipped: whether loss, gradient or update were not finite, so that no step was taken.
        best: the smallest loss so far.
    """

    loss: Leaf
    gradient_norm: Leaf
    update_norm: Leaf
    learning_rate: Leaf
    skipped: Leaf
    best: Leaf


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What a fit found.

    Attributes:
        parameters: the parameters with the smallest loss.
        last: the parameters after the last step, of which the loss was not evaluated.
        loss: the smallest loss; (starts,) of many starts.
        best_step: at which step, from 0.
        skipped: how many steps were skipped.
        history: `FitStep` with a leading axis of steps.
        recorded: what `record` returned before each step, with a leading axis of steps; None without it.
    """

    parameters: Any
    last: Any
    loss: Any
    best_step: Any
    skipped: Any
    history: FitStep
    recorded: Any = None


@pytree
class _Carried:
    """All that a fit carries from step to step; a checkpoint holds nothing else."""

    count: Leaf
    free: Leaf
    optimizer_state: Leaf
    good: Leaf
    update: Leaf
    retries: Leaf
    best: Leaf
    best_loss: Leaf
    best_step: Leaf
    skipped: Leaf


def fit(
    loss: Callable[..., Any],
    parameters: Any,
    optimizer: Any,
    *,
    steps: Any,
    trainable: Trainable = None,
    batch: Any = None,
    starts: Any = None,
    stacked: Sequence[str] = (),
    clip: float | None = None,
    mode: Mode = ByCount(),
    record: Callable[[Any], Any] | None = None,
    progress: Callable[[int, FitStep], None] | None = None,
    checkpoint: Checkpoint | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> FitResult:
    """Returns parameters that make a loss small, by an optax optimizer.

    Args:
        loss: parameters -> scalar; with `batch`, (parameters, item of the batch) -> scalar.
        parameters: any pytree of systems, integrators, states, controls and numbers.
        optimizer: an optax optimizer with its learning rate or schedule, such as `optax.adam(1e-2)`; those that search along a line
            (`optax.lbfgs()`) work too. Write `optax.inject_hyperparams(optax.adam)(1e-2)` for learning rates in the history.
        steps: how many steps in all, those before a checkpoint included.
        trainable: which leaves, and in which ranges, see `reparametrize`; all floating-point leaves by default.
        batch: pytree of starts or targets stacked along a leading axis, over which the loss is averaged; or a function of the step's number
            that returns one, for another batch in every step.
        starts: the number of independent fits in one program: trained leaves are stacks of so many starts, each with its own loss,
            clipping, skips and best; the other leaves are shared.
        stacked: paths of further leaves that differ from start to start, stacked as well.
        clip: the largest norm of the gradient in the free variables; longer ones are shortened to it.
        mode: `Forward()`, `Reverse()` or `ByCount(limit)`, which takes forward mode up to that many trained numbers.
        record: parameters -> pytree of arrays, kept of every step in `FitResult.recorded`.
        progress: called after every step with its number, from 0, and its `FitStep`.
        checkpoint: where and how often to save; a fit whose file is there continues from it, bit for bit as if it had not stopped. Of
            several processes the first one writes.
        mesh: devices among which the items of the batch are divided, those of other processes too (`jax.distributed`), each of which calls
            this with the same arguments; None for one device. See `jaxdae.tuning.averaging`.

    Raises:
        ValueError: as `reparametrize`; counts that are not positive; a loss that is no scalar; a checkpoint of another fit; a loss or
            gradient that is not finite at the start of every fit (`check_gradients` says where from).
        TypeError: an optimizer that is none; counts that are no integers.

    The loop is on the host, one dispatch a step; the step is compiled once.
    """
    _check(optimizer, mode, steps, starts, clip, checkpoint)
    if mesh is not None and (batch is None or starts is not None):
        raise ValueError("mesh divides the items of a batch: give batch, and no starts")
    chosen = reparametrize(parameters, trainable, starts=starts)
    # The step number and the trained leaves are arguments, all else of the parameters too: no value is baked into the program.
    parameters = jax.tree.map(jnp.asarray, parameters)
    axes = None if starts is None else batch_axes(parameters, *chosen.paths, *stacked)
    task = _Task(loss, optax.with_extra_args_support(optimizer), chosen, mode, clip, record, batch if callable(batch) else None)
    fixed_batch = None if callable(batch) else jax.tree.map(jnp.asarray, batch)
    program = _compiled(task, parameters, fixed_batch, axes, starts, mesh, identified=checkpoint is not None)

    carried, history = _begun(program, checkpoint, steps, on_host=mesh is not None)
    for count in range(len(history.steps), steps):
        carried, told = program.step(carried, *program.shared)
        told = jax.device_get(told)
        if count == 0 and not callable(batch) and np.all(told[0].skipped):
            raise ValueError(
                f"fit: the loss ({told[0].loss}) or its gradient (norm {told[0].gradient_norm}) is not finite at the start, as it is where"
                " a rollout or the assembly of its start failed: raise_if_failed(trajectory) says why,"
                " check_gradients(loss, parameters) which leaf and which step"
            )
        history.steps.append(jax.tree.leaves(told))
        if progress is not None:
            progress(count, told[0])
        if checkpoint is not None and ((count + 1) % checkpoint.every == 0 or count + 1 == steps):
            _save(checkpoint, carried, history, program.identity)
    carried = carried if mesh is None else jax.device_get(carried)
    return _result(chosen, program.shared[0], carried, history, axes)


@dataclasses.dataclass(frozen=True)
class _Task:
    """What one step of a fit does, see `fit`; `items_of` makes the batch of a step from its number, None where all steps have one batch."""

    loss: Callable[..., Any]
    optimizer: Any
    chosen: Reparametrization
    mode: Mode
    clip: float | None
    record: Callable[[Any], Any] | None
    items_of: Callable[[Any], Any] | None


class _Program(NamedTuple):
    """A fit ready to run.

    Attributes:
        step: (carried, *shared) -> (carried, (FitStep, record)), compiled.
        start: what is carried into the first step.
        shared: the parameters, whose trained leaves are not read, and the batch of all steps.
        told: the structure of (FitStep, record).
        identity: what a checkpoint of this fit is known by; empty where there is none.
    """

    step: Callable[..., Any]
    start: _Carried
    shared: tuple[Any, Any]
    told: Any
    identity: dict[str, str]


class _History(NamedTuple):
    """What the steps so far told: leaf by leaf of (FitStep, record), a list a step."""

    structure: Any
    steps: list[list[Any]]

    def told(self) -> Any:
        """Returns (FitStep, record) with a leading axis of steps."""
        return jax.tree.unflatten(self.structure, [np.stack(leaf) for leaf in zip(*self.steps, strict=True)])


def _compiled(task: _Task, parameters: Any, batch: Any, axes: Any, starts: int | None, mesh: Any, *, identified: bool) -> _Program:
    """Returns the program of a fit, or of so many of them; `axes` says which parameters differ between these."""

    def stepping(over: Any) -> Any:
        def one(carried: _Carried, shared: Any, items: Any) -> Any:
            return _step(task, carried, shared, items, over)

        return one

    def begin(values: Any) -> _Carried:
        return _begin(task.chosen.split(values), task.optimizer)

    if starts is None:
        step, start = stepping(mesh), begin(parameters)
    else:
        step = jax.vmap(stepping(None), in_axes=(0, axes, None))
        start = jax.vmap(begin, in_axes=(axes,), axis_size=starts)(parameters)
    here = start, parameters, batch
    # Of several processes all begin with the same numbers, which are those on the host.
    given = here if mesh is None else jax.device_get(here)
    lowered = jax.jit(step).lower(*given)
    identity = {}
    if identified:
        # The same fit on other devices goes on from the same checkpoint.
        alone = lowered if mesh is None else jax.jit(stepping(None)).lower(*here)
        identity = checkpoints.fingerprint(alone.as_text(), given)
    return _Program(lowered.compile(), given[0], given[1:], jax.tree.structure(lowered.out_info[1]), identity)


def _begun(program: _Program, checkpoint: Checkpoint | None, steps: int, *, on_host: bool) -> tuple[_Carried, _History]:
    """Returns what is carried into the next step, and the history so far: from the checkpoint, where there is one."""
    if checkpoint is None or not pathlib.Path(checkpoint.file).exists():
        return program.start, _History(program.told, [])
    file = pathlib.Path(checkpoint.file)
    carried, stored = checkpoints.read(file, program.start, program.identity)
    count = _checked_count(file, carried, program.start, stored, program.told.num_leaves, steps)
    columns = [stored[str(k)] for k in range(program.told.num_leaves)]
    _tell(checkpoint, jax.tree.unflatten(program.told, columns))
    history = _History(program.told, [[column[step] for column in columns] for step in range(count)])
    return carried if on_host else jax.tree.map(jnp.asarray, carried), history


def _save(checkpoint: Checkpoint, carried: _Carried, history: _History, identity: dict[str, str]) -> None:
    """Writes a checkpoint, of several processes the first one, and hands its history on."""
    if jax.process_index() == 0:
        told = history.told()
        columns = {str(k): leaf for k, leaf in enumerate(jax.tree.leaves(told))}
        checkpoints.write(pathlib.Path(checkpoint.file), jax.device_get(carried), columns, identity)
        _tell(checkpoint, told)


def _tell(checkpoint: Checkpoint, told: Any) -> None:
    """Hands the history of a checkpoint to who wants to know of it."""
    if checkpoint.saved is not None:
        checkpoint.saved(*told)


def _check(optimizer: Any, mode: Any, steps: Any, starts: Any, clip: Any, checkpoint: Checkpoint | None) -> None:
    if not offers(optimizer, "init", "update"):
        hint = "; call it: optax.adam(1e-2), not optax.adam" if callable(optimizer) else ""
        raise TypeError(f"optimizer must be an optax optimizer such as optax.adam(1e-2), got {optimizer!r}{hint}")
    if not offers(mode, "value_and_grad"):
        raise TypeError(f"mode must be Forward(), Reverse() or ByCount(limit), got {mode!r}")
    checked_count("steps", steps)
    if starts is not None:
        checked_count("starts", starts)
    if checkpoint is not None:
        checked_count("checkpoint.every", checkpoint.every)
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be positive, the largest norm of the gradient, got {clip!r}")


def _checked_count(file: pathlib.Path, carried: _Carried, start: _Carried, stored: Any, columns: int, steps: int) -> int:
    """Returns how many steps a checkpoint holds, after a look at whether a fit can go on from its numbers."""
    count = int(np.max(carried.count))
    for now, then in zip(*(jax.tree.leaves((c.free, c.good, c.best)) for c in (carried, start)), strict=True):
        if np.any(~np.isfinite(now) & np.isfinite(then)):
            raise CheckpointError(
                f"checkpoint: {file} holds numbers that are not finite, from which no fit goes on; remove it to start anew"
            )
    if count > steps or any(len(stored.get(str(k), ())) != count for k in range(columns)):
        raise CheckpointError(
            f"checkpoint: {file} holds {count} steps, expected at most {steps} with their history; remove it to start anew"
        )
    return count


def _begin(free: Any, optimizer: Any) -> _Carried:
    real = jax.tree.leaves(free)[0].dtype
    zero = jnp.zeros((), jnp.int32)
    # Without weak types, which the step would return as strong ones.
    with jax.numpy_dtype_promotion("standard"):
        state = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), optimizer.init(free))
    still = jax.tree.map(jnp.zeros_like, free)
    return _Carried(zero, free, state, free, still, zero, free, jnp.asarray(jnp.inf, real), zero, zero)


def _step(task: _Task, carried: _Carried, shared: Any, items: Any, mesh: Any) -> Any:
    """Returns what is carried on, and (FitStep, record) of one step.

    Args:
        task: of the fit.
        carried: from the step before.
        shared: the parameters, whose trained leaves are those of `carried`.
        items: the batch of all steps; not used where each step has its own.
        mesh: devices for the items of the batch, or None.
    """
    chosen, items = task.chosen, items if task.items_of is None else task.items_of(carried.count)

    def of_item(free: Any, item: Any) -> Any:
        here = chosen.join(shared, free)
        return task.loss(here) if item is None else task.loss(here, item)

    def of_free(free: Any) -> Any:
        return averaging.mean(of_item, free, items, mesh)

    free = carried.free
    value, gradient = averaging.value_and_grad(task.mode, of_item, free, items, mesh)
    norm = _norm(gradient)
    finite = jnp.isfinite(value) & jnp.isfinite(norm)
    shortened = 1.0 if task.clip is None else jnp.minimum(1.0, task.clip / jnp.maximum(norm, task.clip))
    # What a skipped step would have computed is selected away; zeros keep it free of NaN.
    gradient = jax.tree.map(lambda g: jnp.where(finite, g * jnp.asarray(shortened, g.dtype), 0.0), gradient)
    # Optax mixes integers, single and double precision; a user's strict promotion is meant for his own program.
    with jax.numpy_dtype_promotion("standard"):
        update, state = task.optimizer.update(gradient, carried.optimizer_state, free, value=value, grad=gradient, value_fn=of_free)
    update = jax.tree.map(lambda d, x: jnp.asarray(d, x.dtype), update, free)
    length = _norm(update)
    taken = finite & jnp.isfinite(length)
    new = _carried_on(carried, value, update, state, taken)
    told = FitStep(value, norm, jnp.where(taken, length, 0.0), _learning_rate(state, norm), ~taken, new.best_loss)
    return new, (told, None if task.record is None else task.record(chosen.join(shared, free)))


def _carried_on(carried: _Carried, value: Any, update: Any, state: Any, taken: Any) -> _Carried:
    """Returns what is carried on: after the update where it is taken, else on the way back to the last good numbers.

    Args:
        carried: from the step before.
        value: the loss there.
        update: of the free variables.
        state: of the optimizer after it.
        taken: whether loss, gradient and update are finite ().
    """
    free = carried.free

    def select(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(taken, jnp.asarray(a, jnp.result_type(b)), b), new, old)

    retries: Any = jnp.where(taken, 0, carried.retries + 1)
    backed = jax.tree.map(lambda x, d: x + d * 0.5 ** retries.astype(d.dtype), carried.good, carried.update)
    better = taken & (value < carried.best_loss)
    best_loss = jnp.where(better, value.astype(carried.best_loss.dtype), carried.best_loss)
    return _Carried(
        count=carried.count + 1,
        free=select(optax.apply_updates(free, update), backed),
        optimizer_state=select(state, carried.optimizer_state),
        good=select(free, carried.good),
        update=select(update, carried.update),
        retries=retries,
        best=jax.tree.map(lambda a, b: jnp.where(better, a, b), free, carried.best),
        best_loss=best_loss,
        best_step=jnp.where(better, carried.count, carried.best_step),
        skipped=carried.skipped + jnp.where(taken, 0, 1),
    )


def _norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)))


def _learning_rate(state: Any, like: Any) -> Any:
    """Returns the learning rate that the state of an optimizer holds, NaN where it holds none."""
    for _, found in optax.tree_utils.tree_get_all_with_path(state, "learning_rate"):
        if isinstance(found, jax.Array) and found.ndim == 0:
            return found.astype(like.dtype)
    return jnp.full_like(like, jnp.nan)


def _result(chosen: Reparametrization, parameters: Any, carried: _Carried, history: _History, axes: Any) -> FitResult:
    told, recorded = history.told()
    join = chosen.join if axes is None else jax.vmap(chosen.join, in_axes=(axes, 0), out_axes=axes)
    best, last = jax.jit(join)(parameters, carried.best), jax.jit(join)(parameters, carried.free)
    count = np.asarray if axes is not None else int
    return FitResult(
        parameters=best,
        last=last,
        loss=np.asarray(carried.best_loss) if axes is not None else float(carried.best_loss),
        best_step=count(carried.best_step),
        skipped=count(carried.skipped),
        history=told,
        recorded=recorded,
    )
