# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers with scalars of one tensor or of one group, from the papers' equations, as
in ``papers.py``."""

import numpy as np
from equations import moments, of_each_tensor


def with_l2(tensor, h, options):
    """The gradient, of what is maximized with the other sign, and the penalty's."""
    g = -tensor.grad if options["maximize"] else tensor.grad
    return g + h["weight_decay"] * tensor.param


@of_each_tensor
def nadam(tensor, h, options):
    t, theta = tensor.count, tensor.param
    if options["decoupled_weight_decay"]:
        g = with_l2(tensor, {"weight_decay": 0.0}, options)
        theta = theta * (1 - h["lr"] * h["weight_decay"])
    else:
        g = with_l2(tensor, h, options)
    mu, after = (h["beta1"] * (1 - 0.5 * 0.96 ** (k * h["momentum_decay"])) for k in (t, t + 1))
    product = float(tensor.states.get("mu_product", np.ones(1))[0]) * mu
    tensor.states["mu_product"] = np.full(1, product)
    m, v = moments(tensor, g, h)
    d = np.sqrt(v / (1 - h["beta2"] ** t)) + h["eps"]
    looking = (1 - mu) / (1 - product) * g + after / (1 - product * after) * m
    tensor.param = theta - h["lr"] * looking / d


@of_each_tensor
def asgd(tensor, h, options):
    g = with_l2(tensor, h, options)
    eta = float(tensor.states.get("eta", np.full(1, h["lr"]))[0])
    mu = float(tensor.states.get("mu", np.ones(1))[0])
    tensor.param = (1 - h["lambd"] * eta) * tensor.param - eta * g
    ax = tensor.state("ax")
    tensor.states["ax"] = ax + mu * (tensor.param - ax)
    t = tensor.count
    tensor.states["eta"] = np.full(1, h["lr"] / (1 + h["lambd"] * h["lr"] * t) ** h["alpha"])
    tensor.states["mu"] = np.full(1, 1 / max(1, t - h["t0"]))


def fused_adam(groups, options, memory):
    for index, group in enumerate(groups):
        tensors = [t for t in group.tensors if t.grad is not None]
        # Nothing is counted for a group of which no tensor takes part.
        memory[index] = memory.get(index, 0) + bool(tensors)
        for tensor in tensors:
            tensor.count += 1
            steps = memory[index] if options["group_step"] else tensor.count
            fused_adam_of(tensor, group.hypers, options, steps)


def fused_adam_of(tensor, h, options, steps):
    pull = h["weight_decay"] * tensor.param
    g = tensor.grad if options["adam_w_mode"] else tensor.grad + pull
    m, v = moments(tensor, g, h)
    if options["bias_correction"]:
        m, v = m / (1 - h["beta1"] ** steps), v / (1 - h["beta2"] ** steps)
    u = m / (np.sqrt(v) + h["eps"])
    if options["adam_w_mode"]:
        u = u + pull
    tensor.param = tensor.param - h["lr"] * u
