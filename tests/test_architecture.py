"""The house: imports point down, names are complete and documented, files are short. Each test lists all
offenders.
"""

import ast
import functools
import importlib
import inspect
import pathlib
import subprocess
import sys
import types

import jaxdae

PACKAGE = pathlib.Path(jaxdae.__file__).parent
FILES = {str(file.relative_to(PACKAGE)): file for file in sorted(PACKAGE.rglob("*.py"))}
LONGEST = 550
SHORTEST = 60

FLOORS = (
    "_version",
    "typing",
    "base",
    "compile",
    "fused",
    "geometry",
    "linalg",
    "trees",
    "matrices",
    "saddle_point",
    "contact_problem",
    "systems",
    "dynamics",
    "integrators",
    "rollouts",
    "mechanisms",
    "models",
    "robots",
    "vehicles",
    "control",
    "kinematics",
    "tuning",
    "optimal_control",
    "viewer",
    "envs",
    "contact",
    "diffrax",
    "interfaces",
    "operators",
    "switching",
    "textbook",
    "tree",
    "public_names",
    "app",
    "__main__",
)
"""Folders and files of the package, in order: each imports only from itself and from those before it."""
APP_FLOORS = ("config", "model", "runs", "draw", "jobs", "learn", "export")
"""Folders of the command, in the same sense. Files beside them are above all."""
APP_PACKAGES = (
    "diffrax",
    "matplotlib",
    "mujoco",
    "pydantic",
    "rich",
    "trimesh",
    "typer",
    "viser",
    "xarray",
    "yaml",
    "zarr",
)

# The library: everything below the command.
LIBRARY = [name for name in FILES if not name.startswith("app/")]
NAMESPACES = ("contact", "diffrax", "interfaces", "operators", "switching", "textbook", "tree")
PUBLIC = (
    "jaxdae",
    *(f"jaxdae.{name}" for name in NAMESPACES),
    *(
        f"jaxdae.{name}"
        for name in (
            "control",
            "envs",
            "kinematics",
            "mechanisms",
            "models",
            "optimal_control",
            "robots",
            "tuning",
            "vehicles",
            "viewer",
        )
    ),
)

LAZY = {"__init__.py": "public_names.py", "app/__init__.py": "app/experiment_names.py"}
"""Packages that import their public names at the first use, with the files that list these names."""

INTERNAL = (
    "jaxdae.app",
    "jaxdae.contact_problem",
    "jaxdae.fused",
    "jaxdae.integrators",
    "jaxdae.matrices",
    "jaxdae.saddle_point",
)


@functools.cache
def trees():
    """Returns the syntax tree of every file; parsing all of them takes seconds, which only these tests need."""
    return {name: ast.parse(file.read_text()) for name, file in FILES.items()}


def part(name):
    """Returns the name that stands in `FLOORS`: of the file, or of its folder."""
    return name.split("/")[0].removesuffix(".py")


