"""What the terms of a mechanism cost grows as the number of its bodies, not as its square."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from all_cases import all_cases

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js


def chain(links):
    """Returns a chain of links with pins, dampers, springs and motors."""
    bodies = [jm.Body(f"b{k}", 1.0, 0.1, (k + 0.5, 0.0, 0.0)) for k in range(links)]
    names = [jm.GROUND, *(body.name for body in bodies)]
    pairs = list(itertools.pairwise(names))
    joints = [jm.Revolute(f"p{k}", *pair, at=(float(k), 0.0), damping=0.1) for k, pair in enumerate(pairs)]
    springs = [
        jm.LinearSpring(f"s{k}", *pair, at_a=(k + 0.1, 0.3), at_b=(k + 0.9, 0.3), stiffness=3.0)
        for k, pair in enumerate(pairs)
    ]
    motors = [jm.Torque(f"t{k}", *pair, input=k) for k, pair in enumerate(pairs)]
    skates = [jm.Skate("skate", jm.GROUND, bodies[-1].name, axis=(1.0, 0.0), point_b=(0.0, 0.0))]
    return jm.planar_mechanism(bodies, [*joints, *skates], [*springs, *motors])


TERMS = {
    "constraint": lambda m, t, q, v, y, u: m.constraint(t, q),
    "J x": lambda m, t, q, v, y, u: m.constraint_rate(t, q, v),
    "w": lambda m, t, q, v, y, u: m.velocity_constraint(t, q, v),
    "J^T y": lambda m, t, q, v, y, u: jax.vjp(lambda x: m.constraint_rate(t, q, x), v)[1](y)[0],
    "gamma": lambda m, t, q, v, y, u: m.constraint_bias(t, q, v),
    "force": lambda m, t, q, v, y, u: m.force(t, q, v, u),
    "gradient of gamma": lambda m, t, q, v, y, u: jax.grad(
        lambda q: jnp.sum(m.constraint_bias(t, q, v) ** 2)
    )(q),
}


@pytest.fixture(scope="module")
def chains():
    return {links: chain(links) for links in (4, 32, 128)}


@pytest.mark.long
@all_cases("term", TERMS)
def test_operations_grow_with_the_number_of_bodies(chains, term):
    counts = {}
    for links, (mechanism, q) in chains.items():
        lowered = jax.jit(TERMS[term]).lower(
            mechanism, jnp.zeros(()), q, q, jnp.ones(2 * links), jnp.ones(links)
        )
        counts[links] = lowered.cost_analysis()["flops"]
    # Four and eight times the bodies, some constant part aside; few bodies are selected by products, which
    # cost more each.
    assert counts[128] <= 4.25 * counts[32]
    assert counts[32] <= 10.0 * counts[4]


def program(links):
    """Returns how many operations a step of 64 chains of hinges in space has, in joint coordinates; loops of
    a few worlds are unrolled.
    """
    bodies = [js.Body(f"b{k}", 1.0, (0.02, 0.1, 0.1), place=(k + 0.5, 0.0, 0.0)) for k in range(links)]
    names = [jm.GROUND, *(body.name for body in bodies)]
    hinges = [
        js.Revolute(f"p{k}", *pair, axis=(0.0, 0.0, 1.0), at=(float(k), 0.0, 0.0))
        for k, pair in enumerate(itertools.pairwise(names))
    ]
    mechanism, q = jm.spatial_mechanism(bodies, hinges, coordinates=jm.Joints())

    def step(state):
        return jaxdae.SemiImplicitEuler().step(mechanism, state, (), None, 1e-3)[0]

    batch = jaxdae.State(jnp.zeros(64), *(jnp.zeros((64, links)) + q for _ in range(2)))
    return jax.jit(jax.vmap(step)).lower(batch).as_text().count(" = ")


@pytest.mark.exhaustive
def test_programs_of_batches_are_as_long_for_many_bodies_as_for_few():
    found = [program(links) for links in (7, 20, 30, 64, 256)]
    assert max(found) <= 1.2 * min(found)
