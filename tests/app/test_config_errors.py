"""Every mistake in a config: one line with its place, what came, what was expected and what to do."""

import copy
import pathlib
import re

import pytest
import yaml
from all_cases import all_cases

from jaxdae.app.config.config_source import Document
from jaxdae.app.config.problems import ConfigError
from jaxdae.app.config.schema import Config
from jaxdae.app.config.type_tables import table
from jaxdae.app.model.crosscheck import crosscheck
from jaxdae.app.model.load_config import load
from jaxdae.mechanisms.forces.planar_forces import PLANAR_FORCES
from jaxdae.mechanisms.joints.planar_joints import PLANAR_JOINTS

# No joints: nothing to close, so that these tests compile nothing.
FREE = {
    "name": "test",
    "mechanism": {
        "bodies": [
            {"name": "crank", "mass": 1.0, "inertia": 0.1, "pose": [0, 0, 0], "free": True},
            {"name": "rod", "mass": 1.0, "inertia": 0.1, "pose": [1, 0, 0], "free": True},
        ],
        "forces": [{"type": "torque", "name": "motor", "a": "ground", "b": "crank", "torque": 0.5}],
    },
    "duration": 1.0,
    "dt": 0.01,
}


def messages(tmp_path, data, *overrides):
    file = tmp_path / "test.yaml"
    file.write_text(data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(ConfigError) as caught:
        load(str(file), overrides)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    return [line.replace(f"{file}:", "line ").replace(str(file), "the file") for line in lines]


ONE_MISTAKE = {
    "unknown key": ("durations=1", "durations", "an unknown key", "did you mean 'duration'?"),
    "unknown key in a body": (
        "bodies.rod.mas=2",
        "mechanism.bodies.rod.mas",
        "an unknown key",
        "did you mean 'mass'?",
    ),
    "wrong type": (
        "bodies.rod.mass=heavy",
        "mechanism.bodies.rod.mass",
        "the text 'heavy'",
        "a finite number > 0",
        "in kg",
    ),
    "a table that is not there": (
        "controls=nowhere.csv",
        "controls",
        "which is not readable",
        "a CSV file",
    ),
    "drives where there are forces": (
        "mechanism.order=first",
        "mechanism.forces",
        "forces with order first",
        "remove forces",
    ),
    "quoted number": ("duration='1.0'", "duration", "the text '1.0'", "remove the quotes"),
    "truth value for a number": ("bodies.rod.mass=true", "the truth value true", "a finite number > 0"),
    "null": ("dt=null", "dt", "nothing (null)", "a finite number > 0"),
    "negative mass": ("bodies.rod.mass=-1", "mechanism.bodies.rod.mass", "got -1", "a finite number > 0"),
    "zero inertia": ("bodies.rod.inertia=0", "mechanism.bodies.rod.inertia", "got 0", "> 0", "kg m^2"),
    "nan": ("bodies.rod.mass=.nan", "got .nan", "a finite number > 0"),
    "infinity": (
        "forces.motor.torque=.inf",
        "mechanism.forces.motor.torque",
        "got .inf",
        "a finite number",
        "N m",
    ),
    "a whole number that no double holds": ("dt=1" + 400 * "0", "dt", "got 1000", "a finite number > 0"),
    "dt zero": ("dt=0", "dt", "got 0", "> 0", "the step in s"),
    "dt negative": ("dt=-1e-3", "dt", "got -0.001", "> 0"),
    "steps not whole": ("dt=0.3", "duration", "3.33333333 steps", "a whole number of steps", "0.9 or 1.2"),
    "too many steps": ("dt=1e-12", "dt", "1e+12 steps", "at most 1e+08 steps"),
    "step beyond the run": ("dt=2.5", "duration", "0.4 steps", "set duration to 2.5"),
    "save_every does not divide": (
        "save_every=3",
        "save_every",
        "the number of steps, 100",
        "for example 1, 2, 4",
    ),
    "save_every beyond the run": (
        "save_every=1000",
        "save_every",
        "the number of steps, 100",
        "for example 25, 50, 100",
    ),
    "unknown solver": (
        "solver=shur_complement",
        "solver",
        "'shur_complement'",
        "did you mean 'schur_complement'?",
    ),
    "unknown integrator": (
        "integrator=rk5",
        "integrator",
        "the unknown type 'rk5'",
        "explicit_euler",
        "did you mean 'rk4'?",
    ),
    "type that is a list": (
        "integrator={type: [rk4]}",
        "integrator.type",
        "unknown type ['rk4']",
        "did you mean 'rk4'?",
    ),
    "type of a force that is a list": (
        "forces.motor.type=[torque]",
        "mechanism.forces.motor.type",
        "unknown type ['torque']",
    ),
    "unknown stabilization": (
        "stabilization=baumgart",
        "the unknown type 'baumgart'",
        "did you mean 'baumgarte'?",
    ),
    "gains missing": (
        "stabilization={type: baumgarte, alpha: 1}",
        "stabilization.beta",
        "got nothing",
        "add beta",
    ),
    "precision typo": (
        "precision=float46",
        "precision",
        "'float46'",
        "float32 or float64",
        "did you mean 'float64'?",
    ),
    "batch size zero": ("batch.size=0", "batch.size", "got 0", "a whole number >= 1", "the number of worlds"),
    "batch size not whole": ("batch.size=2.5", "batch.size", "got 2.5", "a whole number"),
    "name used twice": ("bodies.rod.name=crank", "'crank' a second time", "each name once", "rename"),
    "name ground": ("bodies.rod.name=ground", "the name 'ground'", "the fixed world"),
    "name with spaces": ("name=my run", "name", "the text 'my run'", "a word of letters"),
    "absent body": (
        "forces.motor.b=crnk",
        "mechanism.forces.motor.b",
        "unknown body 'crnk'",
        "did you mean 'crank'?",
    ),
    "body on both sides": (
        "forces.motor.a=crank",
        "mechanism.forces.motor.b",
        "'crank' on both sides",
        "two different bodies",
    ),
    "not connected": (
        "bodies.rod.free=false",
        "mechanism.bodies.rod",
        "without a connection to the ground",
        "free: true",
    ),
    "unknown coordinate": (
        "start.fixed=[crank.angle]",
        "start.fixed.0",
        "'crank.angle'",
        "body.x, body.y or body.theta",
    ),
    "unknown velocity": ("start.velocities.cranc.x=1", "start.velocities.cranc.x", "did you mean 'crank.x'?"),
    "overlay too late": ("output.overlay=[0, 2]", "output.overlay.1", "got 2 s", "up to the end at 1.0 s"),
    "projection iterations": (
        "integrator={type: rk4, projection: {position: linear, iterations: 3}}",
        "integrator.projection",
        "iterations with position linear",
        "remove iterations",
    ),
    "origin of nothing": (
        "integrator={type: rk4, projection: {position: none, origin: stage}}",
        "origin stage with position none",
    ),
    "metric of nothing": (
        "integrator={type: rk4, projection: {position: none, velocity: false, metric: euclidean}}",
        "metric euclidean without any projection",
    ),
    "tolerance of no rank": (
        "solver={type: null_space, decomposition: qr, tolerance: 0.1}",
        "solver",
        "tolerance with decomposition qr",
    ),
    "vary unknown path": (
        "batch.vary=[{path: forces.motr.torque, std: 1}]",
        "batch.vary.0.path",
        "did you mean 'motor'?",
    ),
    "vary no number": ("batch.vary=[{path: bodies.rod.name, std: 1}]", "batch.vary.0.path", "which is text"),
    "vary dt": (
        "batch.vary=[{path: dt, std: 1}]",
        "got 'dt'",
        "the sections mechanism, start, stabilization",
    ),
    "vary without spread": ("batch.vary=[{path: bodies.rod.mass}]", "no spread", "scatter or std"),
    "vary both spreads": (
        "batch.vary=[{path: bodies.rod.mass, std: 1, scatter: 1}]",
        "scatter, std",
        "scatter or std",
    ),
    "vary low above high": (
        "batch.vary=[{path: bodies.rod.mass, distribution: uniform, low: 2, high: 1}]",
        "low 2 and high 1",
        "swap them",
    ),
    "scatter of zero": ("batch.vary=[{path: gravity.x, scatter: 1}]", "which is 0", "give std"),
    "pose not held": ("batch.vary=[{path: bodies.rod.pose.y, std: 1}]", "rod.y", "add rod.y to start.fixed"),
    "mass below zero in a world": (
        "batch={size: 50, vary: [{path: bodies.rod.mass, std: 1}]}",
        "batch.vary.0",
        "of 50 sampled values",
        "> 0",
    ),
    "joint_force of nothing": (
        "mechanism.forces=[{type: joint_force, name: f, joint: J, force: 1}]",
        "mechanism.forces.f.joint",
        "unknown joint 'J'",
        "a revolute or prismatic joint",
    ),
    "relation to nothing": (
        "mechanism.joints=[{type: revolute, name: J, a: ground, b: crank, at: [0, 0]}, {type: relation, "
        "name: r, joint: J, other: K}]",
        "mechanism.joints.r.other",
        "unknown joint 'K'",
        "a revolute or prismatic joint",
    ),
    "name of a body that is a list": (
        "bodies.rod.name=[rod]",
        "mechanism.bodies.1.name",
        "a list of 1",
        "expected text",
    ),
    "input": ("forces.motor.input=0", "mechanism.forces.motor.input", "driven from Python"),
    "key that another type has in Python": (
        "mechanism.joints=[{type: revolute, name: J, a: ground, b: crank, at: [0, 0], offset: 0.1}]",
        "mechanism.joints.J.offset",
        "an unknown key",
        "choose keys from: a, armature",
    ),
    "override without a value": ("dt", "the text 'dt'", "path.to.key=value"),
    "override that is no YAML": ("dt=[1", "not YAML"),
    "override of an absent body": ("bodies.wheel.mass=1", "'wheel'", "an element of the list", "crank, rod"),
    "override below a number": ("dt.value=1", "dt.value", "a key below a plain value"),
}


@pytest.mark.long
@all_cases("override", ONE_MISTAKE.values(), ids=ONE_MISTAKE.keys())
def test_one_mistake_is_one_line_that_names_place_and_remedy(tmp_path, override):
    setting, *expected = override
    (line,) = messages(tmp_path, FREE, setting)
    assert line.startswith(f"--set {setting[:50]}"[:60].split("...")[0]) or "line " in line
    for part in expected:
        assert part in line


def test_numbers_that_vary_have_a_value_for_world_0(tmp_path):
    """A rest length that is left out is that of the start pose, which no number of the config says; a damping
    that is left out is zero.
    """
    data = copy.deepcopy(FREE)
    data["mechanism"]["forces"].append(
        {"type": "linear_spring", "name": "cable", "a": "ground", "b": "rod", "at_a": [2, 0], "at_b": [1, 0]}
    )
    data["mechanism"]["forces"][-1]["stiffness"] = 3.0
    for spread in ("std", "scatter"):
        data["batch"] = {"size": 3, "vary": [{"path": "forces.cable.rest_length", spread: 0.1}]}
        (line,) = messages(tmp_path, data)
        assert "got 'forces.cable.rest_length', which has no value" in line
        assert line.endswith("give forces.cable.rest_length a value")
    data["batch"]["vary"] = [
        {"path": "forces.cable.damping", "distribution": "uniform", "low": 0.1, "high": 0.2}
    ]
    file = tmp_path / "good.yaml"
    file.write_text(yaml.safe_dump(data))
    load(str(file))


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(tmp_path):
    text = """
name: all at once
mechanism:
  gravity: [0, .nan]
  bodies:
    - {name: crank, mass: -1, inertia: 0, pose: [0, 0, 0]}
    - {name: rod, mass: heavy, inertia: 1, pose: [0, 0], color: red}
    - {name: lost, mass: 1, inertia: 1, pose: [0, 0, 0]}
  joints:
    - {type: revolute, name: A, a: ground, b: crank, at: [0, 0]}
    - {type: revolut, name: B, a: crank, b: rod, at: [0, 0]}
    - {type: revolute, name: A, a: rod, b: wheel, at: [0, 0], point_a: [0, 0]}
integrator: rk5
solver: shur
dt: 0
duration: 1
precision: float46
batch: {size: 0}
sped: 3
"""
    lines = messages(tmp_path, text)
    numbers = [int(line.split(":")[0].removeprefix("line ")) for line in lines]
    assert numbers == sorted(numbers)
    expected = {
        2: "name: got the text 'all at once'",
        4: "mechanism.gravity.1: got .nan",
        6: "mechanism.bodies.crank.inertia: got 0",
        7: "mechanism.bodies.rod.color: got an unknown key",
        8: "mechanism.bodies.lost: got the body 'lost' without a connection to the ground",
        11: "mechanism.joints.B.type: got the unknown type 'revolut'",
        12: "mechanism.joints.2.b: got the unknown body 'wheel'",
        13: "integrator: got the unknown type 'rk5'",
        14: "solver: got the unknown type 'shur'",
        15: "dt: got 0",
        17: "precision: got the text 'float46'",
        18: "batch.size: got 0",
        19: "sped: got an unknown key",
    }
    for number, start in expected.items():
        assert any(line.startswith(f"line {number}: {start}") for line in lines), (number, start)
    # Two mistakes in one line of the file stay two lines.
    assert numbers.count(6) == 2
    assert numbers.count(7) == 3
    # A name twice, and a place given twice over.
    assert numbers.count(12) == 3


def test_keys_written_twice_and_tags_are_mistakes(tmp_path):
    text = yaml.safe_dump(FREE) + "dt: 0.02\ndescription: !!python/name:os.system ''\n"
    lines = messages(tmp_path, text)
    assert any(
        "dt: got the key a second time, expected each key once; keep one of them (the first is in" in x
        for x in lines
    )
    assert any("description" in line and "remove the tag" in line for line in lines)


# 9^9 numbers in 400 bytes, in a section that is expanded before all other checks.
REPEATED = "x0: &x0 [1]\n" + "".join(f"x{k}: &x{k} [{', '.join([f'*x{k - 1}'] * 9)}]\n" for k in range(1, 10))
REPEATED += "mechanism: {vehicle: *x9}\n"


@pytest.mark.long
@all_cases(
    ("text", "parts"),
    [
        ("", ("nothing (null)", "a mapping")),
        ("- 1\n- 2\n", ("a list of 2", "a mapping")),
        ("name: [1\n", ("line 2", "not YAML")),
        ("name: a\n\tdt: 1\n", ("line 2", "not YAML")),
        ("name: &a [*a]\n", ("line 1", "contains itself")),
        ("mechanism: {vehicle: [[" + "[" * 50 + "]" * 50 + "]]}\n", ("line 1", "nested too deeply")),
        (REPEATED, ("repeating them through anchors",)),
    ],
    ids=["empty", "list", "open bracket", "tab", "recursive", "deep", "repeated"],
)
def test_text_that_is_no_config(tmp_path, text, parts):
    lines = messages(tmp_path, text)
    for part in parts:
        assert part in lines[0]


def test_a_missing_file_names_its_nearest_neighbor(tmp_path):
    (tmp_path / "crank.yaml").write_text("")
    for name, got in (("crnk.yaml", "no such file"), ("", "a folder")):
        with pytest.raises(ConfigError, match=got) as caught:
            load(str(tmp_path / name))
        assert "expected a config file" in str(caught.value)
        if name:
            assert "did you mean" in str(caught.value)


def test_bytes_that_are_no_text(tmp_path):
    file = tmp_path / "test.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(str(file))


def test_the_reference_of_configs_names_every_key_and_type_and_is_a_config(tmp_path):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "configs_reference.md").read_text()
    words = set(re.findall(r"[a-z_0-9]+", text))
    json_schema = Config.model_json_schema()
    for name, model in ({"Config": json_schema} | json_schema["$defs"]).items():
        for key, field in model["properties"].items():
            assert key in words, f"{name}.{key}"
            for choices in (field, *field.get("anyOf", [])):
                assert set(choices.get("enum", [choices.get("const", key)])) <= words, f"{name}.{key}"
    example = re.search(r"```yaml\n(.*?)```", text, re.DOTALL).group(1)
    document = Document("example", example)
    config = Config.model_validate(document.data)
    assert crosscheck(document, config) == []


