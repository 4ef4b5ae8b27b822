# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The papers' equations, with which the zoo's definitions agree, beside the packages
that people use: where they are the same, and how far apart where they are not.
"""

import itertools

import came_pytorch
import lomo_optim
import numpy as np
import pytest
import pytorch_optimizer
import torch
import transformers
from originals import furthest, make_groups, run_beside
from papers import OTHERS, PAPERS, Group, Tensor

SAME = 1e-12


def all_options(*names):
    return [
        dict(zip(names, v, strict=True))
        for v in itertools.product([False, True], repeat=len(names))
    ]


# --- Adafactor ----------------------------------------------------------------


def transformers_arguments(options):
    def arguments(h):
        return {
            "lr": None if options["relative_step"] else h["lr"],
            "eps": (h["eps1"], h["eps2"]),
            "beta1": None if h["beta1"] == 0 else h["beta1"],
            **{k: h[k] for k in ("clip_threshold", "decay_rate", "weight_decay")},
            **options,
        }

    return arguments


@pytest.mark.parametrize(
    "options", all_options("scale_parameter", "relative_step", "warmup_init"), ids=str
)
def test_adafactor_is_that_of_transformers(options):
    if options["warmup_init"] and not options["relative_step"]:
        pytest.skip("transformers refuses it")
    groups, theirs, _ = run_beside(
        "adafactor", options, transformers.Adafactor, transformers_arguments(options)
    )
    assert furthest(groups, theirs) < SAME


def test_transformers_adafactor_loses_a_row_of_zeros():
    """1e-30 / 1e16 is 0 in f32; the definition takes the roots first."""
    param = torch.nn.Parameter(torch.ones(2, 4))
    param.grad = torch.tensor([[0.0] * 4, [1e8] * 4])
    transformers.Adafactor([param]).step()
    assert param.isnan().all()  # the row's NaN goes on into RMS(u)


def test_adafactor_is_that_of_pytorch_optimizer():
    options = {"scale_parameter": True, "relative_step": False, "warmup_init": False}
    groups = make_groups("adafactor", others={"adafactor": {"lr": 0.007}}, beta1=0.8)
    h = groups[0].hypers

    def arguments(h):
        return {"lr": h["lr"], "betas": (h["beta1"], 1 - 1e-15), "weight_decay": h["weight_decay"]}

    def make(groups):
        given = {n: h[n] for n in ("decay_rate", "clip_threshold", "eps1", "eps2")}
        return pytorch_optimizer.AdaFactor(
            groups, relative_step=False, ams_bound=False, momentum_dtype=torch.float64,
            foreach=False, **given,
        )  # fmt: skip

    groups, theirs, _ = run_beside("adafactor", options, make, arguments, groups=groups)
    assert furthest(groups, theirs) < SAME


@pytest.mark.parametrize("options", all_options("maximize"), ids=str)
def test_torch_adafactor(options):
    def arguments(h):
        return {
            "lr": h["lr"], "beta2_decay": h["beta2_decay"], "eps": (h["eps1"], h["eps2"]),
            "d": h["d"], "weight_decay": h["weight_decay"], "foreach": False, **options,
        }  # fmt: skip

    groups, theirs, optimizer = run_beside(
        "torch_adafactor", options, torch.optim.Adafactor, arguments
    )
    assert furthest(groups, theirs) < SAME
    states = optimizer.state[theirs[0]["params"][2]]
    np.testing.assert_allclose(states["row_var"], groups[0].tensors[2].states["row_var"], rtol=SAME)


def test_the_decays_of_both_adafactors_differ():
    """By lr in torch, by alpha in the paper's successors: a difference of the decay
    alone, 0.031 * (0.017 - alpha) of theta a step."""
    options = {"scale_parameter": True, "relative_step": False, "warmup_init": False}
    plain = {"eps1": 1e-30, "lr": 1e-2, "beta1": 0.0, "clip_threshold": 1.0}
    distance = {}
    for decay in (0.0, 0.5):
        groups = make_groups("adafactor", others={}, weight_decay=decay, **plain)

        def arguments(h):
            eps = (1e-15, h["eps2"])
            return {"lr": h["lr"], "beta2_decay": h["decay_rate"], "eps": eps,
                    "weight_decay": h["weight_decay"], "foreach": False}  # fmt: skip

        groups, theirs, _ = run_beside(
            "adafactor", options, torch.optim.Adafactor, arguments, groups=groups
        )
        distance[decay] = furthest(groups, theirs)
    assert distance[0.0] < 1e-9
    assert distance[0.5] > 1e-3


# --- CAME, LOMO ---------------------------------------------------------------


def came_arguments(h):
    return {
        "lr": h["lr"], "eps": (h["eps1"], h["eps2"]), "clip_threshold": h["clip_threshold"],
        "betas": (h["beta1"], h["beta2"], h["beta3"]), "weight_decay": h["weight_decay"],
    }  # fmt: skip


def test_came_is_the_authors():
    groups, theirs, _ = run_beside(
        "came", {}, lambda g: came_pytorch.CAME(g, lr=1.0), came_arguments
    )
    assert furthest(groups, theirs) < SAME


def test_came_is_that_of_pytorch_optimizer():
    h = make_groups("came")[0].hypers

    def arguments(h):
        betas = (h["beta1"], h["beta2"], h["beta3"])
        return {"lr": h["lr"], "betas": betas, "weight_decay": h["weight_decay"]}

    def make(groups):
        given = {n: h[n] for n in ("clip_threshold", "eps1", "eps2")}
        return pytorch_optimizer.CAME(groups, foreach=False, **given)

    groups, theirs, _ = run_beside("came", {}, make, arguments)
    assert furthest(groups, theirs) < SAME


class Model(torch.nn.Module):
    """The loss whose gradients are given."""

    def __init__(self, arrays):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.tensor(a, dtype=torch.float32) for a in arrays)

    def forward(self, grads):
        return sum((w * torch.tensor(g, dtype=torch.float32)).sum()
                   for w, g in zip(self.weights, grads, strict=True))  # fmt: skip


def test_lomo_is_the_authors():
    """In f32, which lomo_optim computes in; with both clippings before it."""
    hypers = {"lr": 0.0123, "weight_decay": 0.037}
    [group, _] = make_groups("lomo")
    group = Group(hypers, [Tensor(t.param.astype("f4").astype("f8")) for t in group.tensors])
    model = Model([t.param for t in group.tensors])
    lomo = lomo_optim.Lomo(model, clip_grad_norm=2.0, clip_grad_value=0.9, **hypers)
    rng = np.random.default_rng(1)
    for _ in range(20):
        grads = [rng.standard_normal(t.param.shape) for t in group.tensors]
        lomo.grad_norm(model(grads))
        lomo.fused_backward(model(grads), lr=hypers["lr"])
        length = np.sqrt(sum((g**2).sum() for g in grads))
        for tensor, grad in zip(group.tensors, grads, strict=True):
            coefficient = min(2.0 / (length + 1e-6), 1.0)
            tensor.grad = np.clip(grad, -0.9, 0.9) * coefficient
        PAPERS["lomo"]([group], {}, {})
    for tensor, weight in zip(group.tensors, model.weights, strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), tensor.param, rtol=1e-5, atol=1e-6)


def run_adalomo(arrays, steps):
    """The paper's tensors and pytorch_optimizer's, which needs no GPU as lomo_optim's
    does and is the same otherwise."""
    [group, _] = make_groups("adalomo")
    h = group.hypers
    group.tensors = [Tensor(a.astype("f4").astype("f8")) for a in arrays]
    model = Model([t.param for t in group.tensors])
    given = {n: h[n] for n in h if n != "lr"}
    adalomo = pytorch_optimizer.AdaLOMO(model, lr=h["lr"], loss_scale=1.0, **given)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        grads = [rng.standard_normal(t.param.shape) for t in group.tensors]
        adalomo.fused_backward(model(grads), lr=h["lr"])
        for tensor, grad in zip(group.tensors, grads, strict=True):
            tensor.grad = grad
        PAPERS["adalomo"]([group], {}, {})
    return group, model


def test_adalomo_is_that_of_pytorch_optimizer():
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape) for shape in [(5,), (3, 7), (9, 2), (4, 4)]]
    group, model = run_adalomo(arrays, 20)
    for tensor, weight in zip(group.tensors, model.weights, strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), tensor.param, rtol=1e-4, atol=1e-5)


def test_adalomo_of_pytorch_optimizer_takes_no_third_dim():
    with pytest.raises(RuntimeError, match="size of tensor|shape"):
        run_adalomo([np.ones((2, 3, 5))], 1)


def test_adalomo_of_lomo_optim_needs_a_gpu():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises((AssertionError, RuntimeError)):
        lomo_optim.AdaLomo(Model([np.ones((2, 3))]))


def test_lomo_takes_the_norm_before_it_clips_by_value():
    """Both are done in the order value, norm; the norm is that of what was not yet
    clipped. With clip_by_value.mlir before clip_by_norm.mlir it is of what was."""
    grads = np.array([3.0, 0.5])
    model = Model([np.zeros(2)])
    lomo = lomo_optim.Lomo(model, lr=1.0, clip_grad_norm=1.0, clip_grad_value=1.0)
    lomo.grad_norm(model([grads]))
    lomo.fused_backward(model([grads]), lr=1.0)
    clipped = np.clip(grads, -1, 1)
    of_raw = clipped / np.linalg.norm(grads)
    np.testing.assert_allclose(-model.weights[0].detach().numpy(), of_raw, rtol=1e-5)
    assert np.linalg.norm(of_raw) < 0.5 < np.linalg.norm(clipped / np.linalg.norm(clipped))


# --- LAMB, LARS ---------------------------------------------------------------


def po_lamb(**settings):
    def make(groups):
        return pytorch_optimizer.Lamb(groups, foreach=False, **settings)

    def arguments(h):
        return {"lr": h["lr"], "betas": (h["beta1"], h["beta2"]), "eps": h["eps"],
                "weight_decay": h["weight_decay"]}  # fmt: skip

    return make, arguments


def lamb_groups(**hypers):
    return make_groups("lamb", phi_min=0.0, phi_max=10.0, **hypers)


V3 = {"bias_correction": False, "clamp_phi": True, "maximize": False}


def test_lamb_is_that_of_pytorch_optimizer_with_its_switches_turned():
    make, arguments = po_lamb(weight_decouple=False, adam_debias=True)
    groups, theirs, _ = run_beside("lamb", V3, make, arguments, groups=lamb_groups(eps=1e-14))
    assert furthest(groups, theirs) < 1e-11


@pytest.mark.parametrize(
    ("settings", "hypers"),
    [
        ({"weight_decouple": False, "adam_debias": True}, {"eps": 1e-2}),  # eps beside |u|
        ({"weight_decouple": False}, {"eps": 1e-14}),  # lr / (1 - beta1^t)
        ({"adam_debias": True}, {"eps": 1e-14}),  # the decay outside u
    ],
    ids=["eps", "debias", "decouple"],
)
def test_lamb_of_pytorch_optimizer_departs(settings, hypers):
    make, arguments = po_lamb(**settings)
    groups, theirs, _ = run_beside("lamb", V3, make, arguments, groups=lamb_groups(**hypers))
    assert furthest(groups, theirs) > 1e-5


@pytest.mark.parametrize("options", all_options("nesterov", "maximize"), ids=str)
def test_lars_is_that_of_pytorch_optimizer(options):
    def make(groups):
        return pytorch_optimizer.LARS(groups, foreach=False, maximize=options["maximize"])

    def arguments(h):
        names = ("lr", "momentum", "weight_decay", "trust_coefficient")
        return {**{n: h[n] for n in names}, "nesterov": options["nesterov"]}

    others = {"lars": {**OTHERS["lars"], "momentum": 0.4}}
    groups = make_groups("lars", others=others, eps=0.0)
    options = {"lr_in_momentum": False, "bound_ratio": False, "vectors_as_sgd": True, **options}
    groups, theirs, _ = run_beside("lars", options, make, arguments, groups=groups)
    assert furthest(groups, theirs) < SAME


# --- SM3 ----------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize("options", all_options("maximize"), ids=str)
def test_sm3_is_that_of_pytorch_optimizer(options, beta):
    def make(groups):
        return pytorch_optimizer.SM3(groups, foreach=False, maximize=options["maximize"])

    def arguments(h):
        return {n: h[n] for n in ("lr", "momentum", "beta", "eps")}

    others = {"sm3": {**OTHERS["sm3"], "eps": 1e-3}}
    groups = make_groups("sm3", others=others, beta=beta)
    groups, theirs, _ = run_beside("sm3", options, make, arguments, groups=groups)
    assert furthest(groups, theirs) < SAME


# --- Muon ---------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="it is of torch 2.9 and later")
@pytest.mark.parametrize("options", all_options("nesterov", "match_rms_adamw"), ids=str)
def test_muon_is_torchs_without_its_bfloat16(options, monkeypatch):
    """Which is all that differs."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)

    def arguments(h):
        return {
            **{n: h[n] for n in ("lr", "weight_decay", "momentum", "eps")},
            "ns_coefficients": tuple(h[f"ns_coefficient_{name}"] for name in "abc"),
            "nesterov": options["nesterov"],
            "adjust_lr_fn": "match_rms_adamw" if options["match_rms_adamw"] else "original",
        }

    groups = make_groups("muon", shapes=[(3, 7), (9, 2), (1, 4), (5, 1), (4, 4), (1, 1)])
    groups, theirs, _ = run_beside("muon", options, torch.optim.Muon, arguments, groups=groups)
    assert furthest(groups, theirs) < SAME


