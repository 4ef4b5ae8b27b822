# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The optimizers of torch.optim and Lion written out in numpy, one operation after the
other as their sources have them, so that what they make of infinities and NaN is theirs.

A function steps one parameter: ``f(p, g, s, t, h)`` returns the new parameter and moves the
states ``s``, at the ``t``-th step with the arguments ``h``. All is computed in the dtype of
``p``: numbers that are no arrays take it, as scalars do in torch.
"""

import math

import numpy as np


def zeros(s, name, like):
    return s.setdefault(name, np.zeros_like(like))


def lerp(start, end, weight):
    """torch's, which begins at the nearer end."""
    if abs(weight) < 0.5:
        return start + weight * (end - start)
    return end - (end - start) * (1 - weight)


def decayed(p, g, h):
    """The gradient of the loss and of a penalty."""
    return g + h["weight_decay"] * p if h.get("weight_decay", 0) != 0 else g


def average(s, name, g, beta):
    s[name] = lerp(zeros(s, name, g), g, 1 - beta)
    return s[name]


def squares(s, name, g, beta):
    s[name] = beta * zeros(s, name, g) + (1 - beta) * g * g
    return s[name]


# --- torch.optim --------------------------------------------------------------


def sgd(p, g, s, t, h):
    g = decayed(p, g, h)
    mu = h.get("momentum", 0.0)
    if mu != 0:
        old = s.get("momentum_buffer")
        buffer = g if old is None else mu * old + (1 - h.get("dampening", 0.0)) * g
        s["momentum_buffer"] = buffer
        g = g + mu * buffer if h.get("nesterov") else buffer
    return p - h["lr"] * g


def asgd(p, g, s, t, h):
    lr, lambd = h["lr"], h["lambd"]
    eta, mu = s.get("eta", lr), s.get("mu", 1.0)
    g = decayed(p, g, h)
    p = p * (1 - lambd * eta) - eta * g
    average = zeros(s, "ax", p)
    s["ax"] = p if mu == 1 else average + (p - average) * mu
    s["eta"] = lr / (1 + lambd * lr * t) ** h["alpha"]
    s["mu"] = 1 / max(1, t - h["t0"])
    return p


def adadelta(p, g, s, t, h):
    g, rho = decayed(p, g, h), h["rho"]
    v, u = squares(s, "square_avg", g, rho), zeros(s, "acc_delta", g)
    delta = np.sqrt(u + h["eps"]) / np.sqrt(v + h["eps"]) * g
    s["acc_delta"] = rho * u + (1 - rho) * delta * delta
    return p - h["lr"] * delta


def adagrad(p, g, s, t, h):
    g = decayed(p, g, h)
    s["sum"] = zeros(s, "sum", g) + g * g
    rate = h["lr"] / (1 + (t - 1) * h["lr_decay"])
    return p - rate * g / (np.sqrt(s["sum"]) + h["eps"])


def adam(p, g, s, t, h):
    (beta1, beta2), lr = h["betas"], h["lr"]
    if h.get("decoupled"):
        p = p * (1 - lr * h["weight_decay"])
    else:
        g = decayed(p, g, h)
    m, v = average(s, "exp_avg", g, beta1), squares(s, "exp_avg_sq", g, beta2)
    if h.get("amsgrad"):
        v = s["max_exp_avg_sq"] = np.maximum(zeros(s, "max_exp_avg_sq", g), v)
    denominator = np.sqrt(v) / math.sqrt(1 - beta2**t) + h["eps"]
    return p - lr / (1 - beta1**t) * m / denominator


def adamw(p, g, s, t, h):
    return adam(p, g, s, t, {**h, "decoupled": True})


def adamax(p, g, s, t, h):
    (beta1, beta2), g = h["betas"], decayed(p, g, h)
    m = average(s, "exp_avg", g, beta1)
    s["exp_inf"] = np.maximum(zeros(s, "exp_inf", g) * beta2, np.abs(g) + h["eps"])
    return p - h["lr"] / (1 - beta1**t) * m / s["exp_inf"]


def nadam(p, g, s, t, h):
    (beta1, beta2), lr, g = h["betas"], h["lr"], decayed(p, g, h)
    mu, after = (beta1 * (1 - 0.5 * 0.96 ** (k * h["momentum_decay"])) for k in (t, t + 1))
    product = s.get("mu_product", 1.0) * mu
    s["mu_product"] = product
    m, v = average(s, "exp_avg", g, beta1), squares(s, "exp_avg_sq", g, beta2)
    denominator = np.sqrt(v / (1 - beta2**t)) + h["eps"]
    p = p - lr * (1 - mu) / (1 - product) * g / denominator
    return p - lr * after / (1 - product * after) * m / denominator


def radam(p, g, s, t, h):
    (beta1, beta2), g = h["betas"], decayed(p, g, h)
    m, v = average(s, "exp_avg", g, beta1), squares(s, "exp_avg_sq", g, beta2)
    corrected = m / (1 - beta1**t)
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * t * beta2**t / (1 - beta2**t)
    if length <= 5:
        return p - h["lr"] * corrected
    part = (length - 4) * (length - 2) * longest
    rectified = math.sqrt(part / ((longest - 4) * (longest - 2) * length))
    adaptive = math.sqrt(1 - beta2**t) / (np.sqrt(v) + h["eps"])
    return p - h["lr"] * rectified * corrected * adaptive


