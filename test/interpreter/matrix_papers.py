# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers that multiply or decompose matrices, as papers.py has the others."""

import numpy as np
from equations import norm, of_each_tensor
from philox import normals

# --- Muon ---------------------------------------------------------------------


def newton_schulz(x, a, b, c):
    """Five steps, each of which makes a x + b x^3 + c x^5 of each singular value x."""
    for _ in range(5):
        square = x @ x.T if len(x) <= len(x.T) else x.T @ x
        change = b * square + c * square @ square
        x = a * x + (change @ x if len(x) <= len(x.T) else x @ change)
    return x


@of_each_tensor
def muon(tensor, h, options):
    theta, mu = tensor.param, h["momentum"]
    buffer = mu * tensor.state("momentum_buffer") + (1 - mu) * tensor.grad
    tensor.states["momentum_buffer"] = buffer
    u = (1 - mu) * tensor.grad + mu * buffer if options["nesterov"] else buffer
    x = u / np.maximum(norm(u), h["eps"])
    x = newton_schulz(x, *(h[f"ns_coefficient_{name}"] for name in "abc"))
    rows, columns = theta.shape
    scale = np.sqrt(max(1, rows / columns))
    if options["match_rms_adamw"]:
        scale = 0.2 * np.sqrt(max(rows, columns))
    tensor.param = theta - h["lr"] * h["weight_decay"] * theta - h["lr"] * scale * x


# In exact numbers.
gram_muon = muon


@of_each_tensor
def normuon(tensor, h, options):
    theta, mu, rows = tensor.param, h["momentum"], tensor.param[:, :1].shape
    buffer = mu * tensor.state("momentum_buffer") + (1 - mu) * tensor.grad
    tensor.states["momentum_buffer"] = buffer
    u = (1 - mu) * tensor.grad + mu * buffer if options["nesterov"] else buffer
    x = newton_schulz(u / (norm(u) + 1e-7), 3.4445, -4.775, 2.0315)
    square = (x**2).mean(1, keepdims=True)
    average = tensor.state("second_momentum_buffer", rows)
    average = h["beta2"] * average + (1 - h["beta2"]) * square
    tensor.states["second_momentum_buffer"] = average
    y = x / (np.sqrt(average) + 1e-10)
    y = y * norm(x) / (norm(y) + 1e-10) * np.sqrt(max(1, len(x) / len(x.T)))
    tensor.param = theta - h["lr"] * h["weight_decay"] * theta - h["lr"] * y


def adam_of_groups(tensor, h, names, eps_of):
    """Adam with its decay apart, of a group without Muon."""
    t, g, theta = tensor.count, tensor.grad, tensor.param
    m = h["beta1"] * tensor.state(names[0]) + (1 - h["beta1"]) * g
    v = h["beta2"] * tensor.state(names[1]) + (1 - h["beta2"]) * g**2
    tensor.states.update(zip(names, (m, v), strict=True))
    root = np.sqrt(1 - h["beta2"] ** t)
    u = m / (1 - h["beta1"] ** t) / (np.sqrt(v) / root + eps_of(root))
    tensor.param = theta - h["lr"] * h["weight_decay"] * theta - h["lr"] * u


@of_each_tensor
def jordan_muon(tensor, h, options):
    if not options["use_muon"]:
        return adam_of_groups(tensor, h, ("exp_avg", "exp_avg_sq"), lambda root: h["eps"])
    theta, mu = tensor.param, h["momentum"]
    buffer = mu * tensor.state("momentum_buffer") + (1 - mu) * tensor.grad
    tensor.states["momentum_buffer"] = buffer
    u = (1 - mu) * tensor.grad + mu * buffer
    x = newton_schulz(u / (norm(u) + 1e-7), 3.4445, -4.775, 2.0315)
    scale = np.sqrt(max(1, len(x) / len(x.T)))
    tensor.param = theta - h["lr"] * h["weight_decay"] * theta - h["lr"] * scale * x


@of_each_tensor
def moonlight_muon(tensor, h, options):
    if not options["use_muon"]:
        return adam_of_groups(tensor, h, ("moment1", "moment2"), lambda root: h["eps"] / root)
    theta, mu = tensor.param, h["momentum"]
    buffer = mu * tensor.state("momentum_buffer") + tensor.grad
    tensor.states["momentum_buffer"] = buffer
    u = tensor.grad + mu * buffer if options["nesterov"] else buffer
    x = newton_schulz(u / (norm(u) + 1e-7), 3.4445, -4.775, 2.0315)
    scale = 0.2 * np.sqrt(max(theta.shape))
    tensor.param = theta - h["lr"] * h["weight_decay"] * theta - h["lr"] * scale * x


