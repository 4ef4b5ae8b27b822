# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are codes on disk, of parameters on CUDA devices: codes, scales and parameters have
the bits of the processor's in memory."""

import pytest
import stepc.torch as st
import torch
from stepc import errors
from stepc.torch.tensors.stored import StoredState
from test_torch_cuda_backward import in_the_pass
from test_torch_cuda_codes import adafactor
from test_torch_cuda_stored import Stored
from torch_pair import KINDS

# Rows of whole blocks, which are cut, and others; several dims in a row; codes that stay in memory;
# and what has none, on disk and in memory.
SHAPES = [(130, 140), (17,), (16500,), (3, 6000), (1200, 128), (80, 100), (33, 5, 12, 12), (7, 9)]
ON_DISK = {0, 3, 4, 6}  # of the codes
FORMATS = (torch.uint8, torch.int8)


def make_pair(cuda, kind, place, dtype=torch.float32, shapes=SHAPES, **keywords):
    make = adafactor if kind == "adafactor" else KINDS[kind]
    return Stored(cuda, make, place, dtype, shapes, **{"state_dtype": "q8", **keywords})


def coded(pair, *, stored=True):
    """The parameters with states of codes, on disk or in memory."""
    states = [pair.optimizer.state[param] for param in pair.placed]
    return {
        k for k, state in enumerate(states)
        if any(v.dtype in FORMATS and isinstance(v, StoredState) == stored
               for v in state.values())
    }  # fmt: skip


@pytest.fixture
def place(tmp_path):
    return st.Place("disk", path=tmp_path, window_bytes=1 << 16, buffers=2)


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", ["adamw", "adafactor", "came", "lamb", "rprop", "clipped"])
def test_steps(cuda, kind, place):
    pair = make_pair(cuda, kind, place)
    for step in range(3):
        pair.step(step, {1, 4, 5} if step == 1 else ())
        pair.check()
    assert coded(pair) == ON_DISK and coded(pair, stored=False) == {5}
    assert cuda.double.fault() == ""


@pytest.mark.parametrize("keywords", [{"master": "f32"}, {"master": "remainder"}], ids=str)
def test_bfloat16(cuda, keywords, place):
    pair = make_pair(cuda, "adamw", place, torch.bfloat16, **keywords)
    for step in range(3):
        pair.step(step)
    pair.check()
    assert coded(pair) == ON_DISK
    assert isinstance(pair.optimizer.state[pair.placed[2]]["exp_avg"], StoredState)


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_states_of_two_formats(cuda, kind, place):
    formats = {"exp_avg": "f8_e4m3", "exp_avg_sq": "q8"}
    pair = make_pair(cuda, kind, place, state_dtype=formats)
    for step in range(3):
        pair.step(step)
    pair.check()
    assert coded(pair) == ON_DISK


def test_one_of_two_states(cuda, place):
    pair = make_pair(cuda, "adamw", place, state_dtype={"exp_avg": "q8"})
    for step in range(3):
        pair.step(step)
    pair.check()
    state = pair.optimizer.state[pair.placed[4]]
    assert state["exp_avg"].dtype is torch.uint8 and state["exp_avg_sq"].dtype is torch.float32
    assert all(isinstance(state[n], StoredState) for n in ("exp_avg", "exp_avg_sq"))


@pytest.mark.parametrize("window_bytes", [1 << 16, 1 << 26])
def test_windows_end_where_memory_for_codes_or_a_slot_does(cuda, tmp_path, window_bytes):
    """17 MiB of float32 for each of the tensors, of which the device has 16 at a time and a tensor
    more only where it is one piece."""
    place = st.Place("disk", path=tmp_path, window_bytes=window_bytes, buffers=2)
    pair = make_pair(cuda, "adamw", place, shapes=[(2100, 1024), (2100, 1023), (20, 1024)])
    for step in range(2):
        pair.step(step)
    pair.check()
    assert coded(pair) == {0, 1, 2} and cuda.double.fault() == ""


