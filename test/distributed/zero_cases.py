# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zero=1 on four ranks against the steps of one process, bit for bit."""

import contextlib

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from stepc import errors
from stepc.torch._binding import Binding
from zero_values import SHAPES, parameters, values
from zoo import ALL


def mean(grads, i, dtype):
    return (sum(own[i].double() for own in grads) / len(grads)).to(dtype)


def step_whole(optimizer, params, grads, absent=()):
    for i, param in enumerate(params):
        param.grad = None if i in absent else mean(grads, i, param.dtype)
    optimizer.step()


def step_zero(optimizer, params, grads, mode, absent=(), absent_here=()):
    for i, param in enumerate(params):
        if i in absent or i in absent_here:
            param.grad = None
        elif mode == "local":
            param.grad = grads[dist.get_rank()][i].clone()
        else:
            param.grad = mean(grads, i, param.dtype)
    optimizer.step()


def compare(make, mode, dtype, **more):
    made, grads = values(dtype)
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = make(plain), make(sharded, zero=1, gradients=mode, **more)
    for k, own in enumerate(grads):
        absent = {1, 4} if k == 2 else set()
        step_whole(reference, plain, own, absent)
        step_zero(optimizer, sharded, own, mode, absent)
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"step {k}, parameter {i}")
            ours, theirs = optimizer.state[b], reference.state[a]
            assert set(ours) == set(theirs)
            assert float(ours.get("step", 0)) == float(theirs.get("step", 0))
    return reference, optimizer, plain, sharded


@case
def every_optimizer_with_reduced_gradients():
    for make in ALL.values():
        compare(make, "reduced", torch.float32)


@case
def every_optimizer_with_local_gradients():
    for make in ALL.values():
        compare(make, "local", torch.float32)


@case
def every_optimizer_in_bf16():
    for make in ALL.values():
        compare(make, "local", torch.bfloat16)
        compare(make, "reduced", torch.bfloat16)


@contextlib.contextmanager
def calls_of(name):
    """How often a method of a Binding is called."""
    found, method = [], getattr(Binding, name)
    setattr(Binding, name, lambda *own: [found.append(1), method(*own)][1])
    try:
        yield found
    finally:
        setattr(Binding, name, method)


@case
def lines_are_stepped_while_others_are_under_way():
    """Where a definition steps each tensor by itself; in one step else, or without overlap."""
    for name, make in ALL.items():
        for mode in ("local", "reduced"):
            with calls_of("step_some") as found:
                _, optimizer, _, _ = compare(make, mode, torch.float32, bucket_bytes=3000)
            lines = len(optimizer._binding._zero.lines)
            assert lines > 2
            alone = name in ("AdamW", "SGD", "Lion")
            assert not alone or len(found) == 3 * lines, (name, len(found))  # all but the first
            assert not found or not optimizer._binding._inner.exchanges, name
    with calls_of("step_some") as found:
        for name in ("AdamW", "CAME"):
            for dtype in (torch.float32, torch.bfloat16):
                compare(ALL[name], "local", dtype, bucket_bytes=3000, overlap=False)
    assert not found


@case
def gradients_of_another_kind_between_lines():
    """A reduced gradient of another dtype: the plan that was made for float32 is not stepped
    in part."""
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = (
        ALL["AdamW"](plain),
        ALL["AdamW"](sharded, zero=1, gradients="reduced", bucket_bytes=3000),
    )
    for k, own in enumerate(grads):
        step_whole(reference, plain, own)
        for i, param in enumerate(sharded):
            param.grad = None
            param.grad = mean(own, i, param.dtype)
            if k == 2 and i == 4:  # the mean has few bits
                param.grad_dtype = None
                param.grad = param.grad.bfloat16()
        optimizer.step()
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def a_hyper_parameter_that_changes_between_steps_of_lines():
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = (
        ALL["AdamW"](plain),
        ALL["AdamW"](sharded, zero=1, gradients="local", bucket_bytes=3000),
    )
    for k, own in enumerate(grads):
        for each in (reference, optimizer):
            each.param_groups[0]["lr"] = 1e-2 / (k + 1)
            each.param_groups[0]["weight_decay"] = 0.0 if k == 2 else 0.1
        step_whole(reference, plain, own, {1, 4} if k == 3 else ())
        step_zero(optimizer, sharded, own, "local", {1, 4} if k == 3 else ())
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")
        assert float(optimizer.state[b]["step"]) == float(reference.state[a]["step"])


