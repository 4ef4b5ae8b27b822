# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of 4 bits: an element of codes has eight, and each row of a state begins with one."""

import four_bits
import numpy as np
import pytest
import stepc.torch as st
import torch
from samples import sample
from stepc import errors
from stepped import CLASSES, OF_MATRICES, OF_TWO_DIMS
from test_coded_steps import MATRICES, SHAPES, TWO_DIMS, compare


@pytest.mark.parametrize(
    "name", sample([*CLASSES, *OF_TWO_DIMS, *OF_MATRICES], "codes of 4 bits of classes", 3)
)
def test_every_class(name):
    every = {**CLASSES, **OF_TWO_DIMS, **OF_MATRICES}
    shapes = MATRICES if name in OF_MATRICES else TWO_DIMS if name in OF_TWO_DIMS else SHAPES
    seen = {shape for shape, _ in compare(every[name], shapes, coded="q4")}
    assert seen >= set(MATRICES) and not seen & {(300,), (7, 9)}


@pytest.mark.parametrize("name", ["AdamW", "FusedLAMB"])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compare(CLASSES[name], [(513, 1024), (70, 4001), (64, 3, 7, 7)], steps=2, coded="q4")
    finally:
        torch.set_num_threads(before)


def test_two_formats():
    kept = {"exp_avg": "q8", "exp_avg_sq": "q4"}
    seen = compare(CLASSES["AdamW"], coded=kept)
    assert {name for _, name in seen} == {"exp_avg", "exp_avg_sq"}


def test_another_format_for_some_parameters():
    named = [(n, torch.nn.Parameter(torch.randn(64, 100))) for n in ("a", "b", "c")]
    optimizer = st.AdamW(named, state_dtype={"*": "q4", "b": "q8", "c": torch.float32})
    for _, param in named:
        param.grad = torch.randn_like(param)
    optimizer.step()
    found = [optimizer.state[param]["exp_avg_sq"] for _, param in named]
    assert [tuple(own.shape) for own in found] == [(64, 13), (64, 100), (64, 100)]
    assert [own.dtype for own in found] == [torch.int32, torch.uint8, torch.float32]


def test_as_floats():
    param = torch.nn.Parameter(torch.randn(40, 8, 3, 5))
    optimizer = st.AdamW([param], state_dtype="q4")
    param.grad = torch.randn_like(param)
    optimizer.step()
    state = optimizer.state[param]
    codes, scales = state["exp_avg"], state["exp_avg.scale"]
    assert codes.shape == (40, 15) and scales.shape == (40, 2)
    values = st.decode_state(codes, scales, param.shape)
    assert np.array_equal(values, four_bits.decode(codes.numpy(), scales.numpy(), param.shape))
    assert torch.equal(st.decode_state(codes, scales), values.view(40, 120))
    shape = (40, 8, 3, 6)
    with pytest.raises(errors.TensorError, match=r"format q4 are none of shape \(40, 8, 3, 6\)"):
        st.decode_state(codes, scales, shape)
    with pytest.raises(errors.TensorError, match="have scales of shape"):
        st.decode_state(codes, scales[:, :1], param.shape)
    # Floats that the user puts there become codes; those of another shape are refused.
    state["exp_avg"], before = values, codes.clone()
    param.grad = torch.randn_like(param)
    optimizer.step()
    assert state["exp_avg"].dtype is torch.int32 and not torch.equal(state["exp_avg"], before)
    state["exp_avg"] = torch.zeros(40, 8, 3, 4)
    with pytest.raises(errors.TensorError, match="has shape"):
        optimizer.step()


@pytest.mark.parametrize("first", ["q4", "q8"])
@pytest.mark.parametrize(
    ("view", "seen"),
    [("o i h w -> o (i h w)", (64, 500)), ("o i h w -> (o i) (h w)", (640, 50))],
)
def test_of_a_view_loads_as_another_format(first, view, seen):
    """Rows are those that the view has, which need not fill elements of codes."""

    def stepped(value, kept, saved=None):
        param = torch.nn.Parameter(value.clone())
        made = st.AdamW([{"params": [param], "view": view}], lr=0.05, state_dtype=kept)
        if saved is not None:
            made.load_state_dict(saved)
        loaded = {n: v.clone() for n, v in made.state.get(param, {}).items()}
        param.grad = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
        made.step()
        return param, made.state[param], loaded, made

    torch.manual_seed(0)
    value = torch.randn(64, 20, 5, 5) if seen[0] == 64 else torch.randn(64, 10, 5, 10)
    param, state, _, made = stepped(value, first)
    for kept in ("q8", "f8_e4m3", "q4", None):
        _, own, loaded, _ = stepped(param.detach(), kept, made.state_dict())
        assert own["exp_avg"].dtype is not torch.float32 or kept is None
        if kept == first:
            continue
        for name in ("exp_avg", "exp_avg_sq"):
            codes, scales = state[name], state[f"{name}.scale"]
            rows = codes if first == "q4" else codes.view(seen)
            assert f"{name}.scale" not in loaded and loaded[name].shape == value.shape
            assert torch.equal(loaded[name].view(seen), st.decode_state(rows, scales, seen))


def test_moments_close_to_those_of_float32():
    """A step's size is that of float32 within what 4 bits cost (docs/states.md)."""
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.zeros(64, 256)) for _ in range(2)]
    made = [st.AdamW([p], lr=1.0, weight_decay=0.0, state_dtype=k)
            for p, k in zip(params, ("q4", torch.float32), strict=True)]  # fmt: skip
    scale = 1e-5 * torch.exp(torch.randn(64, 256))
    errors_of = []
    for step in range(200):
        grad = scale * torch.randn(64, 256)
        before = [p.detach().clone() for p in params]
        for param, optimizer in zip(params, made, strict=True):
            param.grad = grad.clone()
            optimizer.step()
        coded, plain = (p.detach() - b for p, b in zip(params, before, strict=True))
        if step > 100:
            errors_of.append(float((coded - plain).square().mean() / plain.square().mean()))
        assert coded.abs().max() < 20
    assert sum(errors_of) / len(errors_of) < 0.8**2
