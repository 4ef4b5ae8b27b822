# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors and definitions for tests of operations on matrices, each of which runs for both
processors' tiles (``target``)."""

from definitions import Definition
from oracle import store
from steps import Packages, Tensor, check

HEADER = """
  %lr = step.hyper "lr" = 0.125
  %half = step.constant 0.5
"""

# One of rows and columns around the tiles of both targets, and around what is packed at a time.
EXTENTS = [1, 5, 6, 7, 11, 12, 13, 15, 16, 17]
SHAPES = [
    *zip(EXTENTS, EXTENTS[3:] + EXTENTS[:3], strict=True), *((n, n) for n in (1, 6, 12, 16, 17)),
    (95, 33), (96, 17), (97, 12), (13, 95), (33, 96), (5, 97), (0, 3), (3, 0),
]  # fmt: skip
TYPES = [("f32", "f32", "f32"), ("f32", "bf16", "f32"), ("bf16", "bf16", "bf16"),
         ("f64", "f64", "f64")]  # fmt: skip


def define(folder, text):
    path = folder / "products.mlir"
    path.write_text(f"step.optimizer @products {{{HEADER}{text}\n}}\n")
    return Definition(path)


def tensor(rng, shape, storages, scale=1.0, steps=2, **settings):
    """Of numbers that stay of their size; gradients of each step."""
    names = {"param": storages[0]} | {f"grad:{k}": storages[1] for k in range(steps)}
    size = scale / max(shape[-1], 1) ** 0.5
    arrays = {n: store(rng.standard_normal(shape) * size, s) for n, s in names.items()}
    arrays["grad"] = arrays["grad:0"]
    return Tensor(shape, storages, arrays, fresh=True, **settings)


def assert_exact(folder, cases, target):
    failures = check(cases, Packages(folder, target=target))
    assert not failures, "\n".join(failures)
