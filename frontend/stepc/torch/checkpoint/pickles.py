# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pickles, read without running what they name.

``torch.load(weights_only=True)`` would do for plain files. It refuses DeepSpeed's, which have
objects of its classes in them, it needs those classes to be there, and it lets a tensor make its
storage longer. Here a pickle is data: tensors become :class:`~stepc.torch.checkpoint.form.Stored`,
objects of the classes below become :class:`Inert`, and anything else is refused by name.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable

import torch

from ..step.codes_of_others import KINDS
from .form import Stored, is_shape

# Classes of which objects are kept as what was saved of them; nothing of these is imported.
_INERT = ("deepspeed.", "megatron.", "torch.distributed.checkpoint.", "argparse.Namespace",
          "pathlib.", "torch.nn.parameter.Parameter", "torch.Tensor", "torch.memory_format",
          "torch.device", "numpy.dtype")  # fmt: skip

STORAGES = {
    f"{name}Storage": dtype
    for name, dtype in {
        "Double": torch.float64, "Float": torch.float32, "Half": torch.float16,
        "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32, "Short": torch.int16,
        "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool, "Untyped": torch.uint8,
    }.items()
}  # fmt: skip

_DTYPES = {name: own for name, own in vars(torch).items() if isinstance(own, torch.dtype)}
_FREE = 16  # elements of an argument that cost no more than the call itself

Vectors = Callable[[str, torch.dtype, int], Stored]  # a storage: its key, dtype, elements


class RefusedError(Exception):
    """What a pickle has that is not read, in words."""


class Inert:
    """An object of a class that is not imported: ``of`` is the class's name, ``args`` what it was
    made of, ``fields`` its attributes."""

    of = ""

    def __new__(cls, *args):
        made = object.__new__(cls)
        made.args, made.fields = args, {}
        return made

    def __init__(self, *args):
        """Nothing: ``__new__`` has taken them."""

    def __repr__(self):
        return f"<{self.of}>"


class _Function:
    """What a pickle may call: one of ours, in the place of the function that it names."""

    def __init__(self, call: Callable):
        self.call = call


class _Storage:
    def __init__(self, vector: Stored):
        self.vector = vector


def _whole(value) -> int:
    if type(value) is not int:
        raise RefusedError(f"has {type(value).__name__} where a number of elements is expected")
    if not -(2**63) <= value < 2**63:
        raise RefusedError(f"has a number of {value.bit_length()} bits where one of elements is")
    return value


def _tensor(storage, offset, shape, stride, _requires=False, _hooks=None, bits=None) -> Stored:
    if not isinstance(storage, _Storage):
        raise RefusedError("has a tensor without a storage")
    if bits:  # its values are not what the storage has
        raise RefusedError("has a tensor with a bit that says that it is negative or conjugate")
    vector, offset = storage.vector, _whole(offset)
    shape, stride = map(_size, (shape, stride))
    if len(shape) != len(stride) or min((offset, *shape, *stride)) < 0:
        raise RefusedError(f"has a tensor of shape {shape}, strides {stride}, offset {offset}")
    made = Stored(shape, vector.dtype, vector.elements)
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if made.numel and (last >= vector.numel or made.numel > vector.numel):
        raise RefusedError(
            f"has a tensor of shape {shape}, strides {stride}, offset {offset} in a storage of "
            f"{vector.numel} elements"
        )
    expected, is_dense = 1, True
    for extent, step in zip(reversed(shape), reversed(stride), strict=True):
        is_dense = is_dense and (extent == 1 or step == expected)
        expected *= extent
    if is_dense or not made.numel:
        read = vector.elements
        return Stored(shape, vector.dtype, lambda b, e: read(offset + b, offset + e))
    return Stored.made(
        shape, vector.dtype,
        lambda: vector.elements(offset, last + 1).as_strided(shape, stride),
    )  # fmt: skip


def _tensor_by_dtype(storage, offset, shape, stride, _requires, _hooks, dtype, _meta=None):
    """Of a dtype that has no storage of its own. Floats of 8 bits are read as float32."""
    if dtype not in _FLOATS_OF_8_BITS:
        raise RefusedError(f"has a tensor of {dtype if type(dtype) is torch.dtype else 'no dtype'}")
    made = _tensor(storage, offset, shape, stride)
    if made.dtype is not torch.uint8:
        raise RefusedError(f"has a tensor of {dtype} in a storage of {made.dtype}")
    return Stored(made.shape, torch.float32, lambda b, e: made.elements(b, e).view(dtype).float())


_FLOATS_OF_8_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


def _data(data, *_):
    return data


def _wrapper(*_):
    raise RefusedError("has a tensor of a subclass")


