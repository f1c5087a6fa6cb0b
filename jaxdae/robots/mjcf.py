"""Robots from MJCF, the format of MuJoCo, read by MuJoCo's own compiler (extra `robots`).

The compiler resolves defaults, included files, orientations, units and inertias of geoms. This module
converts the compiled arrays to links and joints. Bodies become links. Several joints of one body act in
sequence, each in the body as the previous joints have moved it, with massless links between them. Coordinates
match MuJoCo: at q = `ref` a body is at its position in the file, and springs pull to `springref`.

Equalities close loops: `connect` becomes a ball between the two anchors, `weld` a weld, `joint` and `tendon`
a polynomial. They hold to round-off. `solref` and `solimp`, which define their softness in MuJoCo, are not
used. Dry friction (`frictionloss`) is smooth here; see `docs/space.md`. Fixed tendons are weighted sums of
coordinates (`jaxdae.robots.mjcf_tendons`).

References:
    https://mujoco.readthedocs.io/en/stable/XMLreference.html and computation/index.html
"""

from __future__ import annotations

import importlib
import pathlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.base.suggestions import brief, join_first, shorten
from jaxdae.mechanisms import GROUND, Polynomial
from jaxdae.robots.angle_units import Hinge, doubt_mjcf
from jaxdae.robots.mjcf_actuators import actuators, control_names
from jaxdae.robots.mjcf_compiler import compiled
from jaxdae.robots.mjcf_contacts import contacts
from jaxdae.robots.mjcf_files import prepared
from jaxdae.robots.mjcf_tendons import fixed_tendons, passive, relation
from jaxdae.robots.referenced_files import Folders
from jaxdae.robots.robot_graph import (
    HERE,
    Coupling,
    Graph,
    Ignored,
    Joint,
    Link,
    Pose,
    axes_with_z,
    quaternion_matrix,
    turn,
)
from jaxdae.robots.robot_source import Source

_LISTED = (
    "geoms",
    "cameras",
    "lights",
    "materials",
    "meshes",
    "textures",
    "hfields",
    "flexes",
    "pairs",
    "excludes",
)
_NUMBERS = (
    *(
        "body_pos",
        "body_quat",
        "body_mass",
        "body_ipos",
        "body_iquat",
        "body_inertia",
        "body_gravcomp",
        "jnt_pos",
        "jnt_axis",
        "jnt_range",
    ),
    *(
        "jnt_stiffness",
        "dof_damping",
        "dof_armature",
        "dof_frictionloss",
        "qpos0",
        "qpos_spring",
        "eq_data",
        "site_pos",
        "site_quat",
    ),
    *(
        "tendon_stiffness",
        "tendon_damping",
        "tendon_frictionloss",
        "tendon_lengthspring",
        "tendon_length0",
        "wrap_prm",
    ),
    *(
        "actuator_gainprm",
        "actuator_biasprm",
        "actuator_gear",
        "actuator_ctrlrange",
        "actuator_forcerange",
        "key_qpos",
        "key_qvel",
        "key_ctrl",
    ),
)
"""The compiled arrays that are checked for finite numbers."""

_SINGULAR = {"meshes": "mesh", "flexes": "flex", "lights": "light"}


def read_mjcf(path: pathlib.Path, folders: Folders) -> tuple[Source, Graph]:
    """Return an MJCF file and the graph in it; see `jaxdae.robots.load`.

    Raises:
        ModuleNotFoundError: MuJoCo is not installed.
    """
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "reading MJCF requires MuJoCo; install it with pip install '.[robots]' in a clone of jaxdae"
        ) from error
    source = Source(path)
    files = prepared(path, folders, source.library)
    spec, model, notes = compiled(mujoco, path, files)
    _check_numbers(source, model)
    _switch_off(mujoco, model)
    told = [f"MuJoCo: {shorten(' '.join(note.split()), 400)}" for note in dict.fromkeys(notes)]
    first: dict[str, int] = {}
    for node in files.root.everything():
        first.setdefault(node.tag, node.line)
    reading = _Reading(mujoco, spec, model, source, first, files.removed)
    graph = reading.graph(path, list(files.missing.values()), told)
    # Attached models have units of their own.
    doubt_mjcf(
        source, files.root, [] if any(name.endswith(".xml") for name in files.parsed) else reading.hinges()
    )
    return source, graph


def _check_numbers(source: Source, model: Any) -> None:
    """Raise if a compiled model contains non-finite numbers, which the compiler accepts."""
    for name in _NUMBERS:
        if not np.all(np.isfinite(getattr(model, name))):
            source.wrong(
                0,
                f"{name} of the compiled model must be finite; look for nan and inf in the file",
            )
    source.end()


