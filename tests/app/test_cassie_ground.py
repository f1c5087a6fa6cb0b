"""The experiment `cassie_ground`: the law of its motors. The simulation itself takes minutes."""

import importlib.util
import pathlib

import jax.numpy as jnp
import numpy as np
import yaml

import jaxdae

ROOT = pathlib.Path(__file__).parents[2]


def test_the_law_raises_the_legs_in_turn_and_counteracts_roll():
    spec = importlib.util.spec_from_file_location("cassie_ground", ROOT / "experiments" / "cassie_ground.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = yaml.safe_load((ROOT / "configs" / "cassie_ground.yaml").read_text())["experiment"]
    settings = module.Settings(**given)
    joints, step, gains = list(settings.gains), settings.step, jnp.asarray(list(settings.gains.values()))
    posture = jnp.zeros((2, 5))
    extension = np.array([settings.extension.get(joint, 0.0) for joint in joints])
    law = module.Legs(
        posture=posture,
        kp=gains[:, 0],
        kd=gains[:, 1],
        extension=jnp.asarray(extension),
        balance=jnp.asarray(list(settings.balance.model_dump().values())),
        step=jnp.asarray(list(step.model_dump().values())),
        angles=tuple(range(7, 17)),
        rates=tuple(range(6, 16)),
        ankle=joints.index("foot"),
    )

    def torques(t, roll=0.0):
        q = np.zeros(17)
        q[3:5] = np.cos(roll / 2.0), np.sin(roll / 2.0)
        return np.asarray(law(t, jaxdae.State(t, jnp.asarray(q), jnp.zeros(16)))).reshape(2, 5)

    assert np.all(torques(0.5 * step.start) == 0.0)
    # In the middle of a step, the reference of the raised leg is shorter by the rise.
    shortest = -step.rise * extension * np.asarray(gains[:, 0])
    middle = step.start + step.part * step.period / 2.0
    for k in range(4):
        found = torques(middle + k * step.period / 2.0)
        np.testing.assert_allclose(found[k % 2], shortest, rtol=1e-12, atol=1e-10)
        assert np.all(found[1 - k % 2] == 0.0)
    # A roll to the right (positive) makes the right leg longer and the left leg shorter.
    longer = settings.balance.roll * np.sin(0.1) * extension * np.asarray(gains[:, 0])
    np.testing.assert_allclose(torques(0.0, 0.1), [-longer, longer], rtol=1e-12, atol=1e-10)
