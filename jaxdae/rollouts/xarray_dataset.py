"""Trajectories as xarray datasets with named axes."""

from __future__ import annotations

from typing import Any

import numpy as np

_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("a", "velocity", "accelerations at the start of the step"),
    ("lam", "row", "multipliers at the start of the step; the constraint force is +J^T lam"),
    ("violation", "", "largest constraint violation since the previous entry, in m or rad"),
    (
        "velocity_violation",
        "",
        "largest violation of the velocity constraints since the previous entry, in m/s or rad/s",
    ),
    ("iterations", "", "iterations of the steps"),
    ("status", "", "jaxdae.Status, 0 is OK"),
)

_CONTACT_FIELDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("gap", ("contact",), "gaps of the contacts in m; negative: penetration"),
    ("slip", ("contact", "tangent"), "tangential velocities of the contacts in m/s"),
    ("force", ("contact", "axis"), "mean forces of the last step on body b of the contacts in N"),
)


def as_dataset(state: Any, info: Any, system: Any) -> Any:
    """Return a trajectory as a dataset; see `Trajectory.to_xarray`."""
    try:
        import xarray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Trajectory.to_xarray needs xarray; install it with pip install xarray", name="xarray"
        ) from error
    q, v = np.asarray(state.q), np.asarray(state.v)
    lead = ("world", "time") if q.ndim == 3 else ("time",)
    names = None if system is None else system.names.filled(system.sizes(_first(state.q)))
    rows = np.asarray(info.lam).shape[-1]
    labels = {
        "coordinate": [f"q{k}" for k in range(q.shape[-1])] if names is None else list(names.coordinates),
        "velocity": [f"v{k}" for k in range(v.shape[-1])] if names is None else list(names.velocities),
        "row": [f"row {k}" for k in range(rows)] if names is None else list(names.rows),
    }
    found: dict[str, Any] = {"q": ((*lead, "coordinate"), q, {"long_name": "coordinates"})}
    found["v"] = ((*lead, "velocity"), v, {"long_name": "velocities"})
    for name, along, meaning in _FIELDS:
        value = np.asarray(getattr(info, name))
        if name == "lam" and system is not None and system.first_order:
            meaning = "multipliers of the velocities, x' = rate + J^T lam"
        if value.shape[: q.ndim - 1] == q.shape[:-1]:
            found[name] = ((*lead, along) if along else lead, value, {"long_name": meaning})
    if hasattr(info, "force"):
        count, axes = np.shape(info.force)[-2:]
        known = () if names is None else names.contacts
        labels["contact"] = list(known or (f"contact {k}" for k in range(count)))
        labels["axis"] = ["normal", "tangent1", "tangent2"][:axes]
        labels["tangent"] = labels["axis"][1:]
        for name, along, meaning in _CONTACT_FIELDS:
            found[f"contact_{name}"] = (
                (*lead, *along),
                np.asarray(getattr(info, name)),
                {"long_name": meaning},
            )
    # A failed world stops its clock; the maximum is the time of the other worlds.
    times = np.max(np.asarray(state.t).reshape(-1, q.shape[-2]), axis=0)
    data = xarray.Dataset(found, labels | {"time": times})
    data.time.attrs = {"long_name": "time", "units": "s"}
    if names is not None:
        for along, units in (
            ("coordinate", names.coordinate_units),
            ("velocity", names.velocity_units),
            ("row", names.row_units),
        ):
            data = data.assign_coords({f"{along}_unit": (along, list(units))})
    return data


def _first(q: Any) -> Any:
    return q.reshape(-1, q.shape[-1])[0]
