# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States, averages and random bits of ``zero=1``: of the own range, saved, and loaded elsewhere."""

import copy

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from zero_values import SHAPES, compare, parameters, step_all, step_whole, step_zero, values
from zoo import ALL


@case
def states_are_those_of_the_own_range():
    reference, optimizer, plain, sharded = compare(ALL["CAME"], "reduced", torch.float32)
    elements = torch.zeros(len(SHAPES), dtype=torch.int64)
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        moment = optimizer.state[b]["exp_avg"]
        elements[i] = moment.numel()
        for name, state in optimizer.state[b].items():
            if name.endswith(("row", "col")):  # whole on every rank
                same_bits(state, reference.state[a][name], f"{name} of {i}")
    total = elements.clone()
    dist.all_reduce(total)
    assert total.tolist() == [p.numel() for p in plain]
    # Nobody has more than a fourth, but for rounding to whole vectors.
    assert elements.sum() <= -(-sum(p.numel() for p in plain) // 4) + 16


@case
def what_is_behind_bf16_is_of_the_own_range():
    for form, name in (("f32", "master"), ("remainder", "remainder")):

        def make(params, form=form, **keywords):
            return st.AdamW(params, lr=1e-2, master=form, **keywords)

        reference, optimizer, plain, sharded = compare(make, "reduced", torch.bfloat16)
        optimizer.load_state_dict(optimizer.state_dict())
        _, grads = values(torch.bfloat16)
        step_whole(reference, plain, grads[0])
        step_zero(optimizer, sharded, grads[0], "reduced")
        saved = optimizer.full_state_dict()["state"]
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"{form}, parameter {i}")
            same_bits(saved[i][name], reference.state[a][name], f"{name} of {i}")


@case
def random_bits_are_those_of_the_whole():
    """Stochastic rounding of ranges of elements, in both spaces and in states too."""
    for name in ("AdamW", "SGD", "hf.Adafactor", "CAME"):

        def rounded(params, name=name, **keywords):
            keywords |= {"state_dtype": torch.bfloat16, "seed": 7}
            return ALL[name](params, rounding="stochastic", **keywords)

        compare(rounded, "reduced", torch.bfloat16)


@case
def averages_are_of_the_own_range():
    """Also behind masters. Whole ones are in the full state; what would show parts of them
    as if they were whole is refused by name."""
    forms = [{"average": st.EMA(0.9), "master": "remainder"}, {"average": st.SWA()},
             {"param_copy": torch.bfloat16}]  # fmt: skip
    for form in forms:

        def make(params, form=form, **keywords):
            return st.AdamW(params, lr=1e-2, **form, **keywords)

        reference, optimizer, plain, sharded = compare(make, "reduced", torch.bfloat16)
        saved = optimizer.full_state_dict()["state"]
        for i, param in enumerate(plain):
            for name, state in reference.state[param].items():
                same_bits(saved[i][name], state, f"{name} of {i}")
        refused = optimizer.parameter_copies
        if "average" in form:
            refused = optimizer.averaged_parameters
            again = make(parameters([p.detach() for p in plain]))
            again.load_state_dict(optimizer.full_state_dict())
            pairs = zip(again.averaged_parameters(), reference.averaged_parameters(), strict=True)
            for i, (ours, theirs) in enumerate(pairs):
                same_bits(ours, theirs, f"average of {i}, loaded")
        try:
            refused()
        except ValueError as error:
            assert "each rank has its parts of the" in str(error), error
        else:
            raise AssertionError("it was not refused")


@case
def scalars_among_states_are_whole():
    """Counts, and what has one element, beside a parameter without dims: bound anew they
    are what they were on every rank, also where it has none of the parameter."""
    for name in ("AdamW", "NAdam", "ASGD"):
        reference, optimizer, plain, sharded = compare(ALL[name], "reduced", torch.float32)
        optimizer.load_state_dict(optimizer.state_dict())
        _, grads = values()
        step_whole(reference, plain, grads[0])
        step_zero(optimizer, sharded, grads[0], "reduced")
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"{name}, parameter {i}")
            for key in {"step", *optimizer._scalar_states}:
                same_bits(optimizer.state[b][key], reference.state[a][key], f"{name} {key}")


@case
def counts_of_groups_and_in_the_originals_form():
    """One count for a group, by a round of all ranks; saved as ColossalAI and DeepSpeed do."""
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference = st.colossal.FusedAdam(plain)
    optimizer = st.colossal.FusedAdam(sharded, zero=1, gradients="reduced")
    for k, own in enumerate(grads):
        step_whole(reference, plain, own, {1, 4} if k < 2 else ())
        step_zero(optimizer, sharded, own, "reduced", {1, 4} if k < 2 else ())
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")
    assert optimizer.full_state_dict()["param_groups"][0]["step"] == len(grads)
    each = st.deepspeed.FusedAdam(parameters(made), zero=1, gradients="reduced")
    step_zero(each, each.param_groups[0]["params"], grads[0], "reduced")
    packed = each.full_state_dict()["state"]
    assert [own["step"] for own in packed.values()] == [1] * len(SHAPES)
    assert {type(own["step"]) for own in packed.values()} == {int}


