"""The mechanisms of `many_bodies.py`, as descriptions of jaxdae and as models of MuJoCo."""

import site
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

INERTIA = (0.02, 0.1, 0.1)  # kg m^2, of every body of 1 kg
G1 = "cmeel.prefix/share/example-robot-data/robots/g1_description/urdf/g1_29dof_rev_1_0.urdf"

Places = dict[str, Any]
Hinges = list[tuple[str, str, Any, Any]]


def links(space: Any, places: Places, joints: Hinges) -> jm.Description:
    """Return bodies of 1 kg with hinges (body, body, axis, place)."""
    if space is jm.PLANE:
        bodies = [jm.Body(name, 1.0, INERTIA[2], (*place[:2], 0.0)) for name, place in places.items()]
        hinges = [jm.Revolute(f"j{k}", a, b, at=at[:2]) for k, (a, b, _, at) in enumerate(joints)]
        return jm.Description(bodies=bodies, joints=hinges)
    bodies = [js.Body(name, 1.0, INERTIA, place=place) for name, place in places.items()]
    hinges = [js.Revolute(f"j{k}", a, b, axis=axis, at=at) for k, (a, b, axis, at) in enumerate(joints)]
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=hinges, gravity=(0.0, -9.81, 0.0))


def chain(size: int) -> tuple[Places, Hinges]:
    """Return a horizontal chain of links of 1 m."""
    places = {f"b{k}": (k + 0.5, 0.0, 0.0) for k in range(size)}
    return places, [
        ("ground" if k == 0 else f"b{k - 1}", f"b{k}", (0.0, 0.0, 1.0), (float(k), 0.0, 0.0))
        for k in range(size)
    ]


def tree(size: int) -> tuple[Places, Hinges]:
    """Return five limbs on one body, with hinges in all directions."""
    rng = np.random.default_rng(0)
    places, joints = {"b0": (0.5, 0.0, 0.0)}, [("ground", "b0", (0.0, 0.0, 1.0), (0.0, 0.0, 0.0))]
    for k in range(1, size):
        parent = "b0" if k <= 5 else f"b{k - 5}"
        axis = rng.normal(size=3)
        at = np.asarray(places[parent]) + rng.normal(size=3) * 0.2
        places[f"b{k}"] = tuple(at + rng.normal(size=3) * 0.2)
        joints.append((parent, f"b{k}", tuple(axis / np.linalg.norm(axis)), tuple(at)))
    return places, joints


def ladder(size: int) -> tuple[Places, Hinges]:
    """Return four-bars, each on the coupler of the one below."""
    places, joints, axis = {}, [], (0.0, 0.0, 1.0)
    for k in range(size):
        base, left = ("ground", 0.0) if k == 0 else (f"c{k - 1}", 0.1)
        places |= {f"a{k}": (0.05, k + 0.5, 0.0), f"c{k}": (0.6, k + 1.0, 0.0), f"b{k}": (1.05, k + 0.5, 0.0)}
        joints += [
            (base, f"a{k}", axis, (left, k, 0.0)),
            (f"a{k}", f"c{k}", axis, (0.1, k + 1.0, 0.0)),
            (f"c{k}", f"b{k}", axis, (1.1, k + 1.0, 0.0)),
            (f"b{k}", base, axis, (1.0 + left, k, 0.0)),
        ]
    return places, joints


def bricard(_: int) -> tuple[Places, Hinges]:
    """Return Bricard's six-bar: five links of 1 m and six hinges, with one row that is always redundant."""
    points = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1]], float)
    names = ["ground", *(f"b{k}" for k in range(5)), "ground"]
    places = {f"b{k}": tuple(0.5 * (points[k] + points[k + 1])) for k in range(5)}
    axes = np.eye(3)[[1, 2, 0, 1, 2, 0]]
    return places, [(names[k], names[k + 1], tuple(axes[k]), tuple(points[k])) for k in range(6)]


def _text(values: Any) -> str:
    return " ".join(repr(float(x)) for x in values)


