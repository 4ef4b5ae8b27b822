# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The float32 that a state keeps of a parameter is the parameter of a checkpoint, whatever stands
beside it; and of several models in a file the right one is taken, or none."""

import pytest
import stepc.torch as st
import torch
import torch.distributed.checkpoint as dcp
from stepc.torch import checkpoint as ck
from stepc.torch.checkpoint.loading import joined_halves


def trained(master, seed=0, steps=5):
    torch.manual_seed(seed)
    net = torch.nn.Linear(4, 3, bias=False).to(torch.bfloat16)
    optimizer = st.AdamW(net.named_parameters(), lr=1e-3, master=master)
    for _ in range(steps):
        net(torch.randn(2, 4, dtype=torch.bfloat16)).float().pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return net, optimizer


def whole(net, optimizer):
    own = optimizer.state[net.weight]
    return own["master"] if "master" in own else joined_halves(net.weight, own["remainder"])


def saved(path, layout, net, optimizer):
    """As a program saves it, with the model in bfloat16."""
    tree = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
    if layout == "torch":
        torch.save(tree, path)
    else:
        tree["optim"] = tree.pop("optimizer")
        dcp.save(tree, checkpoint_id=path, no_dist=True)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["torch", "dcp"])
@pytest.mark.parametrize("source", ["f32", "remainder"])
def test_a_model_beside_the_state_has_half_of_it(tmp_path, layout, source):
    net, optimizer = trained(source)
    value = whole(net, optimizer)
    assert not torch.equal(value, net.weight.float())
    path = saved(tmp_path / "saved", layout, net, optimizer)
    found = ck.read(path)
    (name,) = found.names
    assert torch.equal(found.parameters[name].read(), value)
    assert torch.equal(found.parameters[name].elements(3, 9), value.view(-1)[3:9])
    assert sorted(found.states[name]) == ["exp_avg", "exp_avg_sq", "step"]
    for master in ("f32", "remainder"):
        other, loads = trained(master, seed=1, steps=0)
        ck.load(loads, path, parameters=True)
        assert torch.equal(whole(other, loads), value)
    if found.named:
        ck.convert(path, tmp_path / "universal", "universal")
        assert torch.equal(ck.read(tmp_path / "universal").parameters[name].read(), value)


def test_states_alone(tmp_path):
    """Masters of all parameters are their values; remainders without them are nobody's."""
    net, optimizer = trained("f32")
    value, path = whole(net, optimizer), tmp_path / "alone.pt"
    torch.save(optimizer.state_dict(), path)
    for master in ("f32", "remainder"):
        other, loads = trained(master, seed=1, steps=0)
        ck.load(loads, path, parameters=True)
        assert torch.equal(whole(other, loads), value)
    ck.convert(path, tmp_path / "universal", "universal")
    assert torch.equal(ck.read(tmp_path / "universal").parameters["weight"].read(), value)
    net, optimizer = trained("remainder")
    torch.save(optimizer.state_dict(), tmp_path / "rest.pt")
    found = ck.read(tmp_path / "rest.pt")
    assert not found.parameters and "remainder" in found.states["weight"]
    other, loads = trained("remainder", seed=1, steps=0)
    other.load_state_dict(net.state_dict())
    ck.load(loads, tmp_path / "rest.pt")
    assert torch.equal(whole(other, loads), whole(net, optimizer))


def test_a_remainder_of_another_shape(tmp_path):
    net, optimizer = trained("remainder")
    tree = {"model": {"weight": net.weight.detach()[:2]}, "optimizer": optimizer.state_dict()}
    torch.save(tree, tmp_path / "a.pt")
    with pytest.raises(ck.CheckpointError, match=r"remainder of 'weight' of shape \(3, 4\)"):
        ck.read(tmp_path / "a.pt")


def test_of_several_models_the_one_that_is_called_so(tmp_path):
    net, optimizer = trained("f32")
    plain = torch.nn.Linear(4, 3, bias=False)
    own = torch.optim.AdamW(plain.named_parameters())
    plain(torch.ones(4)).sum().backward()
    own.step()
    average = {"weight": torch.zeros(3, 4)}
    for key in ("model", "module", "state_dict", "model_state_dict"):
        tree = {"ema": average, key: plain.state_dict(), "optimizer": own.state_dict()}
        torch.save(tree, tmp_path / f"{key}.pt")
        found = ck.read(tmp_path / f"{key}.pt")
        assert torch.equal(found.parameters["weight"].read(), plain.weight)
    tree = {"ema": average, "optimizer": own.state_dict()}
    torch.save(tree, tmp_path / "one.pt")
    assert not ck.read(tmp_path / "one.pt").parameters["weight"].read().any()
    for keys in (("ema", "net"), ("model", "module")):
        torch.save({**dict.fromkeys(keys[:1], average), keys[1]: plain.state_dict(),
                    "optimizer": own.state_dict()}, tmp_path / "two.pt")  # fmt: skip
        with pytest.raises(ck.CheckpointError, match=f"under '{keys[0]}', '{keys[1]}'"):
            ck.read(tmp_path / "two.pt")


def test_a_part_keeps_no_whole():
    """A rank that has a few elements of what is read whole keeps these alone."""
    stored = ck.Stored.made((40, 50), torch.float32, lambda: torch.arange(2000.0).view(40, 50))
    part = stored.elements(10, 30)
    assert torch.equal(part, torch.arange(10.0, 30.0))
    assert part.untyped_storage().nbytes() == 80
    assert stored.elements(0, 2000).untyped_storage().nbytes() == stored.read().nbytes == 8000