def test_the_config_of_the_tutorial_is_valid():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "configs_tutorial.md").read_text()
    press, batch, tune = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    for addition in ("", batch, tune):
        document = Document("press", press + addition)
        config = Config.model_validate(document.data)
        assert document.problems == []
        assert crosscheck(document, config) == []


def test_the_tables_of_types_are_those_of_their_fields():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "configs_reference.md").read_text()
    for types in (PLANAR_JOINTS, PLANAR_FORCES):
        assert table(types) in text, "put this table into docs/configs_reference.md:\n" + table(types)


def test_numbers_follow_yaml_12():
    text = "[1e-3, 1.5E+3, 010, .5, yes, on, 1:30, 2024-01-01, null, ~, true]"
    expected = [1e-3, 1500.0, 10, 0.5, "yes", "on", "1:30", "2024-01-01", None, None, True]
    assert Document("a", text).data == expected


def test_overrides_reach_lists_by_name_and_index_shorthands_and_new_sections():
    data = copy.deepcopy(FREE) | {"integrator": "rk4"}
    overrides = (
        "mechanism.bodies.rod.mass=2",
        "bodies.0.mass=3",
        "bodies.crank.pose.theta=0.5",
        "integrator.projection.metric=euclidean",
        "start.velocities.crank.theta=4",
        "batch.size=8",
        "dt=1e-3",
        "gravity=[0, 0]",
    )
    document = Document("test", yaml.safe_dump(data), overrides)
    assert document.problems == []
    mechanism = document.data["mechanism"]
    assert [body["mass"] for body in mechanism["bodies"]] == [3, 2]
    assert mechanism["bodies"][0]["pose"] == [0, 0, 0.5]
    assert mechanism["gravity"] == [0, 0]
    assert document.data["integrator"] == {"type": "rk4", "projection": {"metric": "euclidean"}}
    assert document.data["start"] == {"velocities": {"crank.theta": 4}}
    assert (document.data["batch"], document.data["dt"]) == ({"size": 8}, 1e-3)


def test_overrides_of_parts_of_defaults(tmp_path):
    """As the config reference has it, `--set gravity.y=0`, also where the file leaves gravity out."""
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(FREE))
    config, _ = load(str(file), ("gravity.y=0", "integrator.projection.iterations=5", "batch.size=2"))
    assert config.mechanism.gravity == (0.0, 0.0)
    assert (config.integrator.type, config.integrator.projection.iterations) == ("rk4", 5)
    # One part changes, the other keeps its default.
    assert load(str(file), ("mechanism.gravity.x=1",))[0].mechanism.gravity == (1.0, -9.81)
    (line,) = messages(tmp_path, FREE, "gravity.z=1")
    assert "--set gravity.z=1: mechanism.gravity.z: got 'z', expected an element of the list" in line
    (line,) = messages(tmp_path, FREE, "stabilization.alpha=5")
    assert "got no type, expected a type; add type: one of none, baumgarte, multiplier_feedback" in line
