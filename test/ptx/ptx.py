# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An interpreter of the PTX that stepc writes, for tests: integers, correctly rounded
floats, branches and global memory, which is memory of this process. Threads run one after
the other, so there are no barriers. PTX ISA 8.0 defines the instructions; one that is
not known here is an error, and so is an access that is not aligned or not in a region
that the test named.
"""

import ctypes
import re

import numpy as np

_LABEL = re.compile(r"(\$\w+):$")
_REGISTER = re.compile(r"%\w+(\.x)?")


class Fault(Exception):
    """What a device would stop for, or undefined."""


def _float(bits, width):
    integer, real = (np.uint32, np.float32) if width == 32 else (np.uint64, np.float64)
    return integer(bits).view(real)


def _bits(value):
    return int(value.view(np.uint32 if value.dtype == np.float32 else np.uint64))


def _signed(bits, width):
    return bits - (1 << width) if bits >> (width - 1) else bits


def _maximum(x, y, sign):
    """max (sign 1) or min (-1) of two floats: -0 is below +0, NaN only where both are."""
    if np.isnan(x) or np.isnan(y):
        return y if np.isnan(x) else x
    if x == y:
        return x if np.signbit(x) == (sign < 0) else y
    return x if (x > y) == (sign > 0) else y


_ARITHMETIC = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "sqrt": np.sqrt,
    "rcp": lambda x: x.dtype.type(1) / x,
    "abs": np.abs,
    "neg": lambda x: -x,
    "max": lambda x, y: _maximum(x, y, 1),
    "min": lambda x, y: _maximum(x, y, -1),
}

_INTEGERS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "mad": lambda x, y, z: x * y + z,
    "div": lambda x, y: x // y,
    "rem": lambda x, y: x % y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x: ~x,
    "shl": lambda x, y: x << min(y, 64),
    "shr": lambda x, y: x >> min(y, 64),
    "abs": abs,
    "neg": lambda x: -x,
    "min": min,
    "max": max,
    "bfe": lambda x, first, length: (x >> first) & ((1 << length) - 1),
}

_COMPARISONS = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


class Memory:
    """Regions of this process that a kernel may access: addresses and lengths in bytes."""

    def __init__(self, arrays):
        self.regions = [(array.ctypes.data, array.nbytes) for array in arrays]

    def check(self, address, size, alignment):
        if address % alignment:
            raise Fault(f"address {address:#x} is no multiple of {alignment}")
        if not any(base <= address and address + size <= base + n for base, n in self.regions):
            raise Fault(f"address {address:#x} is in no region")

    def load(self, address, size, count):
        self.check(address, size * count, size * count)
        data = ctypes.string_at(address, size * count)
        return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]

    def store(self, address, size, values):
        self.check(address, size * len(values), size * len(values))
        data = b"".join(value.to_bytes(size, "little") for value in values)
        ctypes.memmove(address, data, len(data))


def _width(kind):
    return 1 if kind == "pred" else int(kind[1:])


class Kernel:
    """One entry point of a module's text."""

    def __init__(self, text, name):
        match = re.search(rf"\.visible \.entry {name}\((.*?)\)(.*?)\{{(.*?)\n\}}", text, re.S)
        if not match:
            raise Fault(f"no entry point {name}")
        self.parameters = re.findall(r"(\w+_param_\d+)", match[1])
        self.threads = int(re.search(r"\.reqntid (\d+)", match[2])[1])
        self.code, self.labels = [], {}
        for line in match[3].splitlines():
            line = line.strip()
            if label := _LABEL.match(line):
                self.labels[label[1]] = len(self.code)
            elif line and not line.startswith(("//", ".")):
                self.code.append(self.decode(line.rstrip(";")))

    def decode(self, line):
        """(predicate, wanted, operation, parts of its name, operands)."""
        predicate, wanted = None, True
        if line.startswith("@"):
            head, line = line.split(None, 1)
            wanted, predicate = head[1] != "!", head.lstrip("@!")
        name, _, rest = line.partition("\t")
        name, _, more = name.strip().partition(" ")
        rest = (more + rest).strip()
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
        operands = [
            re.findall(r"[^{},\s]+", operand) if operand.startswith("{") else operand
            for operand in operands
        ]
        parts = name.split(".")
        return predicate, wanted, parts[0], parts[1:], operands

    def launch(self, blocks, arguments, memory):
        """Runs all threads of a grid of `blocks` blocks."""
        given = dict(zip(self.parameters, arguments, strict=True))
        with np.errstate(all="ignore"):
            for block in range(blocks):
                for thread in range(self.threads):
                    special = {
                        "%tid.x": thread, "%ctaid.x": block,
                        "%nctaid.x": blocks, "%ntid.x": self.threads,
                    }  # fmt: skip
                    _Thread(given, special, memory).run(self.code, self.labels)