def rmsprop(p, g, s, t, h):
    g = decayed(p, g, h)
    v = squares(s, "square_avg", g, h["alpha"])
    if h.get("centered"):
        a = average(s, "grad_avg", g, h["alpha"])
        v = v - a * a
    update = g / (np.sqrt(v) + h["eps"])
    if h.get("momentum", 0) > 0:
        update = h["momentum"] * zeros(s, "momentum_buffer", g) + update
        s["momentum_buffer"] = update
    return p - h["lr"] * update


def rprop(p, g, s, t, h):
    (minus, plus), (least, most) = h["etas"], h["step_sizes"]
    turn = np.sign(g * zeros(s, "prev", g))
    factor = np.where(turn > 0, plus, np.where(turn < 0, minus, 1.0)).astype(p.dtype)
    size = s.get("step_size", np.full_like(p, h["lr"])) * factor
    s["step_size"] = np.clip(size, least, most)
    g = np.where(turn < 0, 0, g)
    s["prev"] = g
    # torch's sign of NaN is 0.
    return p - np.where(np.isnan(g), 0, np.sign(g)) * s["step_size"]


def norm(x):
    """Squares in the dtype of ``x``, which may be infinite where the norm is not."""
    return x.dtype.type(math.sqrt(np.sum(x * x, dtype=np.float64)))


def mean_size(x):
    return norm(x) / math.sqrt(x.size)


def first_larger(first, second):
    """Python's max, which is ``first`` where ``second`` is NaN."""
    return second if second > first else first


def torch_adafactor(p, g, s, t, h):
    (eps1, eps2), weight = h["eps"], t ** h["beta2_decay"]
    eps1 = float(np.finfo(p.dtype).eps) if eps1 is None else eps1
    alpha = first_larger(eps2, mean_size(p)) * min(h["lr"], 1 / math.sqrt(t))
    p = p * (1 - h["lr"] * h["weight_decay"])
    if p.ndim < 2:
        s["variance"] = lerp(zeros(s, "variance", g), g * g, weight)
        v = s["variance"]
    else:
        rows, columns = (np.mean(g * g, axis, keepdims=True) for axis in (-1, -2))
        s["row_var"] = lerp(zeros(s, "row_var", rows), rows, weight)
        s["col_var"] = lerp(zeros(s, "col_var", columns), columns, weight)
        mean = np.maximum(np.mean(s["row_var"], -2, keepdims=True), eps1)
        v = s["row_var"] * s["col_var"] / mean
    update = g / np.sqrt(np.maximum(v, eps1 * eps1))
    return p - alpha / first_larger(1.0, mean_size(update) / h["d"]) * update


# --- of authors ---------------------------------------------------------------


def lion(p, g, s, t, h):
    (beta1, beta2), m = h["betas"], zeros(s, "exp_avg", g)
    p = p * (1 - h["lr"] * h["weight_decay"])
    update = beta1 * m + (1 - beta1) * g
    s["exp_avg"] = beta2 * m + (1 - beta2) * g
    return p - h["lr"] * np.where(np.isnan(update), 0, np.sign(update))


def sophia(p, g, s, t, h):
    """The authors', in a step for which nothing was estimated."""
    beta1, _ = h["betas"]
    p = p * (1 - h["lr"] * h["weight_decay"])
    m = s["exp_avg"] = beta1 * zeros(s, "exp_avg", g) + (1 - beta1) * g
    below = h["rho"] * 5120 * zeros(s, "hessian", g) + 1e-15
    return p - h["lr"] * np.sign(m) * np.minimum(np.abs(m) / below, 1)


def sm3(p, g, s, t, h):
    """pytorch_optimizer's."""
    dims = range(g.ndim) if 1 <= g.ndim <= 4 else [None]
    others = [tuple(e for e in range(g.ndim) if e != d) if d is not None else () for d in dims]
    nu = None
    for k, over in enumerate(others):
        mu = zeros(s, f"accumulator_{k}", g.max(axis=over, keepdims=True) if g.size else g)
        nu = mu if nu is None else np.minimum(nu, mu)
    if h["beta"] > 0:
        nu = nu * h["beta"]
    nu = nu + (1 - h["beta"]) * g * g
    for k, over in enumerate(others):
        most = nu.max(axis=over, keepdims=True) if g.size else nu
        mu = s[f"accumulator_{k}"]
        s[f"accumulator_{k}"] = np.maximum(mu, most) if h["beta"] > 0 else most
    u = g / np.sqrt(nu + h["eps"])
    if h["momentum"] > 0:
        buffer = zeros(s, "momentum_buffer", g)
        u = s["momentum_buffer"] = h["momentum"] * buffer + (1 - h["momentum"]) * u
    return p - h["lr"] * u


