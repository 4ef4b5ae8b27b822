# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of parameters on CUDA devices that lie in the host's memory: steps have the bits that
they have with states on the processor."""

import copy
import gc

import pytest
import stepc.torch as st
import torch
from stepc import errors
from stepc._host_memory import is_host, take
from stepc.torch.tensors.host_memory import is_on_host
from torch_pair import KINDS, Pair

HOST = st.Place("host")
SHAPES = [(130, 140), (17,), (16500,), (3, 60, 100), ()]
LARGE = 3  # of them


def on_host(optimizer):
    """How many state tensors lie in the host's memory."""
    states = [value for own in optimizer.state.values() for value in own.values()]
    return sum(is_on_host(value) for value in states)


class Placed(Pair):
    """States of the pair's optimizer on the device lie in the host's memory."""

    def __init__(self, cuda, make, dtype=torch.float32, shapes=SHAPES, place=HOST, **keywords):
        super().__init__(cuda, make, dtype, shapes, **keywords)
        self.optimizer = make(self.placed, place=place, **keywords)


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", KINDS)
def test_steps(cuda, kind):
    pair = Placed(cuda, KINDS[kind])
    for step in range(3):
        pair.set_lr(1e-2 / (step + 1))
        pair.step(step, {0, 1} if step == 1 else ())
        pair.check()
    # Of Adafactor and CAME row and column statistics stay on the device.
    assert on_host(pair.optimizer) >= (1 if kind in ("adafactor", "came") else LARGE)


def test_no_state_takes_memory_of_the_device(cuda):
    """The blocks of states that are there are those of small ones."""
    pair = Placed(cuda, KINDS["adamw"], shapes=[(200, 300)] * 4)
    blocks = cuda.double.calls("cuMemHostAlloc")
    pair.step(0)
    assert cuda.double.calls("cuMemHostAlloc") - blocks == 8
    assert on_host(pair.optimizer) == 8
    assert all(value.device.type == "cuda" for own in pair.optimizer.state.values()
               for name, value in own.items() if name != "step")  # fmt: skip


@pytest.mark.parametrize("keywords", [{"master": "f32"}, {"master": "remainder"},
                                      {"state_dtype": torch.bfloat16}], ids=str)  # fmt: skip
def test_bfloat16(cuda, keywords):
    pair = Placed(cuda, KINDS["adamw"], torch.bfloat16, **keywords)
    for step in range(3):
        pair.step(step)
    pair.check()
    assert on_host(pair.optimizer) == LARGE * (2 if "state_dtype" in keywords else 3)


def test_codes(cuda):
    """Of 8 and of 4 bits; where they lie their elements say, and not their bytes."""
    pair = Placed(
        cuda, KINDS["adamw"], shapes=[(130, 140), (164, 101), (17,)],
        state_dtype={"exp_avg": "q8", "exp_avg_sq": "q4"},
    )  # fmt: skip
    for step in range(3):
        pair.step(step)
    pair.check()
    assert on_host(pair.optimizer) == 2 * 4


def test_a_step_that_is_skipped(cuda):
    pair = Placed(
        cuda, lambda params, **k: st.AdamW(params, loss_scale=st.DynamicLossScale(4.0), **k)
    )
    assert list(pair.skip_some()) == [True, False, True, False]
    pair.optimizer.state_dict()  # which brings counts
    pair.check()


def test_a_graph(cuda):
    pair = Placed(cuda, KINDS["adamw"])
    graph = pair.captured()
    for _ in range(3):
        pair.reference.step()
        pair.optimizer.upload()
        cuda.launch(graph)
    pair.optimizer.state_dict()
    pair.check()


