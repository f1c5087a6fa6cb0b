"""Environments for other libraries: `to_gymnasium`, `to_gymnax`, `to_brax`. Each library is imported where it is asked for, not before."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from jaxdae.envs.environment import Environment
from jaxdae.requirements import checked_count


def to_gymnasium(environment: Any, worlds: int | None = None, *, seed: int = 0, params: Mapping[str, Any] | None = None) -> Any:
    """Returns a `gymnasium.vector.VectorEnv` of many worlds in one compiled program, or a `gymnasium.Env` of one.

    The vector environment resets in the step that ends an episode (`AutoresetMode.SAME_STEP`): `infos["final_obs"]` holds the last
    observations, `infos["_final_obs"]` where there are any, and `infos["status"]` the `jaxdae.Status` of every world. Arrays are NumPy's.

    Args:
        environment: an `Environment`, without `AutoReset`.
        worlds: how many; None for one `gymnasium.Env`.
        seed: of the random numbers until `reset(seed=...)` says otherwise.
        params: leaves of the system by path, stacked over worlds where there are many: (worlds, ...).

    Raises:
        ImportError: Gymnasium is not installed.
        TypeError: no `Environment`, or a number of worlds that is no integer.
        ValueError: a number of worlds below one.
    """
    module = _loaded("gymnasium", "pip install '.[envs]' in a clone of jaxdae")
    if worlds is None:
        return module.SingleEnvironment(_plain(environment), seed, params)
    return module.ManyEnvironments(_plain(environment), checked_count("to_gymnasium: worlds", worlds), seed, params)


def to_gymnax(environment: Any) -> Any:
    """Returns an `Environment` of gymnax (release 1.0.1 or newer, six values a step), whose params are those of jaxdae.

    Its transitions are differentiable: `to_gymnax(environment).with_transition_gradients()`.

    Args:
        environment: an `Environment`, without `AutoReset`, which gymnax does itself.

    Raises:
        ImportError: gymnax is not installed.
        TypeError: no `Environment`.
    """
    return _loaded("gymnax", "pip install 'gymnax>=1.0.1'").GymnaxEnvironment(_plain(environment))


def to_brax(environment: Any, params: Mapping[str, Any] | None = None) -> Any:
    """Returns a `brax.envs.Env` of one world, for the wrappers and agents of brax (which need JAX before 0.10).

    brax's own wrappers count actions, truncate and reset: hand `Task.limit` to them as `episode_length`. They reset to the first state of
    each world.

    Args:
        environment: an `Environment`, without `AutoReset`.
        params: leaves of the system by path.

    Raises:
        ImportError: brax is not installed.
        TypeError: no `Environment`.
    """
    return _loaded("brax", "pip install brax").BraxEnvironment(_plain(environment), params)


def _plain(environment: Any) -> Any:
    """Returns the environment, which must be one that does not reset itself."""
    if not isinstance(environment, Environment):
        raise TypeError(f"expected a jaxdae.envs.Environment without AutoReset, got {type(environment).__name__}")
    return environment


def _loaded(library: str, remedy: str) -> Any:
    """Returns our module on top of a library."""
    try:
        return importlib.import_module(f"jaxdae.envs.{library}_adapter")
    except ImportError as error:
        raise ImportError(f"to_{library} needs {library}: {remedy} ({error})") from error
