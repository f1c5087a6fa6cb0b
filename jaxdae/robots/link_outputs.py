"""Links and the mass center as feedback outputs: y(q) for `jaxdae.control`, `jaxdae.tuning` and plots.

The position of a point of a link is c + R p, with the position c and the rotation R of the body that contains
the link, and p in the frame of that body. See `jaxdae.robots.quantities`, which also describes the warning at
coordinates that violate the constraints. Rates, Jacobians and bias accelerations follow by autodiff, as for
all outputs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import brief
from jaxdae.mechanisms import GROUND
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.robots.load_report import Report
from jaxdae.robots.quantities import center_of_mass, found_frame
from jaxdae.systems.state_checks import report_coordinates
from jaxdae.typing import Coordinates, Leaf


@pytree
class LinkPlace:
    """y = the world position of a point of a link (3,), in m.

    Attributes:
        mechanism: mechanism in joint or absolute coordinates.
        body: index of the body that contains the link (static).
        point: (3,) in the frame of the body, in m.
    """

    mechanism: Mechanism
    body: int = static(one_of=int)
    point: Leaf

    @classmethod
    def named(
        cls, report: Report, mechanism: Mechanism, name: str, point: Any = (0.0, 0.0, 0.0)
    ) -> LinkPlace:
        """Return the output for the name of a link, a frame or a site.

        Args:
            report: report of the robot.
            mechanism: mechanism of its description.
            name: name of the link, frame or site.
            point: (3,) in the axes of the link, from its origin, in m.

        Raises:
            ValueError: an unknown name, or a link that is welded to the ground.
        """
        frame = found_frame(report, name)
        if frame.body == GROUND:
            raise ValueError(
                f"LinkPlace.named: {brief(name)} is welded to the ground and cannot move; name a moving link"
            )
        place = np.asarray(frame.place) + np.asarray(frame.rotation) @ np.asarray(point, float)
        return cls(mechanism, mechanism.body_names.index(frame.body), jnp.asarray(place, mechanism.dtype))

    def __call__(self, q: Coordinates) -> Array:
        """Return y (3,)."""
        body = jax.tree.map(lambda entry: entry[self.body], self.mechanism.frames(q))
        place = body.point(self.point).array()
        report_coordinates("LinkPlace", self.mechanism, q, place)
        return place


@pytree
class CenterOfMass:
    """y = the mass center of all bodies (3,), in m.

    Attributes:
        mechanism: mechanism in joint or absolute coordinates.
    """

    mechanism: Mechanism

    def __call__(self, q: Coordinates) -> Array:
        """Return y (3,)."""
        return center_of_mass(self.mechanism, q)
