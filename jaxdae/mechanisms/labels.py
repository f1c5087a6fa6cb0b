"""Names and units of the coordinates, rows and parameters of a mechanism, and ranges of its masses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from jaxdae.mechanisms.coordinates.tree_parameters import dtype_of
from jaxdae.mechanisms.describe.bodies import inertia_requirements
from jaxdae.mechanisms.joint_copies import copy_requirements
from jaxdae.systems.names import Names


class Labels:
    """The names of a `Mechanism` and the ranges of its masses; this base class reads its fields."""

    body_names: tuple[str, ...]
    n_inputs: int
    form: Any
    mass: Any
    inertia: Any
    space: Any
    joints: dict[str, Any]
    carrying: dict[str, Any]
    copies: tuple[Any, ...]
    relations: dict[str, Any]
    tendons: Any
    contacts: Any
    with_rotors: tuple[tuple[str, str], ...]
    constraint: Any
    velocity_constraint: Any
    declares_positions: bool
    declares_velocities: bool

    @property
    def dtype(self) -> Any:
        """The floating-point type of the parameters."""
        return dtype_of((self.mass, self.joints, self.carrying))

    @property
    def names(self) -> Names:
        """The names of bodies, coordinates, velocities, constraint rows, inputs and contacts, with units."""
        moving = self.form.velocity_names
        return Names(
            coordinates=self.coordinate_names,
            velocities=tuple(name for name, _ in moving),
            rows=self.row_names,
            inputs=tuple(f"u{k}" for k in range(self.n_inputs)),
            bodies=self.body_names,
            coordinate_units=self.coordinate_units,
            velocity_units=tuple(unit for _, unit in moving),
            row_units=self.row_units,
            contacts=() if self.contacts is None else self.contacts.names,
        )

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The names of q, such as "crank.theta"."""
        return tuple(name for name, _ in self.form.names)

    @property
    def coordinate_units(self) -> tuple[str, ...]:
        """The units of q: m or rad; empty for quaternions."""
        return tuple(unit for _, unit in self.form.names)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The names of all joints, group by group; tree joints last."""
        return tuple(
            name
            for groups in (self.joints, self.carrying)
            for group in groups.values()
            for name in group.names
        )

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of the constraint rows in order, such as "A.x".

        Rows that a subclass adds in `constraint` are "constraint.0", "constraint.1" and so on. Rows of a
        `velocity_constraint` are "velocity_constraint.0" and so on. A subclass may define its own names.
        """
        joints, moving = (tuple(name for name, _ in rows) for rows in self._joint_rows())
        if not (self.declares_positions or self.declares_velocities):
            return (*joints, *moving)
        sizes = (), (len(self.form.names),), (len(self.form.velocity_names),)
        t, q, v = (jax.ShapeDtypeStruct(size, self.dtype) for size in sizes)
        positions = jax.eval_shape(self.constraint, t, q).shape[0] - len(joints)
        velocities = jax.eval_shape(self.velocity_constraint, t, q, v).shape[0]
        further = tuple(f"velocity_constraint.{k}" for k in range(velocities - len(moving)))
        return (*joints, *(f"constraint.{k}" for k in range(positions)), *moving, *further)

    @property
    def row_units(self) -> tuple[str, ...]:
        """The units of the constraint rows: m, rad, m/s or rad/s; empty for rows that a subclass adds."""
        units = dict(row for rows in self._joint_rows() for row in rows)
        return tuple(units.get(name, "") for name in self.row_names)

    def _joint_rows(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return names and units of the joint rows, at position level and at velocity level."""
        groups = self.joints.values()
        positions = [
            (f"{name}.{row}", unit)
            for group in groups
            for name in group.names
            for row, unit in group.rows.items()
        ]
        positions += [
            (f"{name}.relation", group.unit) for group in self.relations.values() for name in group.names
        ]
        velocities = [
            (f"{name}.{row}", unit)
            for group in groups
            for name in group.names
            for row, unit in group.velocity_rows.items()
        ]
        return positions, velocities

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the conditions on masses, inertias and copies of joint geometry.

        Joints and forces have their own.
        """
        if self.mass is not None:
            yield from inertia_requirements(
                self.mass, self.inertia, len(self.body_names), self.space.dimension
            )
        yield from copy_requirements(self, self.copies)

    def named_leaf(self, names: Sequence[str]) -> tuple[str, int | tuple[int, int]] | None:
        """Return leaf path and index of a parameter named as in the description.

        The name is (bodies | joints | forces).<name>.<field>. Keys of groups, such as "revolute", take
        precedence over equal names of elements.

        Raises:
            KeyError: if the element has no such parameter, if it is zero for all elements of its group, or if
                a motor with rotor inertia makes it a part of a sum.
        """
        if len(names) != 3 or names[0] not in ("bodies", "joints", "forces"):
            return None
        kind, name, field = names
        if kind == "bodies":
            return (
                (field, self.body_names.index(name))
                if name in self.body_names and field in ("mass", "inertia")
                else None
            )
        if name in getattr(self, kind):  # A group key takes precedence.
            return None
        return self.element_leaf(kind, name, field)

    def element_leaf(self, kind: str, name: str, field: str) -> tuple[str, int | tuple[int, int]] | None:
        """Return leaf path and index of a parameter of a joint or a force, also if its name is a group key.

        Args:
            kind: "joints" or "forces".
            name: the name of the element.
            field: the name of the parameter.

        Raises:
            KeyError: as in `named_leaf`.
        """
        self._refuse_sums(kind, name, field)
        for place in ("joint_limits", "joint_friction") if kind == "joints" else ():
            part = getattr(self, place)
            if part is not None and (found := part.leaf_of(field, name)):
                return f"{place}.{found[0]}", found[1]
        for path, group in self._named_groups(kind):
            if name in group.names:
                number = group.names.index(name)
                found = group.leaf_of(field, number)
                if found is None:
                    raise KeyError(
                        f"{kind}.{name}.{field}: unknown parameter, or zero for every {path.split('.')[-1]} "
                        "of the description; leaf_paths lists all parameters"
                    )
                leaf, column = found
                return f"{path}.{leaf}", number if column is None else (number, column)
        return None

    def _named_groups(self, kind: str) -> Iterator[tuple[str, Any]]:
        """Yield the paths and groups of described joints or of described forces."""
        for place in ("joints", "carrying", "relations") if kind == "joints" else ("forces",):
            yield from ((f"{place}.{key}", group) for key, group in getattr(self, place).items())
        if kind == "forces" and self.tendons is not None:
            yield "tendons", self.tendons

    def _refuse_sums(self, kind: str, name: str, field: str) -> None:
        """Raise KeyError for a parameter of the inertia armature + ratio^2 rotor_inertia along a joint."""
        for motor, joint in self.with_rotors:
            if (kind, name, field) in (
                ("joints", joint, "armature"),
                ("forces", motor, "ratio"),
                ("forces", motor, "rotor_inertia"),
            ):
                raise KeyError(
                    f"{kind}.{name}.{field} has no leaf of its own: the armature of the group of {joint!r} "
                    f"is the sum armature + ratio^2 rotor_inertia with motor {motor!r}; change the "
                    "description, or set the armature of the group and the ratio of the motor's group"
                )
