"""How many numbers a system has, and what they are called: one record each, which wrappers pass on."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """How many coordinates, velocities, position-level rows, velocity-level rows and inputs there are; nu is None where nobody says."""

    nq: int
    nv: int
    ng: int
    nw: int
    nu: int | None

    @property
    def nc(self) -> int:
        """The number of all constraint rows, ng + nw."""
        return self.ng + self.nw


class Names(NamedTuple):
    """What the numbers of a system are called, with their units; empty where nobody has named them.

    Attributes:
        coordinates: of q, such as "crank.theta".
        velocities: of v, such as "crank.omega".
        rows: of the constraint rows, position-level rows first, such as "A.x".
        inputs: of u.
        bodies: of the bodies.
        coordinate_units: m or rad.
        velocity_units: m/s or rad/s.
        row_units: m or rad, m/s or rad/s of rows at velocity level.
        input_units: N or N m.
    """

    coordinates: tuple[str, ...] = ()
    velocities: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()
    coordinate_units: tuple[str, ...] = ()
    velocity_units: tuple[str, ...] = ()
    row_units: tuple[str, ...] = ()
    input_units: tuple[str, ...] = ()

    def filled(self, sizes: Sizes) -> Names:
        """Returns one name for each number: "q0", "v0", "row 0" and "u0" where there is none, and an empty unit where there is none."""
        return Names(
            coordinates=_numbered(self.coordinates, "q", sizes.nq),
            velocities=_numbered(self.velocities, "v", sizes.nv),
            rows=_numbered(self.rows, "row ", sizes.nc),
            inputs=_numbered(self.inputs, "u", sizes.nu or 0),
            bodies=self.bodies,
            coordinate_units=_padded(self.coordinate_units, sizes.nq),
            velocity_units=_padded(self.velocity_units, sizes.nv),
            row_units=_padded(self.row_units, sizes.nc),
            input_units=_padded(self.input_units, sizes.nu or 0),
        )


def _numbered(names: tuple[str, ...], text: str, count: int) -> tuple[str, ...]:
    return (*names, *(f"{text}{k}" for k in range(len(names), count)))[:count]


def _padded(units: tuple[str, ...], count: int) -> tuple[str, ...]:
    return (*units, *("",) * count)[:count]
