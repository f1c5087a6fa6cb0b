"""Frozen dataclasses as pytrees, and dotted paths to their leaves."""

import collections
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases

import jaxdae as jd

Pair = collections.namedtuple("Pair", "left right")


@jd.tree.pytree
class Inner:
    gain: Any
    label: str = jd.tree.static(default="inner")


@jd.tree.pytree(kw_only=True)
class Outer:
    count: int = jd.tree.static(default=3)
    inner: Any
    table: Any
    missing: Any = None


def make() -> Outer:
    return Outer(
        inner=Inner(jnp.arange(2.0)),
        table={"b": [1.0, (2.0, 3.0)], "a": Pair(4.0, 5.0), "c": {7: jnp.ones(3)}},
    )


class TestPytree:
    def test_static_fields_are_structure(self):
        tree = Inner(1.0, "name")
        assert jax.tree.leaves(tree) == [1.0]
        assert jax.tree.structure(tree) != jax.tree.structure(Inner(1.0, "other"))
        assert jax.tree.map(lambda x: 2 * x, tree).label == "name"

    def test_is_frozen(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            make().inner = 1.0

    def test_keyword_only(self):
        with pytest.raises(TypeError):
            Outer(1, 2, 3)

    def test_is_compared_by_identity(self):
        tree = make()
        assert tree == tree
        assert tree != make()
        assert len({tree, make()}) == 2

    def test_gradient_has_the_type_of_the_object(self):
        gradient = jax.grad(lambda x: jnp.sum(x.gain**2))(Inner(jnp.arange(3.0)))
        assert isinstance(gradient, Inner)
        np.testing.assert_array_equal(gradient.gain, 2.0 * np.arange(3.0))


class TestPaths:
    def test_every_path_leads_to_its_leaf(self):
        tree = make()
        paths = jd.tree.leaf_paths(tree)
        assert paths[0] == "inner.gain"
        assert set(paths) == {
            "inner.gain",
            "table.b.0",
            "table.b.1.0",
            "table.b.1.1",
            "table.a.left",
            "table.a.right",
            "table.c.7",
        }
        for path, leaf in zip(paths, jax.tree.leaves(tree), strict=True):
            assert jd.tree.get_leaf(tree, path) is leaf

    def test_set_replaces_one_leaf_and_copies_the_rest(self):
        tree = make()
        for path in jd.tree.leaf_paths(tree):
            new = jd.tree.set_leaf(tree, path, 99.0)
            assert jd.tree.get_leaf(new, path) == 99.0
            assert jax.tree.structure(new) == jax.tree.structure(tree)
            for other in jd.tree.leaf_paths(tree):
                if other != path:
                    assert jd.tree.get_leaf(new, other) is jd.tree.get_leaf(tree, other)
        assert tree.table["b"] == [1.0, (2.0, 3.0)]

    def test_subtrees_and_absent_leaves(self):
        tree = make()
        assert jd.tree.get_leaf(tree, "table.a") == Pair(4.0, 5.0)
        assert jd.tree.set_leaf(tree, "table.a", 0.0).table["a"] == 0.0
        assert jd.tree.get_leaf(tree, "missing") is None
        assert jd.tree.set_leaf(tree, "missing", 1.0).missing == 1.0

    def test_a_number_stays_a_real_number(self):
        for value in (True, "3", 1j, jnp.array([True, False]), [True, False]):
            with pytest.raises(TypeError, match=r"inner\.gain must be a real number, got"):
                jd.tree.set_leaf(make(), "inner.gain", value)

    def test_plain_registered_dataclass(self):
        @jax.tree_util.register_dataclass
        @dataclasses.dataclass(frozen=True)
        class Plain:
            x: Any

        assert jd.tree.leaf_paths(Plain(1.0)) == ("x",)
        assert jd.tree.set_leaf(Plain(1.0), "x", 2.0).x == 2.0

    @all_cases(
        ("path", "message"),
        [
            ("outer", "no 'outer' in Outer; available: inner, table, missing"),
            ("count", "no 'count' in Outer"),
            ("inner.gains", "no 'gains' in Inner; available: gain"),
            ("inner.gain.0", "it has no fields"),
            ("table.d", "no 'd' in dict; available: b, a, c"),
            ("table.c.0", "no '0' in dict; available: 7"),
            ("table.b.2", "no '2' in list; available: 0, 1"),
            ("table.b.-1", "no '-1' in list"),
            ("table.a.0", "no '0' in Pair; available: left, right"),
            ("missing.x", "no 'x' in NoneType"),
            ("", "no '' in Outer"),
        ],
    )
    @all_cases(
        "use", [jd.tree.get_leaf, lambda tree, path: jd.tree.set_leaf(tree, path, 0.0), jd.tree.batch_axes]
    )
    def test_a_path_that_leads_nowhere(self, use, path, message):
        with pytest.raises(KeyError) as caught:
            use(make(), path)
        assert repr(path) in str(caught.value)  # the whole path, not what was left of it
        assert message in str(caught.value)


class TestBatchAxes:
    def test_names_the_stacked_leaves(self):
        axes = jd.tree.batch_axes(make(), "inner.gain", "table.c")
        assert isinstance(axes, Outer)
        assert axes.inner.gain == 0
        assert axes.table == {"b": [None, (None, None)], "a": Pair(None, None), "c": {7: 0}}

    def test_serves_vmap(self):
        tree = jd.tree.set_leaf(make(), "inner.gain", jnp.arange(6.0).reshape(3, 2))
        axes = jd.tree.batch_axes(tree, "inner.gain")
        result = jax.vmap(lambda x: jnp.sum(x.inner.gain) + x.table["a"].left, in_axes=(axes,))(tree)
        np.testing.assert_array_equal(result, [5.0, 9.0, 13.0])
