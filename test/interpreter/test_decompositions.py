# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eigenvectors, bases, columns in order, first columns, and products that add up in f64: of the
interpreter, beside numpy."""

import numpy as np
import pytest
from chains import normal, product
from fused import fma64
from oracle import Batch, assert_same, special_values, write_definition

MODES = ["exact", "bound", "f64"]


# --- Products that add up in f64 ----------------------------------------------


def wide(folder, batch=""):
    return write_definition(
        folder,
        f"%q = step.matmul %g, %r {{accumulate = f64}} : [{batch}n, m], [{batch}m, n]\n"
        f"step.return %p, %q, %r : [{batch}n, m], [{batch}n, n], [{batch}m, n]",
        f'%p: param[{batch}n, m], %g: grad[{batch}n, m], %l: state "l"[{batch}n, n], '
        f'%r: state "r"[{batch}m, n]',
    )


@pytest.mark.parametrize("storage", ["f32", "f64"])
def test_leaves_in_f64(storage, tmp_path):
    dtype = np.float32 if storage == "f32" else np.float64
    path, batch, cases = wide(tmp_path), Batch(), []
    for depth in (0, 1, 3, 511, 512, 513, 1025):
        lhs, rhs = normal((3, depth), dtype, depth), normal((depth, 3), dtype, 9)
        cases.append((lhs, rhs))
        arrays = {"param": lhs, "grad": lhs, "l": np.zeros((3, 3), dtype), "r": rhs}
        batch.add(path, arrays, state=storage)
    apart = 0
    for (lhs, rhs), result in zip(cases, batch.run(), strict=True):
        expected = product(lhs.astype("f8"), rhs.astype("f8"), fma64).astype(dtype)
        assert_same(result["l"], expected, f"{lhs.shape}")
        apart += storage == "f32" and (expected != (lhs @ rhs)).any()
    assert apart or storage == "f64"


# --- Eigenvectors -------------------------------------------------------------


def decomposed(folder, batch=""):
    return write_definition(
        folder,
        f"%q = step.eigh %g : [{batch}n, n]\nstep.return %q : [{batch}n, n]",
        f"%p: param[{batch}n, n], %g: grad[{batch}n, n]",
    )


def symmetric(shape, dtype, seed=0):
    values = normal(shape, dtype, seed)
    return values + np.swapaxes(values, -1, -2)


def check_vectors(matrix, q, unit):
    """Residuals, orthogonality, order and signs, within a small multiple of n roundings."""
    a, q = matrix.astype("f8"), q.astype("f8")
    n, norm = len(a), np.linalg.norm(a)
    values = np.einsum("ij,ij->j", q, a @ q)
    bound = 16 * n * unit
    assert np.abs(q.T @ q - np.eye(n)).max(initial=0.0) <= bound
    assert np.abs(a @ q - q * values).max(initial=0.0) <= bound * norm
    assert (np.diff(values) <= bound * norm).all()
    for column in q.T:
        assert column[np.abs(column).argmax()] > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigenvectors(dtype, tmp_path):
    path, batch, cases = decomposed(tmp_path), Batch(), []
    storage = "f32" if dtype == np.float32 else "f64"
    for n in (1, 2, 3, 5, 8, 17, 40):
        for matrix in (
            symmetric((n, n), dtype, n),
            np.eye(n, dtype=dtype),
            np.zeros((n, n), dtype),
        ):
            cases.append(matrix)
            batch.add(path, {"param": matrix, "grad": matrix}, param=storage)
    for matrix, result in zip(cases, batch.run(), strict=True):
        check_vectors(matrix, result["param"], np.finfo(dtype).eps)


def test_a_batch_of_eigenvectors(tmp_path):
    matrices = symmetric((2, 3, 4, 4), np.float32, 7)
    (tmp_path / "one").mkdir()
    batch = Batch()
    batch.add(decomposed(tmp_path, "...b, "), {"param": matrices, "grad": matrices})
    one = decomposed(tmp_path / "one")
    for index in np.ndindex(2, 3):
        batch.add(one, {"param": matrices[index], "grad": matrices[index]})
    together, *alone = batch.run()
    for index, result in zip(np.ndindex(2, 3), alone, strict=True):
        assert_same(together["param"][index], result["param"])


def test_no_numbers_have_no_eigenvectors(tmp_path):
    path, batch, cases = decomposed(tmp_path), Batch(), []
    for value in special_values(np.float32):
        matrix = symmetric((3, 3), np.float32, 5)
        matrix[2, 0] = matrix[0, 2] = value
        cases.append(value)
        batch.add(path, {"param": matrix, "grad": matrix})
    for value, result in zip(cases, batch.run(), strict=True):
        assert np.isnan(result["param"]).all() == (not np.isfinite(value)), value
        assert np.isnan(result["param"]).any() == (not np.isfinite(value)), value


def test_bounds_of_eigenvectors(tmp_path):
    """No component is above 1; nothing more is said."""
    path, batch = decomposed(tmp_path), Batch()
    matrix = symmetric((4, 4), np.float32, 5)
    batch.add(path, {"param": matrix, "grad": matrix}, mode="bound")
    matrix = matrix.copy()
    matrix[1, 1] = np.inf
    batch.add(path, {"param": matrix, "grad": matrix}, mode="bound")
    fine, none = batch.run()
    assert (fine["param:low"] >= -1.001).all() and (fine["param:high"] <= 1.001).all()
    assert not fine["param:nan"].any() and none["param:nan"].all()


# --- Eigenvalues --------------------------------------------------------------


def with_values(folder, batch=""):
    return write_definition(
        folder,
        f"%q = step.eigh %g : [{batch}n, n]\n%v = step.eigenvalues %g : [{batch}n, n]\n"
        f"step.return %q, %v : [{batch}n, n], [{batch}1, n]",
        f'%p: param[{batch}n, n], %g: grad[{batch}n, n], %s: state "values"[{batch}1, n]',
    )


def given_with_values(matrix):
    return {"param": matrix, "grad": matrix, "values": np.zeros_like(matrix[..., :1, :])}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigenvalues(dtype, tmp_path):
    """Those of numpy, in the order of the vectors, whose bits are as without them."""
    path, batch, cases = with_values(tmp_path), Batch(), []
    (tmp_path / "vectors").mkdir()
    alone = decomposed(tmp_path / "vectors")
    storage = "f32" if dtype == np.float32 else "f64"
    for n in (1, 2, 5, 17, 40):
        for matrix in (
            symmetric((n, n), dtype, n),
            np.diag(np.arange(n, dtype=dtype)),
            np.zeros((n, n), dtype),
        ):
            cases.append(matrix)
            batch.add(path, given_with_values(matrix), param=storage)
            batch.add(alone, {"param": matrix, "grad": matrix}, param=storage)
    results = batch.run()
    for matrix, result, without in zip(cases, results[::2], results[1::2], strict=True):
        expected = np.linalg.eigvalsh(matrix.astype("f8"))[::-1]
        bound = 16 * len(matrix) * np.finfo(dtype).eps * np.linalg.norm(matrix)
        assert np.abs(result["values"][0] - expected).max() <= bound
        assert_same(result["param"], without["param"])


def test_small_eigenvalues_are_not_roundings_of_float32(tmp_path):
    """Of a matrix whose elements float32 has exactly: in float64 they are found."""
    matrix = np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-20]], "f4")
    batch = Batch()
    batch.add(with_values(tmp_path), given_with_values(matrix))
    (result,) = batch.run()
    expected = np.linalg.eigvalsh(matrix.astype("f8"))[::-1]
    assert np.abs(result["values"][0] / expected - 1.0).max() < 1e-7


def test_a_batch_of_eigenvalues(tmp_path):
    matrices = symmetric((2, 3, 4, 4), np.float32, 7)
    (tmp_path / "one").mkdir()
    batch, one = Batch(), with_values(tmp_path / "one")
    batch.add(with_values(tmp_path, "...b, "), given_with_values(matrices))
    for index in np.ndindex(2, 3):
        batch.add(one, given_with_values(matrices[index]))
    together, *alone = batch.run()
    for index, result in zip(np.ndindex(2, 3), alone, strict=True):
        assert_same(together["values"][index], result["values"])


def test_no_numbers_have_no_eigenvalues(tmp_path):
    path, batch, cases = with_values(tmp_path), Batch(), []
    for value in special_values(np.float32):
        matrix = symmetric((3, 3), np.float32, 5)
        matrix[2, 0] = matrix[0, 2] = value
        cases.append(value)
        batch.add(path, given_with_values(matrix))
    for value, result in zip(cases, batch.run(), strict=True):
        if not np.isfinite(value):
            assert np.isnan(result["values"]).all(), value
        else:
            assert not np.isnan(result["values"]).any(), value


def test_bounds_of_eigenvalues(tmp_path):
    """None is larger than the root of the sum of squares, which one of rank one reaches."""
    path, batch, cases = with_values(tmp_path), Batch(), []
    vector = normal((4, 1), np.float32, 5)
    for matrix in (vector @ vector.T, symmetric((4, 4), np.float32, 5), np.zeros((4, 4), "f4")):
        cases.append(matrix)
        batch.add(path, given_with_values(matrix), mode="bound")
    infinite = cases[1].copy()
    infinite[1, 1] = np.inf
    batch.add(path, given_with_values(infinite), mode="bound")
    *fine, none = batch.run()
    for matrix, result in zip(cases, fine, strict=True):
        low, high = result["values:low"][0], result["values:high"][0]
        values, size = np.linalg.eigvalsh(matrix.astype("f8")), np.linalg.norm(matrix)
        assert (low <= values.min()).all() and (values.max() <= high).all()
        assert (high <= size * 1.0001 + 1e-30).all() and not result["values:nan"].any()
    assert none["values:nan"].all()


# --- Identities and indices ---------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_identities_and_indices(mode, tmp_path):
    path = tmp_path / "made.mlir"
    path.write_text("""