def _of_torchao(kind, shape, fields) -> Stored:
    """An optimizer's state, whose class is not imported: what its codes stand for."""
    if not is_shape(shape) or not isinstance(fields, dict):
        raise RefusedError(f"has a state of torchao's of shape {shape!r}")
    parts = [fields.get(name) for name in kind.fields]
    missing = next((n for n, p in zip(kind.fields, parts, strict=True) if type(p) is not Stored), 0)
    if missing:
        raise RefusedError(f"has a state of torchao's without '{missing}'")
    codes = torch.uint8 if kind.table else torch.float32
    if [own.dtype for own in parts] != [codes, *[torch.float32] * (len(parts) - 1)]:
        raise RefusedError(f"has a state of torchao's with codes of {parts[0].dtype}")
    try:
        kind.refuse(shape, parts)
    except ValueError as error:
        raise RefusedError(f"has a state of torchao's of {error}") from None
    return Stored.made(
        shape, torch.float32, lambda: kind.decode(shape, *[own.read() for own in parts])
    )


def _of_type(rebuild, of, args, state) -> object:
    kind = KINDS.get(of.of) if isinstance(of, type) and issubclass(of, Inert) else None
    if kind and isinstance(rebuild, _Function) and rebuild.call is _wrapper:
        return _of_torchao(kind, _at(args, 2), state)
    is_tensor = isinstance(rebuild, _Function) and rebuild.call in (_tensor, _data)
    if not is_tensor or not isinstance(args, tuple):
        raise RefusedError("has a tensor of a subclass")
    return rebuild.call(*args)


def _at(args, place: int):
    return args[place] if isinstance(args, tuple) and len(args) > place else None


def _object(cls, *_) -> Inert:
    if not (isinstance(cls, type) and issubclass(cls, Inert)):
        raise RefusedError("makes an object of what is no class")
    return cls()


def _scalar(dtype, data=b""):
    """A number of numpy's."""
    kinds = {"f8": "<d", "f4": "<f", "i8": "<q", "i4": "<i", "u8": "<Q", "u4": "<I", "b1": "<?"}
    kind = kinds.get(dtype.args[0] if isinstance(dtype, Inert) and dtype.args else None)
    if kind is None or not isinstance(data, bytes) or len(data) != struct.calcsize(kind):
        raise RefusedError("has a number of numpy's that is not read")
    return struct.unpack(kind, data)[0]


def _latin(text, encoding):
    if encoding != "latin1" or not isinstance(text, str):
        raise RefusedError(f"has text in {encoding!r}")
    return text.encode("latin1")


def _dict(items=()) -> dict:
    return dict(_checked(pair) for pair in items)


def _checked(pair):
    key, value = pair
    _check_key(key)
    return key, value


def _check_key(key) -> None:
    """A tuple of tuples of tuples ... would be hashed as deep as it is, past the end of the
    stack. Numbers that are equal but for multiples of 2**61 - 1 have one hash, and so do many
    floats: a dict of them takes the square of their number."""
    flat = key if type(key) is tuple else (key,)
    if not all(isinstance(k, (str, int, bytes, type(None), Inert)) for k in flat):
        raise RefusedError(f"has a dict with a key that is a {type(key).__name__}")
    if any(isinstance(k, int) and k.bit_length() > 60 for k in flat):
        raise RefusedError("has a dict with a key that is a number of more than 60 bits")


def _size(extents=()) -> tuple:
    """The product of many large numbers takes the square of their number."""
    if not isinstance(extents, (tuple, list)) or len(extents) > 64:
        raise RefusedError("has a tensor of more than 64 dims, or of none")
    return tuple(map(_whole, extents))


_FUNCTIONS = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_by_dtype,
    "torch._utils._rebuild_wrapper_subclass": _wrapper,
    "torch._utils._rebuild_parameter": _data,
    "torch._utils._rebuild_parameter_with_state": _data,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch.serialization._get_layout": lambda name: name,
    "torch.Size": _size,
    "collections.OrderedDict": _dict,
    "collections.defaultdict": lambda *_: {},
    "copyreg._reconstructor": _object,
    "copy_reg._reconstructor": _object,
    "builtins.list": list,
    "builtins.set": list,
    "builtins.frozenset": list,
    "__builtin__.set": list,
    "_codecs.encode": _latin,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
}  # fmt: skip
_CALLS = {name: _Function(call) for name, call in _FUNCTIONS.items()}
_HINTS = {
    "stepc.torch.ranks.state_parts._restored": "a part that one rank has; full_state_dict() makes "
    "whole states",
    "torch.distributed.tensor._api.DTensor": "a DTensor; full_state_dict() and "
    "torch.distributed.checkpoint save it so that it is read anywhere",
}


