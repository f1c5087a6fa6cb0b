"""What goes with the package: one set of numbers in all files that repeat them, examples as data, nothing
unknown beside them.
"""

import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from typer.testing import CliRunner

import jaxdae
from jaxdae.app import examples
from jaxdae.app.cli import app
from jaxdae.app.config.problems import Refused

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# The library, what shows and tests it, and files that tools look for in this place.
ALLOWED = {
    *("jaxdae", "experiments", "tests", "configs", "docs", "README.md", "pyproject.toml"),
    *("Makefile", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md"),
    *(".ci", ".github", ".gitignore", ".pre-commit-config.yaml"),
}


def recipe():
    return yaml.safe_load((ROOT / ".ci" / "conda" / "recipe.yaml").read_text())


def named(requirement):
    """Returns a requirement as (name, versions), in the spelling of either world."""
    name, versions = re.fullmatch(r"([A-Za-z0-9_.-]+)\s*(.*)", requirement.strip()).groups()
    return name.lower().removesuffix("-base"), versions.replace(" ", "")


def test_nothing_unknown_lies_at_the_top():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    assert {path.split("/")[0] for path in listed} <= ALLOWED


def test_git_ignores_no_tracked_file():
    """Hatch leaves ignored files out of the wheel, for example those of `jaxdae/app/runs`."""
    found = subprocess.run(
        ["git", "ls-files", "--ignored", "--cached", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""


def test_versions_and_requirements_are_the_same_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == recipe()["context"]["version"] == jaxdae.__version__
    assert cited["license"] == recipe()["about"]["license"] == PROJECT["project"]["license"]
    extras = PROJECT["project"]["optional-dependencies"]
    needed = [
        *PROJECT["project"]["dependencies"],
        *extras["adaptive"],
        *(x for x in extras["app"] if not x.startswith("jaxdae[")),
    ]
    given = recipe()["requirements"]
    assert {named(x) for x in needed} == {named(x) for x in given["run"]} - {
        ("python", PROJECT["project"]["requires-python"])
    }
    assert {named(x) for x in PROJECT["build-system"]["requires"]} <= {named(x) for x in given["host"]}
    assert recipe()["build"]["python"]["entry_points"] == [
        f"{name} = {to}" for name, to in PROJECT["project"]["scripts"].items()
    ]
    assert given["run"][0] == f"python {PROJECT['project']['requires-python']}"


def test_the_command_as_a_module_says_what_is_missing(tmp_path):
    program = [sys.executable, "-m", "jaxdae", "--version"]
    assert (
        subprocess.run(program, capture_output=True, text=True, check=True).stdout
        == f"jaxdae {jaxdae.__version__}\n"
    )
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    done = subprocess.run(
        program, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "jaxdae: the command needs the extra app (typer is missing); install it with pip install "
        "'.[app]' in a clone of jaxdae\n"
    )


def test_workflows_run_targets_that_the_makefile_has():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    workflows = {path: path.read_text() for path in sorted((ROOT / ".github").rglob("*.yml"))}
    assert len(workflows) == 6
    for path, text in workflows.items():
        yaml.safe_load(text)
        assert set(re.findall(r"make ([a-z-]+)", text)) <= targets, path.name
    # What contributors are told to type.
    assert (
        set(re.findall(r"^make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)) <= targets
    )


def test_links_of_the_readme_are_absolute_on_the_package_index():
    text = (ROOT / "README.md").read_text()
    for rule in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert not [link for _, link in links if not link.startswith("https://")]
    assert all("raw.githubusercontent.com" in link for image, link in links if image)


def test_examples_are_listed_with_what_they_say_and_found_by_name():
    shown = CliRunner().invoke(app, ["example"])
    lines = shown.output.splitlines()
    assert shown.exit_code == 0
    groups = [
        [line for line in part.splitlines() if line.startswith("  ")] for part in shown.output.split("\n\n")
    ]
    configs = {
        path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "configs").glob("*.yaml"))
    }
    complete = [name for name, data in configs.items() if "experiment" not in data]
    of_scripts = [name for name in configs if name not in complete]
    assert [[line.split()[0] for line in group] for group in groups] == [complete, of_scripts]
    assert len(of_scripts) == 50
    for line in [line for group in groups for line in group]:
        name, told = line.split(maxsplit=1)
        assert told.startswith(" ".join(configs[name]["description"].split())), line
        assert told.endswith(f"[{configs[name].get('script')}]") == (name in of_scripts), line
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "Configs that jaxdae runs: jaxdae example NAME --run, or jaxdae run $(jaxdae example NAME):",
        "Configs of experiments, jaxdae example NAME --run; jaxdae run simulates only their mechanism:",
    ]
    found = CliRunner().invoke(app, ["example", "crank_rocker"])
    assert (
        pathlib.Path(found.output.strip()).read_text() == (ROOT / "configs" / "crank_rocker.yaml").read_text()
    )


@pytest.mark.parametrize("words", [["example"], ["--help"], ["run", "--help"], ["--version"]])
def test_the_command_starts_without_jax(words):
    program = (
        "import sys\nfrom jaxdae.__main__ import main\n"
        f"sys.argv[1:] = {words}\n"
        "try:\n    main()\nexcept SystemExit as end:\n"
        "    print(end.code, 'jax' in sys.modules, 'jaxdae' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False True"


def test_every_config_of_an_experiment_has_its_script():
    scripts = {name: examples.script(path) for name, path in examples.examples().items()}
    assert scripts["crank_rocker"] is None
    found = [path for path in scripts.values() if path is not None]
    assert len(found) == 50
    assert {path.parent for path in found} == {ROOT / "experiments"}
    # Hatch copies the folder to the place where an installed package looks for it.
    packed = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert packed["experiments"] == "jaxdae/app/experiments"


def test_an_experiment_is_run_by_its_script(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "configs" / "mine.yaml").write_text(
        "name: mine\nscript: experiments/mine.py\nexperiment: {a: 1}\n"
    )
    (tmp_path / "experiments" / "beside.py").write_text("CODE = 3\n")
    script = tmp_path / "experiments" / "mine.py"
    script.write_text("import sys, beside\nprint(*sys.argv)\nsys.exit(beside.CODE)\n")
    monkeypatch.setattr(examples, "_REPOSITORY", tmp_path / "configs")
    before = sys.argv, list(sys.path)
    arguments = ["--set", "dt=1", "--set", "a=2", "--out", "there"]
    done = CliRunner().invoke(app, ["example", "mine", "--run", *arguments])
    config = tmp_path / "configs" / "mine.yaml"
    assert done.output.split() == [str(script), str(config), *arguments]
    assert (done.exit_code, sys.argv, sys.path) == (3, *before)
    script.write_text("import package_of_nobody.part\n")
    done = CliRunner().invoke(app, ["example", "mine", "--run"])
    assert done.exit_code == 2
    assert done.output == (
        "example mine --run: mine.py cannot run: the package package_of_nobody is not installed; install it "
        "with: pip install package_of_nobody\n"
    )
    script.unlink()
    done = CliRunner().invoke(app, ["example", "mine", "--run"])
    assert done.exit_code == 2
    assert done.output.startswith("this installation has no experiments/mine.py, expected it in ")


def test_a_complete_example_is_run_by_the_command(monkeypatch):
    from jaxdae.app import cli

    seen = []
    monkeypatch.setattr(
        cli, "run", lambda config, **options: seen.append((pathlib.Path(config).name, options))
    )
    done = CliRunner().invoke(app, ["example", "crank_rocker", "--run", "--set", "dt=0.001"])
    assert (done.exit_code, seen) == (0, [("crank_rocker.yaml", {"set_": ["dt=0.001"], "out": None})])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--run", "example: got --run without a NAME, expected both"),
        ("arc --run --copy there", "example: got --run and --copy there, expected one of them"),
        ("arc --set dt=1", "example: got --set or --out without --run, expected them with it"),
    ],
)
def test_options_of_examples_that_do_not_go_together(words, told):
    done = CliRunner().invoke(app, ["example", *words.split()])
    assert (done.exit_code, done.output) == (2, f"{told}\n")


def test_an_example_is_copied_with_its_robot_and_never_over_another(tmp_path):
    written = examples.copy(examples.example("delta_robot"), tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "delta_robot.yaml",
        "models/delta.sdf",
    ]
    (tmp_path / "delta_robot.yaml").unlink()
    with pytest.raises(Refused, match=r"delta\.sdf exists, expected a folder without it"):
        examples.copy(examples.example("delta_robot"), tmp_path)
    assert not (tmp_path / "delta_robot.yaml").exists()


def test_what_an_example_needs_but_an_installation_lacks_hides_it(tmp_path, monkeypatch):
    (tmp_path / "far.yaml").write_text("description: x\nmechanism:\n  file: ../elsewhere.urdf\n")
    (tmp_path / "near.yaml").write_text("name: near\n")
    monkeypatch.setattr(examples, "_INSTALLED", tmp_path)
    assert list(examples.examples()) == ["near"]
    assert [line.rstrip() for line in examples.listed() if line.startswith("  ")] == ["  near"]
    (tmp_path / "near.yaml").write_text(
        "description: >-\n  two\n  lines # and no comment\nexperiment: {a: 1}\n"
    )
    assert examples.listed()[-1] == "  near  two lines # and no comment [a script]"
    monkeypatch.setattr(examples, "_INSTALLED", tmp_path / "none")
    monkeypatch.setattr(examples, "_REPOSITORY", tmp_path / "none")
    with pytest.raises(Refused, match="has no example configs"):
        examples.examples()


def test_a_misspelt_example_and_a_copy_of_nothing():
    misspelt = CliRunner().invoke(app, ["example", "crank_rocket"])
    assert misspelt.exit_code == 2
    assert "did you mean 'crank_rocker'" in misspelt.output
    assert CliRunner().invoke(app, ["example", "--copy", "there"]).exit_code == 2
