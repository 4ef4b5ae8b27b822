# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes of other libraries: their arguments, groups and refusals."""

import copy
import inspect
import pickle

import pytest
import stepc.torch
import torch
from common import KEYWORDS, make_params
from stepc.torch import apex, came, colossal, deepspeed, hf, lomo

# The constructors of the originals, from their sources: name and default.
BETAS = ("betas", (0.9, 0.999))
FUSED_ADAM = [
    ("lr", 1e-3),
    ("bias_correction", True),
    BETAS,
    ("eps", 1e-8),
    ("weight_decay", 0.0),
    ("amsgrad", False),
    ("set_grad_none", True),
]
CPU_ADAM = [
    *FUSED_ADAM[:4],
    ("weight_decay", 0),
    ("adamw_mode", True),
    ("nvme_offload_fraction", 0.0),
    ("nvme_offload_dir", None),
]
MODEL_PARAMS = (deepspeed.DeepSpeedCPUAdam, colossal.CPUAdam, colossal.HybridAdam)
ORIGINALS = {
    hf.Adafactor: [
        ("lr", None),
        ("eps", (1e-30, 1e-3)),
        ("clip_threshold", 1.0),
        ("decay_rate", -0.8),
        ("beta1", None),
        ("weight_decay", 0.0),
        ("scale_parameter", True),
        ("relative_step", True),
        ("warmup_init", False),
    ],
    came.CAME: [
        ("lr", None),
        ("eps", (1e-30, 1e-16)),
        ("clip_threshold", 1.0),
        ("betas", (0.9, 0.999, 0.9999)),
        ("weight_decay", 0.0),
    ],
    colossal.Lamb: [
        ("lr", 1e-3),
        BETAS,
        ("eps", 1e-6),
        ("weight_decay", 0),
        ("adam", False),
        ("bias_correction", False),
    ],
    colossal.DistributedLamb: [
        ("lr", 1e-3),
        BETAS,
        ("eps", 1e-6),
        ("weight_decay", 0),
        ("bias_correction", True),
    ],
    apex.FusedLAMB: [
        ("lr", 1e-3),
        ("bias_correction", True),
        BETAS,
        ("eps", 1e-6),
        ("weight_decay", 0.01),
        ("amsgrad", False),
        ("adam_w_mode", True),
        ("grad_averaging", True),
        ("set_grad_none", True),
        ("max_grad_norm", 1.0),
        ("use_nvlamb", False),
    ],
    deepspeed.FusedLamb: [
        ("lr", 1e-3),
        ("bias_correction", True),
        BETAS,
        ("eps", 1e-8),
        ("eps_inside_sqrt", False),
        ("weight_decay", 0.0),
        ("max_grad_norm", 0.0),
        ("max_coeff", 10.0),
        ("min_coeff", 0.01),
        ("amsgrad", False),
    ],
    deepspeed.FusedAdam: [*FUSED_ADAM[:4], ("adam_w_mode", True), *FUSED_ADAM[4:]],
    colossal.FusedAdam: [*FUSED_ADAM[:4], ("adamw_mode", True), *FUSED_ADAM[4:]],
    deepspeed.DeepSpeedCPUAdam: [
        *FUSED_ADAM[:4],
        ("weight_decay", 0),
        ("amsgrad", False),
        ("adamw_mode", True),
        ("fp32_optimizer_states", True),
    ],
    colossal.CPUAdam: CPU_ADAM,
    colossal.HybridAdam: CPU_ADAM,
    stepc.torch.SM3: [
        ("lr", 1e-1),
        ("momentum", 0.0),
        ("beta", 0.0),
        ("eps", 1e-30),
        ("maximize", False),
        ("foreach", None),
    ],
    stepc.torch.SophiaG: [
        ("lr", 1e-4),
        ("betas", (0.965, 0.99)),
        ("rho", 0.04),
        ("weight_decay", 1e-1),
    ],
    stepc.torch.LARS: [
        ("lr", 1e-3),
        ("weight_decay", 0.0),
        ("momentum", 0.9),
        ("dampening", 0.0),
        ("trust_coefficient", 1e-3),
        ("nesterov", False),
        ("foreach", None),
        ("maximize", False),
    ],
}
LOMO = {
    lomo.Lomo: [
        ("lr", 1e-3),
        ("clip_grad_norm", None),
        ("clip_grad_value", None),
        ("weight_decay", 0.0),
        ("loss_scale_args", None),
    ],
    lomo.AdaLomo: [
        ("lr", 1e-3),
        ("loss_scale", 2**10),
        ("eps", (1e-30, 1e-3)),
        ("clip_threshold", 1.0),
        ("decay_rate", -0.8),
        ("clip_grad_norm", None),
        ("clip_grad_value", None),
        ("weight_decay", 0.0),
    ],
}


