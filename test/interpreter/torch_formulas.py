# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""More of the zoo's elementwise optimizers in numpy, as in ``formulas.py``: one
rounded operation after the other, written from the papers and torch's documentation.
"""

import numpy as np
from formulas import Numbers, integer_power, lerp, mean_of_squares

F64 = np.float64


def signed(n, grad, options):
    g = n.load(grad)
    return -g if options.get("maximize") else g


def with_l2(n, g, theta, hypers):
    """The gradient of the loss and of a penalty on large parameters."""
    return g + theta * n.scalar(hypers["weight_decay"]) if hypers["weight_decay"] != 0 else g


def decayed(n, arrays, hypers, options):
    """Parameter and gradient after the weight decay of either kind."""
    theta, g = n.load(arrays["param"]), signed(n, arrays["grad"], options)
    if options["decoupled_weight_decay"]:
        return theta * n.scalar(1 - F64(hypers["lr"]) * F64(hypers["weight_decay"])), g
    return theta, with_l2(n, g, theta, hypers)


def moments(n, arrays, g, hypers, new):
    """The averages of the gradient and of its square, which ``new`` gets."""
    m, v = n.load(arrays["exp_avg"]), n.load(arrays["exp_avg_sq"])
    weight = n.scalar(1 - F64(hypers["beta1"]))
    new["exp_avg"], m = n.keep(lerp(m, g, weight), arrays["exp_avg"])
    new["exp_avg_sq"], v = n.keep(mean_of_squares(n, v, g, hypers["beta2"]), arrays["exp_avg_sq"])
    return m, v


def corrections(hypers, count):
    """1 - beta^t of both betas."""
    return [1 - integer_power(hypers[k], count) for k in ("beta1", "beta2")]


def adam(arrays, hypers, options, count, fresh):
    del fresh
    n, new = Numbers(arrays["param"]), {}
    theta, g = decayed(n, arrays, hypers, options)
    m, v = moments(n, arrays, g, hypers, new)
    if options["amsgrad"]:
        largest = arrays["max_exp_avg_sq"]
        new["max_exp_avg_sq"], v = n.keep(np.maximum(n.load(largest), v), largest)
    c1, c2 = corrections(hypers, count)
    denominator = np.sqrt(v) + n.scalar(F64(hypers["eps"]) * np.sqrt(c2))
    theta = theta - m / denominator * n.scalar(F64(hypers["lr"]) / c1 * np.sqrt(c2))
    new["param"], _ = n.keep(theta, arrays["param"])
    return new


def radam(arrays, hypers, options, count, fresh):
    del fresh
    n, new = Numbers(arrays["param"]), {}
    theta, g = decayed(n, arrays, hypers, options)
    m, v = moments(n, arrays, g, hypers, new)
    c1, c2 = corrections(hypers, count)
    beta2 = F64(hypers["beta2"])
    most = F64(2) / (1 - beta2) - 1
    length = most - F64(2) * F64(count) * integer_power(beta2, count) / c2
    rate, denominator = F64(hypers["lr"]) / c1, n.scalar(1)
    if length > 5:
        above = (length - 4) * (length - 2) * most
        below = (most - 4) * (most - 2) * length
        rate = rate * np.sqrt(c2) * np.sqrt(above / below)
        denominator = np.sqrt(v) + n.scalar(hypers["eps"])
    new["param"], _ = n.keep(theta - m / denominator * n.scalar(rate), arrays["param"])
    return new


def adamax(arrays, hypers, options, count, fresh):
    del fresh
    n, new = Numbers(arrays["param"]), {}
    theta = n.load(arrays["param"])
    g = with_l2(n, signed(n, arrays["grad"], options), theta, hypers)
    m, u = n.load(arrays["exp_avg"]), n.load(arrays["exp_inf"])
    weight = n.scalar(1 - F64(hypers["beta1"]))
    new["exp_avg"], m = n.keep(lerp(m, g, weight), arrays["exp_avg"])
    least = np.abs(g) + n.scalar(hypers["eps"])
    faded = u * n.scalar(hypers["beta2"])
    new["exp_inf"], u = n.keep(np.maximum(faded, least), arrays["exp_inf"])
    rate = n.scalar(F64(hypers["lr"]) / corrections(hypers, count)[0])
    new["param"], _ = n.keep(theta - m / u * rate, arrays["param"])
    return new


def adagrad(arrays, hypers, options, count, fresh):
    n, new = Numbers(arrays["param"]), {}
    theta = n.load(arrays["param"])
    g = with_l2(n, signed(n, arrays["grad"], options), theta, hypers)
    before = n.scalar(hypers["initial_accumulator_value"]) if fresh else n.load(arrays["sum"])
    new["sum"], total = n.keep(before + g * g, arrays["sum"])
    rate = F64(hypers["lr"]) / (1 + (F64(count) - 1) * F64(hypers["lr_decay"]))
    theta = theta - g / (np.sqrt(total) + n.scalar(hypers["eps"])) * n.scalar(rate)
    new["param"], _ = n.keep(theta, arrays["param"])
    return new


def adadelta(arrays, hypers, options, count, fresh):
    del count, fresh
    n, new = Numbers(arrays["param"]), {}
    theta = n.load(arrays["param"])
    g = with_l2(n, signed(n, arrays["grad"], options), theta, hypers)
    rho, eps = hypers["rho"], n.scalar(hypers["eps"])
    v, u = n.load(arrays["square_avg"]), n.load(arrays["acc_delta"])
    new["square_avg"], v = n.keep(mean_of_squares(n, v, g, rho), arrays["square_avg"])
    delta = np.sqrt(u + eps) / np.sqrt(v + eps) * g
    new["acc_delta"], _ = n.keep(mean_of_squares(n, u, delta, rho), arrays["acc_delta"])
    new["param"], _ = n.keep(theta - delta * n.scalar(hypers["lr"]), arrays["param"])
    return new


def rmsprop(arrays, hypers, options, count, fresh):
    del count, fresh
    n, new = Numbers(arrays["param"]), {}
    theta = n.load(arrays["param"])
    g = with_l2(n, signed(n, arrays["grad"], options), theta, hypers)
    old = n.load(arrays["square_avg"])
    new["square_avg"], square = n.keep(
        mean_of_squares(n, old, g, hypers["alpha"]), arrays["square_avg"]
    )
    if options["centered"]:
        a = n.load(arrays["grad_avg"])
        new["grad_avg"], a = n.keep(
            lerp(a, g, n.scalar(1 - F64(hypers["alpha"]))), arrays["grad_avg"]
        )
        square = square - a * a
    direction = g / (np.sqrt(square) + n.scalar(hypers["eps"]))
    if hypers["momentum"] > 0:
        old = arrays["momentum_buffer"]
        new["momentum_buffer"], direction = n.keep(
            n.load(old) * n.scalar(hypers["momentum"]) + direction, old
        )
    new["param"], _ = n.keep(theta - direction * n.scalar(hypers["lr"]), arrays["param"])
    return new


def rprop(arrays, hypers, options, count, fresh):
    del count
    n, new = Numbers(arrays["param"]), {}
    theta, g = n.load(arrays["param"]), signed(n, arrays["grad"], options)
    product = g * n.load(arrays["prev"])
    size = n.load(arrays["step_size"])
    if fresh:
        size = np.full_like(size, n.scalar(hypers["lr"]))
    # Neither holds of NaN.
    size = np.where(product > 0, size * n.scalar(hypers["eta_plus"]), size)
    size = np.where(product < 0, size * n.scalar(hypers["eta_minus"]), size)
    size = np.maximum(size, n.scalar(hypers["step_size_min"]))
    size = np.minimum(size, n.scalar(hypers["step_size_max"]))
    new["step_size"], size = n.keep(size, arrays["step_size"])
    new["prev"], g = n.keep(np.where(product < 0, n.scalar(0), g), arrays["prev"])
    direction = np.where(g > 0, n.scalar(1), np.where(g < 0, n.scalar(-1), n.scalar(0)))
    new["param"], _ = n.keep(theta - direction * size, arrays["param"])
    return new


def cpu_adam(arrays, hypers, options, count, fresh):
    del fresh
    n, new = Numbers(arrays["param"]), {}
    theta, g = n.load(arrays["param"]), n.load(arrays["grad"])
    lr, decay = F64(hypers["lr"]), F64(hypers["weight_decay"])
    if decay > 0 and not options["adamw_mode"]:
        g = g + theta * n.scalar(decay)
    gains = [n.scalar(1 - F64(hypers[k])) for k in ("beta1", "beta2")]
    kept = n.load(arrays["exp_avg"]) * n.scalar(hypers["beta1"])
    new["exp_avg"], m = n.keep(kept + g * gains[0], arrays["exp_avg"])
    kept = n.load(arrays["exp_avg_sq"]) * n.scalar(hypers["beta2"])
    new["exp_avg_sq"], v = n.keep(kept + g * g * gains[1], arrays["exp_avg_sq"])
    c1, inverse = F64(1), F64(1)
    if options["bias_correction"]:
        c1, c2 = corrections(hypers, count)
        inverse = 1 / np.sqrt(c2)
    ratio = m / (np.sqrt(v) * n.scalar(inverse) + n.scalar(hypers["eps"]))
    if decay > 0 and options["adamw_mode"]:
        theta = theta - theta * n.scalar(lr * decay)
    new["param"], _ = n.keep(theta - ratio * n.scalar(lr / c1), arrays["param"])
    return new


FORMULAS = {
    "adam": adam, "radam": radam, "adamax": adamax, "adagrad": adagrad, "adadelta": adadelta,
    "rmsprop": rmsprop, "rprop": rprop, "cpu_adam": cpu_adam,
}  # fmt: skip

_ADAM = {"lr": 0.0123, "beta1": 0.83, "beta2": 0.971, "eps": 3e-5, "weight_decay": 0.037}
HYPERS = {
    "adam": _ADAM, "radam": _ADAM, "adamax": _ADAM, "cpu_adam": _ADAM,
    "adagrad": {"lr": 0.0123, "lr_decay": 0.013, "weight_decay": 0.037,
                "initial_accumulator_value": 0.3, "eps": 3e-5},
    "adadelta": {"lr": 0.83, "rho": 0.87, "eps": 3e-4, "weight_decay": 0.037},
    "rmsprop": {"lr": 0.0123, "alpha": 0.87, "eps": 3e-5, "weight_decay": 0.037,
                "momentum": 0.83},
    "rprop": {"lr": 0.0123, "eta_minus": 0.43, "eta_plus": 1.3, "step_size_min": 3e-3,
              "step_size_max": 0.05},
}  # fmt: skip
OPTIONS = {
    "adam": ["amsgrad", "maximize", "decoupled_weight_decay"],
    "radam": ["decoupled_weight_decay", "maximize"],
    "adamax": ["maximize"], "adagrad": ["maximize"], "adadelta": ["maximize"],
    "rmsprop": ["centered", "maximize"], "rprop": ["maximize"],
    "cpu_adam": ["adamw_mode", "bias_correction"],
}  # fmt: skip
# Hyper-parameters that switch something off, one at a time.
NEUTRAL = {name: [{}, {"weight_decay": 0.0}] for name in OPTIONS if name != "rprop"}
NEUTRAL["rmsprop"].append({"momentum": 0.0})
_STATES = {
    "adamax": ["exp_avg", "exp_inf"], "adagrad": ["sum"], "rprop": ["prev", "step_size"],
    "adadelta": ["square_avg", "acc_delta"],
}  # fmt: skip


def state_names(name, hypers, options):
    """The states that exist."""
    if name == "rmsprop":
        names = ["square_avg"] + ["momentum_buffer"] * (hypers["momentum"] > 0)
        return names + ["grad_avg"] * bool(options.get("centered"))
    names = _STATES.get(name, ["exp_avg", "exp_avg_sq"])
    return [*names, "max_exp_avg_sq"] if options.get("amsgrad") else names


def torch_arguments(name, hypers, options):
    """Hyper-parameters and options as the constructor of torch's class takes them."""
    result = {**hypers, **options}
    for pair, parts in [("betas", ("beta1", "beta2")), ("etas", ("eta_minus", "eta_plus")),
                        ("step_sizes", ("step_size_min", "step_size_max"))]:  # fmt: skip
        if parts[0] in result:
            result[pair] = tuple(result.pop(part) for part in parts)
    return result