class _Thread:
    def __init__(self, given, special, memory):
        self.given, self.memory = given, memory
        self.registers = special

    def run(self, code, labels):
        counter = 0
        while True:
            predicate, wanted, operation, parts, operands = code[counter]
            counter += 1
            if predicate and self.registers[predicate] != wanted:
                continue
            if operation == "ret":
                return
            if operation == "bra":
                counter = labels[operands[0]]
            else:
                self.execute(operation, parts, operands)

    def value(self, operand, width):
        """The bits of a register or a constant."""
        if operand.startswith(("0f", "0d")):
            return int(operand[2:], 16)
        if operand[0] == "%":
            return self.registers[operand]
        return int(operand, 0) % (1 << width)

    def set(self, register, value, width):
        self.registers[register] = int(value) % (1 << width)

    def address(self, operand):
        register, _, offset = operand.strip("[]").partition("+")
        return (self.registers[register] + int(offset or 0)) % (1 << 64)

    def execute(self, operation, parts, operands):
        kind = parts[-1]
        if operation in ("ld", "st"):
            self.access(operation, parts, operands)
        elif operation == "mov":
            self.move(operands, _width(kind))
        elif operation == "cvt":
            self.convert(parts, operands)
        elif operation == "setp":
            self.registers[operands[0]] = self.compare(parts, operands)
        elif operation == "selp":
            chosen = operands[1] if self.registers[operands[3]] else operands[2]
            self.set(operands[0], self.value(chosen, _width(kind)), _width(kind))
        elif kind == "pred":
            values = [self.registers[operand] for operand in operands[1:]]
            self.registers[operands[0]] = bool(_INTEGERS[operation](*values) & 1)
        elif kind[0] == "f":
            self.compute(operation, parts, operands)
        else:
            self.count(operation, parts, operands)

    def access(self, operation, parts, operands):
        count = int(parts[-2][1:]) if parts[-2:-1] in (["v2"], ["v4"]) else 1
        size = _width(parts[-1]) // 8
        if parts[0] == "param":
            self.registers[operands[0]] = self.given[operands[1].strip("[]")]
            return
        if parts[0] != "global":
            raise Fault(f"{operation}.{'.'.join(parts)} is not of global memory")
        place, data = operands if operation == "st" else operands[::-1]
        data = data if isinstance(data, list) else [data]
        if operation == "ld":
            for register, value in zip(
                data, self.memory.load(self.address(place), size, count), strict=True
            ):
                self.registers[register] = value
        else:
            values = [self.value(part, 8 * size) % (1 << 8 * size) for part in data]
            self.memory.store(self.address(place), size, values)

    def move(self, operands, width):
        to, source = operands
        if isinstance(to, list):
            part = width // len(to)
            bits = self.value(source, width)
            for k, register in enumerate(to):
                self.set(register, bits >> (k * part), part)
        elif isinstance(source, list):
            part = width // len(source)
            values = (self.value(s, part) % (1 << part) << (k * part) for k, s in enumerate(source))
            self.set(to, sum(values), width)
        else:
            self.set(to, self.value(source, width), width)

    def convert(self, parts, operands):
        to, source = parts[-2:]
        bits = self.value(operands[1], _width(source)) % (1 << _width(source))
        if source[0] == "f":
            value = _float(bits, _width(source))
        else:
            value = _signed(bits, _width(source)) if source[0] == "s" else bits
        if to[0] == "f":
            if "rn" not in parts and source[0] != "f":
                raise Fault(f"cvt.{'.'.join(parts)} does not round to nearest")
            real = np.float32 if to == "f32" else np.float64
            self.registers[operands[0]] = _bits(real(value))
        elif source[0] == "f":
            raise Fault(f"cvt.{'.'.join(parts)} is not known")
        else:
            self.set(operands[0], value, _width(to))

    def compare(self, parts, operands):
        name, kind = parts[0], parts[-1]
        width = _width(kind)
        x, y = (self.value(operand, width) % (1 << width) for operand in operands[1:])
        if kind[0] == "s":
            x, y = _signed(x, width), _signed(y, width)
        if kind[0] != "f":
            return bool(_COMPARISONS[name](x, y))
        x, y = _float(x, width), _float(y, width)
        unordered = bool(np.isnan(x) or np.isnan(y))
        if name in ("nan", "num"):
            return unordered == (name == "nan")
        if name.endswith("u") and name != "u":
            return unordered or bool(_COMPARISONS[name[:-1]](x, y))
        return not unordered and bool(_COMPARISONS[name](x, y))

    def compute(self, operation, parts, operands):
        if operation in ("add", "sub", "mul", "div", "sqrt", "rcp") and parts[0] != "rn":
            raise Fault(f"{operation}.{'.'.join(parts)} does not round to nearest")
        if operation not in _ARITHMETIC or "ftz" in parts:
            raise Fault(f"{operation}.{'.'.join(parts)} is not known")
        width = _width(parts[-1])
        values = [_float(self.value(operand, width), width) for operand in operands[1:]]
        if "NaN" in parts and any(np.isnan(value) for value in values):
            result = values[0].dtype.type(np.nan)
        else:
            result = _ARITHMETIC[operation](*values)
        self.registers[operands[0]] = _bits(result)

    def count(self, operation, parts, operands):
        kind = parts[-1]
        width = _width(kind)
        values = [self.value(operand, width) % (1 << width) for operand in operands[1:]]
        signed_division = operation in ("div", "rem") and kind[0] == "s"
        if operation not in _INTEGERS or "hi" in parts or signed_division:
            raise Fault(f"{operation}.{'.'.join(parts)} is not known")
        if kind[0] == "s" and operation != "shl":
            values = [_signed(value, width) for value in values]
        wide = "wide" in parts
        self.set(operands[0], _INTEGERS[operation](*values), 2 * width if wide else width)
