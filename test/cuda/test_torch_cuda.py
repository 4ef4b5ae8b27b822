# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters of torch on CUDA devices: their steps have the bits of the processor's."""

import copy

import pytest
import stepc.torch as st
import torch
from stepc import errors
from torch_pair import KINDS, Pair, same


def saved_counts(pair):
    """Of all parameters, as a checkpoint has them."""
    saved = pair.optimizer.state_dict()["state"]
    assert len(saved) == len(pair.shapes)
    return {float(state["step"]) for state in saved.values()}


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", KINDS)
def test_steps(cuda, kind):
    pair = Pair(cuda, KINDS[kind])
    for step in range(4):
        pair.set_lr(1e-2 / (step + 1))
        pair.step(step, {1, 4} if step == 2 else ())
        pair.check()


FEATURES = {
    "clip": {"clip": st.ClipByValue(0.5)},
    "scale": {"loss_scale": 8.0, "accumulation_steps": 2},
    "copy": {"param_copy": torch.bfloat16},
    "average": {"average": st.EMA(0.9)},
    "capturable": {"capturable": True},
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("feature", FEATURES)
def test_features(cuda, feature):
    keywords = FEATURES[feature]
    pair = Pair(cuda, lambda params, **k: st.AdamW(params, lr=1e-2, **k))
    pair.optimizer = st.AdamW(pair.placed, lr=1e-2, **keywords)
    if feature != "capturable":  # which on the processor is a step of torch's
        pair.reference = st.AdamW(pair.plain, lr=1e-2, **keywords)
    for step in range(3):
        pair.step(step)
    pair.check()


@pytest.mark.parametrize("keywords", [{}, {"master": "f32"}, {"master": "remainder"},
                                      {"state_dtype": torch.bfloat16}], ids=str)  # fmt: skip
def test_bfloat16(cuda, keywords):
    pair = Pair(cuda, KINDS["adamw"], torch.bfloat16, **keywords)
    for step in range(3):
        pair.step(step)
    pair.check()


def test_views(cuda):
    def make(params):
        parts = "(3 n + n + n) m -> (3 n) m + n m + n m"
        views = "o i h w -> o (i h w)", "(3 n) m -> 3 n m", parts
        groups = [{"params": [p], "view": v} for p, v in zip(params, views, strict=True)]
        return KINDS["adamw"](groups)

    pair = Pair(cuda, make, shapes=[(6, 3, 2, 2), (12, 5), (20, 5)])
    for step in range(3):
        pair.step(step, {1} if step == 1 else ())
        pair.check()


def test_states_lie_on_the_device(cuda):
    pair = Pair(cuda, KINDS["adamw"])
    pair.step(0)
    for state in pair.optimizer.state.values():
        assert state["exp_avg"].device.type == "cuda"
        assert state["step"].device.type == "cpu"


def test_a_step_does_not_wait(cuda):
    pair = Pair(cuda, KINDS["adamw"])
    pair.step(0)
    pair.give(1)
    cuda.double.synchronize()
    waits = cuda.double.calls("cuStreamSynchronize"), cuda.double.calls("cuCtxSynchronize")
    pair.optimizer.step()
    assert cuda.double.lib.cudaDoublePending() > 0
    now = cuda.double.calls("cuStreamSynchronize"), cuda.double.calls("cuCtxSynchronize")
    assert now == waits


def test_the_current_stream(cuda):
    """A step goes to the stream that is torch's when it is made."""
    pair = Pair(cuda, KINDS["sgd"])
    pair.step(0)
    pair.give(1)
    cuda.double.synchronize()
    cuda.stream = cuda.double.make_stream()
    pair.optimizer.step()
    pair.reference.step()
    pending = cuda.double.lib.cudaDoublePending()
    assert pending > 0
    cuda.double.synchronize(cuda.stream)
    assert cuda.double.lib.cudaDoublePending() == 0
    pair.check()


def test_a_graph_follows_a_schedule(cuda):
    pair = Pair(cuda, KINDS["adamw"])
    graph = pair.captured()
    for step in range(3):
        pair.set_lr(1e-2 / (step + 1))
        pair.reference.step()
        pair.optimizer.upload()
        cuda.launch(graph)
    assert saved_counts(pair) == {4.0}
    pair.check()


def test_skipped_steps(cuda):
    """What was skipped the device alone knows, until somebody asks."""
    pair = Pair(cuda, lambda params: st.AdamW(params, lr=1e-2, loss_scale=st.DynamicLossScale(4.0)))
    assert list(pair.skip_some()) == [True, False, True, False]
    assert saved_counts(pair) == {2.0}
    pair.check()
    assert pair.optimizer.loss_scale == pair.reference.loss_scale == 1.0


@pytest.mark.parametrize("last", [False, True])
def test_memory_that_torch_keeps(cuda, last, monkeypatch):
    """Where the driver has none left, torch gives back what nobody uses: once."""

    def step():
        pair = Pair(cuda, skipping)
        pair.give(0)
        before = cuda.double.calls("cuMemAlloc")
        if emptied is not None:
            cuda.double.fail("cuMemAlloc", taken if last else 1, 2)
        pair.reference.step()
        pair.optimizer.step()
        found = cuda.double.calls("cuMemAlloc") - before
        assert saved_counts(pair) == {1.0}
        pair.check()
        return found

    emptied = None
    taken = step()
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(last))
    step()
    assert emptied == [last]