step.optimizer @example {
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %s: state "i"[...b, m, m],
                 %r: state "rows"[...b, n, 1], %c: state "columns"[...b, 1, m]) {
    %one = step.identity : [...b, m, m]
    %x = step.mul %one, %one : [...b, m, m]
    %row = step.index : [...b, n, 1]
    %column = step.index : [...b, 1, m]
    %place = step.sub %row, %column : [...b, n, 1], [...b, 1, m]
    %r1 = step.add %row, %r : [...b, n, 1]
    %c1 = step.add %column, %c : [...b, 1, m]
    step.return %place, %x, %r1, %c1 : [...b, n, m], [...b, m, m], [...b, n, 1], [...b, 1, m]
  }
}
""")
    batch, shapes = Batch(), [(3, 5), (5, 3), (2, 3, 4, 2), (1, 1), (0, 3), (3, 0)]
    for *outer, n, m in shapes:
        zeros = {name: np.zeros((*outer, *own), "f4")
                 for name, own in {"param": (n, m), "grad": (n, m), "i": (m, m),
                                   "rows": (n, 1), "columns": (1, m)}.items()}  # fmt: skip
        batch.add(path, zeros, mode=mode)
    for (*outer, n, m), result in zip(shapes, batch.run(), strict=True):
        places = np.arange(n)[:, None] - np.arange(m)
        for name, own in {"param": places, "i": np.eye(m), "rows": np.arange(n)[:, None],
                          "columns": np.arange(m)[None]}.items():  # fmt: skip
            expected = np.broadcast_to(own, (*outer, *own.shape))
            if mode == "bound":  # of sums and products, which may be rounded
                low, high = result[f"{name}:low"], result[f"{name}:high"]
                assert (low <= expected).all() and (expected <= high).all()
                assert np.abs(high - low).max(initial=0.0) < 1e-5
            else:
                assert (result[name] == expected).all() and result[name].shape == expected.shape


# --- First columns ------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 9])
def test_first_columns(rank, tmp_path):
    path = tmp_path / "first.mlir"
    path.write_text("""
