# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``fused_backward=True``: each parameter is stepped in the backward pass, with the bits of a
step behind it, and its gradient is freed."""

import copy
import gc
import pickle
import weakref

import pytest
import stepc.torch as st
import torch
from common import bits_equal as lists_equal
from stepc import errors
from torch_table import NAMES


def bits_equal(a, b):
    """Of tensors, and of states that are numbers."""
    if not isinstance(a, torch.Tensor):
        return a == b
    return lists_equal([a], [b])


OTHERS = {
    "hf.Adafactor": lambda params, **k: st.hf.Adafactor(params, lr=1e-2, relative_step=False, **k),
    "CAME": lambda params, **k: st.came.CAME(params, lr=1e-2, **k),
    "FusedLamb": lambda params, **k: st.deepspeed.FusedLamb(params, lr=1e-2, **k),
    "LARS": lambda params, **k: st.LARS(params, lr=1e-2, **k),
    "Lion": lambda params, **k: st.Lion(params, lr=1e-3, **k),
    "SM3": lambda params, **k: st.SM3(params, lr=1e-2, **k),
    "clipped by value": lambda params, **k: st.AdamW(
        params, lr=1e-2, clip=st.ClipByValue(1e-3), loss_scale=8.0, **k
    ),
    "masters": lambda params, **k: st.AdamW(params, lr=1e-2, master="f32", **k),
    "own": lambda params, **k: st.Optimizer(params, "frontend/optimizers/sgd.mlir", lr=1e-2, **k),
}
MAKERS = {
    **{
        name: lambda params, name=name, **k: getattr(st, name)(params, lr=1e-2, **k)
        for name in NAMES
        if name != "Muon"
    },
    **OTHERS,
}


def model_of(dtype=torch.float32, layers=3):
    torch.manual_seed(0)
    inner = [m for _ in range(layers) for m in (torch.nn.Linear(6, 6), torch.nn.Tanh())]
    return torch.nn.Sequential(*inner, torch.nn.Linear(6, 4)).to(dtype)


def loss_of(model, number):
    torch.manual_seed(number)
    return model(torch.randn(5, 6).to(model[0].weight.dtype)).float().square().mean()


def train(model, optimizer, steps=3, first=0):
    """With the model's gradients; a rate that changes from step to step."""
    for number in range(first, first + steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (number + 1)
        optimizer.scale(loss_of(model, number)).backward()
        optimizer.step()
        optimizer.zero_grad()


def same(model, twin, optimizer=None, other=None):
    for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert bits_equal(a, b), name
        if optimizer is not None:
            left, right = optimizer.state[a], other.state[b]
            assert left.keys() == right.keys()
            assert all(bits_equal(left[key], right[key]) for key in left), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MAKERS)
def test_bits_are_those_of_a_step_behind_the_pass(name, dtype):
    if name == "masters" and dtype is torch.float32:
        pytest.skip("f32 parameters have no masters")
    model, twin = model_of(dtype), model_of(dtype)
    plain = MAKERS[name](twin.parameters())
    fused = MAKERS[name](model.parameters(), fused_backward=True)
    train(model, fused)
    train(twin, plain)
    assert all(param.grad is None for param in model.parameters())
    same(model, twin, fused, plain)


@pytest.mark.parametrize("name", ["AdamW", "hf.Adafactor"])
def test_float16_with_a_scale_that_is_a_number(name):
    model, twin = model_of(torch.float16), model_of(torch.float16)
    plain = MAKERS[name](twin.parameters(), loss_scale=256.0)
    fused = MAKERS[name](model.parameters(), loss_scale=256.0, fused_backward=True)
    train(model, fused)
    train(twin, plain)
    same(model, twin, fused, plain)