def test_a_first_step_is_not_captured(cuda):
    """Nor one after a change: before anything is allocated, and with all as it was."""
    pair = Pair(cuda, skipping)
    cuda.stream = cuda.double.make_stream()
    pair.give(0)

    def refused():
        before = cuda.double.calls("cuMemAlloc"), cuda.double.calls("cuModuleLoadDataEx")
        with (
            cuda.capture(),
            pytest.raises(errors.StepcError, match="cannot be captured in a CUDA graph"),
        ):
            pair.optimizer.step()
        after = cuda.double.calls("cuMemAlloc"), cuda.double.calls("cuModuleLoadDataEx")
        assert before == after

    refused()
    assert not pair.optimizer.state
    for optimizer in (pair.optimizer, pair.reference):
        optimizer.step()
    pair.step(1)
    for optimizer in (pair.optimizer, pair.reference):
        optimizer.set_scalar("growth_tracker", 0.0)
    pair.give(2)
    refused()
    for optimizer in (pair.optimizer, pair.reference):
        optimizer.step()
    assert saved_counts(pair) == {3.0}
    pair.check()


def test_a_captured_skip(cuda):
    pair = Pair(cuda, lambda params: st.AdamW(params, lr=1e-2, loss_scale=st.DynamicLossScale(4.0)))
    cuda.stream = cuda.double.make_stream()
    pair.step(0)
    pair.give(1)
    with cuda.capture() as graphs:
        pair.optimizer.step()
    for bad in (False, True, False):
        value = float("inf") if bad else 0.5
        pair.plain[1].grad.fill_(value)
        with torch.no_grad():
            pair.placed[1].grad.fill_(value)
        pair.reference.step()
        cuda.launch(graphs[0])
    assert saved_counts(pair) == {3.0}
    pair.check()


def counts(optimizer):
    return {float(state["step"]) for state in optimizer.state.values()}


def skipping(params):
    return st.AdamW(params, lr=1e-2, loss_scale=st.DynamicLossScale(1.0, growth_interval=10**9))


def test_counts_outlive_a_binding(cuda):
    """Steps that may be skipped are counted on the device; the next binding goes on there."""
    pair = Pair(cuda, skipping)
    for step in range(3):
        pair.step(step)
    for optimizer in (pair.optimizer, pair.reference):
        (name, *_) = optimizer.scalars
        optimizer.set_scalar(name, optimizer.scalars[name])
    assert counts(pair.optimizer) == {3.0}
    pair.step(3)
    pair.optimizer.state_dict()
    pair.check()


def test_counts_outlive_a_step_that_failed(cuda):
    pair = Pair(cuda, skipping)
    for step in range(3):
        pair.step(step)
    lr = pair.optimizer.param_groups[0]["lr"]
    pair.optimizer.param_groups[0]["lr"] = "much"
    with pytest.raises(Exception, match="lr"):
        pair.optimizer.step()
    pair.optimizer.param_groups[0]["lr"] = lr
    assert counts(pair.optimizer) == {3.0}
    pair.step(3)
    pair.optimizer.state_dict()
    pair.check()


def test_counts_outlive_a_copy(cuda):
    pair = Pair(cuda, skipping)
    pair.step(0)
    assert counts(copy.deepcopy(pair.optimizer)) == {1.0}


def test_a_capture_after_a_skipped_step(cuda):
    """States that no step has made yet are shown when one has."""
    pair = Pair(cuda, lambda params: st.AdamW(params, lr=1e-2, loss_scale=st.DynamicLossScale(4.0)))
    pair.give(0)
    pair.overflow()
    pair.reference.step()
    pair.optimizer.step()
    assert not pair.optimizer.state
    pair.give(1)
    with cuda.capture() as graphs:
        pair.optimizer.step()
    pair.reference.step()
    cuda.launch(graphs[0])
    pair.step(2)
    pair.optimizer.state_dict()
    pair.check()


def test_what_is_read_waits_for_graphs(cuda):
    """They run where they are launched, not on the stream of the capture."""
    pair = Pair(cuda, skipping)
    pair.step(0)
    pair.give(1)
    with cuda.capture() as graphs:
        pair.optimizer.step()
    pair.reference.step()
    cuda.stream = cuda.double.make_stream()
    cuda.launch(graphs[0])
    assert pair.optimizer.state_dict()["state"][0]["step"] == 2.0
    assert not pair.optimizer.last_step.skipped
    pair.check()


