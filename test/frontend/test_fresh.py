# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are given, loaded or made later: each is begun once, and those that were there
go on."""

import copy

import pytest
import stepc.torch as st
import torch
from stepc.torch import EMA, DynamicLossScale

DEFINITION = """
step.optimizer @begun {
  step.rule @any(%p: param[*], %g: grad[*], %h: state "input"[*], %s: state "start"[*] kept,
                 %first: fresh) {
    %s1 = step.select %first, %p, %s : [*]
    %u = step.mul %g, %h : [*]
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %h, %s1
  }
}
"""


@pytest.fixture
def definition(tmp_path):
    path = tmp_path / "begun.mlir"
    path.write_text(DEFINITION)
    return str(path)


def parameter(value=1.0, dtype=torch.float32):
    param = torch.nn.Parameter(torch.full((3,), value, dtype=dtype))
    param.grad = torch.ones_like(param)
    return param


def full(value):
    return torch.full((3,), value)


@pytest.mark.parametrize("given", [{}, {"input": full(0.5)}], ids=["none", "input"])
def test_a_state_that_is_given_leaves_others_to_be_begun(definition, given):
    param = parameter()
    optimizer = st.Optimizer([param], definition)
    optimizer.state[param].update(given)
    for _ in range(2):
        optimizer.step()
    state = optimizer.state[param]
    assert torch.equal(state["start"], full(1.0))
    assert torch.equal(state["input"], given.get("input", full(0.0)))
    assert torch.equal(param.detach(), 1 - 2 * state["input"])


@pytest.mark.parametrize("lacks", [(), ("start",), ("input",), ("start", "input")], ids="-".join)
def test_checkpoints_that_lack_states(definition, lacks):
    param = parameter()
    optimizer = st.Optimizer([param], definition)
    optimizer.state[param]["input"] = full(0.5)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    for name in lacks:
        del saved["state"][0][name]
    other = parameter(5.0)
    loaded = st.Optimizer([other], definition)
    loaded.load_state_dict(saved)
    loaded.step()
    # Where one of the rule's lacks, it begins.
    assert torch.equal(loaded.state[other]["start"], full(5.0 if lacks else 1.0))
    assert float(loaded.state[other]["step"]) == 2.0


def test_a_group_that_is_added_begins_alone(definition):
    param, other = parameter(), parameter(7.0)
    optimizer = st.Optimizer([param], definition)
    optimizer.state[param]["input"] = full(0.5)
    optimizer.step()
    optimizer.add_param_group({"params": [other]})
    optimizer.state[other]["input"] = full(2.0)
    optimizer.step()
    assert torch.equal(optimizer.state[param]["start"], full(1.0))
    assert torch.equal(optimizer.state[other]["start"], full(7.0))


def test_a_state_that_is_removed_is_begun_anew(definition):
    param = parameter()
    optimizer = st.Optimizer([param], definition)
    optimizer.state[param]["input"] = full(0.5)
    optimizer.step()
    del optimizer.state[param]["start"]
    optimizer.step()
    assert torch.equal(optimizer.state[param]["start"], full(0.5))


def test_a_skipped_step_begins_nothing(definition):
    param = parameter()
    optimizer = st.Optimizer([param], definition, loss_scale=DynamicLossScale(init_scale=4.0))
    optimizer.state[param]["input"] = full(0.5)
    param.grad = full(torch.inf)
    optimizer.step()
    assert "start" not in optimizer.state[param]
    param.data.fill_(3.0)
    param.grad = full(4.0)
    optimizer.step()
    assert torch.equal(optimizer.state[param]["start"], full(3.0))


def trained(dtype):
    """A checkpoint of torch's SGD after a step, and its momentum."""
    param = parameter(dtype=dtype)
    optimizer = torch.optim.SGD([param], lr=0.25, momentum=0.5, dampening=0.5)
    optimizer.step()
    return optimizer.state_dict(), optimizer.state[param]["momentum_buffer"].float()


@pytest.mark.parametrize(
    ("dtype", "more"),
    [
        (torch.bfloat16, {"master": "f32"}),
        (torch.float16, {"master": "f32"}),
        (torch.bfloat16, {"master": "remainder"}),
        (torch.float32, {"average": EMA(0.5)}),
    ],
    ids=["bf16-f32", "f16-f32", "bf16-remainder", "average"],
)
def test_what_is_kept_beside_leaves_the_momentum_alone(dtype, more):
    """Masters and averages that a checkpoint of torch's lacks."""
    saved, momentum = trained(dtype)
    param = parameter(dtype=dtype)
    optimizer = st.SGD([param], lr=0.25, momentum=0.5, dampening=0.5, **more)
    optimizer.load_state_dict(saved)
    optimizer.step()
    buffer = optimizer.state[param]["momentum_buffer"].float()
    assert torch.equal(buffer, 0.5 * momentum + 0.5)
    if "average" not in more:
        assert torch.equal(param.detach().float(), 1 - 0.25 * buffer)


def test_momentum_that_is_switched_on_begins_beside_a_master():
    param = parameter(dtype=torch.bfloat16)
    optimizer = st.SGD([param], lr=2.0**-9, dampening=0.5, master="f32")
    optimizer.step()
    assert "momentum_buffer" not in optimizer.state[param]
    optimizer.param_groups[0]["momentum"] = 0.5
    optimizer.step()
    state = optimizer.state[param]
    # The first momentum is the gradient; the master keeps what bf16 has not.
    assert torch.equal(state["momentum_buffer"].float(), full(1.0))
    assert torch.equal(state["master"], full(1 - 2 * 2.0**-9))
