"""Gradient descent on any leaf: `fit(loss, parameters, optimizer, steps=...)`.

One step, compiled once:

    loss and gradient at the trained numbers -> norm -> clipping -> optimizer -> new numbers

Three features adapt it to rollouts.

* Trained numbers are functions of free variables, so that bounds hold (`reparametrize`).
* The fit skips a step whose loss, gradient or update is not finite, and does not change the optimizer state.
  It returns to the last good numbers plus half of the step that left them, after two skips a quarter, and so
  on. A fit thus backtracks from a region where rollouts fail.
* The fit stores the numbers with the smallest loss so far.
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

from jaxdae.base.dataclass import batch_axes, pytree
from jaxdae.base.requirements import checked_count, offers
from jaxdae.tuning import averaging
from jaxdae.tuning import checkpoint as checkpoints
from jaxdae.tuning.checkpoint import Checkpoint, CheckpointError
from jaxdae.tuning.differentiation import ByCount, Mode
from jaxdae.tuning.parameters import Reparametrization, Trainable, reparametrize
from jaxdae.typing import Leaf


@pytree
class FitStep:
    """Record of one step of a fit; with many starts each field has an axis of starts.

    Attributes:
        loss: the loss before the step.
        gradient_norm: Euclidean norm of its gradient in the free variables, before clipping.
        update_norm: Euclidean norm of the accepted step in the free variables; zero if skipped.
        learning_rate: learning rate of optimizers made by `optax.inject_hyperparams`; NaN for other
            optimizers, whose state does not contain it.
        skipped: whether loss, gradient or update were not finite, so that the step was skipped.
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
    """The result of a fit.

    Attributes:
        parameters: the parameters with the smallest loss.
        last: the parameters after the last step, whose loss was not evaluated.
        loss: the smallest loss; (starts,) with many starts.
        best_step: the step of the smallest loss, from 0.
        skipped: the number of skipped steps.
        history: `FitStep` with a leading axis of steps.
        recorded: results of `record` before each step, with a leading axis of steps; None without `record`.
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
    """The complete state that a fit carries from step to step, and the content of a checkpoint."""

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
    """Minimize a loss with an optax optimizer, and return the best parameters.

    Args:
        loss: parameters -> scalar; with `batch`, (parameters, item of the batch) -> scalar.
        parameters: any pytree of systems, integrators, states, controls and numbers.
        optimizer: an optax optimizer with its learning rate or schedule, such as `optax.adam(1e-2)`;
            optimizers with a line search (`optax.lbfgs()`) also work. Use
            `optax.inject_hyperparams(optax.adam)(1e-2)` for learning rates in the history.
        steps: the total number of steps, including steps before a checkpoint.
        trainable: the trained leaves and their ranges, see `reparametrize`; all floating-point leaves by
            default.
        batch: pytree of starts or targets stacked along a leading axis, over which the loss is averaged; or a
            function of the step number that returns such a pytree, for a different batch in every step.
        starts: the number of independent fits in one program. Trained leaves are stacks of that many starts,
            each with its own loss, clipping, skips and best; the other leaves are shared.
        stacked: paths of additional leaves that differ between starts, also stacked.
        clip: the largest norm of the gradient in the free variables; longer gradients are scaled to it.
        mode: `Forward()`, `Reverse()` or `ByCount(limit)`, which uses forward mode up to that many trained
            numbers.
        record: parameters -> pytree of arrays, stored for every step in `FitResult.recorded`.
        progress: called after every step with its number, from 0, and its `FitStep`.
        checkpoint: location and frequency of checkpoints. If the file exists, the fit continues from it, with
            the same bits as without interruption. If there are several processes, the first process writes.
        mesh: devices among which the items of the batch are divided; None for one device. The devices may
            belong to several processes (`jax.distributed`), which must all call this function with the same
            arguments. See `jaxdae.tuning.averaging`.

    Raises:
        ValueError: as `reparametrize`; counts that are not positive; a loss that is not a scalar; a
            checkpoint of another fit; a loss or gradient that is not finite at the start of every fit
            (`check_gradients` locates the cause).
        TypeError: an invalid optimizer or mode; counts that are not integers.

    The loop runs on the host with one dispatch per step; the step is compiled once.
    """
    _check(optimizer, mode, steps, starts, clip, checkpoint)
    if mesh is not None and (batch is None or starts is not None):
        raise ValueError("mesh divides the items of a batch; give batch, and omit starts")
    chosen = reparametrize(parameters, trainable, starts=starts)
    # The step number and all parameters are arguments: no value is a constant of the program.
    parameters = jax.tree.map(jnp.asarray, parameters)
    axes = None if starts is None else batch_axes(parameters, *chosen.paths, *stacked)
    task = _Task(
        loss,
        optax.with_extra_args_support(optimizer),
        chosen,
        mode,
        clip,
        record,
        batch if callable(batch) else None,
    )
    fixed_batch = None if callable(batch) else jax.tree.map(jnp.asarray, batch)
    program = _compiled(task, parameters, fixed_batch, axes, starts, mesh, identified=checkpoint is not None)

    carried, history = _begun(program, checkpoint, steps, on_host=mesh is not None)
    for count in range(len(history.steps), steps):
        carried, told = program.step(carried, *program.shared)
        told = jax.device_get(told)
        if count == 0 and not callable(batch) and np.all(told[0].skipped):
            raise ValueError(
                f"fit: the loss ({told[0].loss}) or its gradient (norm {told[0].gradient_norm}) is not "
                "finite at the start, probably because a rollout or the assembly of its start failed; "
                "raise_if_failed(trajectory) reports the cause, check_gradients(loss, parameters) the leaf "
                "and the step"
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
    """The definition of one step of a fit, see `fit`.

    `items_of` returns the batch of a step from its number; None if all steps use the same batch.
    """

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
        start: the carried state before the first step.
        shared: the parameters, whose trained leaves are not read, and the batch of all steps.
        told: the structure of (FitStep, record).
        identity: the fingerprint for checkpoints; empty without a checkpoint.
    """

    step: Callable[..., Any]
    start: _Carried
    shared: tuple[Any, Any]
    told: Any
    identity: dict[str, str]