def test_muon_steps_matrices_in_the_pass():
    model, twin = model_of(), model_of()
    pairs = []
    for made, more in ((model, {"fused_backward": True}), (twin, {})):
        matrices = [p for p in made.parameters() if p.dim() == 2]
        others = [p for p in made.parameters() if p.dim() != 2]
        muon, adamw = st.Muon(matrices, lr=1e-2, **more), st.AdamW(others, lr=1e-2, **more)
        for number in range(2):
            loss_of(made, number).backward()
            muon.step()
            adamw.step()
            made.zero_grad()
        pairs.append((muon, adamw))
    same(model, twin)


def test_one_gradient_lives_at_a_time():
    model = model_of(layers=8)
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    alive, most = set(), 0

    def count(param):
        nonlocal most
        most = max(most, sum(p.grad is not None for p in model.parameters()))
        alive.add(id(param))

    for param in model.parameters():  # behind the optimizer's hook, which frees the own one
        param.register_post_accumulate_grad_hook(count)
    train(model, optimizer, 2)
    assert len(alive) == len(list(model.parameters())) and most == 0


def test_a_parameter_without_a_gradient_keeps_its_count():
    model, twin = model_of(), model_of()
    fused, plain = st.Adam(model.parameters(), fused_backward=True), st.Adam(twin.parameters())
    for made, optimizer in ((model, fused), (twin, plain)):
        train(made, optimizer, 1)
        made[0].requires_grad_(False)
        train(made, optimizer, 2, 1)
        made[0].requires_grad_(True)
        train(made, optimizer, 1, 3)
    same(model, twin, fused, plain)


def test_gradients_that_came_otherwise_are_stepped_by_step():
    model, twin = model_of(), model_of()
    fused, plain = st.Adam(model.parameters(), fused_backward=True), st.Adam(twin.parameters())
    for made, optimizer in ((model, fused), (twin, plain)):
        for param in made.parameters():  # none by a backward pass
            param.grad = torch.ones_like(param)
        optimizer.step()
        optimizer.zero_grad()
        made[2](torch.ones(2, 6)).sum().backward()
        made[0].weight.grad = torch.ones(6, 6)  # beside those of a pass
        optimizer.step()
        optimizer.zero_grad()
    same(model, twin, fused, plain)


def test_a_closure_runs_the_pass():
    model, twin = model_of(), model_of()
    fused, plain = st.AdamW(model.parameters(), fused_backward=True), st.AdamW(twin.parameters())

    def closure(made, optimizer):
        optimizer.zero_grad()
        loss = loss_of(made, 1)
        loss.backward()
        return loss

    losses = [o.step(lambda m=m, o=o: closure(m, o)) for m, o in ((model, fused), (twin, plain))]
    assert losses[0] == losses[1]
    same(model, twin, fused, plain)


