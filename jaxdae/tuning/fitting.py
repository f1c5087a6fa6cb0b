"""Gradient descent on any leaf: `fit(loss, parameters, optimizer, steps=...)`.

One step, compiled once:

    loss and gradient at the trained numbers -> norm -> clipping -> optimizer -> new numbers

Three things make it fit for rollouts. Trained numbers live in free variables, so that bounds hold (`reparametrize`). A step whose loss,
gradient or update is not finite is skipped: the optimizer's state stays as it was, and the numbers go back to the last good ones plus half
of the step that left them (a quarter after two skips, and so on), so that a fit that ran into a region where rollouts fail walks back out
of it. The numbers with the smallest loss so far are kept.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdae._pytree import batch_axes, pytree
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
        TypeError: an optimizer that is none.

    The loop is on the host, one dispatch a step; the step is compiled once.
    """
    _check(optimizer, mode, steps, starts, clip, checkpoint)
    if mesh is not None and (batch is None or starts is not None):
        raise ValueError("mesh divides the items of a batch: give batch, and no starts")
    chosen = reparametrize(parameters, trainable, starts=starts)
    # The step number and the trained leaves are arguments, all else of the parameters too: no value is baked into the program.
    parameters = jax.tree.map(jnp.asarray, parameters)
    fixed_batch = None if callable(batch) else jax.tree.map(jnp.asarray, batch)
    optimizer = optax.with_extra_args_support(optimizer)

    def stepping(over: Any) -> Any:
        def one(carried: _Carried, shared: Any, items: Any) -> Any:
            return _step(loss, optimizer, chosen, mode, clip, record, batch if callable(batch) else items, carried, shared, over)

        return one

    def begin(values: Any) -> _Carried:
        return _begin(chosen.split(values), optimizer)

    if starts is None:
        step, start = stepping(mesh), begin(parameters)
    else:
        axes = batch_axes(parameters, *chosen.paths, *stacked)
        step = jax.vmap(stepping(None), in_axes=(0, axes, None))
        start = jax.vmap(begin, in_axes=(axes,), axis_size=starts)(parameters)
    here = start, parameters, fixed_batch
    if mesh is not None:  # Numbers on the host are the same for all processes.
        start, parameters, fixed_batch = jax.device_get(here)
    lowered = jax.jit(step).lower(start, parameters, fixed_batch)
    identity = {}
    if checkpoint:
        # The same fit on other devices goes on from the same checkpoint.
        alone = lowered if mesh is None else jax.jit(stepping(None)).lower(*here)
        identity = checkpoints.fingerprint(alone.as_text(), (start, parameters, fixed_batch))
    compiled = lowered.compile()

    carried, history = start, []
    template = jax.tree.structure(lowered.out_info[1])
    file = pathlib.Path(checkpoint.file) if checkpoint else None
    if file is not None and file.exists():
        carried, stored = checkpoints.read(file, start, identity)
        count = _checked_count(file, carried, start, stored, template.num_leaves, steps)
        columns = [stored[str(k)] for k in range(template.num_leaves)]
        history = [[column[k] for column in columns] for k in range(count)]
        carried = carried if mesh is not None else jax.tree.map(jnp.asarray, carried)
        _tell(checkpoint, template, stored)
    for count in range(len(history), steps):
        carried, told = compiled(carried, parameters, fixed_batch)
        told = jax.device_get(told)
        if count == 0 and not callable(batch) and np.all(told[0].skipped):
            raise ValueError(
                f"fit: the loss ({told[0].loss}) or its gradient (norm {told[0].gradient_norm}) is not finite at the start, as it is where"
                " a rollout or the assembly of its start failed: raise_if_failed(trajectory) says why,"
                " check_gradients(loss, parameters) which leaf and which step"
            )
        history.append(jax.tree.leaves(told))
        if progress is not None:
            progress(count, told[0])
        if (
            file is not None
            and checkpoint is not None
            and jax.process_index() == 0
            and ((count + 1) % checkpoint.every == 0 or count + 1 == steps)
        ):
            stored = _stacked(history)
            checkpoints.write(file, jax.device_get(carried), stored, identity)
            _tell(checkpoint, template, stored)
    told, recorded = jax.tree.unflatten(template, list(_stacked(history).values()))
    carried = carried if mesh is None else jax.device_get(carried)
    return _result(chosen, parameters, carried, told, recorded, None if starts is None else axes)