def rounded_mean(own, i, dtype):
    """Of what crosses in the dtype, added up in f32 in the order of the ranks."""
    total = torch.zeros(own[0][i].shape)
    for of_rank in own:
        total += of_rank[i].to(dtype)
    return total / len(own)


@case
def gradients_cross_in_another_type():
    generator = torch.Generator().manual_seed(5)
    for dtype in (torch.float32, torch.bfloat16):
        for sent in (torch.bfloat16, torch.float16, torch.float32):
            made, _ = values(dtype)
            grads = [
                [[torch.randn(s, generator=generator).to(dtype) for s in SHAPES] for _ in range(4)]
                for _ in range(2)
            ]
            for arguments in ({}, {"bucket_bytes": 3000}):
                plain, sharded = parameters(made), parameters(made)
                reference, optimizer = (
                    ALL["AdamW"](plain),
                    ALL["AdamW"](
                        sharded, zero=1, gradients="local", reduce_dtype=sent, **arguments
                    ),
                )
                for own in grads:
                    for i, param in enumerate(plain):
                        param.grad_dtype = None
                        param.grad = rounded_mean(own, i, sent)
                    reference.step()
                    step_zero(optimizer, sharded, own, "local")
                for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
                    same_bits(b, a, f"{dtype} by {sent}, parameter {i}")


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
def a_gradient_on_one_rank_only():
    """Zero on the others, as DistributedDataParallel has it with unused parameters."""
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = ALL["AdamW"](plain), ALL["AdamW"](sharded, zero=1, gradients="local")
    for own in grads:
        shown = [
            [g if i != 0 or r == 2 else torch.zeros_like(g) for i, g in enumerate(of_rank)]
            for r, of_rank in enumerate(own)
        ]
        step_whole(reference, plain, shown)
        step_zero(optimizer, sharded, own, "local", (), {0} if dist.get_rank() != 2 else ())
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def reduced_gradients_that_differ_are_refused():
    made, grads = values()
    params = parameters(made)
    optimizer = st.AdamW([(f"w{i}", p) for i, p in enumerate(params)], zero=1, gradients="reduced")
    before = [p.detach().clone() for p in params]
    for i, param in enumerate(params):
        param.grad = mean(grads[0], i, param.dtype)
    if dist.get_rank() == 1:
        params[4].grad[3, 5] += 1e-3
    try:
        optimizer.step()
    except errors.TensorError as error:
        assert "the gradient of parameter 'w4' is another one on some ranks" in str(error), error
    else:
        raise AssertionError("it was not refused")
    for param, then in zip(params, before, strict=True):
        same_bits(param, then, "parameter")


@case
def an_overflow_on_one_rank_skips_on_all():
    made, grads = values()
    params = parameters(made)
    optimizer = ALL["AdamW, clipped"](params, zero=1, gradients="local")
    step_zero(optimizer, params, grads[0], "local")
    before = [p.detach().clone() for p in params]
    if dist.get_rank() == 3:
        grads[1][3][0][0, 0] = float("inf")
    step_zero(optimizer, params, grads[1], "local")
    assert optimizer.last_step.skipped and optimizer.loss_scale == 1.0
    for param, then in zip(params, before, strict=True):
        same_bits(param, then, "parameter")


