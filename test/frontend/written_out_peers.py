# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The optimizers of other libraries, as written_out.py has torch's: from the sources of
DeepSpeed, ColossalAI, apex, transformers, came_pytorch, lomo_optim, dadaptation and
bitsandbytes, and LAMB from its paper."""

import math

import numpy as np
from written_out import average, lerp, mean_size, norm, zeros


def moments(s, g, betas, gain=None):
    beta1, beta2 = betas
    s["exp_avg"] = beta1 * zeros(s, "exp_avg", g) + (1 - beta1 if gain is None else gain) * g
    s["exp_avg_sq"] = beta2 * zeros(s, "exp_avg_sq", g) + (1 - beta2) * g * g
    return s["exp_avg"], s["exp_avg_sq"]


def corrections(p, t, h, default):
    """The sums of weights, or 1; numbers by which one may divide where they are 0."""
    used = h.get("bias_correction", default)
    return tuple(p.dtype.type(1 - beta**t if used else 1) for beta in h["betas"])


# --- Adam ---------------------------------------------------------------------


def cpu_adam(p, g, s, t, h):
    """cpu_adam_impl.cpp of DeepSpeed, cpu_adam.cpp of ColossalAI."""
    (beta1, beta2), decay = h["betas"], h["weight_decay"]
    decoupled = h.get("adamw_mode", True)
    if decay > 0 and not decoupled:
        g = decay * p + g
    m = s["exp_avg"] = beta1 * zeros(s, "exp_avg", g) + (1 - beta1) * g
    v = s["exp_avg_sq"] = beta2 * zeros(s, "exp_avg_sq", g) + (1 - beta2) * (g * g)
    c1, c2 = corrections(p, t, h, True)
    update = m / (np.sqrt(v) * (1 / np.sqrt(c2)) + h["eps"])
    if decay > 0 and decoupled:
        p = p - h["lr"] * decay * p
    return p - h["lr"] / c1 * update


def fused_adam(p, g, s, t, h):
    """multi_tensor_adam.cu of apex, DeepSpeed and ColossalAI."""
    decoupled = h.get("adam_w_mode", h.get("adamw_mode", True))
    if not decoupled:
        g = g + h["weight_decay"] * p
    m, v = moments(s, g, h["betas"])
    c1, c2 = corrections(p, t, h, True)
    update = m / c1 / (np.sqrt(v / c2) + h["eps"])
    if decoupled:
        update = update + h["weight_decay"] * p
    return p - h["lr"] * update


# --- LAMB ---------------------------------------------------------------------


def lamb(p, g, s, t, h):
    """Algorithm 2 of the paper; 1 for a length of 0."""
    m, v = moments(s, g, (h["beta1"], h["beta2"]))
    c1, c2 = corrections(p, t, {"betas": (h["beta1"], h["beta2"])}, True)
    update = m / c1 / (np.sqrt(v / c2) + h["eps"]) + h["weight_decay"] * p
    lengths = norm(p), norm(update)
    return p - h["lr"] * (lengths[0] / lengths[1] if 0 not in lengths else 1) * update


def deepspeed_lamb(p, g, s, t, h):
    """fused_lamb_cuda_kernel.cu."""
    m, v = moments(s, g, h["betas"])
    inside = h.get("eps_inside_sqrt")
    denominator = np.sqrt(v + h["eps"]) if inside else np.sqrt(v) + h["eps"]
    update = m / denominator + h["weight_decay"] * p
    lengths, ratio = (norm(p), norm(update)), 1.0
    if lengths[0] != 0 and lengths[1] != 0:
        ratio = lengths[0] / lengths[1]
        ratio = h["max_coeff"] if ratio > h["max_coeff"] else ratio
        ratio = h["min_coeff"] if ratio < h["min_coeff"] else ratio
    c1, c2 = corrections(p, t, h, True)
    return p - h["lr"] * np.sqrt(c2) / c1 * ratio * update


def colossal_lamb(p, g, s, t, h):
    """lamb.py."""
    m, v = moments(s, g, h["betas"])
    update = m / (np.sqrt(v) + h["eps"])
    if h["weight_decay"] != 0:
        update = update + h["weight_decay"] * p
    lengths = norm(p), norm(update)
    ratio = 1.0 if 0 in lengths or h.get("adam") else lengths[0] / lengths[1]
    c1, c2 = corrections(p, t, h, False)
    return p - h["lr"] * np.sqrt(c2) / c1 * ratio * update


def apex_lamb(p, g, s, t, h):
    """multi_tensor_lamb.cu; ``norm`` in ``h`` is that of all gradients."""
    by = h["norm"] / h["max_grad_norm"] if h["norm"] > h["max_grad_norm"] else 1.0
    g, decay = g / p.dtype.type(by), h["weight_decay"]
    decoupled = h.get("adam_w_mode", True)
    if not decoupled:
        g = g + decay * p
    gain = 1 - h["betas"][0] if h.get("grad_averaging", True) else 1.0
    m, v = moments(s, g, h["betas"], gain)
    c1, c2 = corrections(p, t, h, True)
    update = m / c1 / (np.sqrt(v / c2) + h["eps"])
    if decoupled:
        update = update + decay * p
    lengths = norm(p), norm(update)
    adapts = (decay != 0 or h.get("use_nvlamb")) and 0 not in lengths
    return p - h["lr"] * (lengths[0] / lengths[1] if adapts else 1.0) * update


# --- Adafactor and what came of it --------------------------------------------


def by_factors(s, names, square, weight, kept):
    """1 / sqrt of the second moment, of factors where there are two dims."""
    if square.ndim < 2:
        s[names[2]] = kept * zeros(s, names[2], square) + weight * square
        return 1 / np.sqrt(s[names[2]])
    rows, columns = np.mean(square, -1), np.mean(square, -2)
    rows = s[names[0]] = kept * zeros(s, names[0], rows) + weight * rows
    columns = s[names[1]] = kept * zeros(s, names[1], columns) + weight * columns
    of_rows = 1 / np.sqrt(rows / np.mean(rows, -1, keepdims=True))
    return of_rows[..., None] * (1 / np.sqrt(columns))[..., None, :]


SQUARES = ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq")


def clamped(x):
    """torch's clamp(min=1), which keeps NaN."""
    return np.maximum(x, 1.0)