@pytest.mark.parametrize("kind", ORIGINALS)
def test_arguments_as_the_originals(kind):
    parameters = list(inspect.signature(kind).parameters.values())
    assert parameters[0].name == ("model_params" if kind in MODEL_PARAMS else "params")
    positional = [(p.name, p.default) for p in parameters[1:] if p.kind is not p.KEYWORD_ONLY]
    assert positional == ORIGINALS[kind]
    assert [(p.name, p.default) for p in parameters[-len(KEYWORDS) :]] == KEYWORDS


@pytest.mark.parametrize("kind", LOMO)
def test_arguments_of_lomo(kind):
    parameters = list(inspect.signature(kind).parameters.values())
    assert parameters[0].name == "model"
    own = [(p.name, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY]
    scale = [("loss_scale", None)] if kind is lomo.Lomo else []
    assert own == [*scale, ("zero", None), ("timeout", None)]  # which the originals do not have
    assert [(p.name, p.default) for p in parameters[1 : -len(own)]] == LOMO[kind]


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (
            lambda p: hf.Adafactor(p, lr=1e-3),
            ValueError,
            "Cannot combine manual `lr` and `relative_step=True` options",
        ),
        (
            lambda p: hf.Adafactor(p, lr=1e-3, relative_step=False, warmup_init=True),
            ValueError,
            "`warmup_init=True` requires `relative_step=True`",
        ),
        (lambda p: came.CAME(p, lr=0.0), AssertionError, "lr is 0.0"),
        (lambda p: came.CAME(p), TypeError, "not supported between"),
        (lambda p: came.CAME(p, 1e-3, betas=(0.9, 1.1, 0.9)), AssertionError, "beta 1 is 1.1"),
        (lambda p: colossal.Lamb(p, lr=-1.0), ValueError, "Invalid learning rate: -1.0"),
        (lambda p: colossal.Lamb(p, eps=-1.0), ValueError, "Invalid epsilon value: -1.0"),
        (
            lambda p: colossal.Lamb(p, betas=(0.9, 1.0)),
            ValueError,
            "Invalid beta parameter at index 1: 1.0",
        ),
        (
            lambda p: apex.FusedLAMB(p, amsgrad=True),
            RuntimeError,
            "FusedLAMB does not support the AMSGrad variant.",
        ),
        (
            lambda p: deepspeed.FusedLamb(p, amsgrad=True),
            RuntimeError,
            "FusedLamb does not support the AMSGrad variant.",
        ),
        (lambda p: stepc.torch.LARS(p, dampening=0.5), ValueError, "Invalid dampening value"),
        (
            lambda p: stepc.torch.SophiaG(p, rho=-1.0),
            ValueError,
            "Invalid rho parameter at index 1",
        ),
        (lambda p: stepc.torch.SM3(p, momentum=1.0), ValueError, "Invalid momentum value"),
        (lambda p: stepc.torch.SM3(p, beta=1.5), ValueError, "Invalid beta value"),
        (
            lambda p: stepc.torch.LARS([{"params": p, "trust_coefficient": -1.0}]),
            ValueError,
            "Invalid trust_coefficient value: -1.0",
        ),
        (
            lambda p: stepc.torch.LARS(p, nesterov=True, lr_in_momentum=True),
            ValueError,
            "Nesterov momentum requires lr_in_momentum=False",
        ),
        (
            lambda p: lomo.Lomo(torch.nn.Linear(2, 2), clip_grad_norm=0.0),
            ValueError,
            "clip_grad_norm should be positive, got 0.0.",
        ),
    ],
)
def test_refusals_in_the_words_of_the_originals(make, kind, words):
    with pytest.raises(kind, match=words):
        make(make_params([(3,)]))


