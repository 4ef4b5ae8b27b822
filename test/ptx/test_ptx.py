# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The PTX of definitions, run by an interpreter, has the bits of the processor's kernels
of the same package on the same table and chunks: dense rows by vectors and by single
elements, rows that are not aligned, strided rows, and the prologue.
"""

import ctypes

import numpy as np
import pytest
from packages import GO_ON, ZOO, Package, bits
from ptx import Kernel, Memory

TYPES = {"f32": np.float32, "bf16": np.uint16, "f16": np.float16, "f64": np.float64}
# All in every storage would take too long.
CASES = [("adamw", storage) for storage in ("f32", "bf16 and f32", "bf16", "f64")] + [
    ("adamax", "f32"),
    ("lion", "bf16"),
    ("radam", "bf16 and f32"),
    ("rprop", "f32"),
    ("adamw", "f16 and f32"),
    ("lion", "f16"),
]


def words(*values):
    return np.array(values, np.int64)


def make_values(storage, count, seed):
    values = np.random.default_rng(seed).standard_normal(count)
    values[:: max(1, count // 5)] = -0.0
    values[1 :: max(2, count // 3)] = 1e-41
    if count > 20:
        values[7:11] = [np.inf, np.nan, 3e38, 1e-30]
    if storage == "f16" and count > 20:
        values[11:16] = [65504, 65519, -65520, 6e-8, 2e-5]
    if storage != "bf16":
        with np.errstate(over="ignore"):
            return values.astype(TYPES[storage])
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def make_operand(operand, count, seed, offset):
    """Memory of a row's operand, that begins `offset` elements after 64 bytes."""
    values = make_values(operand["storage"], count, seed)
    if operand["role"] == "state":  # as after steps: sums of squares
        values = values & 0x7FFF if values.dtype == np.uint16 else np.abs(values)
    room = np.zeros(values.nbytes + 256, np.uint8)
    begin = -room.ctypes.data % 64 + offset * values.itemsize
    view = room[begin : begin + values.nbytes].view(values.dtype)
    view[:] = values
    return view