@case
def a_full_state_loads_into_torch_one_process_and_other_worlds():
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = halves[dist.get_rank() // 2]
    for name in ("AdamW", "CAME", "hf.Adafactor"):
        made, grads = values()
        params = parameters(made)
        optimizer = ALL[name](params, zero=1, gradients="reduced")
        step_all(optimizer, params, grads[:2])
        full = optimizer.full_state_dict()
        copies = {
            "one process": {},
            "another world": {"zero": 1, "gradients": "reduced", "process_group": group},
            "the same": {"zero": 1, "gradients": "local"},
        }
        others = {}
        for how, arguments in copies.items():
            own = parameters(params)
            other = ALL[name](own, **arguments)
            other.load_state_dict(full)
            others[how] = (other, own)
        step_all(optimizer, params, grads[2:])
        for how, (other, own) in others.items():
            step_all(other, own, grads[2:])
            for i, (a, b) in enumerate(zip(params, own, strict=True)):
                same_bits(b, a, f"{name} in {how}, parameter {i}")
        if name == "AdamW":
            torchs = torch.optim.AdamW(parameters(params), lr=1e-2)
            torchs.load_state_dict(full)
            shapes = {tuple(s["exp_avg"].shape) for s in torchs.state.values()}
            assert shapes == {tuple(p.shape) for p in params}


@case
def a_state_of_one_process_loads_here():
    for name in ("AdamW", "CAME"):
        made, grads = values()
        plain = parameters(made)
        reference = ALL[name](plain)
        for own in grads[:2]:
            step_whole(reference, plain, own)
        sharded = parameters(plain)
        optimizer = ALL[name](sharded, zero=1, gradients="reduced")
        optimizer.load_state_dict(reference.state_dict())
        for own in grads[2:]:
            step_whole(reference, plain, own)
        step_all(optimizer, sharded, grads[2:])
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"{name}, parameter {i}")


@case
def states_that_a_checkpoint_lacks_leave_others_alone():
    """Momentum goes on where an average is new, and is begun where only the average was there."""
    for lacks in ("average", "momentum_buffer"):
        made, grads = values()
        results = []
        for more in ({}, {"zero": 1, "gradients": "reduced"}):

            def make(params, more=more):
                settings = {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}
                return st.SGD(params, average=st.EMA(0.5), **settings, **more)

            first = make(params := parameters(made))
            step_all(first, params, grads[:1])
            saved = first.state_dict()
            for state in saved["state"].values():
                del state["ema" if lacks == "average" else lacks]
            again = make(params := parameters(params))
            again.load_state_dict(saved)
            step_all(again, params, grads[1:3])
            results.append(params)
        for i, (a, b) in enumerate(zip(*results, strict=True)):
            same_bits(b, a, f"without {lacks}, parameter {i}")


@case
def a_first_gradient_after_a_load_comes_later():
    """And one of states that the constructor makes: what steps make then is seen, and saved."""
    made, grads = values()
    for name in ("AdamW", "Adagrad"):
        plain, sharded = parameters(made), parameters(made)
        reference, optimizer = ALL[name](plain), ALL[name](sharded, zero=1, gradients="reduced")
        if name == "AdamW":
            step_whole(reference, plain, grads[0])
            step_zero(optimizer, sharded, grads[0], "reduced")
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for k in (1, 2, 3):
            absent = {0, 4} if k == 1 else set()
            step_whole(reference, plain, grads[k], absent)
            step_zero(optimizer, sharded, grads[k], "reduced", absent)
        saved, expected = optimizer.full_state_dict()["state"], reference.state_dict()["state"]
        for i, own in expected.items():
            same_bits(sharded[i], plain[i], f"{name}, parameter {i}")
            for key, state in own.items():
                same_bits(saved[i][key], state, f"{name}, {key} of {i}")


@case
def the_part_of_another_rank_is_refused():
    made, grads = values()
    params = parameters(made)
    optimizer = ALL["AdamW"](params, zero=1, gradients="reduced")
    step_all(optimizer, params, grads[:1])
    saved = [optimizer.state_dict()]
    again = ALL["AdamW"](parameters(params), zero=1, gradients="reduced")
    again.load_state_dict(saved[0])
    dist.broadcast_object_list(saved, src=1)
    if dist.get_rank() != 1:
        expected = "this optimizer has elements ["
        for other in (again, ALL["AdamW"](parameters(params))):
            try:
                other.load_state_dict(saved[0])
            except ValueError as error:
                assert expected in str(error) or "has whole states" in str(error), error
            else:
                raise AssertionError("it was not refused")


if __name__ == "__main__":
    main()