class _History(NamedTuple):
    """Results of the steps so far: one list per step, with the leaves of (FitStep, record)."""

    structure: Any
    steps: list[list[Any]]

    def told(self) -> Any:
        """Return (FitStep, record) with a leading axis of steps."""
        return jax.tree.unflatten(self.structure, [np.stack(leaf) for leaf in zip(*self.steps, strict=True)])


def _compiled(
    task: _Task, parameters: Any, batch: Any, axes: Any, starts: int | None, mesh: Any, *, identified: bool
) -> _Program:
    """Return the program of one fit, or of `starts` fits; `axes` marks parameters that differ."""

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
    # With several processes, all start from the same numbers, which are on the host.
    given = here if mesh is None else jax.device_get(here)
    lowered = jax.jit(step).lower(*given)
    identity = {}
    if identified:
        # The same fit on other devices continues from the same checkpoint.
        alone = lowered if mesh is None else jax.jit(stepping(None)).lower(*here)
        identity = checkpoints.fingerprint(alone.as_text(), given)
    return _Program(lowered.compile(), given[0], given[1:], jax.tree.structure(lowered.out_info[1]), identity)


def _begun(
    program: _Program, checkpoint: Checkpoint | None, steps: int, *, on_host: bool
) -> tuple[_Carried, _History]:
    """Return the carried state and the history so far, from the checkpoint if it exists."""
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
    """Write a checkpoint in the first process, and pass its history to the callback."""
    if jax.process_index() == 0:
        told = history.told()
        columns = {str(k): leaf for k, leaf in enumerate(jax.tree.leaves(told))}
        checkpoints.write(pathlib.Path(checkpoint.file), jax.device_get(carried), columns, identity)
        _tell(checkpoint, told)


def _tell(checkpoint: Checkpoint, told: Any) -> None:
    """Pass the history of a checkpoint to its callback `saved`."""
    if checkpoint.saved is not None:
        checkpoint.saved(*told)


