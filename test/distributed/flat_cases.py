# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``flatten_parameters=True`` on four ranks: the bits are those without, the parameters lie in
the buffers that are gathered, and what must not be moved there is refused."""

import copy
import io
import itertools

import stepc.torch as st
import torch
from on_ranks import case, main, same_bits
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from zero_values import compare, mean, parameters, step_whole, step_zero, values
from zoo import ALL

FLAT = {"flatten_parameters": True}


def lies_flat(optimizer):
    """The parameters of a line lie side by side, in memory that is their own."""
    found = set()
    for line in optimizer._zero.flat._lines.values():
        own = [part.param for part in line.parts if part.param.numel()]
        for one, other in itertools.pairwise(own):
            assert one.data_ptr() + one.nbytes == other.data_ptr()
        found |= set(map(id, own))
    for group in optimizer.param_groups:
        for param in group["params"]:
            assert id(param) in found or not param.numel()
            assert param.untyped_storage().nbytes() == param.nbytes
    return True


def same(plain, sharded, what):
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"{what}, parameter {i}")


def pair(name="AdamW", dtype=torch.float32, **more):
    """The optimizer of one process, and one whose parameters are flat."""
    made, grads = values(dtype)
    plain, sharded = parameters(made), parameters(made)
    more = {"zero": 1, "gradients": "reduced", **FLAT, **more}
    return ALL[name](plain), ALL[name](sharded, **more), plain, sharded, grads


@case
def the_bits_are_those_without():
    """Of definitions that are stepped by lines, and of others; of whole tensors and their
    states, with buckets of one parameter, of some and of all."""
    for name, mode, size, dtype in [
        ("AdamW", "local", 3000, torch.float32),
        ("AdamW", "reduced", 1, torch.bfloat16),
        ("CAME", "reduced", 3000, torch.float32),
        ("AdamW, clipped", "local", 10**9, torch.float32),
    ]:
        _, optimizer, _, _ = compare(ALL[name], mode, dtype, bucket_bytes=size, **FLAT)
        assert lies_flat(optimizer)
    compare(ALL["AdamW"], "local", torch.float32, bucket_bytes=3000, overlap=False, **FLAT)
    compare(ALL["AdamW"], "reduced", torch.float32, gather_bucket_bytes=640, **FLAT)


@case
def of_zero2():
    made, grads = values()
    for name in ("AdamW", "CAME"):
        plain, sharded = parameters(made), parameters(made)
        reference = ALL[name](plain)
        optimizer = ALL[name](sharded, zero=2, gradients="local", bucket_bytes=3000, **FLAT)
        for k, own in enumerate(grads):
            optimizer.zero_grad()
            used = zip(sharded, own[torch.distributed.get_rank()], strict=True)
            sum((p * g).sum() for p, g in used if p.numel()).backward()
            if k == 2:  # between the pass and the step, and behind the step
                sharded[0].data = sharded[0].data.clone()
            for i, param in enumerate(plain):
                param.grad = mean(own, i, param.dtype) if param.numel() else None
            reference.step()
            optimizer.step()
            same(plain, sharded, f"{name}, step {k}")
            assert lies_flat(optimizer)


@case
def without_it_zero2_follows_parameters_too():
    """That were pointed elsewhere after the buckets were made."""
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference = ALL["AdamW"](plain)
    optimizer = ALL["AdamW"](sharded, zero=2, gradients="local", bucket_bytes=3000)
    for own in grads[:3]:
        optimizer.zero_grad()
        step_whole(reference, plain, own)
        step_zero(optimizer, sharded, own, "local")
        for param in sharded:
            param.data = param.data.clone()
    same(plain, sharded, "moved")


@case
def types_in_one_group_have_buffers_of_their_own():
    made, grads = values()
    types = [torch.float32, torch.bfloat16, torch.float64, torch.float16]
    mixed = [value.to(types[i % 4]) for i, value in enumerate(made)]
    for mode in ("reduced", "local"):
        plain, sharded = parameters(mixed), parameters(mixed)
        reference = ALL["AdamW"](plain)
        optimizer = ALL["AdamW"](sharded, zero=1, gradients=mode, **FLAT)
        for own in grads:
            typed = [[g.to(p.dtype) for g, p in zip(o, mixed, strict=True)] for o in own]
            step_whole(reference, plain, typed)
            step_zero(optimizer, sharded, typed, mode)
        same(plain, sharded, mode)
        assert lies_flat(optimizer) and len(optimizer._zero.flat._lines) == 4


@case
def what_is_behind_bf16():
    """A remainder belongs to the bits of its parameter: it stays over flattening and what points
    the parameter back, and not over a write by others."""
    for form in ("remainder", "f32"):
        made, grads = values(torch.bfloat16)
        plain, sharded = parameters(made), parameters(made)
        reference = st.AdamW(plain, lr=1e-2, master=form)
        optimizer = st.AdamW(
            sharded, lr=1e-2, master=form, zero=1, gradients="reduced", bucket_bytes=3000, **FLAT
        )
        for k, own in enumerate(grads):
            step_whole(reference, plain, own)
            step_zero(optimizer, sharded, own, "reduced")
            same(plain, sharded, f"{form}, step {k}")
            if k == 1 and form == "remainder":
                with torch.no_grad():
                    for params in (plain, sharded):
                        params[4].mul_(0.5)
        saved = optimizer.full_state_dict()["state"]
        for i, param in enumerate(plain):
            for name, state in reference.state[param].items():
                same_bits(saved[i][name], state, f"{name} of {i}")


class Net(torch.nn.Module):
    """Two layers with one weight, and one of their own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.last = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