def hf_adafactor(p, g, s, t, h):
    """transformers/optimization.py."""
    rate = min(1e-2, 1 / math.sqrt(t)) if h.get("relative_step", True) else h["lr"]
    size = mean_size(p)
    # Python's max: the first where the second is NaN.
    rate = rate * (size if size > h["eps"][1] else h["eps"][1])
    weight = t ** h["decay_rate"]
    update = by_factors(s, SQUARES, g**2 + h["eps"][0], weight, 1 - weight) * g
    update = update / clamped(mean_size(update) / h["clip_threshold"]) * rate
    if h.get("beta1") is not None:
        update = h["beta1"] * zeros(s, "exp_avg", g) + (1 - h["beta1"]) * update
        s["exp_avg"] = update
    if h["weight_decay"] != 0:
        p = p - h["weight_decay"] * rate * p
    return p - update


def came(p, g, s, t, h):
    """came_pytorch/CAME.py."""
    beta1, beta2, beta3 = h["betas"]
    update = by_factors(s, SQUARES, g**2 + h["eps"][0], 1 - beta2, beta2) * g
    update = update / clamped(mean_size(update) / h["clip_threshold"])
    m = s["exp_avg"] = beta1 * zeros(s, "exp_avg", g) + (1 - beta1) * update
    if p.ndim > 1:
        res = (update - m) ** 2 + h["eps"][1]
        names = ("exp_avg_res_row", "exp_avg_res_col", "")
        update = by_factors(s, names, res, 1 - beta3, beta3) * m
    else:
        update = m
    return p - h["weight_decay"] * h["lr"] * p - h["lr"] * update


def adalomo(p, g, s, t, h):
    """lomo_optim/adalomo.py."""
    weight = t ** h["decay_rate"]
    update = by_factors(s, SQUARES, g**2 + h["eps"][0], weight, 1 - weight) * g
    update = update / clamped(mean_size(update) / h["clip_threshold"])
    size = mean_size(p)
    rate = h["lr"] * (size if size > h["eps"][1] else h["eps"][1])
    return p * (1 - rate * h["weight_decay"]) - rate * update


def lomo(p, g, s, t, h):
    """lomo_optim/lomo.py."""
    return p * (1 - h["lr"] * h["weight_decay"]) - h["lr"] * g


# --- D-Adaptation -------------------------------------------------------------


def dadapt_adam(p, g, s, t, h):
    """dadapt_adam.py of dadaptation; ``d`` and its numerator are of one tensor here."""
    beta1, beta2 = h["beta1"], h["beta2"]
    root, d = math.sqrt(beta2), s.setdefault("d", 1e-6)
    rate = d * h["lr"]
    old = np.sqrt(zeros(s, "exp_avg_sq", g)) + h["eps"]
    dot = rate * float(np.sum(g * (zeros(s, "s", g) / old), dtype=np.float64))
    m, v = moments(s, g, (beta1, beta2), rate * (1 - beta1))
    s["s"] = root * s["s"] + rate * (1 - root) * g
    weighted = root * s.get("numerator", 0.0) + (1 - root) * dot
    size = float(np.sum(np.abs(s["s"]), dtype=np.float64))
    if size == 0:
        return p
    estimate = weighted / ((1 - root) * size)
    s["numerator"], s["d"] = weighted, estimate if estimate > d else d
    return p - m / (np.sqrt(v) + h["eps"])