def test_memory_goes_with_the_optimizer(cuda):
    pair = Placed(cuda, KINDS["adamw"])
    pair.step(0)
    assert on_host(pair.optimizer) == 2 * LARGE
    freed = cuda.double.calls("cuMemFreeHost")
    kept = pair.optimizer.state[pair.placed[0]]["exp_avg"].view(-1)  # its storage stays
    del pair.optimizer
    gc.collect()
    assert cuda.double.calls("cuMemFreeHost") - freed == 2 * LARGE - 1
    assert torch.equal(cuda.host(kept), pair.reference.state[pair.plain[0]]["exp_avg"].view(-1))
    del kept
    assert cuda.double.calls("cuMemFreeHost") - freed == 2 * LARGE


@pytest.mark.parametrize("place", [HOST, None], ids=str)
def test_saved_and_loaded(cuda, place):
    """With states there, into states there or on the device."""
    pair = Placed(cuda, KINDS["adamw"])
    pair.step(0)
    saved = copy.deepcopy(pair.optimizer.state_dict())
    pair.optimizer = KINDS["adamw"](pair.placed, place=place)
    pair.optimizer.load_state_dict(saved)
    # Until they are bound, copies take no memory of the device.
    loaded = pair.optimizer.state[pair.placed[0]]["exp_avg"]
    assert loaded.device.type == ("cuda" if place is None else "cpu")
    for step in range(1, 3):
        pair.step(step)
    pair.check()
    assert on_host(pair.optimizer) == (0 if place is None else 2 * LARGE)


def test_a_place_that_is_set_for_states_on_the_device(cuda):
    """What an optimizer has on the device, when another one takes it over."""
    pair = Placed(cuda, KINDS["adamw"], place=None)
    pair.step(0)
    assert on_host(pair.optimizer) == 0
    other = KINDS["adamw"](pair.placed, place=HOST)
    other.state = pair.optimizer.state
    pair.optimizer = other
    pair.step(1)
    pair.check()
    assert on_host(pair.optimizer) == 2 * LARGE


def test_a_fraction(cuda):
    pair = Placed(cuda, KINDS["adamw"], place=st.Place("host", fraction=0.4))
    pair.step(0)
    pair.check()
    assert on_host(pair.optimizer) == 4  # of the first two large ones
    assert "exp_avg, in host memory" in str(st.info(pair.optimizer))


def test_no_memory(cuda):
    """The driver's words, and nothing has changed."""
    pair = Placed(cuda, KINDS["adamw"])
    pair.give(0)
    cuda.double.fail("cuMemHostAlloc", 2, 2)
    with pytest.raises(errors.OutOfMemoryError, match="cuMemHostAlloc of 72800 bytes on CUDA"):
        pair.optimizer.step()
    assert not pair.optimizer.state
    pair.step(0)
    pair.check()


def test_in_a_capture(cuda):
    """Taking memory would spoil it and is refused; giving memory back does not."""
    pair = Placed(cuda, KINDS["adamw"])
    pair.step(0)
    stream = cuda.double.make_stream()
    freed = cuda.double.calls("cuMemFreeHost")
    with cuda.double.capture(stream):
        with pytest.raises(errors.StatusError, match="the host's memory for states while the"):
            take(0, 64, stream)
        del pair.optimizer
        gc.collect()
        assert cuda.double.calls("cuMemFreeHost") - freed == 2 * LARGE


def test_no_bytes_and_no_device(cuda):
    with pytest.raises(errors.StatusError, match="^bytes is 0, expected at least 1$"):
        take(0, 0)
    with pytest.raises(errors.StepcError, match="CUDA device 1 does not exist, the driver has 1"):
        take(1, 64)
    assert not is_host(0, cuda.parameter(torch.ones(3)).data_ptr())
    assert not is_host(0, torch.ones(3).data_ptr())


def test_a_configuration_of_deepspeed(cuda):
    """``offload_optimizer`` with "cpu" is the host's memory."""
    pair = Placed(cuda, KINDS["adamw"])
    model = torch.nn.Module()
    model.weights = torch.nn.ParameterList(pair.placed)
    config = {
        "train_batch_size": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}},
    }
    pair.optimizer = st.deepspeed.from_config(config, model).optimizer
    pair.give(0)
    pair.optimizer.step()
    assert on_host(pair.optimizer) == 2 * LARGE