@pytest.mark.parametrize("eps", [(-1.0, 1e-3), (None, -1.0)])
def test_adafactor_of_torch_is_torchs(eps):
    with pytest.raises(ValueError) as theirs:
        torch.optim.Adafactor(make_params([(3,)]), eps=eps)
    with pytest.raises(ValueError) as ours:
        stepc.torch.Adafactor(make_params([(3,)]), eps=eps)
    assert str(ours.value) == str(theirs.value)
    assert issubclass(stepc.torch.Adafactor, torch.optim.Adafactor)


def test_eps_of_none():
    """The epsilon of the parameters' dtype, as for torch."""

    def read(optimizer):
        values = optimizer._read_hypers(optimizer.param_groups[0])
        found = dict(zip(optimizer._hypers, values, strict=True))
        return found["eps1"], found["eps2"]

    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        optimizer = stepc.torch.Adafactor(make_params([(3,)], dtype))
        assert read(optimizer) == (torch.finfo(dtype).eps, 1e-3)
    optimizer = stepc.torch.Adafactor(make_params([(3,)]), eps=(0.5, 0.25))
    assert read(optimizer) == (0.5, 0.25)


def test_groups_are_those_of_the_originals():
    """Checkpoints have nothing that the originals do not know."""
    for kind, arguments in ORIGINALS.items():
        kwargs = {"lr": 1e-3} if kind is came.CAME else {}
        group = kind(make_params([(3,)]), **kwargs).param_groups[0]
        outside = {"amsgrad", "adam_w_mode", "set_grad_none", "use_nvlamb", "adam"}
        outside |= {"eps_inside_sqrt", "adamw_mode", "fp32_optimizer_states"}
        outside |= {"nvme_offload_fraction", "nvme_offload_dir"}
        outside -= {"amsgrad"} if kind is deepspeed.DeepSpeedCPUAdam else set()
        expected = {name for name, _ in arguments} - outside | {"params"}
        if kind is stepc.torch.SophiaG:  # of update_hessian() and step(bs=...), too
            expected |= {"maximize", "capturable", "refresh", "bs"}
        if kind is stepc.torch.LARS:
            expected |= {"eps", "lr_in_momentum", "vectors_as_sgd", "bound_ratio"}
        assert set(group) == expected


