"""Sizes and names of a system: two records that wrappers pass on."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """The numbers of coordinates, velocities, position-level rows, velocity-level rows and inputs.

    nu is None if unspecified.
    """

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
    """The names and units of the numbers of a system; empty if unspecified.

    Attributes:
        coordinates: of q, such as "crank.theta".
        velocities: of v, such as "crank.omega".
        rows: of the constraint rows, position-level rows first, such as "A.x".
        inputs: of u.
        bodies: of the bodies.
        contacts: of the contacts, such as "foot.corner2".
        coordinate_units: m or rad.
        velocity_units: m/s or rad/s.
        row_units: m or rad, for velocity-level rows m/s or rad/s.
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
    contacts: tuple[str, ...] = ()

    def filled(self, sizes: Sizes) -> Names:
        """Return one name and one unit per number.

        Missing names become "q0", "v0", "row 0" and "u0", and missing units become empty strings.
        """
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
            contacts=self.contacts,
        )


def _numbered(names: tuple[str, ...], text: str, count: int) -> tuple[str, ...]:
    return (*names, *(f"{text}{k}" for k in range(len(names), count)))[:count]


def _padded(units: tuple[str, ...], count: int) -> tuple[str, ...]:
    return (*units, *("",) * count)[:count]