# --- GaLore -------------------------------------------------------------------


def canonical(vectors):
    """Columns, of which the largest component is positive."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    return vectors * np.sign(largest)


def singular_vectors(g, rank):
    """The first of each side, of which the largest component is positive."""
    u, _, vt = np.linalg.svd(g, full_matrices=False)
    return [canonical(u[:, :rank]), canonical(vt[:rank].T)]


def projections(tensor, h, options):
    """The bases of the left and the right side; None where nothing is projected."""
    g, tall = tensor.grad, len(tensor.grad) >= len(tensor.grad.T)
    if not np.isfinite(g).all():
        nothing = np.full((len(g), min(g.shape)), np.nan), np.full((len(g.T), min(g.shape)), np.nan)
    left, right = singular_vectors(g, 128) if np.isfinite(g).all() else nothing
    if options["both_sides"]:
        return {"projection": left, "projection_right": right}
    if options["tall_right"] if tall else options["wide_right"]:
        return {"projection": right}
    return {"projection": left}


def projected(tensor, h, options):
    """The gradient, projected where there is a rank, and what brings an update back."""
    g, s = tensor.grad, tensor.states
    if not options["low_rank"]:
        return g, lambda u: u
    if (tensor.count - 1) % h["update_proj_gap"] == 0:
        s.update(projections(tensor, h, options))
    p, tall = s["projection"], len(g) >= len(g.T)
    if options["both_sides"]:
        q = s["projection_right"]
        return p.T @ g @ q, lambda u: h["scale"] * (p @ (u @ q.T))
    if options["tall_right"] if tall else options["wide_right"]:
        return g @ p, lambda u: h["scale"] * (u @ p.T)
    return p.T @ g, lambda u: h["scale"] * (p @ u)


@of_each_tensor
def galore_adamw(tensor, h, options):
    t, theta, s = tensor.count, tensor.param, tensor.states
    g, back = projected(tensor, h, options)
    m, v = h["beta1"], h["beta2"]
    s["exp_avg"] = m * tensor.state("exp_avg", g.shape) + (1 - m) * g
    s["exp_avg_sq"] = v * tensor.state("exp_avg_sq", g.shape) + (1 - v) * g**2
    root = np.sqrt(1 - v**t)
    alpha = h["lr"] * root / (1 - m**t) if options["correct_bias"] else h["lr"]
    eps = h["eps"] * (root if options["corrected_eps"] else 1)
    u = s["exp_avg"] / (np.sqrt(s["exp_avg_sq"]) + eps)
    theta = theta - alpha * back(u)
    tensor.param = theta - h["lr"] * h["weight_decay"] * theta


# --- SOAP ---------------------------------------------------------------------


def first_basis(gram):
    if not np.isfinite(gram).all():
        return np.full(gram.shape, np.nan)
    return canonical(np.linalg.eigh(gram)[1][:, ::-1])


def turned(gram, q):
    """The next basis, and the order in which it has the directions of the one before."""
    if not np.isfinite(gram @ q).all():
        return np.full(gram.shape, np.nan), np.arange(len(gram))
    order = np.argsort(-np.diag(q.T @ gram @ q), kind="stable")
    basis, r = np.linalg.qr((gram @ q)[:, order])
    return basis * np.where(np.diag(r) < 0, -1, 1), order


@of_each_tensor
def soap(tensor, h, options):
    t, theta, g, s = tensor.count, tensor.param, tensor.grad, tensor.states
    is_matrix, first = g.ndim == 2, "exp_avg" not in s
    m, v = tensor.state("exp_avg", g.shape), tensor.state("exp_avg_sq", g.shape)
    if not first:
        x = s["Q_0"].T @ g @ s["Q_1"] if is_matrix else g
        m = h["beta1"] * m + (1 - h["beta1"]) * x
        v = h["beta2"] * v + (1 - h["beta2"]) * x**2
        u = m / (np.sqrt(v) + h["eps"])
        u = s["Q_0"] @ u @ s["Q_1"].T if is_matrix else u
        if options["normalize_grads"]:
            u = u / (1e-30 + np.sqrt(np.mean(u**2)))
        alpha = h["lr"]
        if options["correct_bias"]:
            alpha *= np.sqrt(1 - h["beta2"] ** (t - 1)) / (1 - h["beta1"] ** (t - 1))
        theta = theta - alpha * u
        tensor.param = theta - h["lr"] * h["weight_decay"] * theta
    s["exp_avg"], s["exp_avg_sq"] = m, v
    if not is_matrix:
        return
    for name, gram in (("GG_0", g @ g.T), ("GG_1", g.T @ g)):
        beta = h["shampoo_beta"]
        s[name] = beta * tensor.state(name, gram.shape) + (1 - beta) * gram
    if first:
        s["Q_0"], s["Q_1"] = first_basis(s["GG_0"]), first_basis(s["GG_1"])
    elif (t - 1) % h["precondition_frequency"] == 0:
        (left, rows), (right, columns) = turned(s["GG_0"], s["Q_0"]), turned(s["GG_1"], s["Q_1"])
        s["exp_avg"] = left.T @ s["Q_0"] @ m @ s["Q_1"].T @ right
        s["exp_avg_sq"] = v[rows][:, columns]
        s["Q_0"], s["Q_1"] = left, right


# --- Shampoo ------------------------------------------------------------------


def inverse_root(gram, exponent, epsilon):
    if not np.isfinite(gram).all():
        return np.full(gram.shape, np.nan)
    values, vectors = np.linalg.eigh(gram)
    values = values - np.minimum(values.min(), 0) + epsilon
    return vectors * values**-exponent @ vectors.T


def averaged(old, new, beta):
    """A sum where beta is 1."""
    return old + new if beta == 1 else beta * old + (1 - beta) * new


def grafted(tensor, f, g, h, options):
    if not (options["grafting"] and options["grafting_squares"]):
        return f
    v = averaged(tensor.state("adagrad"), g**2, h["grafting_beta2"])
    tensor.states["adagrad"] = v
    return f / (np.sqrt(v) + h["grafting_epsilon"])


def preconditioned(tensor, f, g, h):
    """Between the roots; without any where a dim is 1."""
    t, s, dims = tensor.count, tensor.states, [d for d in (0, 1) if g.shape[d] > 1]
    starts = t == h["start_preconditioning_step"]
    turns = t >= h["start_preconditioning_step"] and (t / h["precondition_frequency"]) % 1 == 0
    for dim in dims:
        gram = g @ g.T if dim == 0 else g.T @ g
        old = tensor.state(f"factor_matrix_{dim}", gram.shape)
        factor = averaged(old, gram, h["beta2"])
        c = 1 if h["beta2"] == 1 else 1 - h["beta2"] ** t
        s[f"factor_matrix_{dim}"] = factor
        root = tensor.state(f"inv_factor_matrix_{dim}", gram.shape)
        if starts or turns:
            exponent = h[f"inverse_exponent_{dim if len(dims) == 2 else 'alone'}"]
            root = inverse_root(factor / c, exponent, h["epsilon"])
        s[f"inv_factor_matrix_{dim}"] = root
        if np.trace(root) != 0:
            f = root @ f if dim == 0 else f @ root
    return f


@of_each_tensor
def shampoo(tensor, h, options):
    t, theta, g, s = tensor.count, tensor.param, tensor.grad, tensor.states
    m = tensor.state("filtered_grad")
    f = h["beta3"] * m + (1 - h["beta3"]) * g
    f = f / (1 - h["beta3"] * h["beta1"] ** (t - 1))
    s["filtered_grad"] = h["beta1"] * m + (1 - h["beta1"]) * g
    a = grafted(tensor, f, g, h, options)
    p = preconditioned(tensor, f, g, h)
    if t < h["start_preconditioning_step"] or max(g.shape) == 1:
        p = a
    elif options["grafting"]:
        p = p * norm(a) / (norm(p) + 1e-16)
    p = p + h["weight_decay"] * theta
    if options["has_momentum"]:
        s["momentum_buffer"] = h["momentum"] * tensor.state("momentum_buffer")
        s["momentum_buffer"] = p = s["momentum_buffer"] + (1 - h["dampening"]) * p
    tensor.param = theta - h["lr"] * p


# --- APOLLO -------------------------------------------------------------------


def apollo_projection(tensor, h, options, number, to_right):
    """Random numbers, or singular vectors, of the side that is projected."""
    g = tensor.grad
    if options["svd"]:
        return singular_vectors(g, 256)[to_right] if np.isfinite(g).all() else np.nan
    shape = (g.shape[to_right], min(g.shape))
    return normals(shape, h["projection_seed"], tensor.count, "projection", number) / np.sqrt(
        shape[1]
    )


def apollo_direction(tensor, low, u, h, options, axis):
    """The gradient, scaled, of a norm that grows little."""
    s, over = tensor.states, axis if options["by_channel"] else None
    ratio = np.sqrt((u**2).sum(over, keepdims=True))
    ratio = ratio / (np.sqrt((low**2).sum(over, keepdims=True)) + 1e-8)
    root = np.sqrt(h["scale"])
    d = tensor.grad * ratio * (root if options["scale_front"] else 1)
    if options["limit_growth"]:
        length, last = norm(d), s.get("scaled_grad")
        bound = 1 if last is None else np.maximum(length / (last + 1e-8), 1.01) / 1.01
        s["scaled_grad"] = np.reshape(length / bound, (1, 1))
        d = d / bound
    return d * (1 if options["scale_front"] else root)


def apollo_tensor(tensor, h, options, number):
    t, theta, low, s = tensor.count, tensor.param, tensor.grad, tensor.states
    tall = len(low) >= len(low.T) if options["low_rank"] else None
    to_right = int(options["tall_right"] if tall else options["wide_right"])
    if options["low_rank"]:
        if (t - 1) % h["update_proj_gap"] == 0:
            s["projection"] = apollo_projection(tensor, h, options, number, to_right)
        low = low @ s["projection"] if to_right else s["projection"].T @ low
    m, v = h["beta1"], h["beta2"]
    s["exp_avg"] = m * tensor.state("exp_avg", low.shape) + (1 - m) * low
    s["exp_avg_sq"] = v * tensor.state("exp_avg_sq", low.shape) + (1 - v) * low**2
    u = s["exp_avg"] / (np.sqrt(s["exp_avg_sq"]) + h["eps"])
    if options["low_rank"]:
        u = apollo_direction(tensor, low, u, h, options, to_right)
    alpha = h["lr"] * np.sqrt(1 - v**t) / (1 - m**t) if options["correct_bias"] else h["lr"]
    theta = theta - alpha * u
    tensor.param = theta - h["lr"] * h["weight_decay"] * theta


def apollo(groups, options, memory):
    del memory
    options = {"wide_right": False, "svd": False, "correct_bias": True, **options}
    tensors = [(group.hypers, tensor) for group in groups for tensor in group.tensors]
    for number, (h, tensor) in enumerate(tensors, 1):
        if tensor.grad is not None:
            tensor.count += 1
            apollo_tensor(tensor, h, options, number)


# --- Dion ---------------------------------------------------------------------


def orthonormal(y):
    """With numbers that are not negative on the diagonal of R."""
    if not np.isfinite(y).all():
        return np.full(y.shape, np.nan)
    q, r = np.linalg.qr(y)
    return q * np.where(np.diag(r) < 0, -1, 1)


def dion_matrix(tensor, h, number):
    b, s = tensor.state("momentum") + tensor.grad, tensor.states
    tall = len(b) >= len(b.T)
    a = b if tall else b.T
    if "Q" not in s:
        s["Q"] = normals((len(a.T), min(a.shape)), h["projection_seed"], tensor.count, "Q", number)
    p, r = np.zeros((len(a), min(a.shape))), s["Q"]
    if (b != 0).any():
        p = orthonormal(a @ s["Q"])
        r = a.T @ p
        low = p @ r.T
        b = b - (1 - h["mu"]) * (low if tall else low.T)
    s["momentum"], s["Q"] = b, r / (np.sqrt((r**2).sum(0)) + h["epsilon"])
    update = p @ s["Q"].T
    return np.sqrt(len(b) / len(b.T)) * (update if tall else update.T)


def dion_elements(tensor, h, options):
    g, m, t = tensor.grad, tensor.state("momentum"), tensor.count
    if options["lion"]:
        tensor.states["momentum"] = h["beta2"] * m + (1 - h["beta2"]) * g
        return np.sign(h["beta1"] * m + (1 - h["beta1"]) * g)
    m = h["beta1"] * m + (1 - h["beta1"]) * g
    v = h["beta2"] * tensor.state("variance") + (1 - h["beta2"]) * g**2
    tensor.states.update(momentum=m, variance=v)
    root = np.sqrt(v) / np.sqrt(1 - h["beta2"] ** t)
    return m / (root + h["epsilon"]) / (1 - h["beta1"] ** t)


def dion(groups, options, memory):
    del memory
    tensors = [(group.hypers, tensor) for group in groups for tensor in group.tensors]
    for number, (h, tensor) in enumerate(tensors, 1):
        if tensor.grad is None:
            continue
        tensor.count += 1
        own = options["dion"]
        u = dion_matrix(tensor, h, number) if own else dion_elements(tensor, h, options)
        tensor.param = (1 - h["lr"] * h["weight_decay"]) * tensor.param - h["lr"] * u
