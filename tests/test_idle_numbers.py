"""Numbers without effect or without meaning in descriptions are errors in Python."""

import dataclasses

import numpy as np
import pytest

from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js

ARM = jm.Body("arm", 1.0, 0.1, pose=(0.5, 0.0, 0.0))
HINGE = jm.Revolute("hinge", "ground", "arm", at=(0.0, 0.0))


def tire(kind, **numbers):
    return jm.planar_mechanism([ARM], [HINGE], [kind("tire", "arm", (1.0, 0.0), at=(0.0, 0.0), **numbers)])


def tendon(**numbers):
    return jm.planar_mechanism(
        [ARM], [HINGE], [jm.Tendon("tendon", ("hinge",), (1.0,), stiffness=1.0, **numbers)]
    )


def sleeve(**numbers):
    joint = js.Cylindrical("sleeve", "ground", "rod", at=(0.0, 0.0, 0.0), axis=(1.0, 0.0, 0.0), **numbers)
    return jm.spatial_mechanism([js.Body("rod", 1.0, (0.1, 0.1, 0.1))], [joint])


CASES = {
    "longitudinal has no effect on a wheel that rolls freely": lambda: tire(
        jm.LinearTire, lateral=1.0, longitudinal=2.0
    ),
    "longitudinal has no effect on": lambda: tire(jm.ViscousTire, lateral=1.0, longitudinal=2.0),
    "peak_longitudinal has no effect on": lambda: tire(jm.MagicFormulaTire, load=1.0, peak_longitudinal=2.0),
    "shape must be at most 2, got 2.5": lambda: tire(jm.MagicFormulaTire, load=1.0, shape=2.5),
    "curvature must be at most 1, got 1.5": lambda: tire(jm.MagicFormulaTire, load=1.0, curvature=1.5),
    "ratio has no effect without input and bias, got ratio = 3.0": lambda: tendon(ratio=3.0),
    "'hinge': restitution without limits has no effect": lambda: jm.planar_mechanism(
        [ARM], [dataclasses.replace(HINGE, restitution=0.5, limits=(-np.inf, np.inf))]
    ),
    "'sleeve': restitution without limits has no effect": lambda: sleeve(
        restitution=(0.5, 0.5), limits=[None, (-1.0, 1.0)]
    ),
    "restitution without limits has no effect, got restitution = 0.5": lambda: sleeve(
        restitution=0.5, limits=[(None, None), None]
    ),
    "places must be finite, in m": lambda: jv.wheels([[np.nan, 1.0]], radius=0.1),
}


@pytest.mark.parametrize("message", CASES)
def test_numbers_without_effect_or_meaning_are_errors(message):
    with pytest.raises(ValueError, match=message):
        CASES[message]()


def test_bounds_and_defaults_of_free_wheels_are_legal():
    tendon(ratio=3.0, most_force=-1.0)
    tendon(ratio=3.0, bias=(1.0, 0.0, 0.0))
    tire(jm.MagicFormulaTire, load=1.0, shape=2.0, curvature=1.0)
    tire(jm.LinearTire, lateral=1.0, longitudinal=2.0, rim_speed=0.0)


def test_restitution_of_one_limited_coordinate_is_legal():
    sleeve(restitution=0.5, limits=[(None, 1.0), None])
    sleeve(restitution=(0.0, 0.5), limits=[None, (-1.0, 1.0)])
