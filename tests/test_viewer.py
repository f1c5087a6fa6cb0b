"""Scenes without a renderer: solids follow from joints, poses from states, and arrows from multipliers."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae import vehicles, viewer
from jaxdae.mechanisms import spatial as js
from jaxdae.viewer import colors, meshes
from jaxdae.viewer.outline import middle_lines, placed
from jaxdae.viewer.stage import turned_to

GRAVITY = (0.0, -9.81)


def volume(mesh):
    """Returns the volume that triangles enclose: positive where all of them look outward."""
    a, b, c = np.moveaxis(mesh.vertices[mesh.faces], 1, 0)
    return np.einsum("ni,ni->", a, np.cross(b, c)) / 6.0


def test_solids_are_closed_and_look_outward():
    circle = meshes.circle(1.0)
    turned = meshes.basis(np.array([1.0, 2.0, -0.5]))
    polygon = 0.5 * len(circle) * np.sin(2.0 * np.pi / len(circle))
    hook = np.array(
        [(0.0, 0.0), (3.0, 0.0), (3.0, 1.0), (1.0, 1.0), (1.0, 2.0), (2.0, 2.0), (2.0, 3.0), (0.0, 3.0)]
    )
    found = {
        "prism": (meshes.prism(circle, -1.0, 2.0), 3.0 * polygon),
        "hook": (meshes.prism(hook, 0.0, 0.5), 0.5 * 6.0),
        "hook, clockwise": (meshes.prism(np.roll(hook[::-1], 3, axis=0), 0.0, 0.5), 0.5 * 6.0),
        "cylinder": (
            meshes.cylinder(np.array([1.0, 0, 0]), np.array([1.0, 2.0, 0]), 0.5),
            2.0 * 0.25 * polygon,
        ),
        "cuboid": (meshes.cuboid(np.array([1.0, 2.0, 3.0]), turned, np.array([5.0, 0, 0])), 48.0),
        "wheel": (meshes.wheel(np.zeros(3), np.array([0, 2.0, 0]), 0.3, 0.1), 0.1 * 0.09 * polygon),
    }
    for name, (mesh, expected) in found.items():
        np.testing.assert_allclose(volume(mesh), expected, rtol=1e-12, err_msg=name)
        # Each edge of a closed surface is there once in each direction, by the places of its ends.
        corners = np.unique(np.round(mesh.vertices, 9), axis=0, return_inverse=True)[1].reshape(-1)[
            mesh.faces
        ]
        edges = {(a, b) for face in corners for a, b in zip(face, np.roll(face, -1), strict=True)}
        assert edges == {(b, a) for a, b in edges}, name
    # A sphere of so few faces lacks some of its volume, and an arrow is thin.
    assert 0.85 < volume(meshes.ball(np.ones(3), 1.0)) / (4.0 / 3.0 * np.pi) < 1.0
    assert volume(meshes.arrow()) > 0.0
    ground = meshes.surface(lambda x, y: 2.0 * x - y, np.array([-1.0, 0.0]), np.array([3.0, 1.0]), count=8)
    np.testing.assert_allclose(
        ground.vertices[:, 2], 2.0 * ground.vertices[:, 0] - ground.vertices[:, 1], rtol=0, atol=1e-14
    )
    a, b, c = np.moveaxis(ground.vertices[ground.faces], 1, 0)
    assert np.all(np.cross(b - a, c - a)[:, 2] > 0.0)


def test_arrows_and_lines_turn_to_their_directions():
    vectors = np.array([[0.0, 0, 2], [0, 0, -3], [1, 0, 0], [0, -1, 0], [1, 2, -3], [0, 0, 0]])
    turns = turned_to(vectors).astype(float)
    np.testing.assert_allclose(np.linalg.norm(turns, axis=1), 1.0, rtol=0, atol=1e-6)
    seen = placed(np.concatenate([np.zeros((6, 3)), turns], axis=1), np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(
        seen[:5], vectors[:5] / np.linalg.norm(vectors[:5], axis=1, keepdims=True), rtol=0, atol=1e-6
    )


def test_color_tells_how_open_loops_are():
    shades = colors.of_violation(np.array([0.0, 1e-12, 1e-7, 1e-2, 1.0, np.nan])).astype(int)
    assert np.all(shades[0] == shades[1])
    assert shades[1, 0] < shades[2, 0] < shades[3, 0]
    assert np.all(shades[3] == shades[4])
    assert np.all(shades[5] == shades[4])


@pytest.fixture(scope="module")
def four_bar():
    """A crank and a coupler with a rod to the ground and a spring, seen in two worlds over three instants."""
    bodies = [
        jm.Body("crank", mass=1.0, inertia=0.1, pose=(0.5, 0.0, 0.0)),
        jm.Body("plate", mass=2.0, inertia=0.5, pose=(1.5, 0.5, np.pi / 2)),
    ]
    joints = [
        jm.Revolute("A", jm.GROUND, "crank", at=(0.0, 0.0)),
        jm.Revolute("B", "crank", "plate", at=(1.0, 0.0)),
        jm.Rod("rod", jm.GROUND, "plate", at_a=(3.0, 0.0), at_b=(2.0, 1.0)),
    ]
    forces = [jm.LinearSpring("spring", jm.GROUND, "plate", at_a=(0.0, 2.0), at_b=(1.5, 1.5), stiffness=10.0)]
    mechanism, q = jm.planar_mechanism(bodies, joints, forces, gravity=GRAVITY)
    worlds = jnp.stack([q, q + 0.1])
    states = jaxdae.State(
        jnp.array([0.0, 0.5, 1.0]), jnp.stack([worlds] * 3, axis=1), jnp.zeros((2, 3, q.size))
    )
    return mechanism, q, states


def test_a_planar_scene(four_bar):
    mechanism, _, states = four_bar
    scene = viewer.scene(mechanism, states, title="here")
    assert (scene.worlds, scene.bodies, scene.up, scene.title) == (2, ("crank", "plate"), "+y", "here")
    np.testing.assert_allclose(scene.times, [0.0, 0.5, 1.0])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(
        scene.poses[0, 2], [[0.5, 0, 0, 1, 0, 0, 0], [1.5, 0.5, 0, half, 0, 0, half]], rtol=0, atol=1e-6
    )
    parts = {part.name: part for part in scene.parts}
    assert set(parts) == {"crank", "plate", "crank/joints", "plate/joints", "ground"}
    # The crank reaches from joint to joint, and half its width beyond: as far along as across.
    low, high = parts["crank"].mesh.vertices.min(axis=0), parts["crank"].mesh.vertices.max(axis=0)
    width = high[1] - low[1]
    np.testing.assert_allclose([low[0], high[0]], [-0.5 - 0.5 * width, 0.5 + 0.5 * width], rtol=0, atol=0.02)
    # Bodies that share a joint lie in different layers.
    assert high[2] < parts["plate"].mesh.vertices[:, 2].min()
    assert scene.lift > parts["plate"].mesh.vertices[:, 2].max()
    links = {link.name.split("/")[0]: link for link in scene.links}
    assert {name: (link.a, link.b) for name, link in links.items()} == {"rod": (-1, 1), "spring": (-1, 1)}
    np.testing.assert_allclose(links["rod"].point_a, [3, 0, 0], rtol=0, atol=1e-12)
    # One meter right of the plate's center and half a meter up, which are -y and x of the plate after its
    # quarter turn.
    np.testing.assert_allclose(links["rod"].point_b, [0.5, -0.5, 0], rtol=0, atol=1e-12)
    # Worlds stand beside each other, farther than they are large.
    assert np.linalg.norm(np.diff(scene.offsets(True), axis=0)) > scene.size
    assert not scene.offsets(False).any()
    second = scene.of_worlds([1])
    np.testing.assert_array_equal(second.poses[0], scene.poses[1])
    assert second.offsets(True).shape == (1, 3)
    wagon = viewer.Part("wagon", 0, meshes.ball(np.zeros(3), 1.0), (1, 2, 3))
    changed = scene.with_parts(wagon, instead_of=("crank",))
    assert {part.name for part in changed.parts} == {"wagon", "plate", "plate/joints", "ground"}


def test_points_and_outlines_of_a_config_are_drawn(four_bar):
    mechanism, q, _ = four_bar
    corners = [(-0.4, -0.1), (0.4, -0.1), (0.4, 0.1), (0.0, -0.05), (-0.4, 0.1)]
    shapes = [
        types.SimpleNamespace(name="crank", points=(), outline=corners),
        types.SimpleNamespace(name="plate", points=((0.0, 0.7),), outline=None),
    ]
    poses = np.asarray(q).reshape(1, 1, -1, 3)
    parts = {
        part.name: part.mesh.vertices
        for part in viewer.from_poses(mechanism, np.zeros(1), poses, shapes=shapes).parts
    }
    drawn = np.unique(np.round(parts["crank"][:, :2], 12), axis=0)
    np.testing.assert_allclose(drawn, np.unique(corners, axis=0), atol=1e-6)
    assert parts["plate"][:, 1].max() > 0.7


@pytest.mark.long
def test_what_joints_and_forces_do(four_bar):
    mechanism, _, states = four_bar
    one = jax.tree.map(lambda x: x[0] if x.ndim > 1 else x, states)
    lam = jax.vmap(lambda s: jaxdae.forward_dynamics(mechanism, s)[1])(one)
    poses = viewer.scene(mechanism, one).poses[0].astype(float)
    reactions = viewer.reaction_arrows(mechanism, one, lam, poses)
    forces = viewer.force_arrows(mechanism, one, poses)
    assert set(reactions.labels) == {"A", "B", "rod"}
    assert forces.labels == ("crank", "plate")
    at = {name: k for k, name in enumerate(reactions.labels)}
    np.testing.assert_allclose(reactions.starts[0, at["B"]], [1, 0, 0], rtol=0, atol=1e-6)
    # The rod pulls along itself, from (2, 1) to (3, 0).
    direction = reactions.vectors[0, at["rod"]] / np.linalg.norm(reactions.vectors[0, at["rod"]])
    np.testing.assert_allclose(np.abs(direction), [np.sqrt(0.5), np.sqrt(0.5), 0], rtol=0, atol=1e-12)
    assert direction[0] * direction[1] < 0.0
    # The crank has its weight, the plate that and the spring, which is as long as it was made.
    np.testing.assert_allclose(forces.vectors[0], [[0, -9.81, 0], [0, -2 * 9.81, 0]], rtol=0, atol=1e-12)
    np.testing.assert_allclose(forces.largest, 2 * 9.81)
    # Newton: what acts on the plate moves it. The reaction of B is on the plate.
    a = jaxdae.forward_dynamics(mechanism, jax.tree.map(lambda x: x[0], one))[0]
    total = reactions.vectors[0, at["B"]] + reactions.vectors[0, at["rod"]] + forces.vectors[0, 1]
    np.testing.assert_allclose(total[:2], 2.0 * a[3:5], rtol=0, atol=1e-12)


@pytest.mark.long
def test_a_spatial_scene_on_terrain_in_joint_coordinates():
    hills = vehicles.Hills(amplitudes=(0.1,), kx=(1.0,), ky=(0.0,), phase=(0.0,))
    bodies = [
        jm.SpatialBody("frame", 1.0, (2.0, 5.0, 5.0), (0.0, 0.0, 0.5)),
        jm.SpatialBody("wheel", 1.0, (0.1, 0.2, 0.1), (0.0, 0.3, 0.5)),
        jm.SpatialBody("other", 1.0, (0.1, 0.2, 0.1), (0.0, -0.3, 0.5)),
    ]
    joints = [
        js.Revolute("axle", "frame", "wheel", axis=(0, 1, 0), at=(0.0, 0.3, 0.5)),
        js.RollingDisc(
            "contact", jm.GROUND, "wheel", axis=(0, 1, 0), at=(0.0, 0.3, 0.5), radius=0.4, terrain=hills
        ),
        # With two wheels the numbers of their ground are there twice.
        js.Revolute("other axle", "frame", "other", axis=(0, 1, 0), at=(0.0, -0.3, 0.5)),
        js.RollingDisc(
            "other contact",
            jm.GROUND,
            "other",
            axis=(0, 1, 0),
            at=(0.0, -0.3, 0.5),
            radius=0.4,
            terrain=hills,
        ),
    ]
    description = jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, gravity=(0, 0, -9.81))
    mechanism, q = jm.mechanism(description, jm.Joints())
    states = jaxdae.State(jnp.zeros(2), jnp.stack([q, q]), jnp.zeros((2, len(mechanism.names.velocities))))
    scene = viewer.scene(mechanism, states)
    assert scene.up == "+z"
    np.testing.assert_allclose(
        scene.poses[0, 0], [[0, y, 0.5, 1, 0, 0, 0] for y in (0.0, 0.3, -0.3)], rtol=0, atol=1e-6
    )
    parts = {part.name: part for part in scene.parts}
    low, high = parts["wheel"].mesh.vertices.min(axis=0), parts["wheel"].mesh.vertices.max(axis=0)
    np.testing.assert_allclose(
        [high[0], high[2], low[2]], [0.4, 0.4, -0.4], rtol=0, atol=0.01
    )  # The rim has 20 corners.
    assert high[1] - low[1] < 0.2
    ground = parts["terrain/0/0"].mesh.vertices
    np.testing.assert_allclose(
        ground[:, 2], jax.vmap(hills.height)(ground[:, 0], ground[:, 1]), rtol=0, atol=1e-12
    )
    fields = [
        mesh.vertices[mesh.faces].mean(axis=1)
        for mesh in (parts[f"terrain/0/{color}"].mesh for color in (0, 1))
    ]
    # A chess board: no triangle is in both colors, and either has about half of them.
    assert not {*map(tuple, fields[0])} & {*map(tuple, fields[1])}
    assert 0.8 < len(fields[0]) / len(fields[1]) < 1.25
    # It reaches beyond the motion.
    assert ground[:, 0].min() < -0.05
    assert ground[:, 1].max() > 0.35


def test_a_body_without_joints_is_the_box_of_its_inertia():
    body = jm.SpatialBody("cross", 3.0, (2.0, 5.0, 5.0), (0.0, 0.0, 0.0))
    mechanism, q = jm.mechanism(jm.Description(space=jm.SPACE, bodies=[body], joints=[], gravity=(0, 0, 0)))
    scene = viewer.scene(mechanism, jaxdae.State(jnp.zeros(1), q[None], jnp.zeros((1, 6))))
    # m (b^2 + c^2) / 3 = 2 and m (a^2 + c^2) / 3 = 5: half sides 2, 1, 1.
    np.testing.assert_allclose(scene.parts[0].mesh.vertices.max(axis=0), [2, 1, 1])
    assert volume(scene.parts[0].mesh) == pytest.approx(16.0)
    for nothing in (dataclasses.replace(body, mass=0.0), dataclasses.replace(body, mass=None, inertia=None)):
        np.testing.assert_array_equal(middle_lines(nothing), np.zeros((3, 2, 3)))


def test_wheels_of_vehicles_in_the_plane_are_upright_discs():
    description = vehicles.differential_drive(
        wheel_separation=0.5, wheel_radius=0.1, mass=10.0, inertia=1.0, wheel_inertia=0.01
    )
    mechanism, q = jm.mechanism(description)
    scene = viewer.scene(mechanism, jaxdae.State(jnp.zeros(1), q[None], jnp.zeros_like(q)[None]))
    assert (scene.up, scene.bodies) == ("+z", ("base_link",))  # Rotors have no place.
    body = next(part for part in scene.parts if part.name == "base_link")
    np.testing.assert_allclose(
        [body.mesh.vertices[:, 2].min(), body.mesh.vertices[:, 2].max()], [-0.1, 0.1], rtol=0, atol=0.003
    )


def test_instants_on_the_screen(four_bar):
    mechanism, q, _ = four_bar

    def scene(times):
        states = jaxdae.State(
            jnp.asarray(times), jnp.tile(q, (len(times), 1)), jnp.zeros((len(times), q.size))
        )
        return viewer.scene(mechanism, states)

    fine = scene(np.linspace(0.0, 2.0, 2001))
    assert fine.pace == 1.0
    shown = fine.frames()
    assert len(shown) == 61
    assert (shown[0], shown[-1]) == (0, 2000)
    assert len(scene(np.linspace(0.0, 2.0, 11)).frames()) == 11
    # What takes 0.03 s is slowed down to seconds.
    quick = scene(np.linspace(0.0, 0.03, 301))
    assert quick.pace == pytest.approx(0.02)
    assert len(quick.frames()) == 46
    assert scene([0.0]).frames().tolist() == [0]


def test_messages(four_bar, tmp_path):
    mechanism, q, states = four_bar
    with pytest.raises(
        ValueError, match=r"states must be stacked along \(time,\) or \(world, time\).*got q of shape \(6,\)"
    ):
        viewer.scene(mechanism, jaxdae.State(0.0, q, 0 * q))
    with pytest.raises(ValueError, match="at least one entry; got q of shape"):
        viewer.scene(mechanism, jaxdae.State(jnp.zeros(0), jnp.zeros((0, 6)), jnp.zeros((0, 6))))
    with pytest.raises(ValueError, match="rate must be positive, in frames per second, got 0"):
        viewer.scene(mechanism, states).frames(0.0)
    with pytest.raises(ValueError, match=r"path must end in \.html, got 'scene\.gif'"):
        viewer.write_html(viewer.scene(mechanism, states), tmp_path / "scene.gif")