def _check(
    optimizer: Any, mode: Any, steps: Any, starts: Any, clip: Any, checkpoint: Checkpoint | None
) -> None:
    if not offers(optimizer, "init", "update"):
        hint = "; call it: optax.adam(1e-2), not optax.adam" if callable(optimizer) else ""
        raise TypeError(
            f"optimizer must be an optax optimizer such as optax.adam(1e-2), got {optimizer!r}{hint}"
        )
    if not offers(mode, "value_and_grad"):
        raise TypeError(f"mode must be Forward(), Reverse() or ByCount(limit), got {mode!r}")
    checked_count("steps", steps)
    if starts is not None:
        checked_count("starts", starts)
    if checkpoint is not None:
        checked_count("checkpoint.every", checkpoint.every)
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be positive, the largest norm of the gradient, got {clip!r}")


def _checked_count(
    file: pathlib.Path, carried: _Carried, start: _Carried, stored: Any, columns: int, steps: int
) -> int:
    """Check that a fit can continue from the numbers of a checkpoint, and return its number of steps."""
    count = int(np.max(carried.count))
    for now, then in zip(*(jax.tree.leaves((c.free, c.good, c.best)) for c in (carried, start)), strict=True):
        if np.any(~np.isfinite(now) & np.isfinite(then)):
            raise CheckpointError(
                f"checkpoint: {file} contains non-finite numbers, so the fit cannot continue; remove it to "
                "start over"
            )
    if count > steps or any(len(stored.get(str(k), ())) != count for k in range(columns)):
        raise CheckpointError(
            f"checkpoint: {file} holds {count} steps, expected at most {steps} with their history; remove "
            "it to start over"
        )
    return count


def _begin(free: Any, optimizer: Any) -> _Carried:
    real = jax.tree.leaves(free)[0].dtype
    zero = jnp.zeros((), jnp.int32)
    # Remove weak types, which the step would return as strong types.
    with jax.numpy_dtype_promotion("standard"):
        state = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), optimizer.init(free))
    still = jax.tree.map(jnp.zeros_like, free)
    return _Carried(zero, free, state, free, still, zero, free, jnp.asarray(jnp.inf, real), zero, zero)


def _step(task: _Task, carried: _Carried, shared: Any, items: Any, mesh: Any) -> Any:
    """Return the carried state after a step, and its (FitStep, record).

    Args:
        task: the task of the fit.
        carried: the carried state of the preceding step.
        shared: the parameters, whose trained leaves are replaced by the numbers in `carried`, and the batch.
        items: the batch of all steps; not used if each step has its own batch.
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
    # The selection below discards the result of a skipped step; zeros keep it free of NaN.
    gradient = jax.tree.map(lambda g: jnp.where(finite, g * jnp.asarray(shortened, g.dtype), 0.0), gradient)
    # Optax mixes integers, single and double precision. Strict promotion is for user code only.
    with jax.numpy_dtype_promotion("standard"):
        update, state = task.optimizer.update(
            gradient, carried.optimizer_state, free, value=value, grad=gradient, value_fn=of_free
        )
    update = jax.tree.map(lambda d, x: jnp.asarray(d, x.dtype), update, free)
    length = _norm(update)
    taken = finite & jnp.isfinite(length)
    new = _carried_on(carried, value, update, state, taken)
    told = FitStep(
        value, norm, jnp.where(taken, length, 0.0), _learning_rate(state, norm), ~taken, new.best_loss
    )
    return new, (told, None if task.record is None else task.record(chosen.join(shared, free)))


def _carried_on(carried: _Carried, value: Any, update: Any, state: Any, taken: Any) -> _Carried:
    """Return the next carried state: after an accepted update, or on the way back to the last good numbers.

    Args:
        carried: the carried state of the preceding step.
        value: the loss there.
        update: update of the free variables.
        state: state of the optimizer after the update.
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
    """Return the learning rate in the state of an optimizer, NaN if it does not contain one."""
    for _, found in optax.tree_utils.tree_get_all_with_path(state, "learning_rate"):
        if isinstance(found, jax.Array) and found.ndim == 0:
            return found.astype(like.dtype)
    return jnp.full_like(like, jnp.nan)


def _result(
    chosen: Reparametrization, parameters: Any, carried: _Carried, history: _History, axes: Any
) -> FitResult:
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