def imported(tree):
    """Returns the full names of all modules that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names)
    return names


@functools.cache
def imports():
    """Returns what every file imports."""
    return {name: imported(tree) for name, tree in trees().items()}


@functools.cache
def parts():
    """Returns the parts of the package that every file imports."""
    return {
        name: {full.split(".")[1] for full in names if full.startswith("jaxdae.")}
        for name, names in imports().items()
    }


def walk(names=tuple(FILES)):
    """Yields (place, node) of every node in files."""
    for name in names:
        for node in ast.walk(trees()[name]):
            yield f"{name}:{getattr(node, 'lineno', 0)}", node


def test_imports_point_down():
    assert {part(name) for name in FILES} - {"__init__"} == set(FLOORS), "which floor is it on?"
    wrong = []
    for name in FILES:
        if name == "__init__.py":
            # JAX is imported with the public names, at their first use.
            wrong += [
                f"{name} imports {found}" for found in parts()[name] - {"_version", "base", "public_names"}
            ]
            continue
        floor = FLOORS.index(part(name))
        wrong += [
            f"{name} imports {found}, which is above it"
            for found in parts()[name]
            if found in FLOORS[floor + 1 :]
        ]
        wrong += [f"{name}: write {full} in full" for full in imports()[name] if full.startswith(".")]
        # Names of the package itself would pull in all floors.
        if part(name) in FLOORS[: FLOORS.index("public_names")] and part(name) not in NAMESPACES:
            wrong += [
                f"{name} imports {found}, a name of the package itself"
                for found in parts()[name]
                if found not in FLOORS
            ]
            wrong += [
                f"{name} imports {found}, a public namespace"
                for found in parts()[name]
                if found in NAMESPACES
            ]
            wrong += [f"{name} imports jaxdae" for full in imports()[name] if full == "jaxdae"]
    assert not wrong


def test_imports_inside_the_app_point_down():
    wrong = []
    for name in FILES:
        folder, *inside = name.removeprefix("app/").split("/")
        if not name.startswith("app/") or not inside:
            continue
        below = APP_FLOORS[: APP_FLOORS.index(folder) + 1]
        found = {
            full.split(".")[2].split("/")[0] for full in imports()[name] if full.startswith("jaxdae.app.")
        }
        wrong += [f"{name} imports jaxdae.app.{one}, which is above it" for one in sorted(found - set(below))]
    assert not wrong


def test_file_names_are_unique():
    names = [name.split("/")[-1] for name in FILES if not name.endswith("__init__.py")]
    assert not sorted({name for name in names if names.count(name) > 1})


def test_no_short_file_has_a_single_user():
    """Merge such a file into its user. Exempt are listings of names as users, and merged files that would be
    too long.
    """
    lines = {name: len(file.read_text().splitlines()) for name, file in FILES.items()}
    users = {name: set() for name in FILES}
    for user, found in imports().items():
        for full in found:
            words = full.split(".")
            for path in ("/".join(words[1:]), "/".join(words[1:-1])):
                if f"{path}.py" in users:
                    users[f"{path}.py"].add(user)
    short = {
        name: next(iter(users[name])) for name in FILES if lines[name] < SHORTEST and len(users[name]) == 1
    }
    assert not [
        f"{name}: merge it into {user}"
        for name, user in short.items()
        if not {name.split("/")[-1], user.split("/")[-1]}
        & {"__init__.py", *(f"{space}.py" for space in NAMESPACES)}
        and lines[name] + lines[user] <= 450
    ]


def test_no_private_jax_no_assert_no_print():
    # An assert vanishes with -O, and a user's mistake deserves an error that helps; what is printed is the
    # command's business.
    wrong = [name for name in FILES if any(full.startswith("jax._src") for full in imports()[name])]
    for place, node in walk():
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if isinstance(node, ast.Assert) or called == "print":
            wrong.append(place)
    assert not wrong


def test_files_are_short_and_begin_with_a_docstring():
    assert not [name for name, file in FILES.items() if len(file.read_text().splitlines()) > LONGEST]
    assert not [name for name, tree in trees().items() if not ast.get_docstring(tree)]


def test_lines_have_at_most_110_columns():
    lines = [(name, line) for name, file in FILES.items() for line in file.read_text().splitlines()]
    assert not [(name, line) for name, line in lines if len(line) > 110]


def test_the_library_leaves_the_configuration_and_the_precision_alone():
    literal = ("float32", "float64", "float16", "bfloat16")
    found = [(place, node) for place, node in walk(LIBRARY) if isinstance(node, ast.Attribute)]
    assert not [place for place, node in found if node.attr in literal or ast.unparse(node) == "jax.config"]


def test_init_files_hold_names_only():
    wrong = []
    for name in trees():
        for node in trees()[LAZY.get(name, name)].body if name.endswith("__init__.py") else ():
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            if not (is_text or is_all or isinstance(node, ast.Import | ast.ImportFrom)):
                wrong.append(f"{name}:{node.lineno}")
    assert not wrong


def test_all_is_complete_and_sorted():
    for module in map(importlib.import_module, PUBLIC):
        # Constants, then classes, then functions, as the linter sorts them.
        assert list(module.__all__) == sorted(set(module.__all__), key=lambda x: (not x.isupper(), x))
        assert not [exported for exported in module.__all__ if not hasattr(module, exported)]
        # The file imports what it exports, and nothing else.
        file = str(pathlib.Path(module.__file__).relative_to(PACKAGE))
        body = trees()[LAZY.get(file, file)].body
        names = {
            alias.asname or alias.name
            for node in body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert names == set(module.__all__)


def test_no_module_has_the_name_of_a_function_that_is_exported():
    # `jaxdae.rollout` is the function: static tools and readers would take a module of that name for it.
    modules = {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in map(importlib.import_module, (*PUBLIC, *INTERNAL))
        for name in dir(module)
    }
    paths = {"jaxdae." + name.removesuffix(".py").replace("/", ".") for name in FILES}
    assert not [
        path for path, thing in modules.items() if path in paths and not isinstance(thing, types.ModuleType)
    ]


def public_things():
    """Returns (name, thing) of every exported name, with the public methods and properties of classes."""
    things = {}
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            thing = getattr(module, name)
            things[f"{module.__name__}.{name}"] = thing
            if inspect.isclass(thing) and thing.__module__.startswith("jaxdae"):
                for attribute, value in vars(thing).items():
                    is_method = inspect.isfunction(value) or isinstance(
                        value, property | classmethod | staticmethod
                    )
                    if not attribute.startswith("_") and is_method:
                        things[f"{module.__name__}.{name}.{attribute}"] = value
    return things


def test_every_public_name_has_a_docstring():
    # Dataclasses without a docstring get their signature as one; text, such as GROUND, is documented where it
    # is defined.
    docs = {
        name: inspect.getdoc(thing) or ""
        for name, thing in public_things().items()
        if not isinstance(thing, str)
    }
    assert not [
        name for name, doc in docs.items() if len(doc) <= 10 or doc.startswith(f"{name.rsplit('.', 1)[-1]}(")
    ]


def test_every_definition_in_the_library_has_a_docstring():
    """Classes, functions and methods that do not begin with an underscore; functions inside functions may do
    without.
    """
    missing = []

    def look(node, name):
        for child in node.body:
            if not isinstance(child, ast.FunctionDef | ast.ClassDef) or child.name.startswith("_"):
                continue
            overloaded = any(ast.unparse(decorator) == "overload" for decorator in child.decorator_list)
            if not overloaded and not ast.get_docstring(child):
                missing.append(f"{name}:{child.lineno} {child.name}")
            if isinstance(child, ast.ClassDef):
                look(child, name)

    for name in LIBRARY:
        look(trees()[name], name)
    assert not missing


def test_importing_jaxdae_alone_does_not_import_jax():
    program = (
        "import sys, jaxdae\n"
        "jaxdae.__version__\n"
        "print('jax' in sys.modules, 'rollout' in dir(jaxdae), jaxdae.mechanisms.__name__, 'jax' in sys.modules)\n"
        "try:\n    jaxdae.rolout\n"
        "except AttributeError as error:\n    print(error)\n"
        "from jaxdae import *\n"
        "print(rollout is jaxdae.rollout is jaxdae.public_names.rollout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert done.stdout.splitlines() == [
        "False True jaxdae.mechanisms True",
        "module 'jaxdae' has no attribute 'rolout'",
        "True",
    ]


def test_importing_jaxdae_imports_nothing_of_the_app():
    """In a process of its own, without the type checker; the program also counts what is imported beyond JAX."""
    program = (
        "import sys, jax, jax.numpy\n"
        "before = set(sys.modules)\n"
        "import jaxdae, jaxdae.control, jaxdae.mechanisms\n"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before if not "
        "name.startswith('_')}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    packages = done.stdout.split()
    assert "jaxdae" in packages
    assert "jaxtyping" in packages
    assert not set(packages) & {*APP_PACKAGES, "beartype", "optax", "scipy", "jaxopt", "chex"}
