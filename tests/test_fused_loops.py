"""Loops and branches in fused kernels against JAX, for batches whose worlds take different branches and
numbers of iterations.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from test_fused_primitives import differences, integers, numbers, precisions

LONG = 40
"""Iterations of scans that become loops; shorter ones are unrolled."""


def work(x):
    """Return a small number after enough operations that a scan of LONG iterations is not unrolled."""
    y = x
    for k in range(3):
        y = 0.5 * y + 0.1 * y * x + 0.1 * k
    return 1.2 * jnp.sin(y)


@pytest.mark.long
@precisions
def test_scans(dtype):
    line = jnp.asarray(np.random.default_rng(0).normal(size=LONG), dtype)
    switches = jnp.asarray(np.random.default_rng(1).integers(0, 2, LONG) > 0)
    codes = jnp.asarray(np.random.default_rng(2).integers(0, 5, LONG), jnp.int32)

    def scan(step, carry, xs=None, length=None, **options):
        return lax.scan(step, carry, xs, length=length if xs is None else None, **options)

    def plain(x, y, n):
        return scan(lambda c, _: (work(c), c), x, length=LONG)

    def of_constants(x, y, n):
        def step(c, row):
            a, b, k, t = row
            return jnp.where(b, work(c) + a, c - a), (c * a, b, k, t, c + t.astype(dtype))

        return [
            scan(step, x[0], (line, switches, codes, jnp.arange(LONG) * 3 + 5), reverse=r)
            for r in (False, True)
        ]

    def of_arguments(x, y, n):
        return [
            scan(lambda c, row: (work(c) * row[0] + row[1], c + row[2]), x[0], (y, 2 * y, line), reverse=r)
            for r in (False, True)
        ]

    def of_rows(x, y, n):
        table = y.reshape(LONG // 2, 2)
        return scan(lambda c, row: (work(work(c)) + row, row[::-1] * c), x[:2], table), scan(
            lambda c, row: (work(c) + row[0], c), x[0], table
        )

    def of_earlier_outputs(x, y, n):
        end, kept = scan(lambda c, _: (work(c), (c, jnp.cos(c))), x[0], length=LONG)
        back = scan(lambda c, row: (work(c) + row[0] * row[1], c), end, kept, reverse=True)
        return (
            back,
            scan(lambda c, row: (c + row[0] * row[1], None), end, (back[1], kept[0]))[0],
            kept[0][3],
            kept[1][::-1],
            jnp.sum(kept[0]),
        )

    def of_invariants(x, y, n):
        xs = jnp.broadcast_to(x[0], (LONG,)), jnp.stack([x[1], x[2]] * (LONG // 2))
        return scan(
            lambda c, row: (
                work(c) * row[0] + row[1],
                (row[0], row[1], x[1] * x[2], jnp.ones((), dtype), c > 0),
            ),
            x[0],
            xs,
        )

    def constant_carries(x, y, n):
        def step(c, _):
            a, b, zero, one, k, flag, matrix = c
            k = k + 1
            return (work(a) * one, zero * a + b, 0 * zero, one * one, k, flag ^ True, matrix @ matrix), (
                k,
                flag,
                zero,
                matrix[0, 1] + a,
            )

        eye = jnp.eye(2, dtype=dtype)
        return scan(step, (x[0], x[1], jnp.zeros((), dtype), jnp.ones((), dtype), 0, False, eye), length=LONG)

    def constants_that_change(x, y, n):
        """The first starts as a constant and takes a value of the world in the third iteration, through two
        other carries.
        """

        def step(c, _):
            a, b, d, e = c
            return (b, d, work(e), e + 1), (a, b)

        zero = jnp.zeros((), dtype)
        return scan(step, (zero, zero, zero, zero), length=LONG), scan(
            step, (zero, zero, zero, x[0]), length=LONG
        )

    def swapped(x, y, n):
        return scan(
            lambda c, _: ((c[1], c[2], work(c[0]), c[3]), c[0]), (x[0], x[1], x[2], x[1]), length=LONG
        )

    def whole_numbers_and_booleans(x, y, n):
        def step(c, _):
            k, flag, total = c
            k = jnp.where(flag, 3 * k + 1, k // 2)
            return (k % 50, k % 2 == 1, total + work(k.astype(dtype))), (k, flag)

        return scan(step, (n[0], n[1] > 0, x[0]), length=LONG)

    def nested(x, y, n):
        def outer(c, row):
            inner, kept = scan(lambda d, a: (work(d) + a, d * row), c, y[:20])
            return inner, (kept, jnp.sum(kept), inner)

        def uses(c, row):
            kept, total, inner = row
            found, back = scan(lambda d, a: (work(d) * a, d + a), c + total, kept, reverse=True)
            return found + inner, back[2]

        end, kept = scan(outer, x[0], line[:8])
        return end, kept, scan(uses, end, kept, reverse=True), scan(uses, end, kept)

    def three_loops(x, y, n):
        """No scan is unrolled, so that the innermost entries are stored by the loops around it."""

        def repeated(body, length):
            return lambda c, _: scan(body, c, length=length)

        return scan(repeated(repeated(lambda c, _: (work(c), c), LONG), 4), x[0], length=5)

    def three_deep(x, y, n):
        def outer(c, _):
            def middle(d, _):
                e, kept = scan(lambda e, a: (work(e) + a, e), d, y[:16])
                return e, kept

            return scan(middle, c, length=4)

        end, kept = scan(outer, x[0], length=5)
        back = scan(
            lambda c, rows: (
                c
                + scan(lambda d, row: (work(d) + 0.05 * jnp.sum(row), None), 0.1 * c, rows, reverse=True)[0],
                c,
            ),
            end,
            kept,
            reverse=True,
        )
        return kept, back, scan(lambda c, a: (work(c) * a, c), end, kept.reshape(-1)[:LONG])

    def short(x, y, n):
        return [
            scan(lambda c, a: (work(c) + a, (c, a)), x[0], y[:k], reverse=r)
            for k in (0, 1, 2)
            for r in (False, True)
        ]

    def derivatives(x, y, n):
        def loss(z):
            end, kept = scan(lambda c, a: (work(c) * a + z[1], c * z[0]), z[0], y)
            return end + jnp.sum(kept**2)

        return (
            jax.value_and_grad(loss)(x),
            jax.jvp(loss, (x,), (jnp.ones_like(x),)),
            jax.grad(jax.checkpoint(loss))(x),
        )

    cases = [
        (f.__name__, f)
        for f in (
            plain,
            of_constants,
            of_arguments,
            of_rows,
            of_earlier_outputs,
            of_invariants,
            constant_carries,
        )
    ]
    cases += [
        (f.__name__, f)
        for f in (
            constants_that_change,
            swapped,
            whole_numbers_and_booleans,
            nested,
            three_loops,
            three_deep,
            short,
            derivatives,
        )
    ]
    wrong = differences(
        cases, (numbers(30, 3, dtype=dtype), 0.3 * numbers(31, LONG, dtype=dtype), integers(32, 2)), scale=10
    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@precisions
def test_loops_until_a_condition(dtype):
    def halved(x, n):
        return lax.while_loop(
            lambda c: jnp.abs(c[0]) > 0.1, lambda c: (c[0] / 2, c[1] + 1, c[0]), (x[0], 0, x[1])
        )

    def never_or_few(x, n):
        return lax.while_loop(
            lambda c: c[0] < n[0], lambda c: (c[0] + 1, work(c[1])), (jnp.zeros((), jnp.int32), x[0])
        )

    def bounded(x, n):
        """The number of iterations is bounded by a constant, and most worlds end before."""
        return lax.while_loop(
            lambda c: (c[0] < 7) & (c[1] > 0.2), lambda c: (c[0] + 1, c[1] - 0.3), (0, x[0])
        )

    def with_unchanged_entries(x, n):
        def body(c):
            k, a, b, flag, array = c
            return k + 1, b, b, flag, array.at[0].add(a)

        return lax.while_loop(
            lambda c: c[0] < n[0], body, (jnp.zeros((), jnp.int32), x[0], x[1], True, jnp.zeros(2, dtype))
        )

    def counted(x, n):
        return [
            lax.fori_loop(0, k, lambda k, c: work(c) + 0.02 * k, x[0]) for k in (0, 1, 3, LONG)
        ], lax.fori_loop(0, n[0], lambda k, c: work(c) + 0.01 * k.astype(dtype), x[0])

    def from_negative(x, n):
        return lax.fori_loop(n[1], n[0], lambda k, c: c + k.astype(dtype) * x[1], x[0])

    def inside_a_scan(x, n):
        def step(c, k):
            c, trips, _ = lax.while_loop(
                lambda d: jnp.abs(d[0]) > 0.3,
                lambda d: (0.7 * d[0], d[1] + 1, d[0]),
                (c + 0.1 * k.astype(dtype), 0, c),
            )
            return c, (trips, c)

        return lax.scan(step, x[0], jnp.arange(LONG))

    def a_scan_inside(x, n):
        def body(c):
            end, kept = lax.scan(lambda d, _: (work(d), d), c[1], length=LONG)
            return c[0] + 1, end + 0.1, kept

        return lax.while_loop(
            lambda c: c[0] < n[0], body, (jnp.zeros((), jnp.int32), x[0], jnp.zeros(LONG, dtype))
        )

    def newton(x, n):
        """Worlds with a negative number never converge; NaN stays in its world."""

        def body(c):
            r, _, k = c
            new = 0.5 * (r + x[2] / r)
            return new, jnp.abs(new - r), k + 1

        return lax.while_loop(
            lambda c: (c[1] > 1e-6) & (c[2] < 25), body, (jnp.ones((), dtype), jnp.ones((), dtype), 0)
        )

    def two_in_a_row(x, n):
        first = lax.while_loop(lambda c: c < 3, lambda c: c + abs(x[0]), x[0])
        return first, lax.while_loop(lambda c: c > n[0].astype(dtype), lambda c: c - abs(x[1]), first)

    def nested(x, n):
        def body(c):
            inner = lax.while_loop(
                lambda d: d[1] < c[0] + n[1],
                lambda d: (work(d[0]), d[1] + 1),
                (c[1], jnp.zeros((), jnp.int32)),
            )
            return c[0] + 1, inner[0]

        return lax.while_loop(lambda c: c[0] < n[0], body, (jnp.zeros((), jnp.int32), x[0]))

    def known(x, n):
        """The condition is known in advance for a while, then depends on data."""
        return lax.while_loop(
            lambda c: (c[0] < 3) | (c[1] > 0.5), lambda c: (c[0] + 1, c[1] * 0.8), (0, x[1])
        )

    def collatz(x, n):
        return lax.while_loop(
            lambda c: (c[0] > 1) & (c[1] < 40),
            lambda c: (jnp.where(c[0] % 2 == 1, 3 * c[0] + 1, c[0] // 2), c[1] + 1),
            (abs(n[0]) + 1, 0),
        )

    x = numbers(33, 3, dtype=dtype).at[5].set(jnp.nan).at[9, 0].set(jnp.inf)
    cases = [
        (f.__name__, f)
        for f in (
            never_or_few,
            bounded,
            with_unchanged_entries,
            counted,
            from_negative,
            inside_a_scan,
            a_scan_inside,
        )
    ]
    cases += [(f.__name__, f) for f in (newton, two_in_a_row, nested, known, collatz)]
    finite = jnp.where(jnp.isfinite(x), x, 1.0)
    wrong = differences(
        [("halved", halved), *[c for c in cases if c[0] in ("inside_a_scan", "two_in_a_row")]],
        (finite, integers(34, 2)),
        scale=10,
    )
    wrong += differences(
        [c for c in cases if c[0] not in ("inside_a_scan", "two_in_a_row")], (x, integers(34, 2)), scale=10
    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@precisions
def test_branches(dtype):
    def large(x):
        return work(x) + 0.5 * jnp.cumsum(x)

    def small(x, n):
        return (
            lax.cond(x[0] > 0, lambda y: y + 1, lambda y: -y, x),
            lax.cond(n[0] > 0, lambda: True, lambda: False),
            lax.cond(x[0] > 0, lambda: 2, lambda: 3),
        )

    def long(x, n):
        return lax.cond(
            x[0] > 0,
            lambda y: (large(y), n[0], y[0] > y[1], jnp.zeros(3, dtype)),
            lambda y: (y, n[1] * 2, True, y),
            x,
        )

    def one_side(x, n):
        return lax.cond(x[0] > x[1], large, lambda y: y, x), lax.cond(
            x[0] > x[1], lambda y: jnp.zeros_like(y), large, x
        )

    def of_three(x, n):
        return lax.switch(n[0], [lambda y: y, large, lambda y: large(-y)], x), lax.switch(
            n[1], [lambda: 1, lambda: 2, lambda: 3, lambda: 4]
        )

    def of_one(x, n):
        return lax.switch(n[0], [large], x)

    def known(x, n):
        return [lax.cond(flag, large, lambda y: y, x) for flag in (True, False)], [
            lax.switch(k, [lambda y: y, large, jnp.negative], x) for k in (-5, 0, 1, 2, 9)
        ]

    def nested(x, n):
        def yes(y):
            return lax.cond(y[1] > 0, lambda z: large(z), lambda z: large(2 * z), y) + large(y)

        def no(y):
            return lax.switch(n[0], [large, lambda z: 3 * z, yes], y)

        return lax.cond(x[0] > 0, yes, no, x)

    def in_a_scan(x, n):
        def step(c, k):
            c = lax.cond(c[0] > 0, large, lambda y: y + 0.3, c)
            c = lax.cond(k < 20, lambda y: large(y), lambda y: y - 0.1, c)  # uniform
            c = lax.cond(
                k % 3 == 0, lambda y: lax.cond(y[1] > y[2], large, lambda z: z * 0.5, y), lambda y: y, c
            )
            return c, (c, k)

        return lax.scan(step, x, jnp.arange(LONG)), lax.scan(step, x, jnp.arange(LONG), reverse=True)

    def a_scan_inside(x, n):
        def yes(y):
            end, kept = lax.scan(lambda c, a: (work(c) + 0.02 * a, c), y[0], jnp.arange(LONG, dtype=dtype))
            back, _ = lax.scan(lambda c, a: (work(c) + 0.01 * a, None), end, kept, reverse=True)
            return jnp.stack([end, back, kept[3]]), kept

        return lax.cond(x[0] > 0, yes, lambda y: (y, jnp.zeros(LONG, dtype)), x)

    def a_while_inside(x, n):
        def yes(y):
            return lax.while_loop(lambda c: jnp.max(jnp.abs(c)) > 0.4, lambda c: 0.5 * c + 0.01 * large(c), y)

        return lax.cond(x[0] > 0, yes, lambda y: y, x)

    def shared_work(x, n):
        """What both branches, and the program after them, compute is computed outside of the branches."""
        y = lax.cond(x[0] > 0, lambda: large(x) + 1, lambda: large(x) - 1)
        return y + large(x)

    def only_in_branches(x, n):
        """Equal operations in two branches must not be taken from a branch that did not run."""
        a = lax.cond(x[0] > 0, lambda: large(2 * x), lambda: x)
        b = lax.cond(x[1] > 0, lambda: large(2 * x), lambda: x)
        return a, b, lax.cond(x[2] > 0, lambda: large(a + b), lambda: large(a - b))

    def divisions_in_branches(x, n):
        return lax.cond(
            n[0] != 0,
            lambda: lax.div(n[1], n[0]) + jnp.sum(large(x)).astype(jnp.int32),
            lambda: jnp.zeros((), jnp.int32),
        )

    def table_in_branches(x, n):
        return lax.cond(n[0] >= 0, lambda: x[n[0]] * large(x), lambda: x)

    def derivatives(x, n):
        def loss(y):
            return jnp.sum(jnp.sin(lax.cond(y[0] > 0, large, lambda z: 2 * z, y))) + jnp.sum(
                jnp.where(y > 0, jnp.sqrt(lax.select(y > 0, y, jnp.ones_like(y))), 0.0)
            )

        return jax.grad(loss)(x), jax.jvp(loss, (x,), (x,))

    chosen = [
        small,
        long,
        one_side,
        of_three,
        of_one,
        known,
        nested,
        in_a_scan,
        a_scan_inside,
        a_while_inside,
        shared_work,
        only_in_branches,
    ]
    chosen += [divisions_in_branches, table_in_branches, derivatives]
    wrong = differences(
        [(f.__name__, f) for f in chosen], (numbers(35, 3, dtype=dtype), integers(36, 2)), scale=10
    )
    assert not wrong, "\n".join(wrong)
