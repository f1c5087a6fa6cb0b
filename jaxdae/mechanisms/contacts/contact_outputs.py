"""Gaps, slips and forces of contacts by name, for losses, control laws and plots.

A name is the name of a contact in `mechanism.names.contacts`, such as "foot.corner2", or the name of a pair,
such as "foot", which selects all of its contacts.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import pytree, static
from jaxdae.geometry.pairs.contact_points import Points
from jaxdae.mechanisms.contacts.contact_pairs import ContactGeometry
from jaxdae.typing import Coordinates, Leaf

Made = TypeVar("Made", bound="_OfMechanism")


@pytree
class _OfMechanism:
    """Contacts of a mechanism.

    Attributes:
        contacts: the indices of the contacts (static).
        pairs: the pairs of shapes of the mechanism.
        coordinates: the map from q to body frames of the mechanism.
    """

    contacts: tuple[int, ...] = static(one_of=tuple)
    pairs: Leaf
    coordinates: Leaf

    @classmethod
    def named(cls: type[Made], mechanism: Any, *names: str) -> Made:
        """Return the output for names of contacts or pairs.

        The output stores the shapes and lengths that the mechanism has at that time. If they are
        differentiated or differ between worlds, create the output from the simulated mechanism.

        Raises:
            ValueError: no name, an unknown one, or a mechanism without contacts.
        """
        return cls(_numbers(mechanism, names), mechanism.contacts, mechanism.coordinates)


@pytree
class Gap(_OfMechanism):
    """The output y(q) = gaps of contacts (k,) in m; negative: penetration.

    Example:
        >>> gap = Gap.named(mechanism, "foot")
        >>> gap(state.q)  # one gap per contact of the pair "foot"
    """

    def __call__(self, q: Coordinates) -> Float[Array, " k"]:
        """Return y (k,)."""
        points: Points = self.pairs.points(self.coordinates.at_rest(q))
        return points.gap[jnp.asarray(self.contacts)]


@pytree
class Slip(_OfMechanism):
    """Tangential velocities (k, tangents) in m/s of body b relative to body a, in the axes of the contacts.

    They are velocities of material points at the contact, also while the contact is open.

    Example:
        >>> slip = Slip.named(mechanism, "foot")
        >>> tuning.tracking(trajectory, slip, 0.0)  # the squared slip over time
    """

    def __call__(self, state: Any) -> Float[Array, "k tangents"]:
        """Return the slips (k, tangents) at a `State`."""
        motion = self.coordinates.at_rest(state.q)
        touch: ContactGeometry = self.pairs.touch(self.coordinates, motion, state.q, state.t)
        velocity = (touch.rows @ state.v + touch.drift).reshape(touch.gap.shape[0], -1)
        return velocity[jnp.asarray(self.contacts), 1:]


@pytree
class ContactForce:
    """Contact forces (k, 1 + tangents) in N on body b: normal force, then friction along each tangent.

    They are mean forces over a step with `jaxdae.contact.Touching`. A step is not a function of the state at
    its end, so this output reads the step information of a trajectory.

    Attributes:
        contacts: the indices of the contacts (static).

    Example:
        >>> force = ContactForce.named(mechanism, "foot")
        >>> force(trajectory.info)[..., 0]  # normal forces (time, k)
        >>> tuning.tracking(trajectory, force(trajectory.info)[..., 0], 20.0)
    """

    contacts: tuple[int, ...] = static(one_of=tuple)

    @classmethod
    def named(cls, mechanism: Any, *names: str) -> ContactForce:
        """Return the output for names of contacts or pairs.

        Raises:
            ValueError: no name, an unknown one, or a mechanism without contacts.
        """
        return cls(_numbers(mechanism, names))

    def __call__(self, info: Any) -> Float[Array, "... k axes"]:
        """Return the forces (..., k, 1 + tangents) from a `ContactInfo` with any leading axes."""
        return info.force[..., jnp.asarray(self.contacts), :]


def _numbers(mechanism: Any, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of contacts, see `ContactPairs.numbers`."""
    if mechanism.contacts is None:
        raise ValueError("the mechanism has no contacts; add contacts=[contact.Pair(...)] to its description")
    return mechanism.contacts.numbers(*names)
