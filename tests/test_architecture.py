"""The house: imports point down, names are complete and documented, files are short."""

import ast
import importlib
import inspect
import pathlib
import subprocess
import sys

import pytest

import jaxdae

PACKAGE = pathlib.Path(jaxdae.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 450

FLOORS = {
    "_pytree": 0,
    "functions": 0,
    "requirements": 0,
    "typing": 0,
    "worlds": 0,
    "batch": 0,
    "status": 0,
    "saddle_point": 1,
    "small_matrix": 1,
    "newton": 1,
    "trigonometry": 1,
    "rotation": 1,
    "system": 2,
    "linearization": 2,
    "masks": 2,
    "dynamics": 2,
    "kinematic": 2,
    "stabilization": 2,
    "consistency": 2,
    "initialize": 2,
    "integrators": 3,
    "guard": 3,
    "rollout": 3,
    "rollout_arguments": 3,
    "mechanisms": 4,
    "control": 4,
    "diagnostics": 4,
    "tuning": 5,
    "app": 6,
}
APP_PACKAGES = ("diffrax", "matplotlib", "mujoco", "pydantic", "rich", "typer", "xarray", "yaml", "zarr")

# The library: everything below the command.
LIBRARY = [file for file in FILES if file.relative_to(PACKAGE).parts[0] != "app"]
PUBLIC = ("jaxdae", "jaxdae.control", "jaxdae.mechanisms")

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))


def part(file):
    """Returns the name that stands in `FLOORS`: of the file, or of its folder."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def tree(file):
    return ast.parse(file.read_text())


def imported(file):
    """Returns the full names of all modules that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: write imports in full"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def inner(names):
    """Returns the parts of jaxdae among imported names."""
    return {name.split(".")[1] for name in names if name.startswith("jaxdae.")}


@each_file
def test_imports_point_down(file):
    parts = inner(imported(file))
    if file == PACKAGE / "__init__.py":
        assert "app" not in parts
        return
    assert part(file) in FLOORS, f"{part(file)}: which floor is it on?"
    above = {name for name in parts if FLOORS.get(name, -1) > FLOORS[part(file)]}
    assert not above
    # Names of the package itself would pull in all floors.
    if FLOORS[part(file)] < FLOORS["app"]:
        assert all(name in FLOORS for name in parts)
        assert "jaxdae" not in imported(file)


@each_file
def test_no_private_jax(file):
    assert not any(name.startswith("jax._src") for name in imported(file))


@each_file
def test_no_assert_and_no_print(file):
    # An assert vanishes with -O, and a user's mistake deserves an error that helps; what is printed is the command's business.
    for node in ast.walk(tree(file)):
        assert not isinstance(node, ast.Assert), f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno}"


@each_file
def test_files_are_short_and_begin_with_a_docstring(file):
    assert len(file.read_text().splitlines()) <= LONGEST
    assert ast.get_docstring(tree(file))


@pytest.mark.parametrize("file", LIBRARY, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_the_library_leaves_the_configuration_and_the_precision_alone(file):
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("float32", "float64", "float16", "bfloat16"), f"line {node.lineno}: a literal precision"
            assert ast.unparse(node) != "jax.config", f"line {node.lineno}"


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_complete_and_sorted(name):
    module = importlib.import_module(name)
    # Constants, then classes, then functions, as the linter sorts them.
    assert list(module.__all__) == sorted(set(module.__all__), key=lambda x: (not x.isupper(), x))
    for exported in module.__all__:
        assert hasattr(module, exported)
    # `__init__.py` imports what it exports, and nothing else.
    names = {
        alias.asname or alias.name
        for node in tree(pathlib.Path(module.__file__)).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert names == set(module.__all__)


@pytest.mark.parametrize("file", [file for file in FILES if file.name == "__init__.py"], ids=lambda file: str(file.relative_to(PACKAGE)))
def test_init_files_hold_names_only(file):
    for node in tree(file).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        assert is_text or is_all or isinstance(node, ast.Import | ast.ImportFrom), f"line {node.lineno}"


def public_things():
    """Returns (name, thing) of every exported name, with the public methods and properties of classes."""
    things = {}
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            thing = getattr(module, name)
            things[f"{module.__name__}.{name}"] = thing
            if inspect.isclass(thing) and thing.__module__.startswith("jaxdae"):
                for attribute, value in vars(thing).items():
                    is_method = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
                    if not attribute.startswith("_") and is_method:
                        things[f"{module.__name__}.{name}.{attribute}"] = value
    return things


THINGS = public_things()


@pytest.mark.parametrize("name", THINGS)
def test_every_public_name_has_a_docstring(name):
    thing = THINGS[name]
    if name == "jaxdae.mechanisms.GROUND":  # a constant, documented where it is defined
        return
    doc = inspect.getdoc(thing) or ""
    # Dataclasses without a docstring get their signature as one.
    assert len(doc) > 10
    assert not doc.startswith(f"{name.rsplit('.', 1)[-1]}(")


def test_every_definition_in_the_library_has_a_docstring():
    """Classes, functions and methods that do not begin with an underscore; functions inside functions may do without."""
    missing = []

    def look(node, file):
        for child in node.body:
            if not isinstance(child, ast.FunctionDef | ast.ClassDef) or child.name.startswith("_"):
                continue
            overloaded = any(ast.unparse(decorator) == "overload" for decorator in child.decorator_list)
            if not overloaded and not ast.get_docstring(child):
                missing.append(f"{file.relative_to(PACKAGE)}:{child.lineno} {child.name}")
            if isinstance(child, ast.ClassDef):
                look(child, file)

    for file in LIBRARY:
        look(tree(file), file)
    assert not missing


def test_importing_jaxdae_imports_nothing_of_the_app():
    """In a process of its own, without the type checker; the program also counts what is imported beyond JAX."""
    program = (
        "import sys, jax, jax.numpy\n"
        "before = set(sys.modules)\n"
        "import jaxdae, jaxdae.control, jaxdae.mechanisms\n"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before if not name.startswith('_')}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    packages = done.stdout.split()
    assert "jaxdae" in packages
    assert "jaxtyping" in packages
    assert not set(packages) & {*APP_PACKAGES, "beartype", "optax", "scipy", "jaxopt", "chex"}
