# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views in stepc-plan: the states are those of an optimizer whose groups have them, and what one
parameter is cut into has one owner."""

import pytest
import stepc.torch as st
import torch
from stepc.plan import command, models, planning
from stepc.plan.failure import PlanError
from stepc.plan.machines import Machine
from stepc.plan.package import open_source

VIEWS = {
    "qkv": ((24, 8), "(3 n) m -> 3 n m"),
    "conv": ((6, 2, 3, 3), "o i h w -> o (i h w)"),
    "proj": ((10, 13), "blocks(6)"),
    "plain": ((5, 7), None),
    "bias": ((9,), None),
}
ASKED = tuple((f"^{name}$", text) for name, (_, text) in VIEWS.items() if text)


def plan(definition, layout="ddp", ranks=1, views=ASKED):
    tensors = tuple(models.Tensor(name, shape) for name, (shape, _) in VIEWS.items())
    values = {"max_precond_dim": 20.0} if definition == "soap" else {}
    request = planning.Request(layout=layout, views=views, values=values)
    source, model = open_source(definition), models.Model("m", tensors)
    return planning.make(source, model, Machine(ranks), request)


@pytest.mark.filterwarnings("ignore:stepc. SOAP has no bases")
def test_states_are_those_of_the_optimizer():
    """Of all kinds: one matrix, a matrix each, blocks with a remainder."""
    groups = [
        {"params": [torch.nn.Parameter(torch.ones(shape))], **({"view": text} if text else {})}
        for shape, text in VIEWS.values()
    ]
    optimizer = st.SOAP(groups, max_precond_dim=20)
    found = {}
    for group in groups:
        (param,) = group["params"]
        param.grad = torch.ones_like(param)
    optimizer.step()
    for group in groups:
        for name, state in optimizer.state[group["params"][0]].items():
            if name != "step":
                found[name] = found.get(name, 0) + state.numel() * state.element_size()
    memory = plan("soap").memory
    assert {name: size for name, size in memory["states"].items() if size} == found
    assert memory["parameters"] == 4 * sum(p.numel() for g in groups for p in g["params"])


def test_one_rank_owns_a_parameter():
    for layout in ("zero1", "zero2"):
        made = plan("soap", layout, 2)
        owners = {}
        for one in made.owners.list:
            owners.setdefault(one.tensor.of or one.tensor.name, set()).add(one.owner)
        assert set(owners) == {"qkv", "conv", "proj", "plain"} and len(owners["proj"]) == 1
        assert all(len(ranks) == 1 for ranks in owners.values())
        assert {rank for ranks in owners.values() for rank in ranks} == {0, 1}
        alone = plan("soap")
        assert sum(made.flops) == pytest.approx(alone.flops[0])
    # A rule of elements, too: parts are parameters of their own.
    owned = plan("adamw", "zero2", 2, ((r"proj", "blocks(6)"),)).owners.list
    assert [one.tensor.of for one in owned] == ["proj"] * 6


@pytest.mark.parametrize("layout", ["fsdp2", "hsdp", "tp(0)"])
def test_layouts_that_cut_parameters_are_refused(layout):
    with pytest.raises(PlanError, match="whose ranks cut parameters as they are, and views are"):
        plan("adamw", layout, 2)
    assert plan("adamw", layout, 1).memory == plan("adamw").memory


def test_the_command(tmp_path, capsys):
    path = tmp_path / "small.txt"
    path.write_text("w 10x13\nconv 6x2x3x3\n")
    said = command.run(["muon", "--model", str(path), "--ranks", "1", "--layout", "ddp", "--view",
                        "w=blocks(6)", "--view", "conv=o i h w -> o (i h w)"])  # fmt: skip
    assert "7 tensors, 238 elements" in said
    for view, words in {
        "w=n -> n": "tensor 'w': view 'n -> n' is of 1 dim, and the shape is",
        "w=blocks": "tensor 'w': view 'blocks' has 'blocks', expected",
        "blocks": "'blocks' is not NAME=VALUE",
        "nothing=blocks(6)": "no tensor has a name that 'nothing' finds",
    }.items():
        with pytest.raises(PlanError, match=words):
            command.run(["muon", "--model", str(path), "--ranks", "1", "--view", view])