@case
def a_process_group_of_some_ranks():
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = halves[dist.get_rank() // 2]
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    make = ALL["hf.Adafactor"]
    reference = make(plain)
    optimizer = make(sharded, zero=1, gradients="reduced", process_group=group)
    for own in grads:
        step_whole(reference, plain, own)
        step_zero(optimizer, sharded, own, "reduced")
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


def not_contiguous(values):
    return [torch.nn.Parameter(v.t().clone().t() if v.dim() == 2 else v.clone()) for v in values]


@case
def parameters_that_are_not_contiguous():
    """A remainder of theirs is kept too, while nobody writes the parameter."""
    for name, dtype, more in [
        ("CAME", torch.float32, {}),
        ("AdamW", torch.bfloat16, {"master": "remainder"}),
    ]:
        made, grads = values(dtype)
        plain, sharded = not_contiguous(made), not_contiguous(made)
        reference = ALL[name](plain, **more)
        optimizer = ALL[name](sharded, zero=1, gradients="reduced", **more)
        for own in grads:
            step_whole(reference, plain, own)
            step_zero(optimizer, sharded, own, "reduced")
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"{name}, parameter {i}")


def step_all(optimizer, params, grads, mode="reduced"):
    for own in grads:
        step_zero(optimizer, params, own, mode)


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


@case
def a_scaler_whose_overflow_is_one_on_all_ranks():
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference = ALL["AdamW"](plain)
    optimizer = ALL["AdamW"](sharded, zero=1, gradients="local")
    scaler = st.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    scales = []
    for k, own in enumerate(grads):
        scaled = [[scaler.get_scale() * g for g in of_rank] for of_rank in own]
        if k == 1 and dist.get_rank() == 2:
            scaled[2][3] = torch.full_like(scaled[2][3], float("inf"))
        for param, grad in zip(sharded, scaled[dist.get_rank()], strict=True):
            param.grad = grad.clone()
        scaler.scale(torch.zeros(1))  # as a loss would
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        if k != 1:
            step_whole(reference, plain, own)
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"step {k}, parameter {i}")
    assert scales == [8.0, 4.0, 4.0, 8.0], scales
    theirs = torch.amp.GradScaler("cpu", init_scale=8.0)
    theirs.load_state_dict(scaler.state_dict())
    theirs.scale(torch.zeros(1))
    try:
        theirs.step(optimizer)
    except errors.StepcError as error:
        assert "use stepc.torch.GradScaler" in str(error), error
    else:
        raise AssertionError("torch's scaler was not refused")


def refused(words, **arguments):
    try:
        st.AdamW([torch.nn.Parameter(torch.ones(2))], **arguments)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{arguments} was not refused")


@case
def arguments_that_are_refused():
    refused("gradients is None, expected 'reduced'", zero=1)
    refused("gradients is 'summed', expected 'reduced'", zero=1, gradients="summed")
    refused("zero is 3, expected 0, 1 or 2", zero=3, gradients="local")
    refused("gradients is of no use without zero=1 or 2", gradients="local")
    refused("process_group is of no use without zero=1 or 2", process_group=dist.group.WORLD)
    refused("bucket_bytes is of no use without zero=1 or 2", bucket_bytes=8)
    refused("overlap is of no use without zero=1 or 2", overlap=False)
    refused("reduce_dtype is torch.int8, expected torch.bfloat16, torch.float16", zero=1,
            gradients="local", reduce_dtype=torch.int8)  # fmt: skip
    refused("reduce_dtype is of no use where no gradient is reduced here", zero=1,
            gradients="reduced", reduce_dtype=torch.bfloat16)  # fmt: skip
    refused("reduce_dtype is of no use where", reduce_dtype=torch.float32)
    refused("bucket_bytes is 0, expected a positive number", zero=2, gradients="local",
            bucket_bytes=0)  # fmt: skip
    refused("over DistributedDataParallel, which has reduced them, zero=1", zero=2,
            gradients="reduced")  # fmt: skip


if __name__ == "__main__":
    main()