def test_a_second_pass_before_step_is_refused():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    loss_of(model, 0).backward()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(errors.StepcError, match=r"stepped since the last step\(\).*each backward"):
        loss_of(model, 1).backward()
    assert all(bits_equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    optimizer.step()
    twin = model_of()
    other = st.AdamW(twin.parameters())
    train(twin, other, 1)
    # Nothing is left of the refused gradient, though nobody has dropped it.
    for made, own in ((model, optimizer), (twin, other)):
        for group in own.param_groups:
            group["lr"] = 1e-2
        loss_of(made, 1).backward()
        own.step()
        made.zero_grad()
    assert {int(s["step"]) for s in optimizer.state.values()} == {2}


def test_gradients_of_a_stepped_parameter_are_refused_by_step():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    loss_of(model, 0).backward()
    model[0].weight.grad = torch.ones(6, 6)
    with pytest.raises(errors.StepcError, match="0 of group 0 has a second gradient"):
        optimizer.step()
    optimizer.zero_grad()
    optimizer.step()
    train(model, optimizer, 1, 1)


def test_a_gradient_from_before_is_refused():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    model[0].weight.grad = torch.ones(6, 6)
    with pytest.raises(errors.StepcError, match="has a gradient before the fused backward pass"):
        loss_of(model, 0).backward()
    optimizer.zero_grad()
    train(model, optimizer)


@pytest.mark.parametrize(
    "make",
    [st.deepspeed.FusedAdam, st.colossal.FusedAdam, st.apex.FusedLAMB],
    ids=["deepspeed.FusedAdam", "colossal.FusedAdam", "apex.FusedLAMB"],
)
def test_classes_that_compute_something_of_all_tensors(make):
    """A count for a group, as those have it, or the norm of all gradients."""
    model = model_of()
    optimizer = make(model.parameters(), fused_backward=True)
    with pytest.raises(errors.StatusError, match="computes something of all tensors together"):
        loss_of(model, 0).backward()
    assert not optimizer.state


@pytest.mark.parametrize(
    "more",
    [
        {"loss_scale": st.DynamicLossScale()},
        {"clip": st.ClipByNorm(1.0), "loss_scale": st.DynamicLossScale()},
        {"skip_nonfinite": True},
        {"average": st.EMA()},  # counts its updates once for the model
    ],
    ids=["dynamic", "dynamic and norm", "skip", "average"],
)
def test_what_needs_all_gradients_is_refused_before_anything(more):
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True, **more)
    before = [p.detach().clone() for p in model.parameters()]
    words = "'adamw' computes something of all tensors together"
    with pytest.raises(errors.StatusError, match=words):
        loss_of(model, 0).backward()
    assert all(bits_equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert not optimizer.state


@pytest.mark.parametrize("order", [2.0, float("inf")])
@pytest.mark.parametrize("scale", [None, 16.0])
@pytest.mark.parametrize("max_norm", [1e-2, 1e3])
def test_the_norm_has_a_pass_of_its_own(max_norm, scale, order):
    """Clipped as behind one pass, but for the last bits of the norm."""
    model, twin = model_of(), model_of()
    make = lambda made, **more: st.SGD(  # noqa: E731
        made.parameters(), lr=0.1, clip=st.ClipByNorm(max_norm, order), loss_scale=scale, **more
    )
    fused, plain = make(model, fused_backward=True), make(twin)
    for number in range(3):
        norm = fused.backward(loss_of(model, number))
        assert all(param.grad is None for param in model.parameters())
        fused.step()
        plain.backward(loss_of(twin, number))
        plain.step()
        plain.zero_grad()
        torch.testing.assert_close(float(norm), plain.last_step.grad_norm, rtol=1e-6, atol=0.0)
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)
    assert fused.loss_scale == (scale or 1.0)
    assert fused.clip[0].max_norm == max_norm
    if max_norm == 1e3 and scale is None:  # nothing is clipped: the bits are the same
        same(model, twin)


def test_the_norm_is_asked_for():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True, clip=st.ClipByNorm(1.0))
    with pytest.raises(errors.StepcError, match=r"call opt\.backward\(loss\), which makes two"):
        loss_of(model, 0).backward()
    assert not optimizer.state
    optimizer.backward(loss_of(model, 0))
    with pytest.raises(errors.StepcError, match=r"call step\(\) before the next"):
        optimizer.backward(loss_of(model, 1))
    optimizer.step()
    twin, other = copy.deepcopy((model, optimizer))
    for made, own in ((model, optimizer), (twin, other)):
        own.backward(loss_of(made, 1))
        own.step()
    same(model, twin, optimizer, other)
    with pytest.raises(ValueError, match="ClipByNorm stands alone"):
        clip = [st.ClipByValue(1.0), st.ClipByNorm(1.0)]
        st.AdamW(model.parameters(), fused_backward=True, clip=clip)


