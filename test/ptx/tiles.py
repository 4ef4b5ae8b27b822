# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of packages in the tiles space, with the processor's kernels or with their PTX in
the interpreter, on the same table: what an engine does, for tests.
"""

import ctypes
import math

import numpy as np
from packages import GO_ON
from ptx import Kernel, Memory
from routines import ROUTINES

TYPES = {"f32": np.float32, "bf16": np.uint16, "f16": np.float16, "f64": np.float64,
         "i16": np.uint16}  # fmt: skip
ROW_LEAF, LEAF, TILE_COLUMNS = 64, 1024, 4096
BLOCK_SCRATCH = 131072  # STEPC_BLOCK_SCRATCH
BLOCKS = 3  # of a launch: fewer than there are chunks, so that blocks go on


def divide_up(x, y):
    return -(-x // y)


def words(*values):
    return np.array(values, np.int64)


def make_values(storage, count, seed):
    """Values so far apart that sums depend on their order, in f64 too; of every second tensor
    also some of each unusual kind where there is room.
    """
    random = np.random.default_rng(seed)
    values = random.standard_normal(count) * 10 ** random.uniform(-9, 3, count)
    if count > 40 and seed // 10 % 2:
        values[3:8] = [-0.0, 1e-41, 3e19, -1e-30, 0.0]
    if count > 2000 and seed // 10 % 2 and seed % 3 == 0:
        values[1500:1502] = [np.inf, np.nan]
    if TYPES[storage] != np.uint16:
        with np.errstate(over="ignore"):
            return values.astype(TYPES[storage])
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Operand:
    """Memory of a tensor's operand: dense from `offset` elements after 64 bytes on, or strided
    with the last dim outermost. `strides` are in elements, of all dims of the tensor.
    """

    def __init__(self, operand, dims, shape, seed, offset, strided):
        names = operand["dims"]
        own = names in (["*"], dims.names)
        self.is_whole = own
        count = dims.end - dims.begin if own else dims.count(names)
        self.storage = operand["storage"]
        values = make_values(self.storage, count, seed)
        if operand["role"] == "state":  # as after steps: sums of squares
            values = values & 0x7FFF if values.dtype == np.uint16 else np.abs(values)
        inner = 2 if strided and own else 1
        room = np.zeros((count * inner + offset + 1) * values.itemsize + 64, np.uint8)
        begin = -room.ctypes.data % 64 + offset * values.itemsize
        self.array = room[begin : begin + count * inner * values.itemsize].view(values.dtype)
        self.array[::inner] = values
        self.strides = [0] * len(shape)
        step = inner
        for dim in range(len(shape)) if strided else ():
            self.strides[dim] = step
            step *= shape[dim]


class Dims:
    """The extents of a shape under a rule's dims, and the flat range of the elements that are
    there: all where there is none. M is along the last dim, N along the one before it."""

    def __init__(self, rule, shape, part=None):
        self.names = rule = rule or ["*"]
        single = [] if rule == ["*"] else [name for name in rule if name != "...b"]
        leading = shape[: len(shape) - len(single)]
        extents = [] if rule[0] not in ("*", "...b") else [math.prod(leading)]
        extents += shape[len(leading) :]
        self.extents = dict(zip(rule, extents, strict=True))
        self.M = extents[-1]
        self.N = extents[-2] if len(single) > 1 else 1
        self.begin, self.end = part or (0, math.prod(shape))
        items = math.prod(extents) // max(1, self.N * self.M)
        self.touched = {"range rows": 0, "range blocks": items * divide_up(self.N, ROW_LEAF)}
        if part:
            self.touched = self.count_touched()
        self.tiles = self.touched["range blocks"] * divide_up(self.M, TILE_COLUMNS)

    def count_touched(self):
        """Rows of all items, and blocks of them, that the range has an element of."""
        rows = {element // self.M for element in range(self.begin, self.end)}
        blocks = {(r // self.N, r % self.N // ROW_LEAF) for r in rows}
        return {"range rows": len(rows), "range blocks": len(blocks)}

    def count(self, names):
        """Elements of an operand with these dims, some of them 1."""
        return math.prod((self.extents | {"1": 1})[name] for name in names)

    def count_entries(self, size):
        """Of a buffer of the workspace."""

        def count(factor):
            if factor in self.touched:
                return self.touched[factor]
            dim, _, leaf = factor.partition("/")
            return divide_up(self.extents[dim], int(leaf or 1))

        return math.prod(map(count, size))


class Tensors:
    """Rows of the table, with all memory of their own."""

    def __init__(self, package, shapes, strided, parts=()):
        variant = package.variant
        self.package, self.variant, self.strided = package, variant, strided
        rule = next(r for r in package.manifest["rules"] if r["name"] == variant["rule"])
        self.dims, self.operands, self.buffers, rows = [], [], [], []
        # Below it lies what blocks of a grid have for themselves (kernel_abi.h).
        self.memory = np.full(BLOCKS * BLOCK_SCRATCH + 64, 0xFF, np.uint8)
        self.workspace = self.memory.ctypes.data + BLOCKS * BLOCK_SCRATCH
        self.scalars = [np.zeros(max(1, variant["scalars"]["slots"])) for _ in shapes]
        # What is carried from step to step is 0 where it is not known; else nothing is there.
        nothing = 0.0 if variant.get("carried") else np.nan
        self.slots = [np.full(max(1, variant["tensor_slots"]), nothing) for _ in shapes]
        for number, (shape, offset) in enumerate(shapes):
            dims = Dims(rule["dims"], shape, parts[number] if parts else None)
            own = [
                Operand(operand, dims, shape, 10 * number + k, offset, strided)
                for k, operand in enumerate(variant["operands"])
            ]
            buffers = [
                np.full(dims.count_entries(b["size"]) * b["bytes"], 0xFF, np.uint8)
                for b in variant["workspace"]
            ]
            self.dims.append(dims)
            self.operands.append(own)
            self.buffers.append(buffers)
            rows.append(self.make_row(number, shape, dims, own, buffers))
        longest = max(map(len, rows))
        self.table = np.array([row + [0] * (longest - len(row)) for row in rows], np.int64)

    def make_row(self, number, shape, dims, own, buffers):
        extents = list(dims.extents.values())
        row = [self.scalars[number].ctypes.data, len(shape) if self.strided else 0]
        row += [self.slots[number].ctypes.data, *extents, *extents, dims.begin, dims.end]
        row += [operand.array.ctypes.data for operand in own]
        for description, buffer in zip(self.variant["workspace"], buffers, strict=True):
            base = 0 if description["live"] else self.workspace
            row.append(buffer.ctypes.data - base)
        if self.strided:
            row += shape
            row += [stride for operand in own for stride in operand.strides]
        return row

    def results(self):
        """What a step is to leave the same on all targets."""
        arrays = [operand.array for own in self.operands for operand in own]
        return [*arrays, *self.slots, *self.scalars]

    def all(self):
        buffers = (b for own in self.buffers for b in own)
        return [*self.results(), *buffers, self.table, self.memory]

    def chunks(self, per_chunk):
        """The tiles of all tensors, at most so many in an entry."""
        entries = []
        for number, dims in enumerate(self.dims):
            for start in range(0, dims.tiles, per_chunk):
                entries.append([number, start, min(per_chunk, dims.tiles - start)])
        return np.array(entries, np.int64).reshape(-1, 3)


def sum_in_sequence(values):
    """The sum of f64 in sequence order (docs/statistics.md)."""
    leaves = []
    for begin in range(0, len(values), ROW_LEAF):
        total = np.float64(0)
        for value in values[begin : begin + ROW_LEAF]:
            total = total + value
        leaves.append(total)
    while len(leaves) > 1:
        pairs = [x + y for x, y in zip(leaves[::2], leaves[1::2], strict=False)]
        leaves = pairs + leaves[2 * len(pairs) :]
    return leaves[0] if leaves else np.float64(0)


class Step:
    """One step of all tensors, as one group; `hypers` differ from their defaults."""

    def __init__(self, tensors, on_device, hypers, count=2, per_chunk=2):
        self.tensors, self.package = tensors, tensors.package
        self.on_device, self.count = on_device, count
        manifest = self.package.manifest
        self.chunks = tensors.chunks(per_chunk)
        self.rows = np.array([[r, 0, 0] for r in range(len(tensors.dims))], np.int64)
        values = [
            hypers.get(hyper["name"], float(hyper["default"]) or 0.25)
            for hyper in manifest["hypers"]
        ]
        self.hypers = np.array([*values, 0.0])
        self.options = words(
            *(int(tensors.variant["options"].get(o["name"], o.get("default", 0)))
              for o in manifest["options"]), 0
        )  # fmt: skip
        scalars = [float(scalar["default"]) for scalar in manifest["scalars"]]
        # Results of rounds, and behind them the scalars.
        self.results = np.array([0.0] * manifest["results"] + scalars + [0.0])
        self.scalars = self.results[manifest["results"] :]
        self.updated = self.scalars.copy()
        self.statistics = np.zeros(max(1, len(manifest["statistics"])))

    def run(self):
        schedule = self.tensors.variant["schedule"]
        rounds = self.package.manifest["rounds"]
        for segment in range(max(1 + len(rounds), 1 + max(e["segment"] for e in schedule))):
            functions = self.tensors.variant["scalars"]["functions"]
            if segment < len(functions) and functions[segment]:
                self.fill_scalars(functions[segment])
            for entry in schedule:
                if entry["segment"] == segment and "exchange" not in entry:
                    self.run_entry(entry)
            if segment < len(rounds):
                self.combine_statistics(segment)
                for call in rounds[segment]["calls"]:
                    self.call_round(call["function"])

    def launch(self, name, arguments, memory):
        kernel = Kernel(self.package.ptx, name)
        kernel.launch(BLOCKS, [*arguments, GO_ON.ctypes.data], Memory([*memory, GO_ON]))

    def fill_scalars(self, name):
        tensors = self.tensors
        entries = [
            [self.hypers.ctypes.data, self.results.ctypes.data, self.count, 0, row.ctypes.data]
            for row in tensors.scalars
        ]
        if self.on_device:
            entries = words(*sum(entries, []))
            memory = [self.hypers, self.results, entries, *tensors.scalars]
            self.launch(name, [entries.ctypes.data, 0, len(tensors.scalars)], memory)
            return
        for entry in entries:
            getattr(self.package.object, name)(*map(ctypes.c_int64, entry))

    def run_entry(self, entry):
        is_kernel = "kernel" in entry
        key = "strided_kernel" if self.tensors.strided else "kernel"
        name = entry[key] if is_kernel else entry["finish"]
        chunks = self.chunks if is_kernel else self.rows
        tensors = self.tensors
        table = tensors.table
        workspace = tensors.workspace
        if self.on_device:
            call = [table.ctypes.data, table.shape[1], chunks.ctypes.data, workspace]
            for stage in range(len(entry.get("stages", [0]))):
                own = f"{name}_stage{stage}" if stage else name
                self.launch(own, [*call, 0, len(chunks)], [*tensors.all(), chunks])
            return
        if is_kernel and "unless_slot" in entry:
            slot = entry["unless_slot"]
            keep = [tensors.slots[row][slot] == 0 for row, _, _ in chunks]
            chunks = np.ascontiguousarray(chunks[keep])
        call = words(
            table.ctypes.data, table.shape[1], chunks.ctypes.data, workspace, ROUTINES.ctypes.data
        )
        function = getattr(self.package.object, name)
        address = ctypes.c_void_p(call.ctypes.data)
        if is_kernel:
            function(address, ctypes.c_int64(0), ctypes.c_int64(len(chunks)))
        else:
            for row in range(len(tensors.dims)):
                function(address, ctypes.c_int64(row))

    def combine_statistics(self, segment):
        contributions = [e for e in self.tensors.variant["schedule"] if "statistic" in e]
        for number, statistic in enumerate(self.package.manifest["statistics"]):
            own = [c for c in contributions if c["statistic"] == number]
            if not own or own[0]["segment"] > segment:
                continue
            places = [slots[own[0]["slot"] :] for slots in self.tensors.slots]
            self.statistics[number] = self.combine(statistic["kind"], places)

    def combine(self, kind, places):
        """The statistic of one f64 in each array, the first; a tensor between does not
        contribute.
        """
        if not self.on_device:
            values = [place[0] for place in places]
            return sum_in_sequence(values) if kind == "sum" else np.max(values)
        sources = [place.ctypes.data for place in places]
        sources = words(*sources[:1], 0, *sources[1:])
        scratch, result = np.full(len(sources), np.nan), np.full(1, np.nan)
        entry = words(sources.ctypes.data, len(sources), scratch.ctypes.data, result.ctypes.data)
        memory = [sources, scratch, result, entry, *places]
        self.launch(f"statistics_{kind}", [entry.ctypes.data, 0, 1], memory)
        return result[0]

    def call_round(self, name):
        arrays = [
            self.hypers, self.options, self.statistics, self.scalars, self.results, self.updated
        ]  # fmt: skip
        if not self.on_device:
            function = getattr(self.package.object, name)
            function.restype = ctypes.c_int64
            function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
            return
        skip, flags = words(-1), words(0, 1 << 40)
        addresses = [array.ctypes.data for array in (*arrays, skip, flags)]
        entry = words(*addresses, 2)
        # Scalars lie behind the results.
        memory = [array for array in arrays if array is not self.scalars]
        self.launch(name, [entry.ctypes.data, 0, 1], [*memory, entry, skip, flags])
