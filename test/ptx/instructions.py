# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an instruction of PTX does to the registers and memory of threads (ptx.py), as a function
of its block and which threads they are.
"""

import numpy as np
from lanes import COMPARISONS, FLOATS, INTEGERS, from_bits, get_width, signed, to_bits
from memory import Fault

_WARP = 32


def _read(operand, width):
    """A function (block, threads) -> bits of a register or a constant."""
    if operand.startswith(("0f", "0d")):
        constant = np.uint64(int(operand[2:], 16))
    elif operand[0] == "%":
        return lambda block, threads: block.get(operand, threads)
    elif operand[0].isalpha():
        return lambda block, threads: np.uint64(block.arrays[operand].ctypes.data)
    else:
        constant = np.uint64(int(operand, 0) % (1 << width))
    return lambda block, threads: constant


def make(operation, parts, operands, labels):
    """A function (block, threads) that executes the instruction."""
    if operation in ("ret", "bar"):
        return None
    if operation == "bra":
        return labels[operands[0]]
    if operation in _MAKERS:
        return _MAKERS[operation](operation, parts, operands)
    if parts[-1] == "pred":
        return _make_logic(operation, parts, operands)
    if parts[-1][0] == "f":
        return _make_float(operation, parts, operands)
    return _make_integer(operation, parts, operands)


def _unknown(operation, parts, why="is not known"):
    message = f"{'.'.join([operation, *parts])} {why}"

    def execute(block, threads):
        raise Fault(message)

    return execute


def _make_access(operation, parts, operands):
    count = int(parts[-2][1:]) if parts[-2:-1] in (["v2"], ["v4"]) else 1
    width = get_width(parts[-1])
    if parts[0] == "param" and operation == "ld":
        name = operands[1].strip("[]")
        return lambda block, threads: block.set(
            operands[0], threads, np.uint64(block.given[name] % (1 << 64))
        )
    if parts[0] not in ("global", "shared"):
        return _unknown(operation, parts, "is not of global or shared memory")
    place, data = operands if operation == "st" else operands[::-1]
    data = data if isinstance(data, list) else [data]
    register, _, offset = place.strip("[]").partition("+")
    base, offset = _read(register, 64), np.uint64(int(offset or 0) % (1 << 64))
    sources = [_read(part, width) for part in data] if operation == "st" else []

    def execute(block, threads):
        memory = block.memory if parts[0] == "global" else block.shared
        numbers = block.numbers(threads)
        addresses = np.broadcast_to(base(block, threads) + offset, numbers.shape)
        if sources:
            values = [source(block, threads) for source in sources]
            memory.store(addresses, width // 8, values, numbers)
        else:
            values = memory.load(addresses, width // 8, count, numbers)
            for name, value in zip(data, values, strict=True):
                block.set(name, threads, value)

    return execute


def _make_move(operation, parts, operands):
    to, source = operands
    width = get_width(parts[-1])
    if isinstance(to, list):
        part, read = width // len(to), _read(source, width)

        def unpack(block, threads):
            bits = read(block, threads)
            for k, name in enumerate(to):
                block.set(name, threads, (bits >> np.uint64(k * part)) & _mask(part))

        return unpack
    if isinstance(source, list):
        part = width // len(source)
        reads = [_read(s, part) for s in source]

        def pack(block, threads):
            bits = np.uint64(0)
            for k, read in enumerate(reads):
                bits = bits | ((read(block, threads) & _mask(part)) << np.uint64(k * part))
            block.set(to, threads, bits)

        return pack
    read = _read(source, width)
    if width == 1:
        return lambda block, threads: block.set(to, threads, read(block, threads) != 0)
    return lambda block, threads: block.set(to, threads, read(block, threads))


def _mask(width):
    return np.uint64((1 << width) - 1)


def _make_pair(operation, parts, operands):
    """Two f32 as f16 in one register, the first in the upper half."""
    if parts[-1] != "f32" or "rn" not in parts:
        return _unknown(operation, parts)
    reads = [_read(operand, 32) for operand in operands[1:]]

    def execute(block, threads):
        with np.errstate(over="ignore"):
            upper, lower = (
                to_bits(from_bits(read(block, threads), "f32").astype(np.float16), 16)
                for read in reads
            )
        block.set(operands[0], threads, upper << np.uint64(16) | lower)

    return execute


_FLOAT_TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def _make_convert(operation, parts, operands):
    to, source = parts[-2:]
    if to == "f16x2":
        return _make_pair(operation, parts, operands)
    read = _read(operands[1], get_width(source))
    if (parts[0], to, source) == ("rzi", "s64", "f64"):
        return _make_truncate(operands, read)
    if source[0] == "f" and to[0] != "f":
        return _unknown(operation, parts)
    narrows = to[0] == "f" and (source[0] != "f" or get_width(to) < get_width(source))
    if narrows and "rn" not in parts:
        return _unknown(operation, parts, "does not round to nearest")
    # To the integer below; of floats of one width.
    is_floor = "rmi" in parts and to == source
    if not is_floor and any(part in ("rmi", "rpi", "rzi", "rni") for part in parts):
        return _unknown(operation, parts)
    # By way of f32 it would be rounded twice.
    if (to, source) == ("f16", "f64"):
        return _unknown(operation, parts)

    def execute(block, threads):
        value = from_bits(read(block, threads), source)
        if is_floor:
            value = np.floor(value)
        if to[0] == "f":
            with np.errstate(over="ignore"):
                value = value.astype(_FLOAT_TYPES[to])
        block.set(operands[0], threads, to_bits(value, get_width(to)))

    return execute


def _make_truncate(operands, read):
    """To the integer nearest to 0; the nearest that there is, where there is no such one."""

    def execute(block, threads):
        value = np.asarray(from_bits(read(block, threads), "f64"))
        fits = (value > -(2.0**63)) & (value < 2.0**63)
        clamped = np.where(value > 0, np.int64(2**63 - 1), np.int64(-(2**63)))
        made = np.where(fits, np.where(fits, value, 0.0).astype(np.int64), clamped)
        block.set(operands[0], threads, made.view(np.uint64))

    return execute


def _make_compare(operation, parts, operands):
    name, kind = parts[0], parts[-1]
    reads = [_read(operand, get_width(kind)) for operand in operands[1:]]

    def execute(block, threads):
        x, y = (from_bits(read(block, threads), kind) for read in reads)
        unordered = np.isnan(x) | np.isnan(y) if kind[0] == "f" else False
        if name in ("nan", "num"):
            result = unordered if name == "nan" else ~unordered
        elif kind[0] == "f" and name.endswith("u"):
            result = COMPARISONS[name[:-1]](x, y) | unordered
        elif kind[0] == "f":
            result = COMPARISONS[name](x, y) & ~unordered
        else:
            result = COMPARISONS[name](x, y)
        block.set(operands[0], threads, result)

    return execute


def _make_select(operation, parts, operands):
    width = get_width(parts[-1])
    first, second = _read(operands[1], width), _read(operands[2], width)

    def execute(block, threads):
        condition = block.get(operands[3], threads)
        chosen = np.where(condition, first(block, threads), second(block, threads))
        block.set(operands[0], threads, chosen)

    return execute


def _make_shuffle(operation, parts, operands):
    """Of whole warps: each thread gets the value of the one whose number differs by the bits."""
    if parts != ["sync", "bfly", "b32"] or [int(operands[3], 0), int(operands[4], 0)] != [31, -1]:
        return _unknown(operation, parts)
    offset = int(operands[2])
    # A predicate may stand beside the register.
    to, read = operands[0].partition("|")[0], _read(operands[1], 32)

    def execute(block, threads):
        numbers = block.all[threads]
        if (np.bincount(numbers // _WARP, minlength=1) % _WARP).any():
            raise Fault("a shuffle waits for threads of its warp that are elsewhere")
        everywhere = np.zeros(block.count, np.uint64)
        everywhere[numbers] = read(block, threads)
        block.set(to, threads, everywhere[numbers ^ offset])

    return execute


def _make_logic(operation, parts, operands):
    function = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
                "not": np.logical_not}.get(operation)  # fmt: skip
    if function is None:
        return _unknown(operation, parts)
    reads = [_read(operand, 1) for operand in operands[1:]]
    return lambda block, threads: block.set(
        operands[0], threads, function(*(read(block, threads) != 0 for read in reads))
    )


def _make_float(operation, parts, operands):
    rounds = operation in ("add", "sub", "mul", "fma", "div", "sqrt", "rcp")
    if rounds and parts[0] != "rn":
        return _unknown(operation, parts, "does not round to nearest")
    # f16x2: two numbers in a register.
    kind, _, is_pair = parts[-1].partition("x")
    if operation not in FLOATS or "ftz" in parts or (operation == "fma" and kind == "f16"):
        return _unknown(operation, parts)
    width = get_width(kind)
    shifts = [np.uint64(0), np.uint64(width)] if is_pair else [np.uint64(0)]
    reads = [_read(operand, width * len(shifts)) for operand in operands[1:]]

    def compute(*values):
        result = FLOATS[operation](*values)
        if "NaN" in parts:
            isnan = np.isnan(values[0]) | np.isnan(values[1])
            result = np.where(isnan, result.dtype.type(np.nan), result)
        return to_bits(result, width)

    def execute(block, threads):
        bits, result = [read(block, threads) for read in reads], np.uint64(0)
        for shift in shifts:
            result = result | compute(*(from_bits(each >> shift, kind) for each in bits)) << shift
        block.set(operands[0], threads, result)

    return execute


def _make_integer(operation, parts, operands):
    kind = parts[-1]
    width = get_width(kind)
    signed_division = operation in ("div", "rem") and kind[0] == "s"
    if operation not in INTEGERS or "hi" in parts or signed_division:
        return _unknown(operation, parts)
    reads = [_read(operand, width) for operand in operands[1:]]
    function = INTEGERS[operation]
    # Widths of shifts count: what is shifted out is gone.
    shift = operation in ("shl", "shr")
    is_signed = kind[0] == "s" and operation != "shl"
    result_width = 2 * width if "wide" in parts else width

    def execute(block, threads):
        values = [read(block, threads) & _mask(width) for read in reads]
        if is_signed:
            values = [signed(values[0], width)] + [
                value if shift else signed(value, width) for value in values[1:]
            ]
        result = function(*values, width) if shift else function(*values)
        block.set(operands[0], threads, to_bits(result, result_width))

    return execute


_MAKERS = {
    "ld": _make_access,
    "st": _make_access,
    "mov": _make_move,
    "cvt": _make_convert,
    "setp": _make_compare,
    "selp": _make_select,
    "shfl": _make_shuffle,
}
