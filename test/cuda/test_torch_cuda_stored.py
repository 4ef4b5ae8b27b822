# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States on disk of parameters on CUDA devices: steps have the bits that they have with states in
memory on the processor."""

import gc
import os

import pytest
import stepc.torch as st
import torch
from state_files import file_of
from stepc import errors
from stepc.torch.tensors.stored import StoredState
from torch_pair import KINDS, Pair, same

SHAPES = [(130, 140), (17,), (16500,), (3, 60, 100), (), (700, 128)]
LARGE = 4  # of them


def on_disk(optimizer):
    """How many state tensors lie in the file."""
    states = [value for own in optimizer.state.values() for value in own.values()]
    return sum(isinstance(value, StoredState) for value in states)


class Stored(Pair):
    """States of the pair's optimizer on the device lie in a file."""

    def __init__(self, cuda, make, place, dtype=torch.float32, shapes=SHAPES, **keywords):
        super().__init__(cuda, make, dtype, shapes, **keywords)
        self.optimizer = make(self.placed, place=place, **keywords)

    def check(self):
        saved, expected = (one.state_dict()["state"] for one in (self.optimizer, self.reference))
        for i, (ours, param) in enumerate(zip(self.placed, self.plain, strict=True)):
            same(self.cuda, ours, param, f"parameter {i}")
            assert list(saved.get(i, ())) == list(expected.get(i, ()))
            for name, value in expected.get(i, {}).items():
                same(self.cuda, saved[i][name], value, f"{name} of parameter {i}")


@pytest.fixture
def place(tmp_path):
    """With windows that one tensor needs several of, and fewer than there are tensors."""
    return st.Place("disk", path=tmp_path, window_bytes=1 << 16, buffers=2)


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", KINDS)
def test_steps(cuda, kind, place):
    pair = Stored(cuda, KINDS[kind], place)
    for step in range(4):
        pair.set_lr(1e-2 / (step + 1))
        pair.step(step, {0, 1} if step == 1 else ())
        pair.check()
    assert on_disk(pair.optimizer) >= (1 if kind in ("adafactor", "came") else LARGE)


@pytest.mark.parametrize("keywords", [{"master": "f32"}, {"master": "remainder"},
                                      {"state_dtype": torch.bfloat16}], ids=str)  # fmt: skip
def test_bfloat16(cuda, keywords, place):
    pair = Stored(cuda, KINDS["adamw"], place, torch.bfloat16, **keywords)
    for step in range(3):
        pair.step(step)
    pair.check()
    assert on_disk(pair.optimizer) == LARGE * (2 if "state_dtype" in keywords else 3)


def test_no_state_takes_memory_of_the_device(cuda, place):
    pair = Stored(cuda, KINDS["adamw"], place, shapes=[(200, 300)] * 4)
    pair.step(0)
    assert on_disk(pair.optimizer) == 8
    report = pair.optimizer.stored()
    assert report.bytes_read == report.bytes_written >= 8 * 4 * 60000


def test_a_step_that_is_skipped_moves_nothing(cuda, place):
    pair = Stored(
        cuda,
        lambda params, **k: st.AdamW(params, loss_scale=st.DynamicLossScale(4.0), **k),
        place,
    )
    before = None  # there is no file
    for skipped in pair.skip_some():
        after = pair.optimizer.stored().bytes_read
        if before is not None:
            assert (after == before) == skipped
        before = after
    pair.check()


def test_saved_and_loaded(cuda, place, tmp_path):
    pair = Stored(cuda, KINDS["adamw"], place)
    pair.step(0)
    saved = pair.optimizer.state_dict()
    assert all(value.device.type == "cpu" for value in saved["state"][0].values())
    for other in (st.Place("disk", path=tmp_path), st.Place("host"), None):
        pair.optimizer = KINDS["adamw"](pair.placed, place=other)
        pair.optimizer.load_state_dict(saved)
        pair.step(1)
        pair.check()
        saved = pair.optimizer.state_dict()


def test_a_capture_is_refused(cuda, place):
    pair = Stored(cuda, KINDS["adamw"], place)
    cuda.stream = cuda.double.make_stream()
    pair.step(0)
    pair.give(1)
    words = "captures a graph, and steps bring states"
    with pytest.raises(errors.StatusError, match=words), cuda.capture():
        pair.optimizer.step()


def test_a_file_that_fails_behind_a_norm(cuda, place, tmp_path):
    """The traversal of clipping has run, and has changed nothing that anybody has."""
    pair = Stored(cuda, KINDS["clipped"], place)
    pair.step(0)
    pair.give(1)
    file = file_of(tmp_path)
    size = os.fstat(file).st_size
    with open(f"/proc/self/fd/{file}", "rb") as again:
        content = again.read()
    os.ftruncate(file, 0)
    with pytest.raises(errors.StoreError) as caught:
        pair.optimizer.step()
    assert not caught.value.torn
    os.ftruncate(file, size)
    with open(f"/proc/self/fd/{file}", "r+b") as again:
        again.write(content)
    pair.reference.step()
    pair.optimizer.step()
    pair.check()


def test_the_ring_goes_with_the_optimizer(cuda, place):
    alive = cuda.double.alive()[0]
    pair = Stored(cuda, KINDS["adamw"], place, shapes=[(200, 300)])
    pair.step(0)
    registered = cuda.double.calls("cuMemHostRegister")
    assert registered >= 1
    for tensor in (*pair.placed, *pair.plain):
        tensor.grad = None
    del pair, tensor
    gc.collect()
    assert cuda.double.calls("cuMemHostUnregister") == registered
    assert cuda.double.alive()[0] - alive < 8  # the parameter's, and torch's


@pytest.mark.parametrize("torn", [False, True])
def test_a_file_that_fails(cuda, place, tmp_path, torn):
    """Before anything is stepped nothing has changed; later the optimizer goes on no more."""
    pair = Stored(cuda, KINDS["adamw"], place)
    pair.step(0)
    pair.give(1)
    before = [cuda.host(param) for param in pair.placed]
    file = file_of(tmp_path)
    size = os.fstat(file).st_size
    with open(f"/proc/self/fd/{file}", "rb") as again:  # by the system's cache
        content = again.read()
    os.ftruncate(file, size // 2 if torn else 0)
    words = "some tensors were stepped before" if torn else "has become shorter"
    with pytest.raises(errors.StoreError, match=words) as caught:
        pair.optimizer.step()
    assert caught.value.torn == torn
    with open(f"/proc/self/fd/{file}", "r+b") as again:
        again.write(content)
    if torn:
        with pytest.raises(errors.StatusError, match="load a state to go on"):
            pair.optimizer.step()
        return
    assert all(torch.equal(cuda.host(p), b) for p, b in zip(pair.placed, before, strict=True))
    pair.reference.step()
    pair.optimizer.step()
    pair.check()
