"""What can be said before anything moves: mobility, rank, and which rows are too many."""

import jax.numpy as jnp
import numpy as np
import pytest
from problems import CrankRocker, cast, double_pendulum, state
from small_systems import everything, everywhere, oscillating, oscillator

import jaxdae as jd
from jaxdae import mechanisms as jm


def bar(name, start, end):
    (x0, y0), (x1, y1) = start, end
    return jm.Body(name, 1.0, 0.1, (0.5 * (x0 + x1), 0.5 * (y0 + y1), np.arctan2(y1 - y0, x1 - x0)))


def parallelogram(cranks, angle=0.7):
    """A coupler on parallel cranks of length 1, a metre apart."""
    tip = np.array([np.cos(angle), np.sin(angle)])
    feet = [np.array([float(k), 0.0]) for k in range(cranks)]
    bodies = [bar(f"crank{k}", foot, foot + tip) for k, foot in enumerate(feet)]
    bodies.append(bar("coupler", tip, feet[-1] + tip))
    joints = []
    for k, foot in enumerate(feet):
        joints.append(jm.Revolute(f"foot{k}", "ground", f"crank{k}", at=tuple(foot)))
        joints.append(jm.Revolute(f"tip{k}", f"crank{k}", "coupler", at=tuple(foot + tip)))
    return jm.planar_mechanism(bodies, joints)


def diagnose(mechanism, q):
    return jd.diagnose(mechanism, state(q))


class TestMobility:
    def test_four_bar(self):
        report = jd.diagnose(*CrankRocker().build())
        assert (report.coordinates, report.rows, report.rank, report.mobility) == (9, 8, 8, 1)
        assert report.redundant_rows == report.redundant == ()
        assert report.violation <= 1e-15
        assert report.velocity_violation <= 1e-15
        assert 1.0 < report.condition < 100.0
        np.testing.assert_allclose(report.mass_condition, 2.5 / (1.0 / 12.0), rtol=1e-12)

    def test_parallelogram_with_an_extra_coupler(self):
        # By counting it is rigid (4 bodies, 12 rows); by rank it moves as the four-bar does.
        exact, extra = diagnose(*parallelogram(2)), diagnose(*parallelogram(3))
        assert (exact.rows, exact.rank, exact.mobility) == (8, 8, 1)
        assert (extra.rows, extra.rank, extra.mobility) == (12, 11, 1)
        assert len(extra.redundant_rows) == 1
        assert extra.redundant in {("foot2",), ("tip2",)}

    def test_a_joint_given_twice_is_named(self):
        mechanism, start = CrankRocker().build()
        (revolute,) = mechanism.joints.values()
        joints = [
            jm.Revolute(name, *(("ground", *mechanism.body_names)[(k + 1) % 4] for k in (a, b)), point_a=tuple(p), point_b=tuple(q))
            for name, a, b, p, q in zip(revolute.names, revolute.a, revolute.b, revolute.point_a, revolute.point_b, strict=True)
        ]
        again = jm.Revolute("again", "crank", "coupler", point_a=(0.5, 0.0), point_b=(-1.25, 0.0))
        bodies = [jm.Body(name, 1.0, 0.1, tuple(pose)) for name, pose in zip(mechanism.body_names, start.q.reshape(3, 3), strict=True)]
        report = diagnose(*jm.planar_mechanism(bodies, [*joints, again]))
        assert report.redundant_rows == ("again.x", "again.y")
        assert report.redundant == ("again",)
        assert report.mobility == 1

    def test_dependent_joints_of_different_types(self):
        # A weld holds all that a rod between the same bodies could hold. Rows come by type, rods before welds.
        bodies = [bar("a", (0.0, 0.0), (1.0, 0.0)), bar("b", (1.0, 0.0), (2.0, 0.5))]
        joints = [jm.Weld("weld", "a", "b", at=(1.0, 0.0)), jm.Rod("rod", "a", "b", at_a=(0.0, 0.0), at_b=(2.0, 0.5))]
        mechanism, q = jm.planar_mechanism(bodies, joints)
        assert mechanism.row_names == ("rod.length", "weld.x", "weld.y", "weld.angle")
        report = diagnose(mechanism, q)
        assert (report.rank, report.mobility) == (3, 3)
        assert report.redundant == ("weld",)

    def test_singular_configuration(self):
        # All links of the parallelogram on one line: a second motion becomes possible.
        flat = diagnose(*parallelogram(2, angle=0.0))
        assert (flat.rank, flat.mobility) == (7, 2)
        assert len(flat.redundant_rows) == 1
        near = diagnose(*parallelogram(2, angle=1e-4))
        assert (near.rank, near.mobility) == (8, 1)
        assert near.condition > 1e4

    def test_nonholonomic_rows_count(self):
        report = jd.diagnose(everything(), everywhere())
        assert (report.rows, report.rank, report.mobility) == (3, 3, 1)
        assert report.violation > 0.01
        assert report.velocity_violation > 0.01

    def test_without_rows(self):
        report = jd.diagnose(oscillator(), oscillating())
        assert (report.rows, report.rank, report.mobility, report.condition) == (0, 0, 2, 1.0)
        np.testing.assert_allclose(report.mass_condition, 2.0)

    def test_all_rows_lost(self):
        # Both arms of length zero: J = 0.
        report = jd.diagnose(double_pendulum(), state(np.zeros(4)))
        assert (report.rank, report.mobility, report.condition) == (0, 4, 1.0)
        assert report.redundant_rows == ("row 0", "row 1")

    def test_single_precision(self):
        mechanism, q = parallelogram(3)
        report = jd.diagnose(cast(mechanism, jnp.float32), cast(state(q), jnp.float32))
        assert (report.rank, report.mobility) == (11, 1)
        assert len(report.redundant_rows) == 1


def test_the_report_as_text():
    text = str(diagnose(*parallelogram(3)))
    assert "mobility                    1" in text
    assert "rank                        11" in text
    assert "redundant rows              " in text
    assert str(jd.diagnose(oscillator(), oscillating())).endswith("none")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda system, at: (system, jd.State(at.t, at.q * jnp.nan, at.v)),
        lambda system, at: (jd.set_leaf(system, "mass", system.mass * jnp.inf), at),
    ],
)
def test_numbers_that_are_not_finite(spoil):
    with pytest.raises(ValueError, match="not finite at this state; check state and masses"):
        jd.diagnose(*spoil(everything(), everywhere()))
