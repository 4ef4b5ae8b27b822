# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``add_param_group`` with ``zero=1`` and ``2`` on four ranks, before steps and after some: the
states of the others keep their bits, and all go on as in one process."""

import itertools

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from zero_values import mean, parameters, values
from zoo import ALL

STARTS = (0, 3, 6, 8)  # of the groups; the last is added last


def same(plain, sharded, what):
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"{what}, parameter {i}")


def groups(params):
    return [
        {"params": params[first:last], "lr": 1e-2 / (1 + first)}
        for first, last in itertools.pairwise(STARTS)
    ]


class Pair:
    """The optimizer of one process, and one over ranks, of the same parameters."""

    def __init__(self, name, stage, mode, first=1, **more):
        self.name, self.stage, self.mode, self.more = name, stage, mode, more
        made, self.grads = values(steps=12)
        self.plain, self.sharded = parameters(made), parameters(made)
        self.alone = ALL[name](groups(self.plain)[:first])
        self.ours = self.over_ranks(groups(self.sharded)[:first])

    def over_ranks(self, params):
        more = {"bucket_bytes": 3000 if self.stage == 2 else 10**6, **self.more}
        return ALL[self.name](params, zero=self.stage, gradients=self.mode, **more)

    def add(self, number):
        self.alone.add_param_group(groups(self.plain)[number])
        self.ours.add_param_group(groups(self.sharded)[number])

    def backward(self, own, count):
        used = list(zip(self.sharded, own[dist.get_rank()], strict=True))[:count]
        sum((param * grad).sum() for param, grad in used if param.numel()).backward()

    def step(self, what, ours=None):
        ours, own = ours or self.ours, self.grads.pop()
        count = sum(len(group["params"]) for group in ours.param_groups)
        ours.zero_grad()
        for i, param in enumerate(self.plain[:count]):
            param.grad = mean(own, i, param.dtype) if param.numel() else None
        if self.stage == 2:
            self.backward(own, count)
        else:
            for i, param in enumerate(self.sharded[:count]):
                grad = (
                    own[dist.get_rank()][i] if self.mode == "local" else mean(own, i, param.dtype)
                )
                param.grad = grad.clone() if param.numel() else None
        self.alone.step()
        ours.step()
        same(self.plain, self.sharded, f"{self.name}, zero={self.stage}, {what}")


KINDS = [
    ("AdamW", 1, "local"),
    ("AdamW", 2, "local"),
    ("CAME", 1, "reduced"),
    ("CAME", 2, "local"),
    ("AdamW, clipped", 1, "local"),
    ("AdamW, clipped", 2, "local"),
]


def own_states(optimizer):
    return {
        (number, place, name): (state, state.clone())
        for number, group in enumerate(optimizer.param_groups)
        for place, param in enumerate(group["params"])
        for name, state in optimizer.state.get(param, {}).items()
    }


@case
def after_some_steps():
    """A rank's parts of the others are the same tensors as before, of the same bits."""
    for kind in KINDS:
        pair = Pair(*kind)
        pair.step("first")
        pair.step("second")
        before = own_states(pair.ours)
        assert before
        pair.add(1)
        after = own_states(pair.ours)
        for key, (tensor, bits) in before.items():
            assert after[key][0] is tensor, key
            same_bits(tensor, bits, str(key))
        pair.step("with one more")
        after = own_states(pair.ours)
        assert all(after[key][0] is tensor for key, (tensor, _) in before.items())
        assert {number for number, _, _ in after} == {0, 1}
        pair.add(2)
        for step in range(3):
            pair.step(f"with two more, {step}")
        full, whole = pair.ours.full_state_dict()["state"], pair.alone.state_dict()["state"]
        for number, states in whole.items():
            for name, state in states.items():
                same_bits(full[number][name], torch.as_tensor(state), f"{name} of {number}")


@case
def before_the_first_step():
    for kind in KINDS:
        pair = Pair(*kind, first=2)
        pair.add(2)
        for step in range(2):
            pair.step(f"step {step}")


@case
def with_other_settings():
    for kind, more in [
        (("AdamW", 1, "local"), {"reduce_bucket_bytes": 200, "gather_bucket_bytes": 10**6}),
        (("AdamW", 2, "local"), {"bucket_bytes": 10**9, "overlap": False}),
        (("CAME", 2, "local"), {"flatten_parameters": True}),
    ]:
        pair = Pair(*kind, **more)
        for number in (1, 2):
            pair.step(f"{more}, before {number}")
            pair.add(number)
        pair.step(f"{more}, after")


