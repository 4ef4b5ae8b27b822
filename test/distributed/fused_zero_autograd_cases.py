# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``fused_backward=True`` beside ``zero=``, with what autograd and users do to parameters."""

import stepc.torch as st
import torch
import torch.distributed as dist
from fused_zero_models import (
    compare,
    local,
    loss_of,
    net,
)
from on_ranks import case, main
from torch.utils.checkpoint import checkpoint
from zoo import OF_EACH_GRADIENT


@case
def frozen_parameters_and_those_that_thaw():
    def change(model, optimizer, number):
        model[0].weight.requires_grad_(number > 0)
        model[2].bias.requires_grad_(number != 1)
        optimizer.zero_grad()  # which looks for what has thawed

    def make(params, **more):
        params = list(params)
        params[0][1].requires_grad_(False)
        return st.AdamW(params, lr=1e-2, **more)

    compare(make, local(2), change=change, steps=4)


@case
def several_groups_and_one_that_is_added():
    def make(params, **more):
        params = list(params)
        groups = [
            {"params": params[:3], "lr": 1e-2},
            {"params": params[3:6], "lr": 1e-3, "weight_decay": 0.1},
        ]
        optimizer = st.AdamW(groups, **more)
        optimizer.later = params[6:]
        return optimizer

    def change(model, optimizer, number):
        for param in (p for _, p in optimizer.later):
            param.requires_grad_(number > 0)
        if number == 1:
            optimizer.add_param_group({"params": optimizer.later, "lr": 3e-3})

    for stage in (1, 2):
        compare(make, local(stage), change=change, steps=4)


@case
def weights_that_are_used_several_times():
    """Their gradient is whole once, when nothing of the pass reads them any more."""

    def tied(model, number):
        torch.manual_seed(1000 * number + dist.get_rank())
        out = model(torch.randn(5, 24))
        return (model(out) @ model[0].weight[:3].T).square().mean()

    compare(OF_EACH_GRADIENT["AdamW"], local(2), loss=tied)


@case
def what_is_recomputed():
    def recomputed(reentrant):
        def loss(model, number):
            torch.manual_seed(1000 * number + dist.get_rank())
            out = torch.randn(5, 24, requires_grad=True)
            for layer in model:
                out = checkpoint(layer, out, use_reentrant=reentrant)
            return out.square().mean()

        return loss

    for reentrant in (False, True):
        compare(OF_EACH_GRADIENT["AdamW"], local(2), loss=recomputed(reentrant))


@case
def what_would_read_a_new_weight_is_noticed():
    """A use that autograd has cut off is one of which the weight's gradient knows nothing."""
    model = net()
    optimizer = st.AdamW(model.named_parameters(), zero=local(2), fused_backward=True)
    first = torch.randn(5, 24, requires_grad=True)
    out = model(first @ model[6].weight.detach())
    try:
        out.square().mean().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("a new weight was read in the pass of the old one")
    optimizer.zero_grad()
    loss_of(model, 1).backward()
    optimizer.step()


if __name__ == "__main__":
    main()
