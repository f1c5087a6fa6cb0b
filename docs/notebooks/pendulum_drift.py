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
# # Notebook: drift, and what stops it
#
# A point mass on a rod, by the same method with and without a projection. Executed in every build of the
# site.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import jaxdae

jax.config.update("jax_enable_x64", True)


@jaxdae.tree.pytree
class Pendulum(jaxdae.System):
    length: jax.Array

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81])

    def constraint(self, t, q):
        return jnp.array([(q @ q - self.length**2) / 2])

    def potential_energy(self, t, q):
        return 9.81 * q[1]


pendulum = Pendulum(jnp.array(1.0))
start, _ = jaxdae.initialize(pendulum, jnp.array([1.0, 0.0]))

# %% [markdown]
# The equations know only the second derivative of the constraint, so that an explicit method lets it drift.
# Feedback answers to what is open, a projection takes it away.

# %%
midpoint = jaxdae.RungeKutta.midpoint
methods = {
    "as it is": midpoint(),
    "Baumgarte, 10/s": midpoint(stabilization=jaxdae.Baumgarte(10.0, 10.0)),
    "projected": jaxdae.Projected(midpoint()),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for name, method in methods.items():
    found = jaxdae.rollout(pendulum, method, start, dt=5e-3, steps=2000, save_every=10)
    jaxdae.raise_if_failed(found)
    energy = jax.vmap(lambda x: jaxdae.energy(pendulum, x))(found.state)
    left.semilogy(found.state.t, jnp.maximum(found.info.violation, 1e-17), label=name)
    right.plot(found.state.t, energy, label=name)
left.set(xlabel="time in s", ylabel="|g| in m$^2$")
right.set(xlabel="time in s", ylabel="energy in J")
_ = left.legend()

# %% [markdown]
# All three lose or gain energy by the order of the method; the loop is another matter. `Rattle` keeps both.
