"""Adapters for other libraries: `to_gymnasium`, `to_gymnax`, `to_brax`. Each imports its library on call."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from jaxdae.base.requirements import checked_count
from jaxdae.envs.environment import Environment


def to_gymnasium(
    environment: Any, worlds: int | None = None, *, seed: int = 0, params: Mapping[str, Any] | None = None
) -> Any:
    """Return a `gymnasium.vector.VectorEnv` of many worlds in one compiled program, or a `gymnasium.Env`.

    The vector environment resets in the step that ends an episode (`AutoresetMode.SAME_STEP`).
    `infos["final_obs"]` holds the last observations, `infos["_final_obs"]` marks the worlds that have one,
    and `infos["status"]` holds the `jaxdae.Status` of every world. Arrays are NumPy arrays.

    Args:
        environment: an `Environment`, without `AutoReset`.
        worlds: number of worlds; None for one `gymnasium.Env`.
        seed: random seed until `reset(seed=...)` replaces it.
        params: leaves of the system by path; with several worlds stacked, (worlds, ...).

    Raises:
        ImportError: Gymnasium is not installed.
        TypeError: environment is not an `Environment`, or worlds is not an integer.
        ValueError: worlds is less than one.
    """
    module = _loaded("gymnasium", "pip install '.[envs]' in a clone of jaxdae")
    if worlds is None:
        return module.SingleEnvironment(_plain(environment), seed, params)
    return module.ManyEnvironments(
        _plain(environment), checked_count("to_gymnasium: worlds", worlds), seed, params
    )


def to_gymnax(environment: Any) -> Any:
    """Return a gymnax `Environment` (release 1.0.1 or newer, six values per step) with the params of jaxdae.

    Its transitions are differentiable: `to_gymnax(environment).with_transition_gradients()`.

    Args:
        environment: an `Environment` without `AutoReset`, because gymnax resets environments itself.

    Raises:
        ImportError: gymnax is not installed.
        TypeError: environment is not an `Environment`.
    """
    return _loaded("gymnax", "pip install 'gymnax>=1.0.1'").GymnaxEnvironment(_plain(environment))


def to_brax(environment: Any, params: Mapping[str, Any] | None = None) -> Any:
    """Return a `brax.envs.Env` of one world, for wrappers and agents of brax (which need JAX before 0.10).

    The wrappers of brax count actions, truncate and reset: pass `Task.limit` to them as `episode_length`.
    They reset to the first state of each world.

    Args:
        environment: an `Environment`, without `AutoReset`.
        params: leaves of the system by path.

    Raises:
        ImportError: brax is not installed.
        TypeError: environment is not an `Environment`.
    """
    return _loaded("brax", "pip install brax").BraxEnvironment(_plain(environment), params)


def _plain(environment: Any) -> Any:
    """Return the environment, which must not reset itself."""
    if not isinstance(environment, Environment):
        raise TypeError(
            f"expected a jaxdae.envs.Environment without AutoReset, got {type(environment).__name__}"
        )
    return environment


def _loaded(library: str, remedy: str) -> Any:
    """Return the adapter module of a library."""
    try:
        return importlib.import_module(f"jaxdae.envs.{library}_adapter")
    except ImportError as error:
        raise ImportError(f"to_{library} needs {library}: {remedy} ({error})") from error
