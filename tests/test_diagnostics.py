"""What can be said before anything moves: mobility, rank, and which rows are too many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import CrankRocker, bead_on_wire, cast, double_pendulum, state
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

    @pytest.mark.long
    def test_parallelogram_with_an_extra_coupler(self):
        # By counting it is rigid (4 bodies, 12 rows); by rank it moves as the four-bar does.
        exact, extra = diagnose(*parallelogram(2)), diagnose(*parallelogram(3))
        assert (exact.rows, exact.rank, exact.mobility) == (8, 8, 1)
        assert (extra.rows, extra.rank, extra.mobility, extra.mobility_nearby) == (12, 11, 1, 1)
        assert len(extra.redundant_rows) == 1
        assert extra.redundant in {("foot2",), ("tip2",)}
        # Rows that depend on each other up to what is left open of a closed start, by lengths that are
        # written with ten digits.
        mechanism, q = parallelogram(3)
        rounded = diagnose(mechanism, q + 1e-10 * jnp.cos(jnp.arange(float(q.size))))
        assert (rounded.rank, rounded.mobility, len(rounded.redundant_rows)) == (11, 1, 1)

    @pytest.mark.parametrize("cranks", [2, 3])
    @pytest.mark.parametrize("angle", [0.0, np.pi])
    def test_a_parallelogram_that_lies_flat(self, cranks, angle):
        # It can go on as a parallelogram or crossed: two directions to first order, one freedom on either
        # branch.
        flat, beside = diagnose(*parallelogram(cranks, angle)), diagnose(*parallelogram(cranks, angle + 0.1))
        assert (flat.mobility, flat.mobility_nearby) == (2, 1)
        assert "mobility nearby             1 (this configuration is singular)" in str(flat)
        assert (beside.mobility, beside.mobility_nearby) == (1, 1)
        assert "nearby" not in str(beside)

    def test_a_straight_truss_moves_to_first_order_alone(self):
        bodies = [bar("a", (0.0, 0.0), (1.0, 0.0)), bar("b", (1.0, 0.0), (2.0, 0.0))]
        hinges = [("ground", "a", 0.0), ("a", "b", 1.0), ("b", "ground", 2.0)]
        truss = diagnose(
            *jm.planar_mechanism(bodies, [jm.Revolute(f"hinge{x}", a, b, at=(x, 0.0)) for a, b, x in hinges])
        )
        assert (truss.mobility, truss.mobility_nearby) == (1, 0)

    @pytest.mark.long
    def test_a_joint_given_twice_is_named(self):
        mechanism, start = CrankRocker().build()
        (revolute,) = mechanism.joints.values()
        joints = [
            jm.Revolute(
                name,
                *(("ground", *mechanism.body_names)[(k + 1) % 4] for k in (a, b)),
                point_a=tuple(p),
                point_b=tuple(q),
            )
            for name, a, b, p, q in zip(
                revolute.names, revolute.a, revolute.b, revolute.point_a, revolute.point_b, strict=True
            )
        ]
        again = jm.Revolute("again", "crank", "coupler", point_a=(0.5, 0.0), point_b=(-1.25, 0.0))
        bodies = [
            jm.Body(name, 1.0, 0.1, tuple(pose))
            for name, pose in zip(mechanism.body_names, start.q.reshape(3, 3), strict=True)
        ]
        report = diagnose(*jm.planar_mechanism(bodies, [*joints, again]))
        assert report.redundant_rows == ("again.x", "again.y")
        assert report.redundant == ("again",)
        assert report.mobility == 1

    @pytest.mark.long
    def test_dependent_joints_of_different_types(self):
        # A weld holds all that a rod between the same bodies could hold. Rows come by type, rods before
        # welds.
        bodies = [bar("a", (0.0, 0.0), (1.0, 0.0)), bar("b", (1.0, 0.0), (2.0, 0.5))]
        joints = [
            jm.Weld("weld", "a", "b", at=(1.0, 0.0)),
            jm.Rod("rod", "a", "b", at_a=(0.0, 0.0), at_b=(2.0, 0.5)),
        ]
        mechanism, q = jm.planar_mechanism(bodies, joints)
        assert mechanism.row_names == ("rod.length", "weld.x", "weld.y", "weld.angle")
        report = diagnose(mechanism, q)
        assert (report.rank, report.mobility) == (3, 3)
        assert report.redundant == ("weld",)

    def test_a_drive_is_what_moves_a_mechanism_without_freedom(self):
        mechanism, q = jm.planar_mechanism(
            [bar("crank", (0.0, 0.0), (1.0, 0.0))],
            [
                jm.Revolute("pin", "ground", "crank", at=(0.0, 0.0)),
                jm.PrescribedMotion(
                    "drive", "pin", jm.Sinusoid(0.5, 1.0, phase=np.pi / 2, offset=-0.5)
                ),  # at rest at the start
            ],
        )
        report = diagnose(mechanism, q)
        assert (report.mobility, report.told) == (0, ("drive.angle",))
        assert "followed inputs             drive.angle" in str(report)
        assert "all other motion blocked by" in str(report)

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
        lambda system, at: (jd.tree.set_leaf(system, "mass", system.mass * jnp.inf), at),
    ],
)
def test_numbers_that_are_not_finite(spoil):
    with pytest.raises(ValueError, match="not finite at this state; check state and masses"):
        jd.diagnose(*spoil(everything(), everywhere()))


class TestIndependentRows:
    def test_full_rank_keeps_all(self):
        found = jd.operators.independent_rows(*CrankRocker().build())
        assert found.rows == tuple(range(8))
        assert found.dependent == found.dependent_rows == found.joints == ()

    def test_an_extra_crank(self):
        mechanism, q = parallelogram(3)
        found = jd.operators.independent_rows(mechanism, state(q))
        jacobian = np.asarray(mechanism.constraint_jacobian(jnp.zeros(()), q, jnp.zeros_like(q)))
        assert len(found.rows) == np.linalg.matrix_rank(jacobian[list(found.rows)]) == 11
        assert set(found.rows) | set(found.dependent) == set(range(12))
        assert found.dependent_rows == tuple(mechanism.row_names[k] for k in found.dependent)
        assert found.joints[0] in mechanism.joint_names

    def test_better_conditioned_than_taking_rows_in_order(self):
        @jd.tree.pytree
        class NearlyParallel(jd.System):
            def mass_matrix(self, q):
                return jnp.eye(2)

            def force(self, t, q, v, u):
                return jnp.zeros(2)

            def constraint(self, t, q):
                return jnp.array([[1.0, 0.0], [1.0, 1e-3], [0.0, 1.0]]) @ q

        # In order: rows 0 and 1. By pivoting: 1 is the longest, and 2 is farther from it than 0 (0.9999995
        # against 0.001).
        found = jd.operators.independent_rows(NearlyParallel(), state([0.0, 0.0]))
        assert (found.rows, found.dependent, found.dependent_rows) == ((1, 2), (0,), ("row 0",))

    @pytest.mark.exhaustive
    def test_the_masked_system_moves_alike(self):
        mechanism, q = parallelogram(3)
        start, _ = jd.initialize(mechanism, q, jnp.ones_like(q))
        found = jd.operators.independent_rows(mechanism, start)
        chosen = jd.Masked(mechanism, np.isin(np.arange(12), found.rows))
        a, lam = jd.forward_dynamics(chosen, start, solver=jd.SchurComplement())
        expected, _ = jd.forward_dynamics(mechanism, start, solver=jd.LeastSquares())
        np.testing.assert_allclose(a, expected, rtol=0, atol=1e-11)
        np.testing.assert_array_equal(lam[np.array(found.dependent)], 0.0)

    def test_not_finite(self):
        mechanism, start = CrankRocker().build()
        with pytest.raises(ValueError, match="independent_rows: the Jacobian is not finite"):
            jd.operators.independent_rows(mechanism, state(start.q * np.nan))

    def test_no_rows(self):
        assert jd.operators.independent_rows(oscillator(), oscillating()).rows == ()


class TestVirtualWork:
    def test_zero_for_constraints_at_rest(self):
        mechanism, start = CrankRocker().build()
        moving, _ = jd.initialize(mechanism, start.q, jnp.ones_like(start.q))
        _, lam = jd.forward_dynamics(mechanism, moving)
        # Each of the eight products is of the order of 10 W.
        assert abs(jd.operators.virtual_work(mechanism, moving, lam)) <= 1e-12
        assert np.max(np.abs(lam)) > 1.0

    def test_power_of_a_moving_wire(self):
        # A bead at rest at distance s on a horizontal wire turning with Omega: the wire pushes with m g, at
        # the speed Omega s.
        bead = bead_on_wire()
        at = jd.State(jnp.zeros(()), jnp.array([2.0, 0.0]), jnp.array([0.0, 2.0 * bead.rate]))
        _, lam = jd.forward_dynamics(bead, at)
        np.testing.assert_allclose(
            jd.operators.virtual_work(bead, at, lam), bead.mass * bead.gravity * 2.0 * bead.rate, rtol=1e-13
        )

    @pytest.mark.long
    def test_whole_trajectories(self):
        mechanism, start = CrankRocker().build()
        path = jd.rollout(mechanism, jd.Projected(jd.SemiImplicitEuler()), start, dt=1e-3, steps=3)
        power = jax.vmap(lambda at, lam: jd.operators.virtual_work(mechanism, at, lam))(
            path.state, path.info.lam
        )
        np.testing.assert_allclose(power, 0.0, rtol=0, atol=1e-12)


class TestAutoSolver:
    def test_full_rank(self):
        choice = jd.choose_solver(*CrankRocker().build())
        assert isinstance(choice.solver, jd.SchurComplement)
        assert choice.reason.startswith("all 8 rows are independent and well-conditioned (")
        assert choice.reason.endswith("; M is a DiagonalMatrix, J are DenseRows")

    def test_dependent_rows(self):
        mechanism, q = parallelogram(3)
        choice = jd.choose_solver(mechanism, state(q))
        assert isinstance(choice.solver, jd.LeastSquares)
        assert "depend on others (" in choice.reason

    def test_ill_conditioned(self):
        # Condition of J M^-1/2 about 1e5: squared, more than half of sixteen digits.
        mechanism, start = CrankRocker().build()
        light = jd.tree.set_leaf(
            jd.tree.set_leaf(mechanism, "mass", jnp.array([1.0, 1e-10, 1.0])),
            "inertia",
            jnp.array([1.0, 1e-10, 1.0]),
        )
        choice = jd.choose_solver(light, start)
        assert isinstance(choice.solver, jd.DenseKKT)
        assert choice.reason.startswith("the condition number of J M^-1/2 is ")

    def test_massless_coordinates(self):
        mechanism, start = CrankRocker().build()
        massless = jd.tree.set_leaf(mechanism, "mass", jnp.array([1.0, 0.0, 1.0]))
        choice = jd.choose_solver(massless, start)
        assert isinstance(choice.solver, jd.DenseKKT)
        assert choice.reason == "M is not positive definite"
        doubled, q = parallelogram(3)
        assert isinstance(
            jd.choose_solver(jd.tree.set_leaf(doubled, "mass", jnp.zeros(4)), state(q)).solver, jd.NullSpace
        )

    def test_no_rows(self):
        assert isinstance(jd.choose_solver(oscillator(), oscillating()).solver, jd.SchurComplement)