class Rows:
    """Tensors with their table, of which each run has a copy of its own."""

    def __init__(self, package, shapes, strided):
        self.package, self.strided = package, strided
        slots = package.variant["scalars"]["slots"]
        self.scalars = [np.zeros(max(slots, 1)) for _ in shapes]
        self.operands, rows = [], []
        for number, (count, offset) in enumerate(shapes):
            own = [
                make_operand(operand, count, 10 * number + k, offset)
                for k, operand in enumerate(package.operands)
            ]
            self.operands.append(own)
            row = [self.scalars[number].ctypes.data, 0]
            row += [array.ctypes.data for array in own]
            rows.append(row + (self.layout(row, count) if strided else []))
        self.table = np.array(rows, np.int64)

    def layout(self, row, count):
        """Extents and strides: transposed, but for the first operand."""
        columns = 5
        extents = [count // columns, columns]
        row[1] = 2
        strides = [[columns, 1]] + [[1, extents[0]]] * (len(self.package.operands) - 1)
        return extents + [stride for pair in strides for stride in pair]

    def arrays(self):
        return [*self.scalars, *(array for row in self.operands for array in row)]


def launch(package, name, blocks, arguments, arrays, skip=GO_ON):
    kernel = Kernel(package.ptx, name)
    kernel.launch(blocks, [*arguments, skip.ctypes.data], Memory([*arrays, skip]))


def fill_scalars(package, rows, on_device):
    """Runs the prologue for each row, as of its first and later steps."""
    hypers = np.array([float(hyper["default"]) or 0.25 for hyper in package.manifest["hypers"]])
    results = np.zeros(1)
    for number, row in enumerate(rows.scalars):
        count, fresh = number + 1, int(number == 0)
        addresses = hypers.ctypes.data, results.ctypes.data, count, fresh, row.ctypes.data
        for name in filter(None, package.variant["scalars"]["functions"]):
            if on_device:
                entries = words(*addresses)
                memory = [hypers, results, row, entries]
                launch(package, name, 1, [entries.ctypes.data, 0, 1], memory)
            else:
                arguments = map(ctypes.c_int64, addresses)
                getattr(package.object, name)(*arguments)


def run_kernels(package, rows, chunks, on_device, skip=GO_ON):
    chunks = words(*chunks)
    workspace = np.zeros(64, np.uint8)
    call = words(
        rows.table.ctypes.data, rows.table.shape[1], chunks.ctypes.data, workspace.ctypes.data
    )
    key = "strided_kernel" if rows.strided else "kernel"
    for entry in package.variant["schedule"]:
        if on_device:
            memory = [*rows.arrays(), rows.table, chunks]
            arguments = [*map(int, call), 0, len(chunks)]
            launch(package, entry[key], 2, arguments, memory, skip)
        else:
            getattr(package.object, entry[key])(
                ctypes.c_void_p(call.ctypes.data), ctypes.c_int64(0), ctypes.c_int64(len(chunks))
            )


def compare(package, shapes, chunks, strided):
    runs = []
    for on_device in (False, True):
        rows = Rows(package, shapes, strided)
        before = [array.copy() for array in rows.arrays()]
        fill_scalars(package, rows, on_device)
        run_kernels(package, rows, chunks, on_device)
        runs.append(rows.arrays())
    changed = False
    for own, other, old in zip(*runs, before, strict=True):
        np.testing.assert_array_equal(bits(own), bits(other))
        changed |= bool((bits(own) != bits(old)).any())
    assert changed


@pytest.mark.parametrize(("definition", "storage"), CASES)
def test_same_bits(definition, storage, tmp_path):
    package = Package(ZOO / f"{definition}.mlir", storage, tmp_path)
    # Elements for one and a half rounds of all threads by vectors, with a tail; a
    # chunk that begins nowhere in particular; a row that is not aligned; one element.
    vector = 256 * 16 // min(TYPES[o["storage"]]().itemsize for o in package.operands)
    most = vector + vector // 8 + 3
    shapes = [(most + 9, 0), (37, 1), (1, 0)]
    chunks = [(0, 0, most), (0, most, 9), (1, 0, 37), (2, 0, 1)]
    compare(package, shapes, chunks, strided=False)
    compare(package, [(35, 0), (300, 1)], [(0, 0, 20), (0, 20, 15), (1, 0, 300)], strided=True)


@pytest.fixture(scope="module")
def sgd(tmp_path_factory):
    return Package(ZOO / "sgd.mlir", "f32", tmp_path_factory.mktemp("sgd"))


@pytest.mark.parametrize("strided", [False, True])
def test_a_step_that_is_skipped(strided, sgd):
    """The word is looked at on the device: a graph's launches do nothing then."""
    rows = Rows(sgd, [(35, 0), (10, 1)], strided)
    fill_scalars(sgd, rows, on_device=True)
    before = [array.copy() for array in rows.arrays()]
    chunks = [(0, 0, 35), (1, 0, 10)]
    run_kernels(sgd, rows, chunks, on_device=True, skip=words(-3))
    for own, old in zip(rows.arrays(), before, strict=True):
        np.testing.assert_array_equal(own, old)
    run_kernels(sgd, rows, chunks, on_device=True, skip=words(0))
    assert any((own != old).any() for own, old in zip(rows.arrays(), before, strict=True))


def test_kernels_of_the_engine(sgd):
    """What kernel_abi.h says of each."""

    def run(name, blocks, *arguments):
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        places = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
        Kernel(sgd.ptx, name).launch(blocks, places, Memory([*arrays, data]))

    data = words(*range(20, 30))
    address = data.ctypes.data
    run("step_set", 3, address + 8, -7)
    assert data[:3].tolist() == [20, -7, 22]
    entries = words(address, address + 16, address + 8, address + 24)
    run("step_copy", 2, entries, 1, 2, words(0))
    assert data[:4].tolist() == [20, -7, 22, -7]
    run("step_copy", 2, entries, 0, 2, words(1))
    assert data[:4].tolist() == [20, -7, 22, -7]
    room = words(*[5] * 700)
    fills = words(room.ctypes.data + 8, 600, -9, room.ctypes.data + 8 * 650, 1, 2)
    fill = Kernel(sgd.ptx, "step_fill")
    for skip in (words(1), GO_ON):
        assert set(room) == {5}
        arguments = [fills.ctypes.data, 0, 2, skip.ctypes.data]
        fill.launch(2, arguments, Memory([fills, room, skip]))
    assert room[:1].tolist() + room[601:650].tolist() + room[651:].tolist() == [5] * 99
    assert room[1:601].tolist() == [-9] * 600 and room[650] == 2
    values = np.array([-np.inf, -1.5, -0.0, 0.0, 5e-324, 2.0, np.inf, np.nan])
    ordered, back = np.zeros(8, np.int64), np.zeros(8)
    for name, source, target in (("order", values, ordered), ("unorder", ordered, back)):
        pairs = [a.ctypes.data + 8 * k for k in range(8) for a in (source, target)]
        entries = words(*pairs)
        Kernel(sgd.ptx, f"step_{name}").launch(
            1, [entries.ctypes.data, 0, 8, GO_ON.ctypes.data],
            Memory([entries, source, target, GO_ON]),
        )  # fmt: skip
    assert ordered.tolist() == sorted(ordered) and len(set(ordered)) == 8
    assert ordered[-1] == 2**63 - 1
    np.testing.assert_array_equal(bits(back), bits(values))
    counted = words(*[0, 0, 7, 1, 0] * 300)
    run("step_advance", 1, counted, 0, 299, words(1))
    assert counted[2:4].tolist() == [7, 1]
    run("step_advance", 1, counted, 0, 299, words(0))
    assert counted.reshape(300, 5)[:, 2:4].tolist() == [[8, 0]] * 299 + [[7, 1]]
    # A step that is skipped after its second round of four; one that goes on.
    for graph, version, says, expected in (
        (0, 9, [0, 1], [1, 1, 3, 7, 4, 5, 0, 0]),
        (1, 4, [0, 0], [0, -1, 2, 5, 4, 5, 0, 0]),
        (1, 9, [1, 0], [1, -1, 2, 5, 4, 6, 1, 0]),  # A graph of before.
    ):
        state, flags = words(1, 0, 2, 5, 4, 5, 1, 0), words(*says)
        run("step_begin", 1, state, version, graph)
        entries = words(flags.ctypes.data, flags.ctypes.data + 8)
        kernel = Kernel(sgd.ptx, "step_decide")
        arguments = [entries.ctypes.data, 0, 2, state.ctypes.data, 1, 2]
        kernel.launch(1, arguments, Memory([entries, flags, state]))
        assert state.tolist() == expected


def test_kernels_of_carried_scalars(sgd):
    """Each step another one that is known and of a tensor that takes part."""
    slots, computed = np.array([0.0, 2.0, 3.0, np.nan]), np.array([7.0, 2.0, 3.5, np.nan])
    rows = [(slots.ctypes.data + 8 * k, computed.ctypes.data + 8 * k, k != 2, 40 + k)
            for k in range(4)]  # fmt: skip
    entries, state = words(*(word for row in rows for word in row)), words(*[0] * 15)

    def run(name, skip=0):
        word = words(skip)
        memory = Memory([entries, state, slots, computed, word])
        arguments = [entries.ctypes.data, 4, state.ctypes.data, word.ctypes.data]
        if name == "step_forget":
            arguments = [entries.ctypes.data, 1, 3, word.ctypes.data]
        Kernel(sgd.ptx, name).launch(1, arguments, memory)

    for turn, skip in ((1, 0), (3, 0), (1, 1), (3, 0)):
        run("step_check")
        before = slots[turn]
        assert slots[turn] == 0 and state[8] == turn and state[9] == turn + 1
        # What the step leaves: here the same.
        slots[turn] = 0 if skip else computed[turn]
        run("step_compare", skip)
        np.testing.assert_array_equal(slots, [0, 2, 3, np.nan])
        assert state[9] == 0 and state[11] == 0 and before == 0
    run("step_check", skip=1)
    run("step_compare", skip=1)
    assert state[9] == 0 and slots[1] == 2
    computed[1] = 2.5
    run("step_check")
    slots[1] = 9
    run("step_compare")
    assert slots.tolist() == [0] * 4
    assert state[11:13].tolist() == [1, 41]
    assert state[13:15].view(np.float64).tolist() == [2.0, 2.5]
    run("step_check")
    assert state[9] == 0
    slots[:] = 5
    run("step_forget", skip=1)
    run("step_forget")
    assert slots.tolist() == [5, 0, 0, 5]


def test_another_kernel_has_other_bits(tmp_path):
    package = Package(ZOO / "sgd.mlir", "f32", tmp_path)
    compare(package, [(11, 0)], [(0, 0, 11)], strided=False)
    package.ptx = package.ptx.replace("sub.rn.f32", "add.rn.f32")
    with pytest.raises(AssertionError):
        compare(package, [(11, 0)], [(0, 0, 11)], strided=False)
