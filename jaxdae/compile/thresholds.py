"""The sizes at which algorithms change, each with its measurement.

`experiments/benchmarks/thresholds.py` measures them again. It reports the time with a threshold moved out of
the way, relative to the time with the value below. Delete a threshold that gains less than 15 % on every
case.
"""

DENSE_UP_TO = 96
"""The number of velocities up to which one world uses dense matrices instead of recursions over the tree: in
sums over ancestors and descendants, for the mass matrix, and for loops. Recursions only, relative to this
value, one world on a CPU: humanoid G1 1.3, chain of 64 links 1.6, Cassie 2.0. Fused kernels always use
recursions: they take 0.67 times as many operations for a humanoid of 35 velocities, and 0.90 times as many
for a four-bar of 3.
"""

ARTICULATED_FROM = 10
"""The number of velocities from which solvers factorize the mass matrix of a tree without loops by
articulated bodies. Semi-implicit Euler, chains of hinges in space, microseconds per step and world in a batch
of 64, dense and articulated: 2.1 and 1.7 for 10 links, 2.7 and 2.0 for 12, 6.6 and 3.4 for 20."""

ELIMINATED_FROM = 24
"""The number of velocities from which a tree with loops is factorized by articulated bodies, and from which
loop rows are eliminated together with the bodies where the estimate of the work favors it. Ladders of
four-bars with projections, microseconds per step and world in a batch of 64, dense and eliminated: 7.6 and 11
for 12 velocities, 30 and 33 for 21.
"""

DENSE_ROWS_UP_TO = 40
"""The number of rows up to which one world in absolute coordinates forms J M^-1 J^T. A step with projections,
microseconds, by elimination and dense: chains in the plane 70 and 39 for 24 rows, 65 and 55 for 36, 64 and
109 for 56; in space 107 and 60 for 25 rows, 169 and 166 for 45."""

UNROLLED_UP_TO = 20
"""The number of rows up to which a batch factorizes dense matrices by unrolled code, and accelerators write
products term by term. 1,024 worlds on one core, factorization and one solve, LAPACK relative to unrolled
code: 8 to 12 for 8 rows, 5 to 10 for 12, 2 to 5 for 20. More rows take too long to compile."""

BLOCK = 5
"""The number of rows of a block of unrolled factorizations; larger matrices are compiled once per size. With
a single block, factorizations and solves of a batch take 1.4 to 2.4 times as long; blocks of 4 rows run as
fast and compile longer.
"""

KERNEL_WORK = 1_000_000
"""The product of worlds and steps from which a batch on CPUs runs as a fused kernel by default. Seconds of
compilation and 1,000 steps of 1,024 worlds together, double precision, one core, kernel and XLA: pendulum 0.8
and 2.3, four-bar 2.4 and 8.2, four-bar in joint coordinates 1.5 and 6.1, Andrews' mechanism 13 and 25,
humanoid G1 22 and 22.
"""

TERMS_UP_TO = 8
"""The number of joints of a body whose contributions to J^T y are added at once; partial sums beyond, so that
the program does not grow with the body that has the most joints."""

ENTRIES_UP_TO = 10
"""The number of rows up to which accelerators factorize entry by entry; by halves beyond. A matrix of 20 rows
with its inverse takes 8 kernels by halves for 1,000 worlds and 24 for 100,000; entry by entry 36 and 30,
compiled in more than twice the time.
"""

CORRECTIONS_UNROLLED = 3
"""The number of Newton corrections up to which they are unrolled; a loop beyond. A step of a four-bar with
projections takes 1.17 of the time with a loop in a batch of 64, and 1.08 in one world."""
