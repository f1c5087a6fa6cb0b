"""Linear algebra without rounding: what solvers are measured against where double precision would measure
itself.

Every double is a rational number. Elimination over `fractions.Fraction` decides ranks exactly, solves
exactly, and differences with a step of 2^-80 are derivatives to twenty digits more than a double holds: no
formula for the derivative of a pseudoinverse enters.
"""

from fractions import Fraction

import numpy as np

STEP = Fraction(1, 2**80)

to_fractions = np.vectorize(Fraction, otypes=[object])


def rationals(values):
    """Returns an array of doubles, of any shape, as fractions."""
    values = np.asarray(values, float)
    return to_fractions(values) if values.size else values.astype(object)


def floats(values):
    """Returns fractions as the nearest doubles."""
    return np.asarray(values, float)


def reduced(matrix):
    """Returns the reduced row echelon form, without its zero rows, and the pivot columns."""
    rows, pivots = [list(row) for row in matrix], []
    for column in range(matrix.shape[1]):
        top = len(pivots)
        pivot = next((k for k in range(top, len(rows)) if rows[k][column] != 0), None)
        if pivot is None:
            continue
        rows[top], rows[pivot] = rows[pivot], rows[top]
        rows[top] = [x / rows[top][column] for x in rows[top]]
        for k, row in enumerate(rows):
            if k != top and row[column] != 0:
                rows[k] = [x - row[column] * y for x, y in zip(row, rows[top], strict=True)]
        pivots.append(column)
    return np.array(rows[: len(pivots)], object).reshape(len(pivots), matrix.shape[1]), pivots


def solve(matrix, rhs):
    """Returns the solution x of A x = b for an invertible A."""
    echelon, pivots = reduced(np.concatenate([matrix, rhs[:, None]], axis=1))
    assert pivots == list(range(len(matrix))), "the matrix is singular"
    return echelon[:, -1]


def moore_penrose(matrix, rhs):
    """Returns A^+ b, from the full-rank factorization A = F G: A^+ = G^T (G G^T)^-1 (F^T F)^-1 F^T."""
    right, pivots = reduced(matrix)
    if not pivots:
        return np.full(matrix.shape[1], Fraction(0))
    left = matrix[:, pivots]
    return right.T @ solve(right @ right.T, solve(left.T @ left, left.T @ rhs))


def saddle_point(mass, jacobian, f, r, compliance):
    """Returns (a, lam) (nv + nc,) of [M -J^T; J C], with the shortest of all lam, from arrays of fractions.

    In (a, -lam) the matrix is symmetric; what is returned is its Moore-Penrose solution, also where r is not
    consistent.
    """
    size, rows = len(mass), len(jacobian)
    matrix = np.full((size + rows, size + rows), Fraction(0))
    matrix[:size, :size], matrix[:size, size:], matrix[size:, :size] = mass, jacobian.T, jacobian
    matrix[range(size, size + rows), range(size, size + rows)] = -compliance
    x = moore_penrose(matrix, np.concatenate([f, r]))
    return np.concatenate([x[:size], -x[size:]])


def line(function):
    """Returns value, first and second derivative at s = 0 of a function of s that is evaluated exactly, as
    doubles.
    """
    below, at, above = (function(s) for s in (-STEP, Fraction(0), STEP))
    return floats(at), floats((above - below) / (2 * STEP)), floats((above - 2 * at + below) / STEP**2)


def pseudoinverse(matrix):
    """Returns A^+ as fractions."""
    identity = rationals(np.eye(len(matrix)))
    return np.stack([moore_penrose(matrix, column) for column in identity], axis=1)