step.optimizer @example {
  %rank = step.option "rank" = 1
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %s: state "s"[...b, n, r])
      dim r = min %rank, n, m {
    %f = step.first %g, r : [...b, n, m]
    step.return %p, %f : [...b, n, m], [...b, n, r]
  }
}
""")
    batch, shapes = Batch(), [(3, 5), (5, 3), (2, 4, 2), (1, 1)]
    for shape in shapes:
        grad = normal(shape, seed=1)
        r = min(rank, *shape[-2:])
        arrays = {"param": grad, "grad": grad, "s": np.zeros((*shape[:-1], r), "f4")}
        batch.add(path, arrays, options={"rank": rank})
    for shape, result in zip(shapes, batch.run(), strict=True):
        assert_same(result["s"], normal(shape, seed=1)[..., : min(rank, *shape[-2:])])


# --- Bases of columns, diagonals, columns in order ----------------------------


def of_rows(tmp_path, name, body, result="n, m"):
    """A definition that stores what the body makes of the gradient."""
    path = tmp_path / f"{name}.mlir"
    path.write_text(f"""
step.optimizer @example {{
  %rank = step.option "rank" = 1
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[{result}])
      dim r = min %rank, n, m {{
    {body}
    step.return %p, %x : [n, m], [{result}]
  }}
}}
""")
    return path


def check_basis(a, q, unit):
    """Orthonormal, and R above its diagonal with no negative number on it."""
    a, q = a.astype("f8"), q.astype("f8")
    bound = 16 * max(len(a), 1) * unit
    assert np.abs(q.T @ q - np.eye(q.shape[1])).max(initial=0.0) <= bound
    r, norms = q.T @ a, np.linalg.norm(a, axis=0)
    assert (np.abs(np.tril(r, -1)) <= bound * norms).all()
    assert (np.diag(r) >= -bound * norms).all()
    assert (np.abs(a - q @ np.triu(r)) <= bound * norms).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bases(dtype, tmp_path):
    body = "%f = step.first %g, r : [n, m]\n%x = step.qr %f : [n, r]"
    path, batch, cases = of_rows(tmp_path, "bases", body, "n, r"), Batch(), []
    storage = "f32" if dtype == np.float32 else "f64"
    for shape in [(1, 1), (3, 5), (5, 3), (40, 35), (40, 40), (0, 3)]:
        r = min(shape)
        for values in (normal(shape, dtype, 3), np.ones(shape, dtype), np.zeros(shape, dtype)):
            cases.append(values)
            arrays = {"param": values, "grad": values, "s": np.zeros((shape[0], r), dtype)}
            batch.add(path, arrays, param=storage, options={"rank": max(r, 1)})
    for values, result in zip(cases, batch.run(), strict=True):
        check_basis(values[:, : min(values.shape)], result["s"], np.finfo(dtype).eps)


def test_diagonals(tmp_path):
    body = "%gt = step.transpose %g : [n, m]\n"
    body += "%gg = step.matmul %gt, %g : [m, n], [n, m]\n%x = step.diagonal %gg : [m, m]"
    path, batch = of_rows(tmp_path, "diagonals", body, "1, m"), Batch()
    grad = np.arange(12, dtype="f4").reshape(3, 4)
    batch.add(path, {"param": grad, "grad": grad, "s": np.zeros((1, 4), "f4")})
    (result,) = batch.run()
    assert_same(result["s"], (grad**2).sum(0, keepdims=True))


KEYS = [3.0, np.nan, -0.0, np.inf, 0.0, 3.0, -np.inf, np.nan, 4.0]


@pytest.mark.parametrize("mode", MODES)
def test_sorted(mode, tmp_path):
    path = tmp_path / "sorted.mlir"
    path.write_text("""
