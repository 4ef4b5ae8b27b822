# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers with reductions in numpy's float64, from their papers' equations.

Written from the papers and the originals' documentation, not from the definitions,
and as the papers write them: whole matrices, sums in numpy's order. Results agree
with the definitions' but for rounding.
"""

import numpy as np
from equations import Group, Tensor, moments, norm, of_each_tensor, rms
from matrix_papers import (
    apollo,
    dion,
    galore_adamw,
    gram_muon,
    jordan_muon,
    moonlight_muon,
    muon,
    normuon,
    projected,
    shampoo,
    soap,
)
from scalar_papers import asgd, fused_adam, nadam

__all__ = ["HYPERS", "OF_MATRICES", "OF_SQUARES", "OPTIONS", "OTHERS", "PAPERS", "Group", "Tensor"]


# --- Adafactor and what came of it --------------------------------------------


def track(tensor, square, weight, names):
    """Moves the factors, or the whole, of a second moment towards `square`, and
    gives the second moment: R C / (1' R), with sums in place of means."""
    if square.ndim < 2:
        whole = tensor.state(names[2])
        tensor.states[names[2]] = (1 - weight) * whole + weight * square
        return tensor.states[names[2]]
    *batch, n, m = square.shape
    rows, columns = tensor.state(names[0], (*batch, n, 1)), tensor.state(names[1], (*batch, 1, m))
    rows = (1 - weight) * rows + weight * square.sum(-1, keepdims=True) / m
    columns = (1 - weight) * columns + weight * square.sum(-2, keepdims=True) / n
    tensor.states.update({names[0]: rows, names[1]: columns})
    return rows @ columns / (rows.sum(-2, keepdims=True) / n)


SQUARES = ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq")


def factored(tensor, h, options, g, back=lambda u: u):
    """transformers' Adafactor, of this gradient."""
    t, theta = tensor.count, tensor.param
    rho = h["lr"]
    if options["relative_step"]:
        rho = np.minimum(1e-6 * t if options["warmup_init"] else 1e-2, 1 / np.sqrt(t))
    alpha = rho * (np.maximum(h["eps2"], rms(theta)) if options["scale_parameter"] else 1)
    v = track(tensor, g**2 + h["eps1"], t ** h["decay_rate"], SQUARES)
    u = g / np.sqrt(v)
    u = alpha * u / np.maximum(1, rms(u) / h["clip_threshold"])
    if h["beta1"] != 0:
        u = h["beta1"] * tensor.state("exp_avg", g.shape) + (1 - h["beta1"]) * u
        tensor.states["exp_avg"] = u
    tensor.param = theta - h["weight_decay"] * alpha * theta - back(u)


@of_each_tensor
def adafactor(tensor, h, options):
    factored(tensor, h, options, tensor.grad)


@of_each_tensor
def galore_adafactor(tensor, h, options):
    g, back = projected(tensor, h, options)
    factored(tensor, h, {"scale_parameter": True, "warmup_init": False, **options}, g, back)


@of_each_tensor
def torch_adafactor(tensor, h, options):
    t, theta = tensor.count, tensor.param
    g = -tensor.grad if options["maximize"] else tensor.grad
    rho = np.minimum(h["lr"], 1 / np.sqrt(t))
    alpha = np.maximum(h["eps2"], rms(theta)) * rho
    theta = theta - h["lr"] * h["weight_decay"] * theta
    weight = t ** h["beta2_decay"]
    if g.ndim < 2:
        v = track(tensor, g**2, weight, ("", "", "variance"))
    else:
        track(tensor, g**2, weight, ("row_var", "col_var", ""))
        rows, columns = tensor.states["row_var"], tensor.states["col_var"]
        v = rows @ columns / np.maximum(rows.mean(-2, keepdims=True), h["eps1"])
    u = g / np.sqrt(np.maximum(v, h["eps1"] ** 2))
    tensor.param = theta - alpha * u / np.maximum(1, rms(u) / h["d"])


@of_each_tensor
def came(tensor, h, options):
    del options
    g = tensor.grad
    u = g / np.sqrt(track(tensor, g**2 + h["eps1"], 1 - h["beta2"], SQUARES))
    u = u / np.maximum(1, rms(u) / h["clip_threshold"])
    m = h["beta1"] * tensor.state("exp_avg") + (1 - h["beta1"]) * u
    tensor.states["exp_avg"] = m
    direction = m
    if g.ndim >= 2:
        names = ("exp_avg_res_row", "exp_avg_res_col", "")
        s = track(tensor, (u - m) ** 2 + h["eps2"], 1 - h["beta3"], names)
        direction = m / np.sqrt(s)
    theta = tensor.param - h["lr"] * h["weight_decay"] * tensor.param
    tensor.param = theta - h["lr"] * direction


@of_each_tensor
def adalomo(tensor, h, options):
    del options
    g = tensor.grad
    v = track(tensor, g**2 + h["eps1"], tensor.count ** h["decay_rate"], SQUARES)
    u = g / np.sqrt(v)
    u = u / np.maximum(1, rms(u) / h["clip_threshold"])
    alpha = h["lr"] * np.maximum(h["eps2"], rms(tensor.param))
    tensor.param = tensor.param * (1 - alpha * h["weight_decay"]) - alpha * u


@of_each_tensor
def lomo(tensor, h, options):
    del options
    tensor.param = tensor.param * (1 - h["lr"] * h["weight_decay"]) - h["lr"] * tensor.grad


# --- Layer-wise rates ---------------------------------------------------------


def unbiased(m, v, tensor, h, options):
    if not options["bias_correction"]:
        return m, v
    return m / (1 - h["beta1"] ** tensor.count), v / (1 - h["beta2"] ** tensor.count)


def ratio(upper, lower):
    return 1 if upper == 0 or lower == 0 else upper / lower


@of_each_tensor
def lamb(tensor, h, options):
    g = -tensor.grad if options["maximize"] else tensor.grad
    m, v = unbiased(*moments(tensor, g, h), tensor, h, options)
    u = m / (np.sqrt(v) + h["eps"]) + h["weight_decay"] * tensor.param
    length = norm(tensor.param)
    phi = (
        np.minimum(np.maximum(length, h["phi_min"]), h["phi_max"])
        if options["clamp_phi"]
        else length
    )
    factor = 1 if length == 0 or norm(u) == 0 else phi / norm(u)
    tensor.param = tensor.param - h["lr"] * factor * u


def fused_lamb(groups, options, memory):
    tensors = [(t, group.hypers) for group in groups for t in group.tensors if t.grad is not None]
    memory["grad_norm"] = np.sqrt(sum(np.sum(t.grad**2) for t, _ in tensors))
    for tensor, h in tensors:
        tensor.count += 1
        most = h["max_grad_norm"]
        g = tensor.grad / (np.maximum(1, memory["grad_norm"] / most) if most != 0 else 1)
        decay = h["weight_decay"] * tensor.param
        if not options["adam_w_mode"]:
            g = g + decay
        gain = 1 - h["beta1"] if options["grad_averaging"] else 1
        m, v = unbiased(*moments(tensor, g, h, gain), tensor, h, options)
        u = m / (np.sqrt(v) + h["eps"])
        if options["adam_w_mode"]:
            u = u + decay
        adapts = h["weight_decay"] != 0 or options["use_nvlamb"]
        factor = ratio(norm(tensor.param), norm(u)) if adapts else 1
        tensor.param = tensor.param - h["lr"] * factor * u


@of_each_tensor
def deepspeed_lamb(tensor, h, options):
    m, v = moments(tensor, tensor.grad, h)
    root = np.sqrt(v + h["eps"]) if options["eps_inside_sqrt"] else np.sqrt(v) + h["eps"]
    u = m / root + h["weight_decay"] * tensor.param
    lengths = norm(tensor.param), norm(u)
    factor = ratio(*lengths)
    if options["clamp_ratio"] and 0 not in lengths:
        factor = np.minimum(np.maximum(factor, h["min_coeff"]), h["max_coeff"])
    size = h["lr"]
    if options["bias_correction"]:
        size *= np.sqrt(1 - h["beta2"] ** tensor.count) / (1 - h["beta1"] ** tensor.count)
    tensor.param = tensor.param - size * (1 if options["adam"] else factor) * u


@of_each_tensor
def lars(tensor, h, options):
    theta = tensor.param
    g = -tensor.grad if options["maximize"] else tensor.grad
    local = 1
    if theta.ndim >= 2 or not options["vectors_as_sgd"]:
        divisor = norm(g) + h["weight_decay"] * norm(theta) + h["eps"]
        local = ratio(h["trust_coefficient"] * norm(theta), divisor)
        if options["bound_ratio"]:
            local = np.minimum(local / h["lr"], 1)
        g = g + h["weight_decay"] * theta
    inside, outside = (h["lr"], 1) if options["lr_in_momentum"] else (1, h["lr"])
    direction = inside * local * g
    if h["momentum"] != 0:
        buffer = h["momentum"] * tensor.state("momentum_buffer") + direction
        tensor.states["momentum_buffer"] = buffer
        direction = direction + h["momentum"] * buffer if options["nesterov"] else buffer
    tensor.param = theta - outside * direction


@of_each_tensor
def sm3(tensor, h, options):
    g = -tensor.grad if options["maximize"] else tensor.grad
    # More dims than four are not told apart.
    dims = range(g.ndim) if 1 <= g.ndim <= 4 else [None]
    others = [tuple(e for e in range(g.ndim) if e != d) if d is not None else () for d in dims]
    shapes = [g.max(axis=o, keepdims=True) * 0 if g.size else g.sum(axis=o, keepdims=True)
              for o in others]  # fmt: skip
    mus = [tensor.states.get(f"accumulator_{k}", zero) for k, zero in enumerate(shapes)]
    nu = np.broadcast_to(np.inf, g.shape)
    for mu in mus:
        nu = np.minimum(nu, mu)
    if h["beta"] != 0:
        nu = h["beta"] * nu
    nu = nu + (1 - h["beta"]) * g**2
    for k, (mu, over) in enumerate(zip(mus, others, strict=True)):
        most = nu.max(axis=over, keepdims=True) if g.size else mu
        tensor.states[f"accumulator_{k}"] = np.maximum(mu, most) if h["beta"] != 0 else most
    nu = nu + h["eps"]
    u = np.where(nu == 0, 0, g / np.sqrt(np.where(nu == 0, 1, nu)))
    if h["momentum"] != 0:
        u = h["momentum"] * tensor.state("momentum_buffer") + (1 - h["momentum"]) * u
        tensor.states["momentum_buffer"] = u
    tensor.param = tensor.param - h["lr"] * u


# --- D-Adaptation -------------------------------------------------------------


def dadapt_sgd(groups, options, memory):
    del options
    d, numerator, h = memory.get("d", 1e-6), memory.get("a", 0.0), groups[0].hypers
    tensors = [(t, group.hypers) for group in groups for t in group.tensors if t.grad is not None]
    for tensor, hypers in tensors:
        tensor.grad = tensor.grad + hypers["weight_decay"] * tensor.param
        tensor.states.setdefault("x0", tensor.param)
    if memory.get("c", 0.0) == 0:
        memory["c"] = np.sqrt(sum(np.sum(t.grad**2) for t, _ in tensors))
    rate = d * h["lr"] / memory["c"] if memory["c"] != 0 else 0
    numerator += rate * sum(np.vdot(t.grad, t.state("s")) for t, _ in tensors)
    for tensor, hypers in tensors:
        tensor.states["s"] = tensor.state("s") + rate * tensor.grad
        z = tensor.states["x0"] - tensor.states["s"]
        tensor.param = hypers["momentum"] * tensor.param + (1 - hypers["momentum"]) * z
    size = np.sqrt(sum(np.sum(t.states["s"] ** 2) for t, _ in tensors))
    if size != 0:
        d = np.maximum(d, np.minimum(2 * numerator / size, d * h["growth_rate"]))
    memory.update(a=numerator, d=d)


def dadapt_adam(groups, options, memory):
    for index, group in enumerate(groups):
        own = memory.setdefault(index, {"a": 0.0, "d": 1e-6})
        # Nothing is run for a group of which no tensor takes part.
        if any(tensor.grad is not None for tensor in group.tensors):
            dadapt_adam_group(group, options, own)


def dadapt_adam_group(group, options, memory):
    h, q, d = group.hypers, np.sqrt(group.hypers["beta2"]), memory["d"]
    numerator = size = 0.0
    for tensor in group.tensors:
        if tensor.grad is None:
            continue
        tensor.count += 1
        rate = d * h["lr"]
        if options["use_bias_correction"]:
            correction2 = np.sqrt(1 - h["beta2"] ** tensor.count)
            rate *= correction2 / (1 - h["beta1"] ** tensor.count)
        g, theta = tensor.grad, tensor.param
        if not options["decouple"]:
            g = g + h["weight_decay"] * theta
        root = np.sqrt(tensor.state("exp_avg_sq")) + h["eps"]
        numerator += rate * np.vdot(g, tensor.state("s") / root)
        m, v = moments(tensor, g, h, rate * (1 - h["beta1"]))
        tensor.states["s"] = q * tensor.state("s") + (1 - q) * rate * g
        size += np.abs(tensor.states["s"]).sum()
        if options["decouple"]:
            theta = theta - h["weight_decay"] * rate * theta
        tensor.param = theta - m / (np.sqrt(v) + h["eps"])
    memory["a"] = q * memory["a"] + (1 - q) * numerator
    if size != 0:
        estimate = memory["a"] / ((1 - q) * size)
        memory["d"] = np.maximum(d, np.minimum(estimate, d * h["growth_rate"]))


PAPERS = {
    "adafactor": adafactor, "torch_adafactor": torch_adafactor, "came": came, "lamb": lamb,
    "fused_lamb": fused_lamb, "deepspeed_lamb": deepspeed_lamb, "lars": lars, "lomo": lomo,
    "adalomo": adalomo, "dadapt_sgd": dadapt_sgd, "dadapt_adam": dadapt_adam,
    "nadam": nadam, "asgd": asgd, "fused_adam": fused_adam, "sm3": sm3,
    "muon": muon, "normuon": normuon, "galore_adamw": galore_adamw, "soap": soap,
    "galore_adafactor": galore_adafactor, "gram_muon": gram_muon, "jordan_muon": jordan_muon,
    "moonlight_muon": moonlight_muon, "shampoo": shampoo, "apollo": apollo,
    "dion": dion,
}  # fmt: skip
# They take no other shapes, or are elementwise for these.
OF_MATRICES = {
    "muon", "normuon", "gram_muon", "jordan_muon", "moonlight_muon", "galore_adamw",
    "galore_adafactor", "shampoo", "apollo", "dion",
}  # fmt: skip
# Bases of what is singular, as of the longer side in the first steps, are free.
OF_SQUARES = {"soap"}

# Every hyper-parameter away from what would hide it.
HYPERS = {
    "adafactor": {"lr": 0.013, "eps1": 0.02, "eps2": 0.9, "clip_threshold": 0.8,
                  "decay_rate": -0.73, "beta1": 0.0, "weight_decay": 0.031},
    "torch_adafactor": {"lr": 0.017, "beta2_decay": -0.73, "eps1": 0.9, "eps2": 0.9, "d": 1.1,
                        "weight_decay": 0.031},
    "came": {"lr": 0.0023, "beta1": 0.87, "beta2": 0.979, "beta3": 0.991, "eps1": 0.02,
             "eps2": 0.01, "clip_threshold": 0.8, "weight_decay": 0.031},
    "lamb": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-3, "weight_decay": 0.037,
             "phi_min": 3.0, "phi_max": 4.0},
    "fused_lamb": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-3,
                   "weight_decay": 0.037, "max_grad_norm": 1.7},
    "deepspeed_lamb": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-3,
                       "weight_decay": 0.037, "min_coeff": 0.9, "max_coeff": 1.3},
    "lars": {"lr": 0.51, "momentum": 0.87, "weight_decay": 0.037, "trust_coefficient": 0.53,
             "eps": 0.01},
    "lomo": {"lr": 0.0123, "weight_decay": 0.037},
    "adalomo": {"lr": 0.0123, "eps1": 0.02, "eps2": 0.9, "clip_threshold": 0.8,
                "decay_rate": -0.73, "weight_decay": 0.037},
    "dadapt_sgd": {"lr": 0.9, "momentum": 0.37, "weight_decay": 0.037, "growth_rate": 1.9},
    "dadapt_adam": {"lr": 0.9, "beta1": 0.83, "beta2": 0.971, "eps": 0.3, "weight_decay": 0.037,
                    "growth_rate": 1.9},
    "nadam": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-3, "weight_decay": 0.037,
              "momentum_decay": 0.31},
    "asgd": {"lr": 0.0123, "lambd": 0.41, "alpha": 0.83, "t0": 4.3, "weight_decay": 0.037},
    "fused_adam": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-3,
                   "weight_decay": 0.037},
    "sm3": {"lr": 0.0123, "momentum": 0.83, "beta": 0.91, "eps": 0.01},
    "muon": {"lr": 0.0123, "weight_decay": 0.37, "momentum": 0.83, "eps": 0.9,
             "ns_coefficient_a": 3.1, "ns_coefficient_b": -4.2, "ns_coefficient_c": 1.9},
    "normuon": {"lr": 0.0123, "weight_decay": 0.37, "momentum": 0.83, "beta2": 0.91},
    "jordan_muon": {"lr": 0.0123, "weight_decay": 0.37, "momentum": 0.83, "beta1": 0.83,
                    "beta2": 0.971, "eps": 3e-3},
    "moonlight_muon": {"lr": 0.0123, "weight_decay": 0.37, "momentum": 0.83, "beta1": 0.83,
                       "beta2": 0.971, "eps": 3e-3},
    "galore_adamw": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-3,
                     "weight_decay": 0.037, "update_proj_gap": 4.0, "scale": 0.7},
    "galore_adafactor": {"lr": 0.013, "eps1": 0.02, "eps2": 0.9, "clip_threshold": 0.8,
                         "decay_rate": -0.73, "beta1": 0.0, "weight_decay": 0.031,
                         "update_proj_gap": 4.0, "scale": 0.7},
    "apollo": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-3, "weight_decay": 0.037,
               "update_proj_gap": 4.0, "scale": 1.7, "projection_seed": 3.5},
    "dion": {"lr": 0.0123, "mu": 0.83, "beta1": 0.83, "beta2": 0.971, "epsilon": 3e-3,
             "weight_decay": 0.37, "projection_seed": 3.5},
    "soap": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "shampoo_beta": 0.9, "eps": 3e-3,
             "weight_decay": 0.037, "precondition_frequency": 4.0},
    "shampoo": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.9, "beta3": 0.71, "epsilon": 3.0,
                "weight_decay": 0.037, "precondition_frequency": 3.0,
                "start_preconditioning_step": 5.0, "inverse_exponent_0": 0.3,
                "inverse_exponent_1": 0.21, "inverse_exponent_alone": 0.43,
                "grafting_beta2": 0.97, "grafting_epsilon": 3e-3, "momentum": 0.37,
                "dampening": 0.11},
}  # fmt: skip
HYPERS["gram_muon"] = HYPERS["muon"]
OPTIONS = {
    "adafactor": ["scale_parameter", "relative_step", "warmup_init"],
    "torch_adafactor": ["maximize"],
    "lamb": ["bias_correction", "clamp_phi", "maximize"],
    "fused_lamb": ["bias_correction", "adam_w_mode", "grad_averaging", "use_nvlamb"],
    "deepspeed_lamb": ["bias_correction", "eps_inside_sqrt", "clamp_ratio", "adam"],
    "lars": ["lr_in_momentum", "nesterov", "bound_ratio", "vectors_as_sgd", "maximize"],
    "sm3": ["maximize"],
    **dict.fromkeys(("muon", "gram_muon"), ["nesterov", "match_rms_adamw"]),
    "normuon": ["nesterov"], "jordan_muon": ["use_muon"],
    "moonlight_muon": ["use_muon", "nesterov"],
    "galore_adamw": ["low_rank", "tall_right", "wide_right", "both_sides", "correct_bias",
                     "corrected_eps"],
    # Others are adafactor's.
    "galore_adafactor": ["low_rank", "tall_right", "wide_right", "both_sides", "relative_step"],
    "apollo": ["low_rank", "tall_right", "by_channel", "limit_growth", "scale_front"],
    "dion": ["dion", "lion"],
    "soap": ["correct_bias", "normalize_grads"],
    "shampoo": ["grafting", "grafting_squares", "has_momentum"],
    "dadapt_adam": ["decouple", "use_bias_correction"],
    "nadam": ["decoupled_weight_decay", "maximize"], "asgd": ["maximize"],
    "fused_adam": ["adam_w_mode", "bias_correction", "group_step"],
}  # fmt: skip
# What another group has in place of them: its own, and what switches something off.
OTHERS = {
    "adafactor": {"lr": 0.007, "beta1": 0.7, "weight_decay": 0.0},
    "torch_adafactor": {"lr": 0.4, "d": 2.0, "weight_decay": 0.0},
    "came": {"lr": 0.007, "beta1": 0.6},
    "lamb": {"lr": 0.007, "weight_decay": 0.0},
    "fused_lamb": {"lr": 0.007, "weight_decay": 0.0},
    "deepspeed_lamb": {"lr": 0.007, "weight_decay": 0.0},
    "lars": {"lr": 0.17, "momentum": 0.0},
    "sm3": {"lr": 0.17, "momentum": 0.0, "beta": 0.0, "eps": 0.0},
    "muon": {"lr": 0.17, "momentum": 0.0, "eps": 0.0, "weight_decay": 0.0},
    "normuon": {"lr": 0.17, "momentum": 0.0, "beta2": 0.0, "weight_decay": 0.0},
    "jordan_muon": {"lr": 0.17, "momentum": 0.0, "eps": 0.1, "weight_decay": 0.0},
    "moonlight_muon": {"lr": 0.17, "momentum": 0.0, "eps": 0.1, "weight_decay": 0.0},
    "galore_adamw": {"lr": 0.007, "weight_decay": 0.0, "update_proj_gap": 1.0, "scale": 1.0},
    "galore_adafactor": {"lr": 0.007, "beta1": 0.7, "weight_decay": 0.0, "update_proj_gap": 1.0},
    "apollo": {"lr": 0.007, "weight_decay": 0.0, "update_proj_gap": 1.0, "projection_seed": -1.0},
    "dion": {"lr": 0.007, "mu": 0.5, "weight_decay": 0.0, "projection_seed": -1.0},
    "soap": {"lr": 0.007, "weight_decay": 0.0, "precondition_frequency": 1.0},
    "shampoo": {
        "lr": 0.007,
        "beta2": 1.0,
        "weight_decay": 0.0,
        "precondition_frequency": 1.0,
        "start_preconditioning_step": 1.0,
        "grafting_beta2": 1.0,
    },
    "lomo": {"lr": 0.3, "weight_decay": 0.0},
    "adalomo": {"lr": 0.3, "weight_decay": 0.0},
    "dadapt_sgd": {"momentum": 0.0, "weight_decay": 0.0},
    "dadapt_adam": {"lr": 0.7, "weight_decay": 0.0},
    "nadam": {"lr": 0.007, "weight_decay": 0.0},
    "asgd": {"lr": 0.1, "t0": 1e6, "weight_decay": 0.0},
    "fused_adam": {"lr": 0.007, "weight_decay": 0.0},
}
OTHERS["gram_muon"] = OTHERS["muon"]
