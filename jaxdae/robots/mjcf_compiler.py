"""Compilation of the checked files of a robot with MuJoCo."""

from __future__ import annotations

import pathlib
import re
import warnings
from typing import Any

from jaxdae.base.suggestions import join_first
from jaxdae.robots.mjcf_files import Prepared, document
from jaxdae.robots.robot_source import RobotFileError


def compiled(mujoco: Any, path: pathlib.Path, files: Prepared) -> tuple[Any, Any, list[str]]:
    """Return the MuJoCo spec of prepared files, the compiled model, and the warnings of MuJoCo.

    Args:
        mujoco: the module.
        path: path of the main file, for messages.
        files: the checked files.

    Raises:
        RobotFileError: MuJoCo does not compile the model.
    """
    notes: list[str] = []
    before = mujoco.get_mju_user_warning()
    # Without a warning handler, MuJoCo writes warnings to a file in the working directory.
    mujoco.set_mju_user_warning(notes.append)
    try:
        spec: Any = mujoco.MjSpec.from_string(document(files.root), include=files.parsed, assets=files.assets)
        # Length ranges are only needed for muscles, which are not supported.
        spec.compiler.LRopt.mode = 0
        if files.missing:
            _strip(spec)
            needed = [files.missing[mesh.file] for mesh in spec.meshes if mesh.file in files.missing]
            if needed:
                raise RobotFileError(
                    [f"{path}: missing meshes that determine the inertia of bodies: {join_first(needed)}"]
                )
        with warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always")
            model = spec.compile()
    except RobotFileError:
        raise
    except (ValueError, RuntimeError, OSError) as error:
        text = " ".join(str(error).split())
        for buffer, name in files.names.items():
            text = text.replace(buffer, name)
        found = re.search(r"line (\d+)", text)
        more = f"; missing files: {join_first(files.missing.values())}" if files.missing else ""
        raise RobotFileError([f"{path}:{found.group(1) if found else 0}: MuJoCo: {text}{more}"]) from error
    finally:
        mujoco.set_mju_user_warning(before)
    return spec, model, notes + [str(doubt.message) for doubt in doubts]


def _strip(spec: Any) -> None:
    """Remove visual and contact elements of a model with missing files; keep geoms that define inertia."""
    for items in (spec.sensors, spec.pairs, spec.excludes, spec.skins):
        for item in list(items):
            spec.delete(item)
    from_geoms = int(spec.compiler.inertiafromgeom) == 1
    used = set()
    for geom in list(spec.geoms):
        body = geom.parent
        if body == spec.worldbody or (body.explicitinertial and not from_geoms):
            spec.delete(geom)
        else:
            geom.material = ""
            used.add(geom.meshname)
    for items in (spec.materials, spec.textures, [mesh for mesh in spec.meshes if mesh.name not in used]):
        for item in list(items):
            spec.delete(item)