def test_a_step_that_is_skipped_moves_nothing(cuda, place):
    def make(params, **keywords):
        scale = st.DynamicLossScale(4.0)
        return st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(0.5), loss_scale=scale, **keywords)

    pair = Stored(cuda, make, place, shapes=SHAPES, state_dtype="q8")
    before, params = None, [cuda.host(p).clone() for p in pair.placed]
    for skipped in pair.skip_some():
        report = pair.optimizer.stored()
        after, now = (report.bytes_read, report.bytes_written), [cuda.host(p).clone()
                                                                 for p in pair.placed]  # fmt: skip
        if before is not None:
            assert (after == before) == skipped
        if skipped:
            assert all(torch.equal(*both) for both in zip(now, params, strict=True))
        before, params = after, now
    pair.check()


def test_a_step_moves_the_codes_once(cuda, place):
    pair = make_pair(cuda, "adamw", place, shapes=[(256, 1024)] * 3)
    pair.step(0)
    before = pair.optimizer.stored()
    pair.step(1)
    after = pair.optimizer.stored()
    of_codes = 3 * 2 * (256 * 1024 + 4 * 256 * 16)
    assert after.bytes_read - before.bytes_read == of_codes
    assert after.bytes_written - before.bytes_written == of_codes


def test_tensors_that_come_later(cuda, place):
    """With larger pieces, for which there is a new ring, and entries find it."""
    pair = make_pair(cuda, "adamw", place, shapes=[(200, 128), (80, 100), (300, 1111)])
    pair.step(0, absent={1, 2})
    pair.step(1, absent={2})
    pair.step(2)
    pair.check()
    pair.step(3, absent={0, 1})
    pair.step(4)
    pair.check()
    assert coded(pair) == {0, 2}


def test_some_of_the_states_are_on_disk(cuda, tmp_path):
    place = st.Place("disk", path=tmp_path, fraction=0.5, window_bytes=1 << 16)
    pair = make_pair(cuda, "lamb", place, shapes=[(200, 128), (300, 100), (200, 128), (300, 100)])
    for step in range(3):
        pair.step(step)
    pair.check()
    assert coded(pair) == {0, 1} and coded(pair, stored=False) == {2, 3}


def test_saved_and_loaded(cuda, place, tmp_path):
    pair = make_pair(cuda, "adamw", place)
    pair.step(0)
    saved = pair.optimizer.state_dict()
    others = [(st.Place("disk", path=tmp_path), "q8"), (st.Place("host"), "q8"), (place, None),
              (None, "q8"), (place, "q8")]  # fmt: skip
    for other, kind in others:
        pair.optimizer = KINDS["adamw"](pair.placed, place=other, state_dtype=kind)
        pair.optimizer.load_state_dict(saved)
        pair.reference, before = KINDS["adamw"](pair.plain, state_dtype=kind), pair.reference
        pair.reference.load_state_dict(before.state_dict())
        pair.step(1)
        pair.check()
        saved = pair.optimizer.state_dict()
    assert coded(pair) == ON_DISK


def test_a_step_in_the_backward_pass(cuda, place):
    pair = make_pair(cuda, "adamw", place, shapes=[(200, 128), (300, 100)])
    pair.optimizer = st.AdamW(
        pair.placed, lr=1e-2, state_dtype="q8", place=place, fused_backward=True
    )
    for step in range(3):
        in_the_pass(pair, step)
        pair.check()
    assert coded(pair) == {0, 1}


def test_a_capture_is_refused(cuda, place):
    pair = make_pair(cuda, "adamw", place)
    cuda.stream = cuda.double.make_stream()
    pair.step(0)
    pair.give(1)
    words = "captures a graph, and steps bring states"
    with pytest.raises(errors.StatusError, match=words), cuda.capture():
        pair.optimizer.step()
