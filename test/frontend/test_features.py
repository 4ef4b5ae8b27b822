# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The arguments ``clip`` and ``loss_scale``: what they take, refuse and are called."""

import copy
import inspect
import math
import pickle

import pytest
import stepc.torch
import torch
from common import make_params
from stepc import errors
from stepc.interface import Interface
from stepc.torch import ClipByNorm, ClipByValue, DynamicLossScale, colossal, deepspeed
from stepc.torch.binding import features as _features

SCALERS = {
    "torch": DynamicLossScale,
    "deepspeed": deepspeed.DynamicLossScaler,
    "colossal": colossal.DynamicGradScaler,
}


def adamw(**kwargs):
    return stepc.torch.AdamW(make_params([(3,)]), **kwargs)


def test_clip_is_an_ordered_tuple():
    assert adamw().clip == ()
    one, two = ClipByNorm(1.0), ClipByValue(0.5)
    assert adamw(clip=one).clip == (one,)
    assert adamw(clip=[one, two]).clip == (one, two)
    assert adamw(clip=(two, one)).clip == (two, one)
    assert adamw(clip=[two, one], loss_scale=8.0)._fragments == (
        "unscale",
        "clip_by_value",
        "clip_by_norm",
    )
    assert adamw(clip=ClipByNorm(1.0, math.inf))._fragments == ("clip_by_inf_norm",)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: ClipByValue(0.0), ValueError, "clip_value is 0.0, expected a positive number"),
        (lambda: ClipByNorm(-1.0), ValueError, "max_norm is -1.0, expected a positive number"),
        (lambda: ClipByNorm(math.nan), ValueError, "max_norm is nan"),
        (lambda: ClipByNorm(1.0, 3.0), ValueError, "norm_type is 3, expected 2 or inf"),
        (lambda: adamw(clip=1.0), TypeError, "clip is 1.0, expected ClipByValue, ClipByNorm"),
        (lambda: adamw(clip=[ClipByNorm(1.0), 2]), TypeError, "clip is 2, expected"),
        (lambda: adamw(clip=[ClipByNorm(1)] * 2), ValueError, "clip has ClipByNorm twice"),
        (lambda: adamw(loss_scale="big"), TypeError, "loss_scale is 'big', expected a number"),
        (lambda: adamw(loss_scale=True), TypeError, "loss_scale is True, expected a number"),
        (lambda: adamw(loss_scale=0.0), ValueError, "scale is 0.0, expected a positive number"),
        (lambda: DynamicLossScale(growth_factor=1.0), ValueError, "growth factor must be > 1.0"),
        (lambda: DynamicLossScale(backoff_factor=1.0), ValueError, "backoff factor must be < 1.0"),
        (lambda: DynamicLossScale(init_scale=0), ValueError, "init_scale is 0, expected a posi"),
        (
            lambda: colossal.DynamicGradScaler(4.0, min_scale=8.0),
            ValueError,
            "initial_scale is 4.0, expected one from min_scale 8.0 to max_scale None",
        ),
    ],
)
def test_refused(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_defaults_of_the_scalers():
    """As torch.amp.GradScaler's, DeepSpeed's and ColossalAI's."""
    theirs = inspect.signature(torch.amp.GradScaler).parameters
    for name, parameter in inspect.signature(DynamicLossScale).parameters.items():
        assert parameter.default == theirs[name].default
    assert [adamw(loss_scale=kind()).loss_scale for kind in SCALERS.values()] == [
        2.0**16,
        2.0**32,
        2.0**16,
    ]


def test_scale():
    loss = torch.tensor(3.0, requires_grad=True)
    assert adamw().loss_scale == 1.0 and adamw().scale(loss) == 3.0
    optimizer = adamw(loss_scale=4)
    assert optimizer.loss_scale == 4.0 and optimizer.scale(loss) == 12.0
    optimizer.scale(loss).backward()
    assert loss.grad == 4.0


def interface(hypers, scalars=(), options=()):
    return Interface(
        "x",
        tuple((name, 0.0) for name in hypers),
        tuple((name, False) for name in options),
        (),
        scalars=tuple(
            Interface.from_json(
                {
                    "optimizer": "x",
                    "hypers": [],
                    "options": [],
                    "scalars": [{"name": name, "scope": "model", "default": 0.0}],
                }
            ).scalars[0]
            for name in scalars
        ),
    )


def test_names_behind_an_optimizer():
    """A name that is taken gets the fragment's in front."""
    features = (DynamicLossScale(init_scale=8.0), ClipByNorm(0.5))
    plain = interface(["lr", "growth_factor", "backoff_factor", "growth_interval", "max_norm"])
    assert _features.hyper_names(plain, features) == plain.hyper_names[1:]
    taken = interface(["max_norm", "clip_by_norm.max_norm"], ["scale", "torch_scaler.scale"])
    assert _features.hyper_names(taken, features)[-1] == "clip_by_norm.max_norm"
    assert _features.initial_scalars(taken, features) == {"torch_scaler.scale": 8.0}
    assert _features.initial_scalars(plain, features) == {"scale": 8.0}


def test_numbers_may_change():
    clip = ClipByNorm(1.0)
    optimizer = adamw(clip=clip, loss_scale=2.0)
    assert optimizer._feature_values() == (2.0, 1.0)
    optimizer.clip[0].max_norm = 0.25
    assert clip.max_norm == 0.25 and optimizer._feature_values() == (2.0, 0.25)


def test_options_of_a_scaler():
    scaler = deepspeed.DynamicLossScaler(consecutive_hysteresis=True)
    plain = interface([], options=["consecutive_hysteresis", "late_growth"])
    assert _features.options(plain, (scaler,)) == {
        "consecutive_hysteresis": True,
        "late_growth": True,
    }


@pytest.mark.parametrize("how", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
@pytest.mark.parametrize("scaler", SCALERS)
def test_copies_keep_them(how, scaler):
    clip = [ClipByValue(2.0), ClipByNorm(1.0, math.inf)]
    optimizer = adamw(clip=clip, loss_scale=SCALERS[scaler]())
    again = how(optimizer)
    assert repr(again.clip) == repr(optimizer.clip) and again.clip[0] is not optimizer.clip[0]
    assert again._fragments == optimizer._fragments
    assert again.loss_scale == optimizer.loss_scale


def test_torchs_own_step_is_no_substitute():
    """It would neither clip nor unscale."""
    params = make_params([(3,)])
    optimizer = stepc.torch.AdamW(
        params, capturable=False, differentiable=True, clip=ClipByValue(1.0)
    )
    params[0].grad = torch.ones(3)
    before = params[0].detach().clone()
    words = (
        r"AdamW must run torch's own step \(differentiable is set in group 0\), which does not do"
    )
    with pytest.raises(errors.StepcError, match=words + r".*ClipByValue\(clip_value=1.0\)"):
        optimizer.step()
    assert params[0].detach().equal(before) and not optimizer.state


def test_nothing_to_report_before_a_step():
    assert adamw(clip=ClipByNorm(1.0)).last_step is None


def test_report_of_a_step():
    params = make_params([(3,)])
    optimizer = stepc.torch.AdamW(params)
    params[0].grad = torch.ones(3)
    optimizer.step()
    assert dict(optimizer.last_step) == {"skipped": False}
    assert optimizer.last_step.skipped is False
    with pytest.raises(AttributeError, match="reported no 'grad_norm'; it reported skipped"):
        _ = optimizer.last_step.grad_norm
    assert copy.deepcopy(optimizer).last_step is None
