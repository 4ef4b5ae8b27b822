# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order in which a product adds up, written out."""

import numpy as np

LEAF = 512


def product(lhs, rhs, fma):
    """Of [..., n, k] and [..., k, m]."""
    depth, dtype = lhs.shape[-1], lhs.dtype.type
    shape = (*lhs.shape[:-1], rhs.shape[-1])
    total = np.zeros(shape)
    for begin in range(0, depth, LEAF):
        leaf = np.zeros(shape, dtype)
        for k in range(begin, min(begin + LEAF, depth)):
            left = np.broadcast_to(lhs[..., :, k, None], shape)
            leaf = fma(left, np.broadcast_to(rhs[..., None, k, :], shape), leaf)
        total = total + leaf if begin else leaf.astype(np.float64)
    return total.astype(dtype)


def normal(shape, dtype=np.float32, seed=0):
    """Magnitudes that make every order a different result."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)