# --- D-Adaptation -------------------------------------------------------------


def test_dadapt_adam_is_that_of_pytorch_optimizer():
    """Its statistics are summed in f32, and it has one d for all groups."""
    groups = make_groups("dadapt_adam", others={}, growth_rate=np.inf)[:1]
    options = {"decouple": False, "use_bias_correction": True}

    def arguments(h):
        names = ("lr", "eps", "weight_decay")
        return {**{n: h[n] for n in names}, "betas": (h["beta1"], h["beta2"])}

    def make(groups):
        return pytorch_optimizer.DAdaptAdam(groups, bias_correction=True, foreach=False)

    groups, theirs, optimizer = run_beside("dadapt_adam", options, make, arguments, groups=groups)
    assert furthest(groups, theirs) < 1e-5
    assert optimizer.param_groups[0]["d"] > 1e-4


def test_dadapt_sgd_is_that_of_pytorch_optimizer():
    """One d of all groups; without decay, which its first norm leaves out."""
    groups = make_groups("dadapt_sgd", others={}, weight_decay=0.0)

    def arguments(h):
        names = ("lr", "momentum", "weight_decay", "growth_rate")
        return {n: h[n] for n in names}

    def make(groups):
        return pytorch_optimizer.DAdaptSGD(groups, foreach=False)

    groups, theirs, optimizer = run_beside("dadapt_sgd", {}, make, arguments, groups=groups)
    assert furthest(groups, theirs) < 1e-5
    assert optimizer.param_groups[0]["d"] > 1e-4
