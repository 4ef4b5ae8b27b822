# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code for x86-64-v3 and for x86-64-v4 in vectors of 256 and 512 bits: which is made, and that
their bits are the same."""

import itertools

import pytest
import stepc.torch as st
import torch
from common import ZOO
from stepc import _library, _runtime, definition, errors
from stepc.torch.tensors import devices as _devices
from stepc.torch.tensors.devices import CPU_TARGETS

V3, V4, WIDE = CPU_TARGETS
DEFINITIONS = sorted(path.stem for path in ZOO.glob("*.mlir"))
SHAPES = [(), (7,), (65, 130), (2, 3, 40), (5000,)]
# They take matrices alone.
OF_MATRICES = [(1, 7), (65, 130), (40, 6), (13, 13), (1030, 5)]
SHAPES_OF = dict.fromkeys(
    ("muon", "gram_muon", "normuon", "jordan_muon", "moonlight_muon"), OF_MATRICES
)
SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -3e38, 1e-20]

# A processor runs the code for each before its own in the list.
RUNS = CPU_TARGETS[: CPU_TARGETS.index(_library.cpu_target()) + 1]


def tensors(seed, special, shapes):
    """Parameters of three dtypes, and gradients: all elements of some are special values."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for shape, dtype in itertools.product(shapes, (torch.float32, torch.bfloat16, torch.float16)):
        param = torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        grad = torch.randn(shape, generator=generator)
        if special and shape in ((7,), (2, 3, 40), (40, 6)):
            values = torch.tensor(SPECIAL).repeat(grad.numel() // len(SPECIAL) + 1)
            grad = values[: grad.numel()].reshape(shape)
        param.grad = grad.to(dtype)
        made.append(param)
    return made


def bits(tensor):
    """All NaNs are one: which of two operands' bits it has is nobody's promise."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    values = tensor.detach().contiguous().reshape(-1)
    if values.is_floating_point():
        values = torch.where(values.isnan(), torch.nan, values)
    return values.view(words[tensor.itemsize])


def stepped(name, target, special, monkeypatch):
    """What steps leave: all parameters and states, bit for bit, by name."""
    monkeypatch.setenv("STEPC_CPU_TARGET", target)
    params = tensors(1, special, SHAPES_OF.get(name, SHAPES))
    optimizer = st.Optimizer(params, ZOO / f"{name}.mlir")
    for _ in range(3):
        optimizer.step()
    found = {f"param {i}": bits(param) for i, param in enumerate(params)}
    for i, param in enumerate(params):
        for state, value in optimizer.state[param].items():
            if torch.is_tensor(value):
                found[f"{state} {i}"] = bits(value)
    return found


@pytest.mark.sample(one_of=6)
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(
            target,
            marks=pytest.mark.skipif(target not in RUNS, reason="not for this processor"),
        )
        for target in (V4, WIDE)
    ],
)
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_bits_are_the_same(name, special, target, monkeypatch):
    ours = stepped(name, target, special, monkeypatch)
    theirs = stepped(name, V3, special, monkeypatch)
    assert ours.keys() == theirs.keys() and len(ours) >= 3 * len(SHAPES)
    for what, words in ours.items():
        assert words.equal(theirs[what]), what


@pytest.mark.parametrize("target", CPU_TARGETS)
def test_the_environment_names_a_target(target, own_cache, compiler_runs, monkeypatch):
    monkeypatch.setenv("STEPC_CPU_TARGET", target)
    st.AdamW([torch.nn.Parameter(torch.ones(3))]).precompile()
    (package,) = own_cache.rglob("*.package")
    assert f"code/{target}.so".encode() in package.read_bytes()


def test_this_processor_is_the_default(own_cache, monkeypatch):
    monkeypatch.delenv("STEPC_CPU_TARGET", raising=False)
    st.AdamW([torch.nn.Parameter(torch.ones(3))]).precompile()
    (package,) = own_cache.rglob("*.package")
    assert f"code/{_library.cpu_target()}.so".encode() in package.read_bytes()


def test_packages_for_any_processor(own_cache, compiler_runs, monkeypatch):
    """Whichever reads the cache finds its own."""
    st.AdamW([torch.nn.Parameter(torch.ones(3))]).precompile("cpu")
    packages = [path.read_bytes() for path in own_cache.rglob("*.package")]
    assert len(packages) == len(CPU_TARGETS)
    before = len(compiler_runs)
    for target in CPU_TARGETS:
        assert any(f"code/{target}.so".encode() in package for package in packages)
        monkeypatch.setenv("STEPC_CPU_TARGET", target)
        monkeypatch.setattr(definition, "_packages", {})
        st.AdamW([torch.nn.Parameter(torch.ones(3))]).precompile()
    assert len(compiler_runs) == before


def test_a_package_that_this_processor_cannot_run(own_cache, monkeypatch):
    """is made for others and not loaded."""
    monkeypatch.setattr(_devices, "CPU_TARGETS", (V3, V4, "compute_90"))
    monkeypatch.setenv("STEPC_CPU_TARGET", V3)

    def load(data, *rest):
        if f"code/{V3}.so".encode() not in data:
            raise errors.PackageError("no code for this processor", "STEPC_UNSUPPORTED_TARGET")
        return real(data, *rest)

    real = _runtime.Package.from_bytes
    monkeypatch.setattr(_runtime.Package, "from_bytes", staticmethod(load))
    st.AdamW([torch.nn.Parameter(torch.ones(3))]).precompile("cpu")
    assert len(list(own_cache.rglob("*.package"))) == 3


def test_a_target_that_there_is_not(monkeypatch):
    monkeypatch.setenv("STEPC_CPU_TARGET", "x86-64-v9")
    with pytest.raises(errors.CompilerError, match="^no target 'x86-64-v9'; there are cpu"):
        st.AdamW([torch.nn.Parameter(torch.ones(3))]).precompile()