def test_others_get_their_gradients_once():
    """Of a loss that two optimizers share, and of what is none's."""
    model, twin = model_of(), model_of()
    for made, more in ((model, {"fused_backward": True}), (twin, {})):
        weights = [p for p in made.parameters() if p.dim() == 2]
        biases = [p for p in made.parameters() if p.dim() != 2]
        first = st.SGD(weights, lr=0.1, clip=st.ClipByNorm(1e3), **more)
        others = [st.SGD(biases[:2], lr=0.1), st.SGD(biases[2:], lr=0.1, **more)]
        first.backward(loss_of(made, 0))
        for optimizer in (first, *others):
            optimizer.step()
    same(model, twin)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_norm_that_is_none(number):
    """As with clipping behind the pass, and torch's: a NaN norm makes all gradients NaN."""
    model, twin = model_of(), model_of()
    make = lambda made, **more: st.SGD(  # noqa: E731
        made.parameters(), lr=0.1, clip=st.ClipByNorm(0.1), **more
    )
    for made, optimizer in ((model, make(model, fused_backward=True)), (twin, make(twin))):
        loss = loss_of(made, 0) + made[0].bias.sum() * number
        optimizer.backward(loss)
        optimizer.step()
        assert made[0].bias.isnan().all()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


def test_thawed_parameters_are_in_the_norm():
    found = []
    for more in ({"fused_backward": True}, {}):
        model = model_of()
        model[6].requires_grad_(False)
        optimizer = st.SGD(model.parameters(), lr=0.1, clip=st.ClipByNorm(0.05), **more)
        for number in range(2):
            optimizer.backward(loss_of(model, number))
            optimizer.step()
            optimizer.zero_grad()
            model[6].requires_grad_(True)
        found.append((model, optimizer.last_step))
    (model, ours), (twin, theirs) = found
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)
    for name in ("grad_norm", "clip_coef"):
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=0.0)


def test_gradients_that_nobody_has_clipped_are_not_stepped():
    model = model_of()
    optimizer = st.SGD(model.parameters(), clip=st.ClipByNorm(0.1), fused_backward=True)
    model[0].weight.grad = torch.ones(6, 6)
    with pytest.raises(errors.StepcError, match=r"call opt\.backward\(loss\)"):
        optimizer.step()
    with pytest.raises(errors.StepcError, match="has a gradient before the fused backward pass"):
        optimizer.backward(loss_of(model, 0))
    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 0))
    optimizer.step()


def test_a_graph_that_is_used_again():
    model = model_of()
    optimizer = st.SGD(model.parameters(), clip=st.ClipByNorm(0.1), fused_backward=True)
    inner = torch.ones(4, requires_grad=True)
    loss = loss_of(model, 0) + inner.square().sum()
    optimizer.backward(loss, retain_graph=True)
    optimizer.step()
    inner.square().sum().backward()
    assert inner.grad.equal(torch.full((4,), 4.0))  # once by the loss, and once by itself


def test_a_norm_is_no_reproducible_sum():
    clip = st.ClipByNorm(1.0)
    with pytest.raises(ValueError, match="reproducible=True sums the norm of ClipByNorm within"):
        st.AdamW(model_of().parameters(), fused_backward=True, clip=clip, reproducible=True)


def test_a_parameter_whose_group_is_gone():
    model = model_of()
    groups = [{"params": list(layer.parameters())} for layer in (model[0], model[2])]
    optimizer = st.AdamW(groups, fused_backward=True)
    train(model, optimizer, 1)
    model.zero_grad()
    del optimizer.param_groups[1]
    with pytest.raises(errors.StepcError, match="a parameter of no group has come since"):
        loss_of(model, 1).backward()


def test_backward_without_two_passes():
    model, twin = model_of(), model_of()
    fused = st.AdamW(model.parameters(), loss_scale=4.0, fused_backward=True)
    plain = st.AdamW(twin.parameters(), loss_scale=4.0)
    for made, optimizer in ((model, fused), (twin, plain)):
        assert optimizer.backward(loss_of(made, 0)) is None
        optimizer.step()
    same(model, twin, fused, plain)


