# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of parameters on CUDA devices that are codes: codes, scales and parameters have the bits
of the processor's."""

import pytest
import stepc.torch as st
import torch
from torch_pair import KINDS, Pair

# Rows of whole blocks and others, several dims in a row, and what has no codes.
SHAPES = [(64, 128), (17,), (100, 70), (3, 3000), (33, 5, 9, 5), (65, 64), (7, 9)]
CODED = {0, 2, 3, 4, 5}


def make_pair(cuda, kind, dtype=torch.float32, shapes=SHAPES, state_dtype="q8", **keywords):
    return Pair(cuda, KINDS[kind], dtype, shapes, state_dtype=state_dtype, **keywords)


def coded(pair):
    states = [pair.optimizer.state[param] for param in pair.placed]
    return {
        k for k, state in enumerate(states)
        if any(value.dtype is torch.uint8 for value in state.values())
    }  # fmt: skip


def adafactor(params, **keywords):
    """With a momentum of the parameter's shape, beside statistics that have no codes."""
    return st.hf.Adafactor(
        params, lr=1e-2, relative_step=False, scale_parameter=False, beta1=0.9, **keywords
    )


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", ["adamw", "adafactor", "came", "lamb", "rprop"])
def test_steps(cuda, kind):
    pair = Pair(cuda, adafactor if kind == "adafactor" else KINDS[kind], shapes=SHAPES,
                state_dtype="q8")  # fmt: skip
    for step in range(3):
        pair.step(step, {1, 4} if step == 1 else ())
        pair.check()
    assert coded(pair) == CODED
    assert cuda.double.fault() == ""


@pytest.mark.parametrize("keywords", [{"master": "f32"}, {"master": "remainder"}], ids=str)
def test_bfloat16(cuda, keywords):
    pair = make_pair(cuda, "adamw", torch.bfloat16, **keywords)
    for step in range(3):
        pair.step(step)
    pair.check()
    assert coded(pair) == CODED


@pytest.mark.parametrize(
    ("kind", "formats"),
    [
        ("adamw", {"exp_avg": "f8_e4m3", "exp_avg_sq": "q8"}),
        ("lamb", {"exp_avg": "f8_e4m3", "exp_avg_sq": "q4"}),
        ("adamw", "q4"),
    ],
)
def test_states_of_two_formats(cuda, kind, formats):
    pair = make_pair(cuda, kind, state_dtype=formats)
    for step in range(3):
        pair.step(step)
    pair.check()
    state = pair.optimizer.state[pair.placed[0]]
    if formats == "q4":
        formats = dict.fromkeys(("exp_avg", "exp_avg_sq"), formats)
    dtypes = {"q8": torch.uint8, "f8_e4m3": torch.int8, "q4": torch.int32}
    assert all(state[name].dtype is dtypes[kept] for name, kept in formats.items())


def test_one_of_two_states(cuda):
    pair = make_pair(cuda, "adamw", state_dtype={"exp_avg": "q8"})
    for step in range(3):
        pair.step(step)
    pair.check()
    state = pair.optimizer.state[pair.placed[0]]
    assert state["exp_avg"].dtype is torch.uint8 and state["exp_avg_sq"].dtype is torch.float32


def test_skipped_steps(cuda):
    """A gradient that is not finite, which the device alone sees, leaves codes as they were."""

    def make(params, **keywords):
        scale = st.DynamicLossScale(4.0)
        return st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(0.5), loss_scale=scale, **keywords)

    pair = Pair(cuda, make, shapes=SHAPES, state_dtype="q8")
    before = [cuda.host(p).clone() for p in pair.placed]
    for skipped in pair.skip_some():
        pair.optimizer.state_dict()  # notes on the host which steps were not skipped
        pair.check()
        now = [cuda.host(p).clone() for p in pair.placed]
        if skipped:
            assert all(torch.equal(*both) for both in zip(now, before, strict=True))
        before = now
    assert pair.optimizer.last_step.skipped is False


def test_views(cuda):
    def make(params, **keywords):
        parts = "(3 n + n + n) m -> (3 n) m + n m + n m"
        views = "o i h w -> o (i h w)", "(3 n) m -> 3 n m", parts
        groups = [{"params": [p], "view": v} for p, v in zip(params, views, strict=True)]
        return KINDS["adamw"](groups, **keywords)

    shapes = [(16, 30, 3, 3), (96, 100), (250, 100)]
    pair = Pair(cuda, make, shapes=shapes, state_dtype="q8")
    for step in range(3):
        pair.step(step, {1} if step == 1 else ())
        pair.check()
    assert coded(pair) == {0, 1, 2}


def test_a_graph(cuda):
    pair = make_pair(cuda, "adamw")
    graph = pair.captured()
    for _ in range(2):
        pair.reference.step()
        cuda.launch(graph)
    pair.optimizer.state_dict()  # notes on the host how many steps there were
    pair.check()


@pytest.mark.parametrize("given", ["codes", "floats"])
def test_checkpoints(cuda, given):
    """What the processor's saved loads on the device, and becomes the same codes."""
    pair = make_pair(cuda, "adamw")
    pair.step(0)
    saved = pair.reference.state_dict()
    if given == "floats":
        for state in saved["state"].values():
            for name in [n for n in state if f"{n}.scale" in state]:
                state[name] = st.decode_state(state[name], state.pop(f"{name}.scale"))
    later = make_pair(cuda, "adamw")
    for own, other in ((pair.plain, later.plain), (pair.placed, later.placed)):
        for param, value in zip(other, own, strict=True):
            param.data = value.data
    later.optimizer.load_state_dict(saved)
    later.reference.load_state_dict(saved)
    for step in range(2):
        later.step(1 + step)
    later.check()
    assert coded(later) == CODED