def dadapt_sgd(p, g, s, t, h):
    """dadapt_sgd.py of dadaptation, of one tensor."""
    start, d = s.setdefault("x0", p), s.setdefault("d", 1e-6)
    rate = d * h["lr"] / s.setdefault("g0_norm", norm(g))
    weighted = s.get("numerator", 0.0) + rate * np.sum(g * zeros(s, "s", g), dtype=np.float64)
    s["s"] = s["s"] + p.dtype.type(rate) * g
    estimate = float(2 * weighted / norm(s["s"]))
    s["numerator"], s["d"] = weighted, estimate if estimate > d else d
    return h["momentum"] * p + (1 - h["momentum"]) * (start - s["s"])


# --- Muon's authors -----------------------------------------------------------


def orthogonalized(u):
    """Of muon.py and toy_train.py, with all that is bfloat16 there in the dtype of ``u``."""
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / (norm(x) + x.dtype.type(1e-7))
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if u.shape[0] > u.shape[1] else x


def adam_beside(p, g, s, t, h, names, betas, eps_of, decay):
    m, v = average(s, names[0], g, betas[0]), average(s, names[1], g * g, betas[1])
    root = math.sqrt(1 - betas[1] ** t)
    u = m / (np.sqrt(v) + p.dtype.type(eps_of(root)))
    return p * (1 - h["lr"] * decay) - h["lr"] * root / (1 - betas[0] ** t) * u


def jordan(p, g, s, t, h):
    """muon.py."""
    decay = h["weight_decay"]
    if not h.get("use_muon", True):
        names = ("exp_avg", "exp_avg_sq")
        return adam_beside(p, g, s, t, h, names, h["betas"], lambda root: h["eps"] * root, decay)
    v = average(s, "momentum_buffer", g, h["momentum"])
    u = orthogonalized(lerp(g, v, h["momentum"]))
    rate = h["lr"] * math.sqrt(max(1, p.shape[0] / p.shape[1]))
    return p * (1 - h["lr"] * decay) - rate * u


def moonlight(p, g, s, t, h):
    """examples/toy_train.py."""
    if not h["use_muon"]:
        names, eps = ("moment1", "moment2"), h["adamw_eps"]
        return adam_beside(p, g, s, t, h, names, h["adamw_betas"], lambda root: eps, h["wd"])
    v = s["momentum_buffer"] = h["momentum"] * zeros(s, "momentum_buffer", g) + g
    u = orthogonalized(g + h["momentum"] * v if h["nesterov"] else v)
    return p * (1 - h["lr"] * h["wd"]) - h["lr"] * 0.2 * math.sqrt(max(p.shape)) * u


# --- bitsandbytes -------------------------------------------------------------
# backends/default/ops.py, _optimizer_update_32bit, without a bound of the update's norm.


def coupled(p, g, h):
    return g + p * h["weight_decay"] if h["weight_decay"] > 0 else g


def bnb_adam(p, g, s, t, h):
    """Its Adam and AdamW."""
    m, v = moments(s, g, h["betas"])
    beta1, beta2 = h["betas"]
    root = math.sqrt(1 - beta2**t)
    if h["weight_decay"] > 0:
        p = p * (1 - h["lr"] * h["weight_decay"])
    step_size = -h["lr"] * root / (1 - beta1**t)
    return p + step_size * (m / (np.sqrt(v) + p.dtype.type(h["eps"] * root)))


def bnb_lion(p, g, s, t, h):
    beta1, beta2 = h["betas"]
    m = zeros(s, "exp_avg", g)
    if h["weight_decay"] > 0:
        p = p * (1 - h["lr"] * h["weight_decay"])
    sign = np.nan_to_num(np.sign(m * beta1 + (1 - beta1) * g), nan=0.0)
    s["exp_avg"] = m * beta2 + (1 - beta2) * g
    return p - h["lr"] * sign


def bnb_momentum(p, g, s, t, h):
    g = coupled(p, g, h)
    s["momentum_buffer"] = g if t == 1 else s["momentum_buffer"] * h["momentum"] + g
    return p - h["lr"] * s["momentum_buffer"]


def bnb_rmsprop(p, g, s, t, h):
    g, alpha = coupled(p, g, h), h["betas"][0]
    v = s["square_avg"] = zeros(s, "square_avg", g) * alpha + (1 - alpha) * g * g
    return p - h["lr"] * g / (np.sqrt(v) + p.dtype.type(h["eps"]))


def bnb_adagrad(p, g, s, t, h):
    g = coupled(p, g, h)
    v = s["sum"] = zeros(s, "sum", g) + g * g
    return p - h["lr"] * g / (np.sqrt(v) + p.dtype.type(h["eps"]))