step.optimizer @example {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %k: state "k"[1, m]) {
    %x = step.sort %g by %k : [n, m], [1, m]
    step.return %x, %k : [n, m], [1, m]
  }
}
""")
    grad = np.arange(27, dtype="f4").reshape(3, 9)
    keys, order = np.array([KEYS], "f4"), [3, 8, 0, 5, 2, 4, 6, 1, 7]
    known = np.array([[5.0, 9.0, 5.0, -1.0, 0.0, 2.0, 2.0, 7.0, 1.0]], "f4")
    batch = Batch()
    for one in (keys, known):
        batch.add(path, {"param": grad, "grad": grad, "k": one}, mode=mode)
    with_nan, numbers = batch.run()
    expected = grad[:, np.argsort(-known[0], kind="stable")]
    if mode == "bound":
        for end in ("low", "high"):
            assert_same(numbers[f"param:{end}"].astype("f4"), expected)
        # Where a key is no number, a column may stand anywhere.
        for column in range(9):
            assert_same(with_nan["param:low"][:, column].astype("f4"), grad.min(1))
            assert_same(with_nan["param:high"][:, column].astype("f4"), grad.max(1))
    else:
        assert_same(with_nan["param"].astype("f4"), grad[:, order])
        assert_same(numbers["param"].astype("f4"), expected)