@pytest.mark.parametrize("how", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_keep_attributes(how):
    params = make_params([(3,)])
    fused = apex.FusedLAMB(params, adam_w_mode=False, use_nvlamb=True, set_grad_none=False)
    again = how(fused)
    assert (again.adam_w_mode, again.use_nvlamb, again.set_grad_none) == (0, True, False)
    assert how(deepspeed.FusedLamb(params, eps_inside_sqrt=True)).eps_mode == 0
    assert how(colossal.Lamb(params, adam=True)).adam is True


def test_clipping_of_deepspeed():
    params = make_params([(3,)])
    assert deepspeed.FusedLamb(params).clip == ()
    assert [c.max_norm for c in deepspeed.FusedLamb(params, max_grad_norm=0.5).clip] == [0.5]
    with pytest.raises(ValueError, match="clip has ClipByNorm twice"):
        deepspeed.FusedLamb(params, max_grad_norm=0.5, clip=stepc.torch.ClipByNorm(1.0))


def test_zero_grad_of_apex():
    params = make_params([(3,)])
    for keep in (False, True):
        params[0].grad = torch.ones(3)
        apex.FusedLAMB(params, set_grad_none=not keep).zero_grad()
        assert (params[0].grad is not None) == keep


def test_features_of_lomo():
    model = torch.nn.Linear(2, 2)
    plain = lomo.Lomo(model)
    assert plain._features == () and plain.loss_scale == 1.0
    bounded = lomo.Lomo(model, clip_grad_norm=1.0, clip_grad_value=0.5)
    assert bounded._fragments == ("unscale", "clip_by_value") and bounded.loss_scale == 1.0
    assert lomo.AdaLomo(model).loss_scale == 1024.0
    assert lomo.AdaLomo(model, loss_scale=None)._features == ()
    assert bounded.param_groups[0]["param_names"] == ["weight", "bias"]


def test_lomo_wants_the_norm_first():
    model = torch.nn.Linear(2, 2)
    optimizer = lomo.Lomo(model, clip_grad_norm=1.0)
    with pytest.raises(ValueError, match="clip_grad_norm is not None, but clip_coef is None"):
        optimizer.fused_backward(model(torch.ones(2)).sum(), 1e-3)
    with pytest.raises(ValueError, match="clip_grad_norm is None, the norm"):
        lomo.Lomo(model).grad_norm(model(torch.ones(2)).sum())
    with pytest.raises(stepc.StepcError, match="loss has dtype torch.float16"):
        optimizer.grad_norm(model(torch.ones(2)).sum().half())


def test_norm_of_lomo():
    """In a pass of its own, which leaves no gradients and keeps the graph."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = lomo.AdaLomo(model, clip_grad_norm=0.01)
    loss = model(torch.ones(5, 3)).square().sum()
    norm = optimizer.grad_norm(loss)
    assert all(p.grad is None for p in model.parameters())
    loss.backward()
    expected = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    torch.testing.assert_close(norm.float(), expected)
    assert optimizer.clip_coef == pytest.approx(0.01 / (float(norm) + 1e-6))


@pytest.mark.parametrize(
    ("make", "error", "bad"),
    [
        (colossal.Lamb, ValueError, {"lr": -1, "betas": (2, 2), "eps": -1}),
        (lambda params: came.CAME(params, 1e-3), AssertionError, {"lr": 0, "betas": (2, 0, 0)}),
    ],
)
def test_groups_are_checked_as_defaults(make, error, bad):
    params = make_params([(3,), (4,)])
    optimizer = make(params[:1])
    for name, value in bad.items():
        with pytest.raises(error):
            optimizer.add_param_group({"params": params[1:], name: value})
        assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": params[1:], "lr": 0.5})


def test_keys_of_groups_are_arguments():
    """Of the class whose constructor it is, whatever else that binds, and a subclass's has."""

    class Own(stepc.torch.Dion):
        def __init__(self, params, other, *, lr):
            super().__init__(params, lr=lr * other)

    params = make_params([(3, 4)])
    keys = set(stepc.torch.Dion(params).param_groups[0])
    assert "betas" not in keys and "more" not in keys and "beta1" in keys
    (group,) = Own(params, 2, lr=0.5).param_groups
    assert set(group) == keys and group["lr"] == 1.0


def test_distributed_names_of_colossal():
    """Adafactor and CAME have the numbers of the others; LAMB is corrected for bias."""
    assert colossal.DistributedAdaFactor is colossal.Adafactor
    assert issubclass(colossal.Adafactor, hf.Adafactor)
    assert colossal.DistributedCAME is colossal.CAME and issubclass(colossal.CAME, came.CAME)
    stepped = []
    for kind, more in (
        (colossal.DistributedLamb, {}),
        (colossal.Lamb, {"bias_correction": True}),
        (colossal.Lamb, {}),
    ):
        torch.manual_seed(0)
        (param,) = make_params([(3, 4)])
        optimizer = kind([param], lr=0.1, weight_decay=0.1, **more)
        for _ in range(3):
            param.grad = torch.randn(3, 4)
            optimizer.step()
        stepped.append(param.detach().clone())
    distributed, corrected, plain = stepped
    assert distributed.equal(corrected) and not distributed.equal(plain)