def test_a_graph_of_a_binding_that_is_gone(cuda):
    """Its memory stays: the graph goes on with the states of then."""
    pair = Pair(cuda, KINDS["sgd"])
    pair.step(0)
    pair.give(1)
    with cuda.capture() as graphs:
        pair.optimizer.step()
    saved = pair.optimizer.state_dict()
    pair.optimizer.load_state_dict(saved)
    pair.optimizer.step()
    cuda.launch(graphs[0])
    cuda.double.synchronize()
    assert cuda.double.fault() == ""


def test_older_devices(cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 5))
    param = cuda.parameter(torch.ones(3))
    cuda.set_grads([param], [torch.ones(3)])
    words = "device 'cuda:0' has compute capability 7.5, the least is 8.0"
    with pytest.raises(errors.TensorError, match=words):
        st.Lion([param]).step()


def test_precompile_is_for_where_parameters_lie(cuda):
    param = cuda.parameter(torch.ones(3))
    optimizer = st.AdamW([param], betas=(0.8, 0.9))
    optimizer.precompile()
    cuda.set_grads([param], [torch.ones(3)])
    made = len(list(cuda.cache.rglob("*.package")))
    optimizer.step()
    assert len(list(cuda.cache.rglob("*.package"))) == made


def test_upload_before_a_step(cuda):
    optimizer = st.AdamW([cuda.parameter(torch.ones(3))])
    with pytest.raises(errors.StepcError, match=r"upload\(\) is for an optimizer that has stepped"):
        optimizer.upload()


def test_upload_on_the_processor():
    param = torch.nn.Parameter(torch.ones(3))
    optimizer = st.AdamW([param])
    param.grad = torch.ones(3)
    optimizer.step()
    optimizer.upload()


def test_checkpoints_go_from_one_to_the_other(cuda):
    first = Pair(cuda, KINDS["adamw"])
    for step in range(2):
        first.step(step)
    saved = first.optimizer.state_dict(), first.reference.state_dict()
    second = Pair(cuda, KINDS["adamw"])
    for source, target in ((first.plain, second.plain), (first.placed, second.placed)):
        with torch.no_grad():
            for a, b in zip(source, target, strict=True):
                b.copy_(a)
    second.reference.load_state_dict(saved[0])
    second.optimizer.load_state_dict(saved[1])
    assert second.optimizer.state[second.placed[0]]["exp_avg"].device.type == "cuda"
    second.step(2)
    first.step(2)
    first.check()
    second.check()


def test_a_copy(cuda):
    pair = Pair(cuda, KINDS["adamw"])
    pair.step(0)
    again = copy.deepcopy(pair.optimizer)
    for ours, state in zip(again.state.values(), pair.optimizer.state.values(), strict=True):
        for name in state:
            same(cuda, ours[name], cuda.host(state[name]), name)
    pair.step(1)
    pair.check()


def test_parameters_of_two_devices(cuda):
    params = [cuda.parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))]
    optimizer = st.Lion(params)
    cuda.set_grads(params[:1], [torch.ones(3)])
    params[1].grad = torch.ones(3)
    words = "parameter 1 of group 0 is on device 'cpu', parameter 0 of group 0 on 'cuda:0'"
    with pytest.raises(errors.TensorError, match=words):
        optimizer.step()
    assert not optimizer.state
    for param in params:
        same(cuda, param, torch.ones(3), "parameter")


def test_a_parameter_of_another_device_that_comes_later(cuda):
    params = [cuda.parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))]
    optimizer = st.Lion(params)
    cuda.set_grads(params[:1], [torch.ones(3)])
    optimizer.step()
    params[1].grad = torch.ones(3)
    with pytest.raises(errors.TensorError, match="is on device 'cpu'"):
        optimizer.step()


def test_devices_of_others(cuda, monkeypatch):
    param = cuda.parameter(torch.ones(3))
    cuda.set_grads([param], [torch.ones(3)])
    monkeypatch.setattr(torch.version, "hip", "7.0")
    words = "is on device 'cuda:0'; supported are 'cpu' and 'cuda' of NVIDIA"
    with pytest.raises(errors.TensorError, match=words):
        st.Lion([param]).step()


@pytest.mark.parametrize(("capability", "target"), [
    ((8, 6), "sm_80"), ((9, 0), "sm_90"), ((10, 3), "sm_100"), ((11, 0), "compute_100"),
    ((12, 0), "compute_100"),
])  # fmt: skip
def test_targets(monkeypatch, capability, target):
    from stepc.torch.tensors import devices as _devices

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setenv("STEPC_CPU_TARGET", "x86-64-v3")  # not this processor's
    assert _devices.target_flags(torch.device("cuda", 0)) == (f"--target={target}",)
    assert _devices.target_flags(torch.device("cpu")) == ()
