# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The zoo's optimizers once more, in numpy: one rounded operation after the other.

Written from the papers and torch's documentation, not from the definitions.
Each function takes the arrays by name, in their storage types, and returns the
new ones. ``hypers`` must be complete; ``count`` starts at 1.
"""

import numpy as np
from oracle import bf16_from, bf16_to_f32


class Numbers:
    """Arithmetic in the compute type that belongs to the parameter's."""

    def __init__(self, param):
        self.type = np.float64 if param.dtype == np.float64 else np.float32

    def load(self, array):
        wide = bf16_to_f32(array) if array.dtype == np.uint16 else array
        return wide.astype(self.type)

    def scalar(self, value):
        """A scalar where it meets a tensor."""
        return self.type(value)

    def keep(self, value, like):
        """The value rounded as ``like`` is stored, and the same in the compute type."""
        stored = bf16_from(value) if like.dtype == np.uint16 else value.astype(like.dtype)
        return stored, self.load(stored)


def lerp(start, end, weight):
    """As torch.lerp: from the end that is nearer."""
    if weight < 0.5:
        return start + weight * (end - start)
    return end + (weight - type(weight)(1)) * (end - start)


def mean_of_squares(n, old, g, beta):
    """beta * old + ((1 - beta) * g) * g, so that g * g may overflow where this does not."""
    return old * n.scalar(beta) + g * n.scalar(1 - np.float64(beta)) * g


def integer_power(base, exponent):
    """beta^t, by squaring."""
    result, factor = np.float64(1), np.float64(base)
    while exponent:
        if exponent % 2:
            result *= factor
        factor *= factor
        exponent //= 2
    return result


def adamw(arrays, hypers, options, count, fresh):
    del fresh
    n = Numbers(arrays["param"])
    theta, g, m, v = (n.load(arrays[k]) for k in ("param", "grad", "exp_avg", "exp_avg_sq"))
    lr, beta1, beta2 = (np.float64(hypers[k]) for k in ("lr", "beta1", "beta2"))
    new = {}
    if options.get("maximize"):
        g = -g
    theta = theta * n.scalar(1 - lr * np.float64(hypers["weight_decay"]))
    new["exp_avg"], m = n.keep(lerp(m, g, n.scalar(1 - beta1)), arrays["exp_avg"])
    new["exp_avg_sq"], v = n.keep(mean_of_squares(n, v, g, beta2), arrays["exp_avg_sq"])
    if options.get("amsgrad"):
        largest = arrays["max_exp_avg_sq"]
        new["max_exp_avg_sq"], v = n.keep(np.maximum(n.load(largest), v), largest)
    correction1 = 1 - integer_power(beta1, count)
    root2 = np.sqrt(1 - integer_power(beta2, count))
    denominator = np.sqrt(v) + n.scalar(np.float64(hypers["eps"]) * root2)
    theta = theta - m / denominator * n.scalar(lr / correction1 * root2)
    new["param"], _ = n.keep(theta, arrays["param"])
    return new


def sgd(arrays, hypers, options, count, fresh):
    del count
    n = Numbers(arrays["param"])
    theta, g = n.load(arrays["param"]), n.load(arrays["grad"])
    momentum = n.scalar(hypers["momentum"])
    new = {}
    if options.get("maximize"):
        g = -g
    if hypers["weight_decay"] != 0:
        g = g + theta * n.scalar(hypers["weight_decay"])
    direction = g
    if hypers["momentum"] != 0:
        old = arrays["momentum_buffer"]
        gain = n.scalar(1 - np.float64(hypers["dampening"]))
        later = g if fresh else n.load(old) * momentum + g * gain
        new["momentum_buffer"], buffer = n.keep(later, old)
        direction = g + buffer * momentum if options.get("nesterov") else buffer
    theta = theta - direction * n.scalar(hypers["lr"])
    new["param"], _ = n.keep(theta, arrays["param"])
    return new


def lion(arrays, hypers, options, count, fresh):
    del count, fresh
    n = Numbers(arrays["param"])
    theta, g, m = (n.load(arrays[k]) for k in ("param", "grad", "exp_avg"))
    lr, beta1, beta2 = (np.float64(hypers[k]) for k in ("lr", "beta1", "beta2"))
    if options.get("maximize"):
        g = -g
    theta = theta * n.scalar(1 - lr * np.float64(hypers["weight_decay"]))
    blend = m * n.scalar(beta1) + g * n.scalar(1 - beta1)
    direction = np.where(blend > 0, n.scalar(1), np.where(blend < 0, n.scalar(-1), n.scalar(0)))
    theta = theta - direction * n.scalar(lr)
    new = {}
    new["exp_avg"], _ = n.keep(m * n.scalar(beta2) + g * n.scalar(1 - beta2), arrays["exp_avg"])
    new["param"], _ = n.keep(theta, arrays["param"])
    return new


def sophia(arrays, hypers, options, count, fresh):
    del count, fresh
    n = Numbers(arrays["param"])
    theta, g, m, h = (n.load(arrays[k]) for k in ("param", "grad", "exp_avg", "hessian"))
    lr, beta1, beta2 = (np.float64(hypers[k]) for k in ("lr", "beta1", "beta2"))
    new = {}
    if options.get("maximize"):
        g = -g
    new["hessian"] = arrays["hessian"]
    if hypers["refresh"] != 0:
        new["estimate"] = arrays["estimate"]
        h = h * n.scalar(beta2) + n.load(arrays["estimate"]) * n.scalar(1 - beta2)
        new["hessian"], h = n.keep(h, arrays["hessian"])
    theta = theta * n.scalar(1 - lr * np.float64(hypers["weight_decay"]))
    m = m * n.scalar(beta1) + g * n.scalar(1 - beta1)
    new["exp_avg"], m = n.keep(m, arrays["exp_avg"])
    below = h * n.scalar(np.float64(hypers["rho"]) * np.float64(hypers["bs"]))
    ratio = np.minimum(np.abs(m) / (below + n.scalar(hypers["eps"])), n.scalar(1))
    theta = theta - np.sign(m) * ratio * n.scalar(lr)
    new["param"], _ = n.keep(theta, arrays["param"])
    return new


FORMULAS = {"adamw": adamw, "sgd": sgd, "lion": lion, "sophia": sophia}

# Every hyper-parameter away from what would hide it.
HYPERS = {
    "adamw": {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-5, "weight_decay": 0.037},
    "sgd": {"lr": 0.0217, "momentum": 0.87, "dampening": 0.13, "weight_decay": 0.029},
    "lion": {"lr": 0.0031, "beta1": 0.83, "beta2": 0.971, "weight_decay": 0.037},
    "sophia": {
        "lr": 0.0123,
        "beta1": 0.83,
        "beta2": 0.971,
        "rho": 0.37,
        "eps": 3e-5,
        "weight_decay": 0.037,
        "bs": 3.0,
        "refresh": 1.0,
    },
}
OPTIONS = {
    "adamw": ["amsgrad", "maximize"], "sgd": ["nesterov", "maximize"], "lion": ["maximize"],
    "sophia": ["maximize"],
}  # fmt: skip


def state_names(name, hypers, options):
    """The states that exist."""
    if name == "sgd":
        return ["momentum_buffer"] if hypers["momentum"] != 0 else []
    if name == "sophia":
        return ["exp_avg", "hessian", *(["estimate"] if hypers["refresh"] != 0 else [])]
    names = ["exp_avg"] if name == "lion" else ["exp_avg", "exp_avg_sq"]
    return [*names, "max_exp_avg_sq"] if options.get("amsgrad") else names