def mjcf(places: Places, joints: Hinges, dt: float, *, hinged: bool = False) -> str:
    """Return the same bodies as a MuJoCo tree with world axes at the start, and `connect` for loops.

    Args:
        places: of the mass centers.
        joints: the hinges.
        dt: the step in s.
        hinged: whether two points hold the axes of hinges that close loops, one point otherwise, as the plane
            needs.
    """
    at = {"ground": np.zeros(3), **{name: np.asarray(place) for name, place in places.items()}}
    children: dict[str, list[tuple[str, Any, Any]]] = {name: [] for name in at}
    loops, hung = [], set()
    for a, b, axis, place in joints:
        if b in hung or b == "ground" or (a not in hung and a != "ground"):
            loops += [
                (a, b, np.asarray(place) + offset * np.asarray(axis))
                for offset in ((0.0, 0.2) if hinged else (0.0,))
            ]
        else:
            children[a].append((b, axis, place))
            hung.add(b)

    lines: list[str] = []
    stack: list[Any] = [(child, "ground") for child in reversed(children["ground"])]
    while stack:
        item = stack.pop()
        if item == "end":
            lines.append("</body>")
            continue
        (name, axis, place), parent = item
        lines.append(
            f'<body name="{name}" pos="{_text(at[name] - at[parent])}"><joint axis="{_text(axis)}" '
            f'pos="{_text(place - at[name])}"/>'
        )
        lines.append(f'<inertial pos="0 0 0" mass="1" diaginertia="{_text(INERTIA)}"/>')
        stack += ["end", *((child, name) for child in reversed(children[name]))]
    closed = "".join(
        f'<connect body1="{b if b != "ground" else a}" '
        f'{f"""body2="{a}" """ if "ground" not in (a, b) else ""}'
        f'anchor="{_text(np.asarray(place) - at[b if b != "ground" else a])}"/>'
        for a, b, place in loops
    )
    flags = "" if loops else '<flag constraint="disable"/>'
    return (
        f'<mujoco><size memory="200M"/><option timestep="{dt}" gravity="0 -9.81 0" '
        f'integrator="Euler">{flags}</option>'
        f"<worldbody>{''.join(lines)}</worldbody><equality>{closed}</equality></mujoco>"
    )


def urdf(places: Places, joints: Hinges) -> str:
    """Return a tree as a URDF whose z axis is the y axis of the others: frax has gravity along z.

    Args:
        places: of the mass centers.
        joints: the hinges, none of which closes a loop.
    """
    inertia = " ".join(f'i{axis}{axis}="{value}"' for axis, value in zip("xyz", INERTIA, strict=True))

    def link(name: str, center: Any) -> str:
        inertial = (
            f'<origin xyz="{_text(center)}" rpy="0 0 0"/><mass value="1"/><inertia {inertia} ixy="0" '
            'ixz="0" iyz="0"/>'
        )
        return f'<link name="{name}"><inertial>{inertial}</inertial></link>'

    lines, hinges = (
        [link("ground", np.zeros(3))],
        {"ground": np.zeros(3), **{b: np.asarray(at) for _, b, _, at in joints}},
    )
    for k, (a, b, axis, at) in enumerate(joints):
        turned = ("0 0 0", f"{0.5 * np.pi!r} 0 0")[a == "ground"]
        x, y, z = np.asarray(at) - hinges[a]
        origin = (x, -z, y) if a == "ground" else (x, y, z)
        lines.append(
            f'{link(b, np.asarray(places[b]) - at)}<joint name="j{k}" type="revolute"><parent '
            f'link="{a}"/><child link="{b}"/>'
            f'<origin xyz="{_text(origin)}" rpy="{turned}"/><axis xyz="{_text(axis)}"/>'
            '<limit lower="-1000" upper="1000" effort="1" velocity="1"/></joint>'
        )
    return f'<robot name="tree">{"".join(lines)}</robot>'


def g1_file() -> Path | None:
    """Return the URDF file of a humanoid with 29 joints.

    None where the package example-robot-data is not installed.
    """
    return next((path for folder in site.getsitepackages() if (path := Path(folder) / G1).exists()), None)


def g1(file: Path) -> jm.Description:
    """Return the humanoid on a free base without limits, friction and damping."""
    found = robots.load(file, base="floating", gravity=(0.0, -9.81, 0.0)).description
    joints = [
        type(j)(**{**vars(j), **dict.fromkeys({"damping", "friction"} & vars(j).keys(), 0.0)})
        for j in found.joints
    ]
    return jm.Description(space=found.space, bodies=found.bodies, joints=joints, gravity=found.gravity)


def g1_of_mujoco(file: Path, dt: float) -> mujoco.MjModel:
    """Return the same humanoid, its base free, without meshes, constraints and damping."""
    root = xml.parse(file).getroot()
    for link in root.findall("link"):
        for picture in (*link.findall("visual"), *link.findall("collision")):
            link.remove(picture)
    for joint in root.findall("joint"):
        for unused in (*joint.findall("dynamics"), *joint.findall("limit")):
            joint.remove(unused)
        if joint.get("type") == "revolute":
            joint.set("type", "continuous")
    children = {joint.find("child").get("link") for joint in root.findall("joint")}
    base = next(link.get("name") for link in root.findall("link") if link.get("name") not in children)
    root.insert(0, xml.fromstring('<link name="world"/>'))
    joint = (
        f'<joint name="free" type="floating"><parent link="world"/><child link="{base}"/><origin xyz="0 '
        '0 0"/></joint>'
    )
    root.append(xml.fromstring(joint))
    model = mujoco.MjModel.from_xml_string(xml.tostring(root, encoding="unicode"))
    model.opt.timestep, model.opt.gravity[:] = dt, (0.0, -9.81, 0.0)
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_CONTACT
    return model