def trained(net, optimizer, model=None, steps=3, wrapped=None):
    for step in range(steps):
        x = torch.randint(-4, 5, (8, 6), generator=torch.Generator().manual_seed(step)) / 4.0
        optimizer.zero_grad()
        (model or net)(x).square().mean().backward()
        optimizer.step()


@case
def under_ddp_made_before_or_after_and_tied():
    """All ranks have one batch, so that DDP's mean is its gradient."""
    for stage, first in ((1, True), (1, False), (2, None)):
        torch.manual_seed(1)
        net = Net()
        alone = copy.deepcopy(net)
        trained(alone, st.AdamW(alone.parameters(), lr=1e-2))
        mode = "reduced" if stage == 1 else "local"
        settings = {"lr": 1e-2, "zero": stage, "gradients": mode, **FLAT}
        model = DistributedDataParallel(net) if first else net
        optimizer = st.AdamW(net.parameters(), **settings)
        if first is False:
            model = DistributedDataParallel(net)
        trained(net, optimizer, model)
        assert net.second.weight is net.first.weight
        same(list(alone.parameters()), list(net.parameters()), f"zero={stage}, DDP first: {first}")
        assert lies_flat(optimizer)


@case
def a_model_that_is_loaded_copied_saved_or_moved():
    torch.manual_seed(1)
    net = Net()
    alone = copy.deepcopy(net)
    theirs = st.AdamW(alone.parameters(), lr=1e-2)
    ours = st.AdamW(net.parameters(), lr=1e-2, zero=1, gradients="reduced", **FLAT)
    trained(alone, theirs)
    trained(net, ours)
    other = copy.deepcopy(net)
    assert all(p.untyped_storage().nbytes() == p.nbytes for p in other.parameters())
    file = io.BytesIO()
    torch.save(net.last.weight, file)
    assert file.tell() < 4096, file.tell()  # not the whole buffer
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    trained(net, ours)
    trained(alone, theirs)
    # Loading copies in place; what it was before the last steps is there again.
    for model in (net, alone):
        model.load_state_dict(torch.load(io.BytesIO(file.getvalue())))
    same(list(other.parameters()), list(net.parameters()), "loaded")
    trained(net, ours)
    trained(alone, theirs)
    same(list(alone.parameters()), list(net.parameters()), "after loading")
    for change in (lambda p: p.clone(), lambda p: p.double().float()):
        for param in net.parameters():
            param.data = change(param.data)
        assert not any(p.data_ptr() % 64 for p in net.parameters())
        trained(net, ours)
        trained(alone, theirs)
        same(list(alone.parameters()), list(net.parameters()), "after it was moved")
        assert lies_flat(ours)
    # A copy has nothing to do with the buffers.
    again = st.AdamW(other.parameters(), zero=1, gradients="reduced", **FLAT)
    assert lies_flat(again) and lies_flat(ours)