def _check(optimizer: Any, mode: Any, steps: Any, starts: Any, clip: Any, checkpoint: Checkpoint | None) -> None:
    if isinstance(optimizer, type) or not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        hint = "; call it: optax.adam(1e-2), not optax.adam" if callable(optimizer) else ""
        raise TypeError(f"optimizer must be an optax optimizer such as optax.adam(1e-2), got {optimizer!r}{hint}")
    if not hasattr(mode, "value_and_grad"):
        raise TypeError(f"mode must be Forward(), Reverse() or ByCount(limit), got {mode!r}")
    for name, value in (("steps", steps), ("starts", starts), ("checkpoint.every", checkpoint.every if checkpoint else None)):
        if value is None and name != "steps":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
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


def _step(
    loss: Any,
    optimizer: Any,
    chosen: Reparametrization,
    mode: Mode,
    clip: Any,
    record: Any,
    batch: Any,
    carried: _Carried,
    shared: Any,
    mesh: Any,
) -> Any:
    """Returns what is carried on, and (FitStep, record) of one step."""
    items = batch(carried.count) if callable(batch) else batch

    def of_item(free: Any, item: Any) -> Any:
        here = chosen.join(shared, free)
        return loss(here) if item is None else loss(here, item)

    def of_free(free: Any) -> Any:
        return averaging.mean(of_item, free, items, mesh)

    free = carried.free
    value, gradient = averaging.value_and_grad(mode, of_item, free, items, mesh)
    norm = _norm(gradient)
    finite = jnp.isfinite(value) & jnp.isfinite(norm)
    shortened = 1.0 if clip is None else jnp.minimum(1.0, clip / jnp.maximum(norm, clip))
    # What a skipped step would have computed is selected away; zeros keep it free of NaN.
    gradient = jax.tree.map(lambda g: jnp.where(finite, g * jnp.asarray(shortened, g.dtype), 0.0), gradient)
    # Optax mixes integers, single and double precision; a user's strict promotion is meant for his own program.
    with jax.numpy_dtype_promotion("standard"):
        update, state = optimizer.update(gradient, carried.optimizer_state, free, value=value, grad=gradient, value_fn=of_free)
    update = jax.tree.map(lambda d, x: jnp.asarray(d, x.dtype), update, free)
    length = _norm(update)
    taken = finite & jnp.isfinite(length)

    def select(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(taken, jnp.asarray(a, jnp.result_type(b)), b), new, old)

    retries: Any = jnp.where(taken, 0, carried.retries + 1)
    backed = jax.tree.map(lambda x, d: x + d * 0.5 ** retries.astype(d.dtype), carried.good, carried.update)
    better = taken & (value < carried.best_loss)
    best_loss = jnp.where(better, value.astype(carried.best_loss.dtype), carried.best_loss)
    new = _Carried(
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
    told = FitStep(value, norm, jnp.where(taken, length, 0.0), _learning_rate(state, norm), ~taken, best_loss)
    return new, (told, None if record is None else record(chosen.join(shared, free)))


def _norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)))


def _learning_rate(state: Any, like: Any) -> Any:
    """Returns the learning rate that the state of an optimizer holds, NaN where it holds none."""
    for _, found in optax.tree_utils.tree_get_all_with_path(state, "learning_rate"):
        if isinstance(found, jax.Array) and found.ndim == 0:
            return found.astype(like.dtype)
    return jnp.full_like(like, jnp.nan)


def _stacked(history: Sequence[Any]) -> dict[str, np.ndarray]:
    return {str(k): np.stack(column) for k, column in enumerate(zip(*history, strict=True))}


def _tell(checkpoint: Checkpoint | None, template: Any, stored: dict[str, np.ndarray]) -> None:
    """Hands the history of a checkpoint to who wants to know of it."""
    if checkpoint is not None and checkpoint.saved is not None:
        checkpoint.saved(*jax.tree.unflatten(template, [stored[str(k)] for k in range(template.num_leaves)]))


def _result(chosen: Reparametrization, parameters: Any, carried: _Carried, told: FitStep, recorded: Any, axes: Any) -> FitResult:
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