def muon(p, g, s, t, h):
    """torch's, with all that is bfloat16 there in the dtype of ``p``."""
    rows, columns = p.shape
    v = average(s, "momentum_buffer", g, h["momentum"])
    u = lerp(g, v, h["momentum"]) if h["nesterov"] else v
    x = u.T if rows > columns else u
    x = x / max(norm(x), x.dtype.type(h["eps"]))
    a, b, c = h["ns_coefficients"]
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    if h["adjust_lr_fn"] == "match_rms_adamw":
        rate = h["lr"] * 0.2 * math.sqrt(max(rows, columns))
    else:
        rate = h["lr"] * math.sqrt(max(1, rows / columns))
    return p * (1 - h["lr"] * h["weight_decay"]) - rate * (x.T if rows > columns else x)


def normuon(p, g, s, t, h):
    """The authors', with all that is bfloat16 there in the dtype of ``p``."""
    rows, columns = p.shape
    small = p.dtype.type
    v = average(s, "momentum_buffer", g, h["momentum"])
    u = lerp(g, v, h["momentum"]) if h["nesterov"] else v
    x = u.T if rows > columns else u
    x = x / (norm(x) + small(1e-7))
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * (gram @ gram)) @ x
    x = x.T if rows > columns else x
    square = (x * x).mean(1, keepdims=True)
    y = x / (np.sqrt(average(s, "second_momentum_buffer", square, h["beta2"])) + small(1e-10))
    y = y * (norm(x) / (norm(y) + small(1e-10)))
    rate = h["lr"] * math.sqrt(max(1, rows / columns))
    return p * (1 - h["lr"] * h["weight_decay"]) - rate * y


def galore_adamw(p, g, s, t, h):
    """The authors' AdamW, of a group without a rank; of bitsandbytes where there are bits."""
    beta1, beta2 = h["betas"]
    m = s["exp_avg"] = beta1 * zeros(s, "exp_avg", g) + (1 - beta1) * g
    v = squares(s, "exp_avg_sq", g, beta2)
    root = math.sqrt(1 - beta2**t)
    alpha = h["lr"] * root / (1 - beta1**t) if h.get("correct_bias", True) else h["lr"]
    eps = h["eps"] * root if "nbits" in h else h["eps"]
    p = p - alpha * (m / (np.sqrt(v) + p.dtype.type(eps)))
    return p - h["lr"] * h["weight_decay"] * p


def soap(p, g, s, t, h):
    """The authors', of what is no matrix: the first step moves nothing."""
    beta1, beta2 = h["betas"]
    m, v = zeros(s, "exp_avg", g), zeros(s, "exp_avg_sq", g)
    if t > 1:
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        u = m / (np.sqrt(v) + p.dtype.type(h["eps"]))
        alpha = h["lr"] * math.sqrt(1 - beta2 ** (t - 1)) / (1 - beta1 ** (t - 1))
        p = p - alpha * u
        p = p - h["lr"] * h["weight_decay"] * p
    s["exp_avg"], s["exp_avg_sq"] = m, v
    return p


def shampoo(p, g, s, t, h):
    """The grafting method of what is no matrix."""
    beta1, mu = h["betas"][0], h["momentum"]
    f = average(s, "filtered_grad", g, beta1) / p.dtype.type(1 - beta1**t)
    if h["grafting_type"] == "adam":
        v = squares(s, "adagrad", g, 0.999) / p.dtype.type(1 - 0.999**t)
    else:
        v = s["adagrad"] = zeros(s, "adagrad", g) + g * g
    d = f / (np.sqrt(v) + p.dtype.type(h["grafting_epsilon"])) + h["weight_decay"] * p
    if mu != 0:
        d = s["momentum_buffer"] = mu * zeros(s, "momentum_buffer", g) + d
    return p - h["lr"] * d


def lars(p, g, s, t, h):
    """pytorch_optimizer's."""
    if p.ndim > 1:
        divisor = norm(g) + h["weight_decay"] * norm(p)
        adapts = norm(p) > 0 and divisor > 0
        ratio = h["trust_coefficient"] * norm(p) / divisor if adapts else 1.0
        g = (g + h["weight_decay"] * p) * ratio
    if h["momentum"] > 0:
        buffer = h["momentum"] * zeros(s, "momentum_buffer", g) + g
        s["momentum_buffer"] = buffer
        g = g + h["momentum"] * buffer if h.get("nesterov") else buffer
    return p - h["lr"] * g


def dion(p, g, s, t, h):
    """The package's, of a group with "lion" or "adamw"."""
    beta1, beta2 = np.float64(h["beta1"]), np.float64(h["beta2"])
    m, kept = zeros(s, "momentum", g), p * (1 - h["lr"] * h["weight_decay"])
    if h["algorithm"] == "lion":
        direction = np.sign(lerp(m, g, 1 - h["beta1"]))
        average(s, "momentum", g, h["beta2"])
        return kept - h["lr"] * direction
    m = average(s, "momentum", g, h["beta1"])
    v = squares(s, "variance", g, h["beta2"])
    denom = np.sqrt(v) / p.dtype.type(np.sqrt(1 - beta2**t)) + p.dtype.type(h["epsilon"])
    return kept - p.dtype.type(h["lr"] / (1 - beta1**t)) * (m / denom)
