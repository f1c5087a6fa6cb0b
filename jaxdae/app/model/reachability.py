"""Reachability of targets: an assembly with the target as a constraint, before any rollout is compiled.

This check appends the rows of the target, a point or a coordinate, to the rows of the mechanism. `initialize`
then tries to close all rows from the start pose and from randomly rotated copies of it. If no attempt closes,
the target is out of reach, and the residual of the best attempt is its distance. Most targets are within
reach. Gauss-Newton steps on the host show that first, because they compile much faster than `initialize`. The
check skips mechanisms with tuned lengths or positions. It also skips velocity targets, because forces decide
about them, not geometry.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app.config.config_source import Document, Location
from jaxdae.app.config.precision import precision
from jaxdae.app.config.problems import Problem
from jaxdae.app.config.schema import Config
from jaxdae.app.model.build import Worlds
from jaxdae.app.model.crosscheck_tuning import target
from jaxdae.app.model.objective import jitted_closing, observer, random_guesses
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.tolerances import shortest_scale
from jaxdae.systems.wrapper import SameCoordinates

_GUESSES, _STEPS = 32, 20
_RANK = 1e-5  # singular values below this fraction of the largest count as zero
_KINETIC = ("mass", "inertia", "damping", "stiffness", "torque", "force", "gravity")


@jaxdae.tree.pytree
class _ReachingEvaluation(Evaluation):
    """The terms of `_Reaching`; autodiff supplies the derivatives.

    Attributes:
        inner: the evaluation of the mechanism.
    """

    inner: Any = None

    @property
    def opening(self) -> Any:
        return jnp.concatenate([self.inner.opening, self.system.miss(self.t, self.q)])

    @property
    def turns_over(self) -> bool:
        return self.inner.turns_over


@jaxdae.tree.pytree
class _Reaching(SameCoordinates, jaxdae.System):
    """A mechanism with a target as an additional constraint."""

    system: Any
    target: Any
    term: Any = jaxdae.tree.static()

    @property
    def coordinates_of(self) -> Any:
        return self.system

    def mass_matrix(self, q: Any) -> Any:
        return self.system.mass_matrix(q)

    def force(self, t: Any, q: Any, v: Any, u: Any) -> Any:
        return jnp.zeros_like(v)

    def evaluate(self, t: Any, q: Any, v: Any = None) -> Evaluation:
        return _ReachingEvaluation(self, t, q, v, self.system.evaluate(t, q, v))

    def constraint(self, t: Any, q: Any) -> Any:
        return jnp.concatenate([self.system.constraint(t, q), self.miss(t, q)])

    def miss(self, t: Any, q: Any) -> Any:
        """Return the distance to the target, (k,) in m or rad."""
        return jnp.atleast_1d(observer(self.term, self.system)(jaxdae.State(t, q, q)) - self.target)


def unreachable(config: Config, document: Document, worlds: Worlds) -> list[Problem]:
    """Return a problem for every target that the mechanism cannot reach."""
    found = []
    sections = (("tune", config.tune), ("optimize", config.optimize))
    for name, section in sections:
        if section is None or (config.tune is not None and name == "tune" and _changes_geometry(config)):
            continue
        for index, term in enumerate(section.loss):
            if term.type in ("point", "coordinate"):
                found += _one(config, document, worlds, term, (name, "loss", index, "target"))
    return found


def _changes_geometry(config: Config) -> bool:
    values = config.model_dump()
    entries = config.tune.parameters if config.tune else []
    locations = [target(values, entry.path)[0] for entry in entries]
    return any(
        location[0] == "mechanism" and not any(part in _KINETIC for part in location[2:])
        for location in locations
    )


def _assembles(reaching: _Reaching, t: Any, guesses: Any) -> bool:
    """Return whether Gauss-Newton steps close all rows from a guess of (n, nq); False proves nothing."""
    still = jnp.zeros(len(reaching.system.names.velocity_units), guesses.dtype)

    @jax.jit
    @jax.vmap
    def rows(q: Any) -> tuple[Any, Any, Any, Any]:
        residual, condition = reaching.constraint(t, q), reaching.condition(t, q)
        jacobian = reaching.constraint_jacobian(t, q, still)[: len(residual)]
        opening = jnp.max(jnp.abs(reaching.evaluate(t, q).opening))
        return residual, jacobian, opening, jnp.asarray(condition is None or condition == jaxdae.Status.OK)

    move = jax.jit(jax.vmap(reaching.retract))
    limit = float(jnp.finfo(guesses.dtype).eps) ** 0.6 * float(shortest_scale(reaching, guesses.dtype))
    for _ in range(_STEPS):
        residual, jacobian, opening, valid = map(np.asarray, rows(guesses))
        if np.any((opening <= limit) & valid):
            return True
        inverse = np.linalg.pinv(np.nan_to_num(jacobian), rcond=_RANK)
        guesses = move(guesses, -np.einsum("nij,nj->ni", inverse, np.nan_to_num(residual)))
    return False


def _one(config: Config, document: Document, worlds: Worlds, term: Any, place: Location) -> list[Problem]:
    with precision(config):
        system, _, state = worlds.one()
        wanted = np.asarray(term.target, float)
        units = dict(zip(system.names.coordinates, system.names.coordinate_units, strict=True))
        if term.type == "coordinate" and units[term.coordinate] == "rad":
            # Geometry does not depend on full turns.
            start = float(observer(term, system)(state))
            wanted = start + (wanted - start + np.pi) % (2.0 * np.pi) - np.pi
        reaching = _Reaching(system, jnp.asarray(wanted, state.q.dtype), term)
        end, guesses = jnp.asarray(config.duration, state.q.dtype), random_guesses(system, state.q, _GUESSES)
        if _assembles(reaching, end, guesses):
            return []
        info = jitted_closing(reaching, end)(guesses)
    if np.any(np.asarray(info.status) == jaxdae.Status.OK):
        return []
    best = np.nanmin(np.linalg.norm(np.asarray(info.residual), axis=1))
    got = (
        f"a target that the mechanism cannot reach: the best of {_GUESSES} assemblies is {best:.3g} m or rad "
        "away from it"
    )
    return [
        document.problem(
            place, got, "a target within reach", "move the target, or change lengths and positions"
        )
    ]
