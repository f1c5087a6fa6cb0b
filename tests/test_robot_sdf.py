"""Robots from SDF: poses of every kind, joints in either direction, loops; against Drake, Pinocchio and
absolute coordinates.
"""

import dataclasses
import json
import pathlib
import site

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

REFERENCES = pathlib.Path(__file__).parent / "reference"
TREE = REFERENCES / "models" / "sdf_tree.sdf"
FOLDERS = [pathlib.Path(folder) / "cmeel.prefix" for folder in site.getsitepackages()]
needs_files = pytest.mark.skipif(
    not any((folder / "share/example-robot-data").exists() for folder in FOLDERS),
    reason="example-robot-data is not installed: `make test-robots` installs it",
)


@jax.jit
def terms(mechanism, state):
    motion = mechanism.coordinates.kinematics(state.q, state.v)
    return mechanism.mass_matrix(state.q), mechanism.force(state.t, state.q, state.v, None), motion


@pytest.mark.long
def test_a_tree_with_frames_screw_and_universal_joint():
    data = json.loads((REFERENCES / "sdf_tree.json").read_text())
    description, start, report = robots.load(TREE)
    mechanism, q = jm.mechanism(description, jm.Joints())
    assert report.base == "fixed"
    assert report.grounded == ("base",)
    assert description.loops == ()
    names = ["j_upper", "j_slider", "j_nut", "j_cross", "j_wheel"]
    assert sorted(start) == sorted(set(names) - {"j_cross"})
    for entry in data["states"]:
        numbers = [dict(zip(names, [*x[:3], x[3:5], x[5]], strict=True)) for x in (entry["q"], entry["v"])]
        state = robots.joint_state(mechanism, q, *numbers)
        np.testing.assert_array_equal(state.q, entry["q"])
        mass, force, motion = terms(mechanism, state)
        # Entries have up to 4 units; round-off of the two engines, which differ by 8e-16 of the largest
        # themselves.
        np.testing.assert_allclose(mass, entry["mass_matrix"], rtol=0, atol=1e-14)
        np.testing.assert_allclose(-force, entry["nonlinear_effects"], rtol=0, atol=1e-13)
        np.testing.assert_allclose(
            np.linalg.solve(mass, np.asarray(entry["tau"]) + force),
            entry["acceleration"],
            rtol=1e-11,
            atol=1e-12,
        )
        tool = report.frames["tool"]
        k = mechanism.body_names.index(tool.body)
        rows = np.stack([np.asarray(part)[k] for part in motion.frame[3:]]).reshape(3, 3)
        place = np.asarray([part[k] for part in motion.frame[:3]]) + rows @ tool.place
        np.testing.assert_allclose(place, entry["tool"]["position"], rtol=0, atol=1e-14)
        turned = Rotation.from_quat(np.roll(entry["tool"]["quat_wb"], -1)).as_matrix()
        np.testing.assert_allclose(rows @ tool.rotation, turned, rtol=0, atol=1e-14)


def path_of(data):
    return next(file for folder in FOLDERS if (file := folder / data["source"]["file"]).exists())


@needs_files
@pytest.mark.exhaustive
def test_cassie_with_its_loops():
    data = json.loads((REFERENCES / "mechanism_cassie_sdf.json").read_text())
    description, _, report = robots.load(path_of(data))
    assert {loop.name for loop in report.loops} == {loop["name"] for loop in data["loops"]}
    assert sorted(one.joint for one in report.tree if one.reversed) == sorted(data["reversed_in_tree"])
    assert sum(loop.rows for loop in report.loops) == data["velocities_tree"] - data["mobility"] == 14
    still = [
        dataclasses.replace(joint, damping=0.0, stiffness=0.0) if joint.movable else joint
        for joint in description.joints
    ]
    pushes = []
    for name, force in data["forces_world"].items():
        pushes.append(js.Force(f"push {name}", name, point=(0.0, 0.0, 0.0), force=force))
    description = dataclasses.replace(description, joints=still, forces=pushes)
    tree, q = jm.mechanism(description, jm.Joints())
    assert len(tree.names.velocities) == data["velocities_tree"]

    @jax.jit
    def accelerations(state):
        a, _ = jaxdae.forward_dynamics(tree, state, solver=jaxdae.SchurComplement())
        motion = tree.coordinates.kinematics(state.q, state.v)
        rate = tree.coordinates.kinematics(state.q, a).velocity
        return motion, jax.tree.map(jnp.add, rate, motion.bias)

    for entry in data["states"]:
        links = [entry["links"][name] for name in tree.body_names]
        turned = tree.frames(q)
        rows = np.stack(turned[3:], axis=-1).reshape(-1, 3, 3)
        omega = np.einsum("nij,ni->nj", rows, np.asarray([link["omega_world"] for link in links]))
        twists = np.concatenate([np.asarray([link["com_velocity"] for link in links]), omega], axis=1)
        start = jm.to_absolute(tree, jaxdae.State(jnp.zeros(()), q, jnp.zeros(len(tree.names.velocities))))
        state = jm.to_joints(tree, jaxdae.State(start.t, start.q, jnp.asarray(twists.reshape(-1))))
        motion, rates = accelerations(state)
        np.testing.assert_allclose(np.stack(motion.velocity, axis=1), twists, rtol=0, atol=1e-9)
        found = np.stack(rates, axis=1)
        alpha = np.einsum("nij,nj->ni", rows, found[:, 3:])
        for got, key in ((found[:, :3], "com_acceleration"), (alpha, "alpha_world")):
            expected = np.asarray([link[key] for link in links])
            # The two engines of the file differ by 4e-12 of the largest; the right foot's hinges are parallel
            # to 7e-8 rad only.
            np.testing.assert_allclose(
                got, expected, rtol=0, atol=1e-10 * np.abs(expected).max(), err_msg=key
            )