@pytest.mark.parametrize(
    "more, words",
    [
        ({"zero": 1, "gradients": "local"}, "does not go with zero=1"),
        ({"static_grads": True}, "static_grads=True keeps them"),
        ({"accumulation_steps": 2}, "accumulation_steps sums several"),
        ({"exclusive_writes": True}, "exclusive_writes=True cannot look at one"),
    ],
)
def test_arguments_that_do_not_go_with_it(more, words):
    with pytest.raises(ValueError, match=words):
        st.AdamW(model_of().parameters(), fused_backward=True, **more)


def test_a_class_that_takes_gradients_of_other_passes():
    with pytest.raises(ValueError, match=r"SophiaG cannot be stepped.*update_hessian\(\)"):
        st.SophiaG(model_of().parameters(), fused_backward=True)


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda p, **k: st.Muon([q for q in p if q.dim() == 2], ns_steps=3, **k), "ns_steps is 3"),
        (lambda p, **k: st.AdamW(p, differentiable=True, **k), "differentiable is set"),
        (lambda p, **k: st.Adam(p, capturable=True, **k), "capturable is set"),
    ],
    ids=["ns_steps", "differentiable", "capturable"],
)
def test_what_torchs_own_step_must_do_is_refused(make, why):
    model = model_of()
    optimizer = make(list(model.parameters()), fused_backward=True)
    with pytest.raises(errors.StepcError, match=f"must run torch's own step .{why}"):
        loss_of(model, 0).backward()
    assert not optimizer.state and all(p.grad is None for p in list(model.parameters())[-2:-1])


def test_a_parameter_of_two_optimizers():
    model = model_of()
    first = st.AdamW(model.parameters(), fused_backward=True)
    second = st.SGD(model.parameters(), fused_backward=True)
    with pytest.raises(errors.StepcError, match="lost its gradient before it was stepped"):
        loss_of(model, 0).backward()
    del second
    first.step()


def test_parameters_that_are_thawed_later():
    """At the first step behind the pass, from then on within it."""
    model, twin = model_of(), model_of()
    for made in (model, twin):
        made[6].requires_grad_(False)  # the last one, whose gradient comes first
    fused, plain = st.Adam(model.parameters(), fused_backward=True), st.Adam(twin.parameters())
    for made, optimizer in ((model, fused), (twin, plain)):
        train(made, optimizer, 1)
        made[6].requires_grad_(True)
        loss_of(made, 1).backward()
        optimizer.step()
        optimizer.zero_grad()
    loss_of(model, 2).backward()
    assert all(param.grad is None for param in model.parameters())
    fused.step()
    loss_of(twin, 2).backward()
    plain.step()
    same(model, twin, fused, plain)


def test_another_dtype_between_two_steps():
    model, twin = model_of(), model_of()
    fused, plain = st.SGD(model.parameters(), fused_backward=True), st.SGD(twin.parameters())
    for made, optimizer in ((model, fused), (twin, plain)):
        train(made, optimizer, 1)
        made.to(torch.bfloat16)
        train(made, optimizer, 1, 1)
    same(model, twin)


def test_nothing_is_saved_between_the_pass_and_the_step():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    loss_of(model, 0).backward()
    for save in (optimizer.state_dict, lambda: copy.deepcopy(optimizer)):
        with pytest.raises(errors.StatusError, match="not told before step"):
            save()
    optimizer.step()
    assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


def test_a_group_that_comes_between_the_pass_and_the_step():
    model = model_of()
    optimizer = st.AdamW(model[0].parameters(), fused_backward=True)
    loss_of(model, 0).backward()
    optimizer.add_param_group({"params": list(model[2].parameters())})
    with pytest.raises(errors.StepcError, match="come since the step began"):
        optimizer.step()
    model.zero_grad()
    train(model, optimizer, 1, 1)