@case
def gradients_that_wait_for_the_step_stay():
    """Of passes with zero=2, in the buckets that there were."""
    pair = Pair("AdamW", 2, "local")
    pair.step("before")
    passes = [pair.grads.pop() for _ in range(2)]
    pair.ours.zero_grad()
    pair.backward(passes[0], STARTS[1])
    pair.add(1)
    pair.backward(passes[1], STARTS[2])
    for i, param in enumerate(pair.plain[: STARTS[2]]):
        own = passes if i < STARTS[1] else passes[1:]
        param.grad = sum(mean(of_pass, i, param.dtype) for of_pass in own)
    pair.alone.step()
    pair.ours.step()
    same(pair.plain, pair.sharded, "two passes")


@case
def states_are_saved_before_and_after():
    for kind in KINDS[:4]:
        pair = Pair(*kind)
        pair.step("first")
        early = pair.ours.state_dict(), pair.ours.full_state_dict()
        pair.add(1)
        for saved in early:  # of one group: torch's own words
            try:
                pair.ours.load_state_dict(saved)
            except ValueError as error:
                assert "different number of parameter groups" in str(error), error
            else:
                raise AssertionError("it was not refused")
        pair.step("second")
        local, full = pair.ours.state_dict(), pair.ours.full_state_dict()
        # The same program once more: groups are added before the state is loaded.
        again = pair.over_ranks(groups(pair.sharded)[:1])
        again.load_state_dict(early[0])
        again.add_param_group(groups(pair.sharded)[1])
        again.load_state_dict(local)
        # One that is made of all groups cuts them otherwise, and takes whole states.
        at_once = pair.over_ranks(groups(pair.sharded)[:2])
        at_once.load_state_dict(full)
        whole = ALL[pair.name](groups(parameters(pair.sharded))[:2])
        whole.load_state_dict(full)
        saved = whole.state_dict()["state"]
        for number, states in pair.alone.state_dict()["state"].items():
            for name, state in states.items():
                same_bits(saved[number][name], torch.as_tensor(state), f"{name} of {number}")
        for ours in (again, at_once):
            if pair.stage == 2:
                other = at_once if ours is again else again
                for each in (pair.ours, other):  # one of them takes the gradients
                    each._reducer._hooks.remove()
                pair.ours = ours
                pair.step("loaded")
                break
            pair.step("loaded", ours)
            full = ours.full_state_dict()
            at_once.load_state_dict(full)


@case
def of_plain_parts():
    """With ``layouts``, which the new group's names are matched by too."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    at, group = mesh.get_local_rank("tp"), mesh["dp"].get_group()
    made = [torch.randn(8, 6), torch.randn(6, 4), torch.randn(5)]
    layouts = [("cut.*", st.Layout(mesh["tp"], [Shard(0)])), (".*", None)]
    cut = [value.chunk(2)[at].clone() if i < 2 else value for i, value in enumerate(made)]
    plain, own = parameters(made), parameters(cut)
    names = ("cut0", "cut1", "whole")
    for stage in (1, 2):
        alone = ALL["CAME"]([{"params": list(zip(names, plain, strict=True))[:1]}])
        ours = ALL["CAME"](
            [{"params": list(zip(names, own, strict=True))[:1]}],
            zero=stage, gradients="local", process_group=group, layouts=layouts,
        )  # fmt: skip
        for step in range(3):
            if step == 1:
                alone.add_param_group({"params": list(zip(names, plain, strict=True))[1:]})
                ours.add_param_group({"params": list(zip(names, own, strict=True))[1:]})
            ours.zero_grad()
            for i in range(3 if step else 1):
                grad = torch.randint(-8, 9, made[i].shape) / 16.0
                plain[i].grad = grad
                own[i].grad = grad.chunk(2)[at].clone() if i < 2 else grad.clone()
            alone.step()
            ours.step()
            for i, (a, b) in enumerate(zip(plain, own, strict=True)):
                same_bits(b, a.chunk(2)[at] if i < 2 else a, f"zero={stage}, step {step}, {i}")


@case
def a_group_that_is_another_on_one_rank_is_named():
    pair = Pair("AdamW", 1, "local")
    pair.step("before")
    odd = dist.get_rank() == 2
    pair.ours.add_param_group({"params": pair.sharded[4 : 7 if odd else 6]})
    for param in pair.sharded:
        param.grad = torch.ones_like(param)
    words = "exchanges other things than rank 2" if odd else "rank 2 exchanges other things than"
    try:
        pair.ours.step()
    except errors.CommunicationError as error:
        assert words in str(error), error
    else:
        raise AssertionError("it was not refused")


if __name__ == "__main__":
    main()
