# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Notebook: a length by gradient
#
# How long must the coupler of a crank-slider be for the slider to be at a given place after half a second?
# The whole simulation, loops closed, is a function of the length, and so is its derivative.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import jaxdae
from jaxdae import mechanisms as jm

jax.config.update("jax_enable_x64", True)


@jax.jit
def place(length):
    crank = jm.Body("crank", mass=1.0, inertia=1 / 12, pose=(0.5, 0.0, 0.0))
    slider = jm.Body("slider", mass=0.5, inertia=0.01, pose=(1.0 + length, 0.0, 0.0))
    joints = [
        jm.Revolute("pivot", jm.GROUND, "crank", at=(0.0, 0.0)),
        jm.Rod("coupler", "crank", "slider", at_a=(1.0, 0.0), at_b=(1.0 + length, 0.0)),
        jm.Prismatic("guide", jm.GROUND, "slider", axis=(1.0, 0.0), at=(1.0 + length, 0.0)),
    ]
    mechanism, q = jm.planar_mechanism(
        [crank, slider], joints, [jm.Torque("motor", jm.GROUND, "crank", torque=2.0)]
    )
    start = jaxdae.State(t=0.0, q=q, v=0 * q)
    method = jaxdae.Projected(jaxdae.RungeKutta.rk4())
    return jaxdae.rollout(mechanism, method, start, dt=5e-3, steps=100, save_every=100).state.q[-1, 3]


# %% [markdown]
# Newton's method on the simulation takes four steps.

# %%
target = 2.1
slope = jax.jit(jax.value_and_grad(place))
length, lengths, misses = 1.5, [], []
for _ in range(6):
    there, by = slope(length)
    lengths.append(float(length))
    misses.append(abs(float(there) - target))
    length = length - (there - target) / by
print("length in m:", float(length), "off by", misses[-1], "m")

# %%
figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
axes.semilogy(jnp.maximum(jnp.array(misses), 1e-17), "o-")
_ = axes.set(xlabel="step of Newton's method", ylabel="off by, m")