@case
def a_model_of_another_type_later():
    """Other lines are made of it, as of any other model."""
    made, grads = values()
    reference, optimizer, plain, sharded, grads = pair()
    step_whole(reference, plain, grads[0])
    step_zero(optimizer, sharded, grads[0], "reduced")
    for params in (plain, sharded):
        for param in params:
            param.grad = None
            param.data = param.data.bfloat16()
    for own in grads[1:]:
        step_whole(reference, plain, own)
        step_zero(optimizer, sharded, own, "reduced")
    same(plain, sharded, "bfloat16")
    assert lies_flat(optimizer)


@case
def another_optimizer_over_the_same_model():
    """While the first is there, and when it is gone."""
    reference, first, plain, sharded, grads = pair()
    step_whole(reference, plain, grads[0])
    step_zero(first, sharded, grads[0], "reduced")
    second = ALL["AdamW"](sharded, zero=1, gradients="reduced", bucket_bytes=3000, **FLAT)
    second.load_state_dict(ALL["AdamW"](plain).state_dict())
    second.load_state_dict(first.full_state_dict())
    step_whole(reference, plain, grads[1])
    step_zero(second, sharded, grads[1], "reduced")
    same(plain, sharded, "the second")
    first.load_state_dict(second.full_state_dict())
    step_whole(reference, plain, grads[2])
    step_zero(first, sharded, grads[2], "reduced")
    same(plain, sharded, "the first again")
    full = first.full_state_dict()
    del first, second
    third = ALL["AdamW"](sharded, zero=1, gradients="reduced", **FLAT)
    third.load_state_dict(full)
    step_whole(reference, plain, grads[3])
    step_zero(third, sharded, grads[3], "reduced")
    same(plain, sharded, "the third")


@case
def counters_of_versions_move():
    """A graph that has saved a parameter which was then stepped is refused by autograd."""
    _, optimizer, _, sharded, grads = pair()
    step_zero(optimizer, sharded, grads[0], "reduced")
    loss = (sharded[4] ** 2).sum()
    before = sharded[4]._version
    step_zero(optimizer, sharded, grads[1], "reduced")
    assert sharded[4]._version > before
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("autograd did not see the step")