class Reader(pickle._Unpickler):
    """Python's own unpickler in Python, with the operations that torch and DeepSpeed write. The
    one in C makes room for what a number in the file says."""

    dispatch = {
        key: load
        for key, load in pickle._Unpickler.dispatch.items()
        if key not in {op[0] for op in (
            pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.INST, pickle.OBJ, pickle.PERSID,
            pickle.NEWOBJ_EX, pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
            pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET,
        )}
    }  # fmt: skip

    def __init__(self, data: bytes, vectors: Vectors | None):
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._vectors, self._kinds, self._left = vectors, {}, len(data)

    def _spend(self, *values):
        """Of what is copied: what is there once, and named a thousand times, would be more than
        the file has."""
        self._left -= sum(
            max(len(own) - _FREE, 0)
            for own in values
            if isinstance(own, (str, bytes, list, tuple, dict))
        )
        if self._left < 0:
            raise RefusedError("copies more than it has")

    def find_class(self, module, name):
        full = f"{module}.{name}"
        if full in _CALLS:
            return _CALLS[full]
        if module in ("torch", "torch.storage"):
            if name in _DTYPES:  # getattr(torch, ...) would import what torch imports late
                return _DTYPES[name]
            if name in STORAGES:
                return STORAGES[name]
        if full in KINDS or (full.startswith(_INERT) and full not in _HINTS):
            if full not in self._kinds:
                self._kinds[full] = type("Inert", (Inert,), {"of": full})
            return self._kinds[full]
        hint = _HINTS.get(full)
        raise RefusedError(f"has {hint or f'an object of {full}, which is not read'}")

    def persistent_load(self, pid):
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and self._vectors
                and isinstance(pid[1], torch.dtype) and isinstance(pid[2], str)):  # fmt: skip
            raise RefusedError("has a storage that is not torch's")
        return _Storage(self._vectors(pid[2], pid[1], _whole(pid[4])))

    def load_reduce(self):
        args, call = self.stack.pop(), self.stack[-1]
        if not isinstance(args, tuple):
            raise RefusedError("calls something with what are no arguments")
        self._spend(args, *args)
        if isinstance(call, type) and issubclass(call, Inert):
            self.stack[-1] = call(*args)
        elif isinstance(call, _Function):
            self.stack[-1] = call.call(*args)
        else:
            raise RefusedError(f"calls a {type(call).__name__}")

    def load_newobj(self):
        self.load_reduce()

    def load_build(self):
        state, to = self.stack.pop(), self.stack[-1]
        if isinstance(to, Inert):
            slots = isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict)
            for own in state if slots else (state,):
                self._spend(own)
                to.fields.update(own if isinstance(own, dict) else {"state": own})
        elif not isinstance(to, (dict, list, Stored)):  # torch's dicts and tensors may have some
            raise RefusedError(f"sets attributes of a {type(to).__name__}")

    def load_setitem(self):
        value, key = self.stack.pop(), self.stack.pop()
        self._set([(key, value)])

    def load_setitems(self):
        items = self.pop_mark()
        self._set(list(zip(items[::2], items[1::2], strict=True)))

    def _set(self, pairs):
        if not isinstance(self.stack[-1], dict):
            raise RefusedError(f"sets items of a {type(self.stack[-1]).__name__}")
        self.stack[-1].update(map(_checked, pairs))

    def load_dict(self):
        items = self.pop_mark()
        self.append(dict(map(_checked, zip(items[::2], items[1::2], strict=True))))

    def load_append(self):
        self._extend([self.stack.pop()])

    def load_appends(self):
        self._extend(self.pop_mark())

    def _extend(self, values):
        if not isinstance(self.stack[-1], list):
            raise RefusedError(f"appends to a {type(self.stack[-1]).__name__}")
        self.stack[-1].extend(values)

    dispatch |= {
        pickle.REDUCE[0]: load_reduce, pickle.NEWOBJ[0]: load_newobj, pickle.BUILD[0]: load_build,
        pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict, pickle.APPEND[0]: load_append, pickle.APPENDS[0]: load_appends,
    }  # fmt: skip


def unpickled(data: bytes, vectors: Vectors | None = None) -> object:
    """What was pickled. ``vectors``: gives the storages of tensors, None where there are none.
    RefusedError, and whatever a broken pickle leads to."""
    try:
        return Reader(data, vectors).load()
    except KeyError as error:
        raise RefusedError(f"has operation {error}, which is not read") from None
    except RecursionError:
        raise RefusedError("is nested too deep") from None
