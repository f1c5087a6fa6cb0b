"""The two models of loops in `tests/reference/models` as descriptions: what these files use of MJCF, and no
more.

All joints are at zero in the pose of the file, so that places and axes are given in the world there.
"""

import pathlib
import xml.etree.ElementTree as xml

import numpy as np
from scipy.spatial.transform import Rotation

from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js

MODELS = pathlib.Path(__file__).resolve().parent / "reference" / "models"


def numbers(element, name, default):
    """Returns the numbers of an attribute."""
    return np.array(element.get(name, default).split(), float)


def turn(element):
    """Returns the rotation of an element against its parent."""
    if "xyaxes" in element.attrib:
        x, y = numbers(element, "xyaxes", "").reshape(2, 3)
        return Rotation.from_matrix(np.stack([x, y, np.cross(x, y)], axis=1))
    return Rotation.from_quat(np.roll(numbers(element, "quat", "1 0 0 0"), -1))


class Reader:
    """Bodies and joints while a file is read; joints that turn about two axes of one body are one cross."""

    def __init__(self, root):
        self.bodies, self.joints, self.anchors, self.offsets = [], [], {}, {}
        classes = root.find("default")
        common = {} if classes is None else classes.find("joint").attrib
        self.classes = (
            {}
            if classes is None
            else {c.get("class"): c.find("joint").attrib for c in classes.findall("default")}
        )
        self.common = common
        for child in root.find("worldbody").findall("body"):
            self.body(child, "ground", np.zeros(3), Rotation.identity())
        for connect in root.iter("connect"):
            place = self.anchors[connect.get("body1")](numbers(connect, "anchor", ""))
            # The row is the point on body 1 less that on body 2.
            self.joints.append(
                js.Ball(connect.get("name"), connect.get("body2"), connect.get("body1"), at=place)
            )
        for coupling in root.findall("equality/joint"):
            coefficients = numbers(coupling, "polycoef", "0 1 0 0 0")
            ends = coupling.get("joint1"), coupling.get("joint2")
            self.joints.append(js.Relation(coupling.get("name"), *ends, coefficients, 0.0, 0.0))

    def body(self, element, parent, place, turned):
        """Reads a body and what it carries; one without inertia is a part of its parent."""
        place, turned, name = (
            place + turned.apply(numbers(element, "pos", "0 0 0")),
            turned * turn(element),
            element.get("name"),
        )
        inertial = element.find("inertial")
        if inertial is None:
            name = parent
        else:
            center = numbers(inertial, "pos", "0 0 0")
            if "fullinertia" in inertial.attrib:
                xx, yy, zz, xy, xz, yz = numbers(inertial, "fullinertia", "")
                moments = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            else:
                axes = turn(inertial).as_matrix()
                moments = axes @ np.diag(numbers(inertial, "diaginertia", "")) @ axes.T
            self.offsets[name] = center
            pose = place + turned.apply(center), np.roll(turned.as_quat(), 1)
            self.bodies.append(js.Body(name, float(inertial.get("mass")), moments, *pose))
            self.joint(element, parent, name, place, turned)
        self.anchors[name] = lambda point: place + turned.apply(point)
        for child in element.findall("body"):
            self.body(child, name, place, turned)

    def joint(self, element, parent, name, place, turned):
        """Reads the joints of a body."""
        found = [
            {**self.common, **self.classes.get(j.get("class"), {}), **j.attrib}
            for j in element.findall("joint")
        ]
        if element.find("freejoint") is not None:
            return
        if not found:
            self.joints.append(js.Weld(f"{name} weld", parent, name, at=place))
            return
        axes = [turned.apply(np.array(j["axis"].split(), float)) for j in found]
        at = place + turned.apply(np.array(found[0].get("pos", "0 0 0").split(), float))
        if len(found) == 2:
            self.joints.append(
                js.Universal(f"{found[0]['name']}+{found[1]['name']}", parent, name, *axes, at=at)
            )
            return
        kind = js.Prismatic if found[0].get("type") == "slide" else js.Revolute
        acting = {
            key: float(found[0][key]) for key in ("damping", "stiffness", "armature") if key in found[0]
        }
        acting |= {"rest": float(found[0].get("springref", 0.0))} if "stiffness" in acting else {}
        self.joints.append(kind(found[0]["name"], parent, name, axes[0], at=at, **acting))


def read(name, forces=()):
    """Returns the description of a model, and the mass centers of its bodies in the frames of the file."""
    reader = Reader(xml.parse(MODELS / f"{name}.xml").getroot())
    return jm.Description(
        space=jm.SPACE, bodies=reader.bodies, joints=reader.joints, forces=forces
    ), reader.offsets