@case
def plain_parts_of_stages():
    """Of ``layouts``, beside what is whole; the pieces are of rows."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    at = mesh.get_local_rank("tp")
    made, grads = values()
    rows = made[0].unflatten(0, (3, 11)).flatten(1)[:2].clone()  # two rows for each part
    whole = [torch.nn.Parameter(torch.cat([rows, rows + 1])), torch.nn.Parameter(made[1].clone())]
    own = [torch.nn.Parameter((rows + at).clone()), torch.nn.Parameter(made[1].clone())]
    layouts = [("cut", st.Layout(mesh["tp"], [Shard(0)])), (".*", None)]
    named = list(zip(("cut", "whole"), own, strict=True))
    reference = st.colossal.Lamb(whole, lr=1e-2)
    optimizer = st.colossal.Lamb(
        named, lr=1e-2, zero=1, gradients="local", process_group=mesh["dp"].get_group(),
        layouts=layouts, **FLAT,
    )  # fmt: skip
    for step in range(3):
        grad = torch.arange(whole[0].numel()).view(whole[0].shape) % 7 / 8.0 + step
        whole[0].grad, own[0].grad = grad, grad.chunk(2)[at].clone()
        whole[1].grad = own[1].grad = torch.full_like(made[1], 0.5)
        reference.step()
        optimizer.step()
        same_bits(own[0], whole[0].chunk(2)[at], f"step {step}, cut")
        same_bits(own[1], whole[1], f"step {step}, whole")
    assert lies_flat(optimizer)


@case
def a_group_that_is_added():
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference = ALL["AdamW"](plain[:4])
    optimizer = ALL["AdamW"](sharded[:4], zero=1, gradients="reduced", **FLAT)
    step_whole(reference, plain[:4], grads[0])
    step_zero(optimizer, sharded[:4], grads[0], "reduced")
    for each, params in ((reference, plain), (optimizer, sharded)):
        each.add_param_group({"params": params[4:]})
    assert lies_flat(optimizer)
    step_whole(reference, plain, grads[1])
    step_zero(optimizer, sharded, grads[1], "reduced")
    same(plain, sharded, "added")
    # One that must not be moved is not added.
    shared = torch.zeros(8)
    halves = [torch.nn.Parameter(shared[:4]), torch.nn.Parameter(shared[4:])]
    refused("parameter 0 of group 2 has 16 of the 32 bytes of its storage",
            lambda: optimizer.add_param_group({"params": halves}))  # fmt: skip
    assert len(optimizer.param_groups) == 2
    step_whole(reference, plain, grads[2])
    step_zero(optimizer, sharded, grads[2], "reduced")
    same(plain, sharded, "after a refusal")


def refused(words, function):
    try:
        function()
    except (errors.StepcError, ValueError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"it was not refused: {words}")


@case
def what_must_not_be_moved_is_refused():
    """By name, at the constructor, or at the step where it has become so; nothing has moved."""
    mesh = init_device_mesh("cpu", (4,))
    good = torch.nn.Parameter(torch.ones(3, 5))
    bases = torch.zeros(6, 4), torch.zeros(8)
    one, two = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(4))
    two.data = one.data
    spread = torch.nn.Parameter(distribute_tensor(torch.ones(4, 2), mesh, [Replicate()]))
    shared = torch.nn.Parameter(torch.zeros(4).share_memory_())
    kinds = {
        "parameter 'w1' has strides (1, 4) for shape (4, 6); flatten_parameters=True": [
            good, torch.nn.Parameter(bases[0].t())
        ],
        "parameter 'w1' has 16 of the 32 bytes of its storage, which others may have too": [
            good, torch.nn.Parameter(bases[1][:4])
        ],
        "parameter 'w1' is in memory that processes share": [good, shared],
        "parameter 'w1' is a DTensor": [good, spread],
        "parameter 'w0' and parameter 'w1' have memory in common": [one, two],
    }  # fmt: skip
    for words, params in kinds.items():
        places = [p.data_ptr() for p in params if not hasattr(p, "to_local")]
        named = [(f"w{i}", p) for i, p in enumerate(params)]
        for stage in (1, 2):
            refused(words, lambda named=named, stage=stage: st.AdamW(
                named, zero=stage, gradients="local", **FLAT))  # fmt: skip
        assert places == [p.data_ptr() for p in params if not hasattr(p, "to_local")], words
    for stage in (1, 2):
        params = parameters([torch.ones(4, 6), torch.ones(5)])
        optimizer = st.AdamW(params, zero=stage, gradients="local", **FLAT)
        for param in params:
            param.grad = torch.ones_like(param)
        params[0].data = torch.ones(6, 4).t()
        refused("parameter 0 of group 0 has strides (1, 4)", optimizer.step)
        refused("parameter 0 of group 0 has strides (1, 4)", optimizer.state_dict)
        params[0].data = torch.ones(4, 6)
        optimizer.step()
        assert lies_flat(optimizer)


@case
def arguments_that_are_refused():
    param = [torch.nn.Parameter(torch.ones(2))]
    refused(
        "flatten_parameters is of no use without zero=Zero(...)", lambda: st.AdamW(param, **FLAT)
    )
    refused("with flatten_parameters=True a bucket is gathered where its parameters lie",
            lambda: st.AdamW(param, zero=1, gradients="local", reduce_bucket_bytes=8,
                             gather_bucket_bytes=16, **FLAT))  # fmt: skip
    optimizer = st.AdamW(param, zero=1, gradients="local", **FLAT)
    refused("an optimizer with zero cannot be copied or pickled", lambda: copy.deepcopy(optimizer))


if __name__ == "__main__":
    main()