def test_a_sparse_gradient_is_refused_by_name():
    table, last = torch.nn.Embedding(4, 6, sparse=True), torch.nn.Linear(6, 4)
    params = [("table", table.weight), *last.named_parameters()]
    optimizer = st.SGD(params, fused_backward=True)
    before = table.weight.detach().clone()
    with pytest.raises(errors.TensorError, match="'table' has a gradient that has layout"):
        last(table(torch.tensor([1, 2]))).sum().backward()
    assert bits_equal(table.weight, before)
    optimizer.step()  # of what came before


def test_an_interrupt_leaves_no_half_step(monkeypatch):
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    train(model, optimizer, 1)
    saved = copy.deepcopy(optimizer.state_dict())

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(optimizer._binding), "step_some", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loss_of(model, 1).backward()
    with pytest.raises(errors.StatusError, match="KeyboardInterrupt came in a step of a backward"):
        loss_of(model, 1).backward()
    with pytest.raises(errors.StatusError, match="load a state to go on"):
        optimizer.step()
    optimizer.load_state_dict(saved)
    model.zero_grad()
    train(model, optimizer, 1, 1)
    assert {int(s["step"]) for s in optimizer.state.values()} == {2}


def test_a_write_between_the_pass_and_the_step_is_no_step_of_ours():
    """The lower bits of a parameter that somebody has written are zero, as behind the pass."""
    model, twin = model_of(torch.bfloat16), model_of(torch.bfloat16)
    keywords = {"lr": 1e-3, "master": "remainder"}
    fused = st.AdamW(model.parameters(), fused_backward=True, **keywords)
    plain = st.AdamW(twin.parameters(), **keywords)
    for made, optimizer in ((model, fused), (twin, plain)):
        for number in range(3):
            loss_of(made, number).backward()
            if optimizer is fused:
                with torch.no_grad():
                    made[0].weight.clamp_(-0.2, 0.2)
            optimizer.step()
            if optimizer is plain:
                with torch.no_grad():
                    made[0].weight.clamp_(-0.2, 0.2)
            made.zero_grad()
    same(model, twin, fused, plain)


def test_a_scaler_is_told_what_to_use():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(loss_of(model, 0)).backward()
    with pytest.raises((errors.StepcError, AssertionError), match="unscale|inf checks"):
        scaler.step(optimizer)


def test_groups_that_come_later():
    model, twin = model_of(), model_of()
    pair = []
    for made, more in ((model, {"fused_backward": True}), (twin, {})):
        optimizer = st.AdamW(made[0].parameters(), **more)
        train(made, optimizer, 1)
        made.zero_grad()
        optimizer.add_param_group({"params": list(made[2].parameters()), "lr": 1e-3})
        train(made, optimizer, 2, 1)
        pair.append(optimizer)
    for a, b in zip(model[2].parameters(), twin[2].parameters(), strict=True):
        assert bits_equal(a, b)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_step_in_their_own_pass(way):
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    train(model, optimizer, 1)
    twin, other = way((model, optimizer))
    train(model, optimizer, 2, 1)
    train(twin, other, 2, 1)
    assert all(param.grad is None for param in twin.parameters())
    same(model, twin, optimizer, other)


def test_states_are_loaded_between_the_pass_and_the_step():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    train(model, optimizer, 1)
    saved = copy.deepcopy(optimizer.state_dict())
    loss_of(model, 1).backward()
    optimizer.load_state_dict(saved)
    optimizer.step()  # nothing is left of it
    assert {int(s["step"]) for s in optimizer.state.values()} == {1}
    train(model, optimizer, 1, 1)
    assert {int(s["step"]) for s in optimizer.state.values()} == {2}


def test_the_optimizer_goes_with_its_hooks():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    train(model, optimizer, 1)
    known = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert known() is None
    finally:
        gc.enable()
    before = [p.detach().clone() for p in model.parameters()]
    loss_of(model, 0).backward()
    assert all(param.grad is not None for param in model.parameters())
    assert all(bits_equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
