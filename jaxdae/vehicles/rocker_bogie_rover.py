"""Six-wheeled rovers with a rocker-bogie suspension.

On each side a rocker hinges on the body. It carries the front wheel at its front end, and a bogie on a hinge
at its rear end. The bogie carries the middle wheel and the rear wheel. A differential turns the rockers by
opposite angles, so that the pitch of the body is the mean of their pitch angles. Without the wheel spins
there are ten degrees of freedom. Six heights and the differential leave three: x, y and yaw.

The axes are x forward, y left, z up. Hinges and axles point along y, so that positive angles turn the front
down.

References:
    H. Hacot, S. Dubowsky, P. Bidaud, "Analysis and simulation of a rocker-bogie exploration rover", 1998.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.geometry.terrain import Plane, Terrain, check_terrain
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.build_mechanism import Description
from jaxdae.mechanisms.describe.numbers import real, vector
from jaxdae.mechanisms.describe.plane_and_space import SPACE
from jaxdae.vehicles.argument_checks import number_mistakes, refuse

ROCKERS = ("left_rocker", "right_rocker")
ROVER_SUSPENSION = ("left_rocker", "right_rocker", "left_bogie", "right_bogie")
"""The suspension joints of `rocker_bogie`, for `place_on_terrain`."""

ROVER_WHEELS = tuple(f"{place}_{side}" for side in ("left", "right") for place in ("front", "middle", "rear"))
"""The wheels of `rocker_bogie`, both bodies and joints: front, middle and rear left, then right."""


def rocker_bogie(
    terrain: Terrain | None = None,
    *,
    rocker: Any = (0.12, 0.2, 0.1),
    bogie: Any = (-0.12, 0.0, -0.105),
    front: Any = (0.29, 0.0, -0.125),
    middle: Any = (0.07, 0.0, -0.02),
    rear: Any = (-0.07, 0.0, -0.02),
    radius: Any = 0.065,
    mass: Any = 8.0,
    inertia: Any = (0.08, 0.12, 0.15),
    link_mass: Any = 0.3,
    link_inertia: Any = (0.001, 0.002, 0.002),
    wheel_mass: Any = 0.3,
    wheel_inertia: Any = (4e-4, 6e-4, 4e-4),
    place: Any = (0.0, 0.0),
) -> Description:
    """Return the description of a rover with six wheels; its parameters are leaves of the built mechanism.

    Bodies: `base_link`, `left_rocker`, `left_bogie`, `front_left`, `middle_left`, `rear_left` and the same on
        the right. The joints of the suspension and the wheels have the names of their child bodies. The
        contacts are `front_left_contact` and so on, with rows `front_left_contact.height`, `.lateral` and
        `.rolling`. The remaining joint is `differential`. The body starts over `place` as on level ground at
        the height of the terrain there. Lower it with `place_on_terrain`.

    Args:
        terrain: `Plane()` by default.
        rocker: (3,) hinge of the left rocker on the body, in m from the mass center of the body; the right
            hinge is its mirror image.
        bogie: (3,) hinge of the bogie on the rocker, in m from the hinge of the rocker, which is the mass
            center of the rocker.
        front: (3,) front wheel in m from the hinge of the rocker.
        middle: (3,) middle wheel in m from the hinge of the bogie, which is the mass center of the bogie.
        rear: (3,) rear wheel in m from the hinge of the bogie.
        radius: radius of the wheels in m.
        mass: mass of the body in kg.
        inertia: (3,) inertia of the body in kg m^2.
        link_mass: mass of a rocker or bogie in kg.
        link_inertia: (3,) inertia of a rocker or bogie in kg m^2.
        wheel_mass: mass of a wheel in kg.
        wheel_inertia: (3,) inertia of a wheel in kg m^2.
        place: (2,) initial position of the body in m.

    Raises:
        ValueError: an invalid terrain; positions without three numbers.
    """
    terrain = Plane() if terrain is None else terrain
    check_terrain("rocker_bogie", terrain)
    joints_at = {"rocker": rocker, "bogie": bogie, "front": front, "middle": middle, "rear": rear}
    refuse(
        "rocker_bogie", *(number_mistakes(name, at, 3, "(x, y, z) in m") for name, at in joints_at.items())
    )
    x, y = vector(place)
    rocker, bogie, front, middle, rear = (vector(part) for part in (rocker, bogie, front, middle, rear))
    standing = real(radius) - jnp.minimum(
        jnp.minimum((rocker + bogie + middle)[2], (rocker + bogie + rear)[2]), (rocker + front)[2]
    )
    base = jnp.stack([x, y, terrain.height(x, y) + standing])
    bodies, joints = [js.Body("base_link", mass, inertia, base)], []
    for side, sign in (("left", 1.0), ("right", -1.0)):
        mirror = jnp.array([1.0, sign, 1.0], base.dtype)

        def hang(
            name: str, parent: str, at: Any, origin: Any, own: tuple[Any, Any], mirror: Any = mirror
        ) -> Any:
            """Add a body that turns about y at a point of its parent, and return its world position."""
            world = origin + at * mirror
            bodies.append(js.Body(name, *own, world))
            joints.append(
                js.Revolute(name, parent, name, (0.0, 1.0, 0.0), point_a=at * mirror, point_b=(0.0, 0.0, 0.0))
            )
            return world

        link, wheel = (link_mass, link_inertia), (wheel_mass, wheel_inertia)
        on_rocker = hang(f"{side}_rocker", "base_link", rocker, base, link)
        on_bogie = hang(f"{side}_bogie", f"{side}_rocker", bogie, on_rocker, link)
        hang(f"front_{side}", f"{side}_rocker", front, on_rocker, wheel)
        hang(f"middle_{side}", f"{side}_bogie", middle, on_bogie, wheel)
        hang(f"rear_{side}", f"{side}_bogie", rear, on_bogie, wheel)
    for name in ROVER_WHEELS:
        joints.append(
            js.RollingDisc(
                f"{name}_contact",
                "ground",
                name,
                (0.0, 1.0, 0.0),
                point_b=(0.0, 0.0, 0.0),
                radius=radius,
                terrain=terrain,
            )
        )
    joints.append(js.Relation("differential", *ROCKERS, (0.0, -1.0), 0.0, 0.0))
    return Description(space=SPACE, bodies=bodies, joints=joints)