def _switch_off(mujoco: Any, model: Any) -> None:
    """Zero what `<option><flag>` disables; `actuators` handles actuators, with `actuatorgroupdisable`."""
    bits, flags = mujoco.mjtDisableBit, int(model.opt.disableflags)

    def disabled(*names: str) -> bool:
        return any(flags & int(getattr(bits, f"mjDSBL_{name}")) for name in names)

    tables = {
        "jnt_stiffness jnt_stiffnesspoly tendon_stiffness tendon_stiffnesspoly": disabled("SPRING"),
        "dof_damping dof_dampingpoly tendon_damping tendon_dampingpoly": disabled("DAMPER"),
        "dof_frictionloss tendon_frictionloss": disabled("FRICTIONLOSS", "CONSTRAINT"),
        "eq_active0": disabled("EQUALITY", "CONSTRAINT"),
        "actuator_ctrllimited": disabled("CLAMPCTRL"),
    }
    for names, off in tables.items():
        for name in names.split() if off else ():
            if hasattr(model, name):
                getattr(model, name)[:] = 0


class _Reading:
    """Conversion of a compiled model to a graph; `first` maps a tag to the line of its first element."""

    def __init__(
        self,
        mujoco: Any,
        spec: Any,
        model: Any,
        source: Source,
        first: Mapping[str, int],
        removed: Mapping[str, list[int]],
    ) -> None:
        self.mujoco, self.spec, self.model, self.source, self.first = mujoco, spec, model, source, first
        self.removed = removed
        self.bodies = self._names("body", model.nbody, [GROUND])
        self.joints = self._names("joint", model.njnt, [])
        self.equalities = self._names("equality", model.neq, self.joints)
        self.tendons = fixed_tendons(mujoco, model, self.joints)
        listed = ("bodies", "joints", "equalities", "actuators", "tendons")
        self.lines = {
            name: [self._line(item, ("flexcomp",)) for item in getattr(spec, name)] for name in listed
        }
        self.links: dict[str, Link] = {}
        self.poses: list[Pose] = [HERE]
        self.made: list[Joint] = []
        self.forces: list[Any] = []
        self.unused: list[tuple[str, int]] = []
        self.floating: dict[str, dict[str, float]] = {}

    def _names(self, kind: str, count: int, taken: list[str]) -> list[str]:
        """Return unique names of objects; unnamed objects get a number."""
        of = getattr(self.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        given = [self.mujoco.mj_id2name(self.model, of, k) for k in range(count)]
        names = list(taken) if kind == "body" else []
        known = {name for name in given if name} | set(taken)
        used = {GROUND, *taken}
        for k in range(len(names), count):
            name = given[k] or f"{kind}{k}"
            while (not given[k] and name in known) or name in used:
                name += "_"
            names.append(name)
            used.add(name)
        return names

    def _at(self, kind: str, number: int) -> int:
        lines = self.lines[kind]
        return lines[number] if number < len(lines) else 0

    def _line(self, item: Any, tags: Sequence[str] = ()) -> int:
        """Return the line of an object; if unknown, the first line of an element in `tags` or an include."""
        found = re.search(r"line (\d+)", getattr(item, "info", "") or "")
        known = (int(found.group(1)) if found else 0, *(self.first.get(tag, 0) for tag in (*tags, "include")))
        return next((line for line in known if line), 0)

    def hinges(self) -> list[Hinge]:
        """Return the hinges of the model with their angles."""
        model, places = self.model, self.model.jnt_qposadr
        following = np.flatnonzero((model.eq_type == self.mujoco.mjtEq.mjEQ_JOINT) & (model.eq_active0 != 0))
        return [
            Hinge(
                self.joints[k],
                self._at("joints", k),
                model.jnt_range[k].tolist() if model.jnt_limited[k] else [],
                float(model.qpos0[places[k]]),
                float(model.qpos_spring[places[k]]) if model.jnt_stiffness[k] else 0.0,
                model.eq_data[following[model.eq_obj1id[following] == k], 0].tolist(),
                model.key_qpos[:, places[k]].tolist(),
            )
            for k in np.flatnonzero(model.jnt_type == self.mujoco.mjtJoint.mjJNT_HINGE).tolist()
        ]

    def graph(self, path: pathlib.Path, missing: list[str], doubts: list[str]) -> Graph:
        """Return the graph."""
        model = self.model
        for body in range(1, model.nbody):
            self._body(body)
        couplings, rows = self._equalities()
        count = len(model.actuator_trntype)
        names = [
            self.mujoco.mj_id2name(model, self.mujoco.mjtObj.mjOBJ_ACTUATOR, k) or f"actuator{k}"
            for k in range(count)
        ]
        pulled = passive(model, self._names("tendon", model.ntendon, names), self.tendons)
        driven = actuators(self.mujoco, model, names, self.joints, self.bodies, self._chain, self.tendons)
        for kind, (found, left_out) in (("tendons", pulled), ("actuators", driven)):
            self.forces += found
            self.unused += [(what, self._at(kind, number)) for what, number in left_out]
        sites = {}
        for k in range(model.nsite):
            name = self.mujoco.mj_id2name(model, self.mujoco.mjtObj.mjOBJ_SITE, k)
            if name:
                sites[name] = (
                    self.bodies[model.site_bodyid[k]],
                    Pose(quaternion_matrix(model.site_quat[k]), np.array(model.site_pos[k])),
                )
        keys: dict[str, Any] = {
            self.mujoco.mj_id2name(model, self.mujoco.mjtObj.mjOBJ_KEY, k) or f"key{k}": tuple(
                np.array(table[k], float) for table in (model.key_qpos, model.key_qvel, model.key_ctrl)
            )
            for k in range(model.nkey)
        }
        off = model.opt.disableflags & self.mujoco.mjtDisableBit.mjDSBL_GRAVITY
        notes = [
            *doubts,
            *([f"missing files that the dynamics does not need: {join_first(missing)}"] if missing else []),
        ]
        between = [link for link in self.links if link not in self.bodies]
        if between:
            notes.append(f"links without mass between several joints of one body: {join_first(between)}")
        shaped = self._shaped()
        if shaped:
            line, name = shaped[0]
            notes.append(
                f"mass and inertia of {len(shaped)} bodies are computed from their geoms, first "
                f"{brief(name)} in line {line}"
            )
        if model.neq:
            notes.append("equalities hold to round-off; solref and solimp are not used")
        return Graph(
            model.names[: model.names.index(b"\0")].decode(errors="replace") or path.stem,
            self.links,
            self.made,
            couplings,
            forces=self.forces,
            frames=sites,
            gravity=np.zeros(3) if off else np.array(model.opt.gravity),
            ignored=self._ignored(),
            contacts=partial(contacts, self.mujoco, model, self.bodies),
            notes=tuple(notes),
            keyframes=keys,
            controls=control_names(model, names),
            rows=rows,
            floating=self.floating,
        )

    def _body(self, k: int) -> None:
        """Add a body with its joints."""
        model, name = self.model, self.bodies[k]
        parent = int(model.body_parentid[k])
        pose = self.poses[parent].then(
            Pose(quaternion_matrix(model.body_quat[k]), np.array(model.body_pos[k]))
        )
        self.poses.append(pose)
        line = self._at("bodies", k)
        axes = quaternion_matrix(model.body_iquat[k])
        inertia = axes @ np.diag(model.body_inertia[k]) @ axes.T
        carried = float(model.body_gravcomp[k]) if model.ngravcomp else 0.0
        link = Link(
            name, line, pose, float(model.body_mass[k]), np.array(model.body_ipos[k]), inertia, carried
        )
        first, count = int(model.body_jntadr[k]), int(model.body_jntnum[k])
        above = self.bodies[parent]
        if model.body_gravcomp[k] and not model.ngravcomp:
            self.unused.append(("gravcomp with negative values only, which MuJoCo ignores", line))
        if model.body_mocapid[k] >= 0:
            self.unused.append(("mocap", line))
        if model.body_plugin[k] >= 0:
            self.unused.append(("plugin of a body", line))
        if not count:
            self.links[name] = link
            weld = Joint(f"{name} weld", line, js.Weld, above, name, pose.seen_from(self.poses[parent]), HERE)
            self.made.append(weld)
            return
        for number in range(first, first + count):
            last = number == first + count - 1
            carried = link if last else Link(self._between(f"{name}/{number - first + 1}"), line, pose)
            self.links[carried.name] = carried
            at = self.poses[parent] if number == first else pose
            self._joint(number, above, carried.name, at, pose)
            above = carried.name

    def _between(self, name: str) -> str:
        """Return a name that no body or link has."""
        while name in self.bodies or name in self.links:
            name += "_"
        return name

    def _chain(self, number: int) -> tuple[str, str]:
        """Return the two links that a joint connects."""
        name = self.joints[number]
        found = next((one for one in self.made if one.name == name), None)
        if found is None:
            return GROUND, self.bodies[self.model.jnt_bodyid[number]]
        return found.parent, found.child

    def _joint(self, k: int, parent: str, child: str, parent_pose: Pose, pose: Pose) -> None:
        """Add a joint between the parent link and the child link, which has the pose of its body."""
        kind, kinds = int(self.model.jnt_type[k]), self.mujoco.mjtJoint
        self._leave_out(k)
        if kind == kinds.mjJNT_FREE:
            self._free(k, child)
        elif kind == kinds.mjJNT_BALL:
            self._ball(k, parent, child, parent_pose, pose)
        else:
            self._single(k, parent, child, parent_pose, pose)

    def _leave_out(self, k: int) -> None:
        """Record unsupported properties of a joint; older versions of MuJoCo lack some of the tables."""
        model, line, dof = self.model, self._at("joints", k), int(self.model.jnt_dofadr[k])
        for table, number, what in (
            ("dof_dampingpoly", dof, "damping polynomial"),
            ("jnt_stiffnesspoly", k, "stiffness polynomial"),
            ("jnt_springyield", k, "springyield"),
        ):
            values = getattr(model, table, None)
            if values is not None and np.any(values[number]):
                self.unused.append((what, line))
        if model.jnt_actfrclimited[k]:
            self.unused.append(("actuatorfrcrange", line))
        if model.jnt_actgravcomp[k] and not len(model.actuator_trntype):
            self.unused.append(("actuatorgravcomp without actuators, which MuJoCo ignores", line))

    def _resistance(self, k: int) -> dict[str, float]:
        """Return the damping, friction and armature of a joint."""
        model, dof = self.model, int(self.model.jnt_dofadr[k])
        tables = {
            "damping": model.dof_damping,
            "friction": model.dof_frictionloss,
            "armature": model.dof_armature,
        }
        return {name: float(table[dof]) for name, table in tables.items()}

    def _free(self, k: int, child: str) -> None:
        """Record that a link moves freely, and add its damping."""
        name, resistance = self.joints[k], self._resistance(k)
        damping = resistance.pop("damping")
        if damping:
            self.forces.append(js.RotationalDamper(f"{name} damping", GROUND, child, damping))
            self.forces.append(js.Drag(f"{name} drag", child, point=np.zeros(3), linear=damping))
        if self.model.jnt_stiffness[k]:
            self.unused.append(("stiffness of a free joint", self._at("joints", k)))
        self.floating[child] = {key: value for key, value in resistance.items() if value}

    def _ball(self, k: int, parent: str, child: str, parent_pose: Pose, pose: Pose) -> None:
        """Add a ball joint, with damper and spring as separate elements."""
        name, resistance, stiffness = self.joints[k], self._resistance(k), float(self.model.jnt_stiffness[k])
        damping = resistance.pop("damping")
        if damping:
            self.forces.append(js.RotationalDamper(f"{name} damping", parent, child, damping))
        if stiffness:
            # The force is zero in the pose of the file, for any start.
            axes = pose.seen_from(parent_pose).rotation, np.eye(3)
            self.forces.append(
                js.RotationalSpring(f"{name} stiffness", parent, child, *axes, stiffness=stiffness)
            )
        at = pose.then(Pose(np.eye(3), np.array(self.model.jnt_pos[k])))
        acting = {key: value for key, value in resistance.items() if value}
        ends = parent, child, at.seen_from(parent_pose), at.seen_from(pose)
        self.made.append(Joint(name, self._at("joints", k), js.Ball, *ends, acting))

    def _single(self, k: int, parent: str, child: str, parent_pose: Pose, pose: Pose) -> None:
        """Add a hinge or a slide."""
        model, turns, address = (
            self.model,
            int(self.model.jnt_type[k]) == self.mujoco.mjtJoint.mjJNT_HINGE,
            int(self.model.jnt_qposadr[k]),
        )
        reference, z = float(model.qpos0[address]), np.eye(3)[2]
        in_a = pose.then(Pose(axes_with_z(np.array(model.jnt_axis[k])), np.array(model.jnt_pos[k])))
        in_b = in_a.then(Pose(turn(z, reference), np.zeros(3)) if turns else Pose(np.eye(3), reference * z))
        numbers = {key: value for key, value in self._resistance(k).items() if value}
        stiffness = float(model.jnt_stiffness[k])
        if stiffness:
            numbers |= {"stiffness": stiffness, "rest": float(model.qpos_spring[address])}
        lower, upper = map(float, model.jnt_range[k])
        limits = {"lower": lower, "upper": upper} if model.jnt_limited[k] else {}
        kind, ends = (
            js.Revolute if turns else js.Prismatic,
            (parent, child, in_a.seen_from(parent_pose), in_b.seen_from(pose)),
        )
        self.made.append(
            Joint(self.joints[k], self._at("joints", k), kind, *ends, numbers, limits, (reference,))
        )

    def _equalities(self) -> tuple[list[Coupling], list[Any]]:
        """Return relations between joints and fixed joint coordinates, and add the loop joints."""
        model, kinds = self.model, self.mujoco.mjtEq
        couplings, rows = [], []
        for k in range(model.neq):
            kind, name, line = int(model.eq_type[k]), self.equalities[k], self._at("equalities", k)
            first, second, data = int(model.eq_obj1id[k]), int(model.eq_obj2id[k]), np.array(model.eq_data[k])
            if not model.eq_active0[k]:
                self.unused.append(("equality with active=false", line))
            elif kind in (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
                ends, (a, b) = self._equal_frames(k, first, second, data, kind == kinds.mjEQ_WELD)
                # A weld without rotational weight (torquescale="0") constrains points only.
                held = js.Weld if kind == kinds.mjEQ_WELD and data[10] != 0.0 else js.Ball
                # The residual of a connect is the point on the first body minus the point on the second body.
                made = Joint(name, line, held, ends[1], ends[0], b, a, closes=True)
                self.made.append(made)
            elif kind == kinds.mjEQ_JOINT:
                reference = float(model.qpos0[model.jnt_qposadr[first]])
                if second < 0:
                    rows.append(
                        js.PrescribedMotion(
                            name, self.joints[first], Polynomial((float(data[0]),)), reference=reference
                        )
                    )
                    continue
                coefficients = tuple(float(c) for c in np.trim_zeros(data[:5], "b")) or (0.0,)
                other = float(model.qpos0[model.jnt_qposadr[second]])
                couplings.append(
                    Coupling(
                        name, line, self.joints[first], self.joints[second], coefficients, reference, other
                    )
                )
            elif kind == kinds.mjEQ_TENDON and (
                made := relation(model, name, first, second, data, self.tendons)
            ):
                rows.append(made)
            else:
                self.unused.append((f"equality {kinds(kind).name.removeprefix('mjEQ_').lower()}", line))
        return couplings, rows

    def _equal_frames(
        self, k: int, first: int, second: int, data: np.ndarray, weld: bool
    ) -> tuple[tuple[str, str], tuple[Pose, Pose]]:
        """Return the links of an equality and the coinciding frames in them."""
        model = self.model
        if int(model.eq_objtype[k]) == self.mujoco.mjtObj.mjOBJ_SITE:
            ends = tuple(self.bodies[model.site_bodyid[site]] for site in (first, second))
            frames = tuple(
                Pose(quaternion_matrix(model.site_quat[site]), np.array(model.site_pos[site]))
                for site in (first, second)
            )
            return (ends[0], ends[1]), (frames[0], frames[1])
        ends = self.bodies[first], self.bodies[second]
        if weld:
            return ends, (Pose(quaternion_matrix(data[6:10]), data[3:6]), Pose(np.eye(3), data[0:3]))
        return ends, (Pose(np.eye(3), data[0:3]), Pose(np.eye(3), data[3:6]))

    def _shaped(self) -> list[tuple[int, str]]:
        """Return the lines and names of bodies whose inertia comes from geoms."""
        always = int(self.spec.compiler.inertiafromgeom) == 1
        bodies = [
            body
            for body in self.spec.bodies
            if body.id > 0 and len(body.geoms) and (always or not body.explicitinertial)
        ]
        return [
            (self._line(body), self.bodies[body.id]) for body in bodies if self.model.body_mass[body.id] > 0.0
        ]

    def _ignored(self) -> tuple[Ignored, ...]:
        found = {what: list(lines) for what, lines in self.removed.items()}
        for name in _LISTED:
            for item in getattr(self.spec, name, ()):
                what = _SINGULAR.get(name, name.removesuffix("s"))
                found.setdefault(what, []).append(self._line(item, (what, f"{what}comp")))
        option = self.model.opt
        if option.density or option.viscosity:
            found.setdefault("option density or viscosity", []).append(self._line(None, ("option",)))
        for what, line in self.unused:
            found.setdefault(what, []).append(line)
        return tuple(
            sorted(
                (Ignored(what, min(lines), len(lines)) for what, lines in found.items()),
                key=lambda one: one.line,
            )
        )
