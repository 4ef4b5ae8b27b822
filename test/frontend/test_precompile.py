# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages that are made ahead of the first step, here or elsewhere."""

import pytest
import stepc.torch as st
import torch
from stepc import definition, errors


def param(dtype=torch.float32):
    return torch.nn.Parameter(torch.ones(5, 3, dtype=dtype))


@pytest.mark.parametrize(
    "make",
    [
        lambda params: st.AdamW(params, amsgrad=True),
        lambda params: st.hf.Adafactor(params, exclusive_writes=True),
        lambda params: st.SGD(params, lr=0.1, momentum=0.9, clip=st.ClipByNorm(1.0)),
        lambda params: st.AdamW(params, master="remainder", rounding=None),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_step_compiles_nothing_more(own_cache, compiler_runs, monkeypatch, make, dtype):
    one = param(dtype)
    optimizer = make([one])
    optimizer.precompile()
    before = len(compiler_runs)
    assert before > 0 and not optimizer.state and optimizer._binding is None
    monkeypatch.setattr(definition, "_packages", {})
    one.grad = torch.ones_like(one)
    optimizer.step()
    assert len(compiler_runs) == before


def test_for_a_device_that_is_not_here(own_cache, compiler_runs):
    optimizer = st.AdamW([param()])
    optimizer.precompile("compute_90")
    (of_device,) = own_cache.rglob("*.package")
    assert b"code/compute_90.ptx" in of_device.read_bytes()
    with pytest.raises(errors.CompilerError, match="^no target 'sm_20'; there are cpu"):
        optimizer.precompile("sm_20")


def test_a_cache_from_elsewhere(own_cache, monkeypatch):
    """Under its name it is used where there is no compiler."""
    monkeypatch.setenv("STEPC_COMPILER_IDENTITY", "kit 1")
    one = param()
    optimizer = st.AdamW([one])
    optimizer.precompile()
    monkeypatch.setattr(definition, "_packages", {})
    monkeypatch.setenv("STEPC_COMPILER", "/no/such/compiler")
    one.grad = torch.ones_like(one)
    optimizer.step()
    assert float(one.detach().max()) < 1.0
    monkeypatch.setenv("STEPC_COMPILER_IDENTITY", "kit 2")
    monkeypatch.setattr(definition, "_packages", {})
    another = param()
    another.grad = torch.ones_like(another)
    with pytest.raises(errors.CompilerNotFoundError):
        st.AdamW([another]).step()


def test_what_cannot_be_compiled():
    complex_one = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(errors.TensorError, match="complex"):
        st.AdamW([complex_one]).precompile()
