"""The triangle of a Cholesky factorization, put together from the blocks that solutions of batches use."""

import numpy as np


def lower_of(blocks):
    """Returns L (n, n) from the blocks of `small_matrix.Cholesky`: inverses along its diagonal, and what is
    below them as rows.
    """
    size = sum(len(inverse) for inverse, _ in blocks)
    lower, start = np.zeros((size, size)), 0
    for inverse, below in blocks:
        end = start + len(inverse)
        lower[start:end, start:end], lower[end:, start:end] = np.linalg.inv(inverse), np.transpose(below)
        start = end
    return lower
