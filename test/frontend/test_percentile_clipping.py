# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``percentile_clipping`` of bitsandbytes' classes and of ColossalAI's GaLore, beside
``functional.percentile_clipping`` and ``kPercentileClipping`` of bitsandbytes 0.49 in numpy."""

import copy
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import stepc.torch
import torch
from common import bits_equal, clone_params, make_params
from stepc.torch import bitsandbytes as bnb
from stepc.torch import checkpoint, colossal
from stepc.torch.bitsandbytes import percentile
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

SHAPES = [(40, 33), (64, 96), (7,)]


class Clipping:
    """Of one parameter: squared norms in float32, the step's own at its number modulo 100."""

    def __init__(self, p):
        self.p, self.squares, self.step = p, np.zeros(100, np.float32), 0

    def __call__(self, grad):
        square = np.float32(np.square(grad.double().numpy()).sum())
        self.step += 1
        if self.step == 1:
            self.squares[:] = square
        else:
            self.squares[self.step % 100] = square
        norm = np.sqrt(self.squares[self.step % 100])
        most = np.sqrt(np.sort(self.squares)[self.p])
        return grad * float(most / norm) if norm > most else grad


def gradients(step):
    """Of lengths that differ from step to step, and from parameter to parameter."""
    rng = np.random.default_rng(step)
    lengths = rng.lognormal(0, 1, len(SHAPES))
    return [
        torch.tensor(length * rng.standard_normal(shape), dtype=torch.float32)
        for length, shape in zip(lengths, SHAPES, strict=True)
    ]


def run(optimizer, params, steps, clipping=None, but=()):
    """``but``: steps in which the last parameter has no gradient."""
    clipped = 0
    for step in steps:
        grads = gradients(step)
        for number, (param, grad) in enumerate(zip(params, grads, strict=True)):
            if step in but and number == len(params) - 1:
                param.grad = None
                continue
            param.grad = grad if clipping is None else clipping[number](grad)
            clipped += param.grad is not grad
        kept = [param.grad for param in params]
        optimizer.step()
        assert all(param.grad is own for param, own in zip(params, kept, strict=True))
        assert all(torch.equal(g, own) for g, own in zip(gradients(step), grads, strict=True))
    return clipped


KINDS = {
    "AdamW8bit": lambda params, **more: bnb.AdamW8bit(params, lr=0.01, **more),
    "AdamW32bit": lambda params, **more: bnb.AdamW32bit(params, lr=0.01, **more),
    "Lion8bit": lambda params, **more: bnb.Lion8bit(params, lr=0.01, **more),
    "SGD": lambda params, **more: bnb.SGD(params, lr=0.01, momentum=0.9, **more),
    "RMSprop": lambda params, **more: bnb.RMSprop(params, lr=0.01, **more),
    "Adagrad8bit": lambda params, **more: bnb.Adagrad8bit(params, lr=0.01, **more),
    "DistGaloreAwamW": lambda params, **more: colossal.DistGaloreAwamW(
        [{"params": params[:2], "rank": 4, "update_proj_gap": 20, "scale": 0.5,
          "proj_type": "std"}, {"params": params[2:]}], nbits=32, **more
    ),
}  # fmt: skip


CASES = [(name, 5) for name in KINDS] + [("AdamW8bit", 0), ("AdamW8bit", 50), ("SGD", 95)]


@pytest.mark.parametrize(("name", "p"), CASES)
def test_gradients_are_as_in_bitsandbytes(name, p):
    """150 steps, past the end of the ring: what an optimizer without it makes of gradients that
    numpy has clipped, to the bit."""
    lists = [make_params(SHAPES)]
    lists.append(clone_params(lists[0]))
    ours = KINDS[name](lists[0], percentile_clipping=p)
    plain = KINDS[name](lists[1])
    but = (1, 3, 120)  # the last parameter begins later, and counts for itself
    run(ours, lists[0], range(1, 151), but=but)
    clipped = run(plain, lists[1], range(1, 151), [Clipping(p) for _ in SHAPES], but)
    assert bits_equal(*lists)
    assert clipped > (10 if p == 95 else 150)


@pytest.mark.parametrize("name", ["AdamW8bit", "SGD", "DistGaloreAwamW"])
@pytest.mark.parametrize("way", ["state_dict", "full_state_dict", "deepcopy"])
def test_norms_are_saved(name, way):
    """Half of the steps in another optimizer, with a class that counts steps and others."""
    lists = [make_params(SHAPES)]
    first = KINDS[name](lists[0], percentile_clipping=5)
    run(first, lists[0], range(1, 61))
    lists.append(clone_params(lists[0]))
    if way == "deepcopy":
        second, lists[1] = copy.deepcopy((first, lists[0]))
    else:
        second = KINDS[name](lists[1], percentile_clipping=5)
        saved = getattr(first, way)()
        assert {"gnorm_vec", "gnorm_step"} <= saved["state"][2].keys()
        second.load_state_dict(copy.deepcopy(saved))
    for own, optimizer in zip(lists, (first, second), strict=True):
        run(optimizer, own, range(61, 131))
    assert bits_equal(*lists)
    # One that does not clip takes the rest, without a warning.
    third = KINDS[name](clone_params(lists[0]))
    third.load_state_dict(first.state_dict())
    assert not any("gnorm_vec" in own for own in third.state_dict()["state"].values())


@pytest.mark.parametrize("layout", ["torch", "dcp"])
def test_norms_are_in_checkpoints(tmp_path, layout):
    names = ("a", "b", "c")
    lists = [make_params(SHAPES)]
    first = bnb.Lion8bit(zip(names, lists[0], strict=True), percentile_clipping=5)
    run(first, lists[0], range(1, 31))
    checkpoint.save(first, tmp_path / "saved", layout)
    lists.append(clone_params(lists[0]))
    second = bnb.Lion8bit(zip(names, lists[1], strict=True), percentile_clipping=5)
    checkpoint.load(second, tmp_path / "saved")
    for own, optimizer in zip(lists, (first, second), strict=True):
        run(optimizer, own, range(31, 61))
    assert bits_equal(*lists)


@pytest.mark.parametrize("name", ["AdamW32bit", "DistGaloreAwamW"])
def test_norms_are_in_files_that_outlive_their_process(tmp_path, name):
    """Of each step, beside its states. One that does not clip takes the rest."""
    lists = [make_params(SHAPES)]
    lists.append(clone_params(lists[0]))
    place = stepc.torch.Place("disk", path=tmp_path, durable=True)
    first = KINDS[name](lists[0], percentile_clipping=5, place=place)
    second = KINDS[name](lists[1], percentile_clipping=5)
    run(first, lists[0], range(1, 31), but=(1, 3))
    del first
    lists[0] = make_params(SHAPES)
    first = KINDS[name](lists[0], percentile_clipping=5, place=place)
    assert first.recover() == 30
    run(first, lists[0], range(31, 61))
    assert first.recover() == 60
    run(first, lists[0], range(61, 71))
    run(second, lists[1], range(1, 71), but=(1, 3))
    assert bits_equal(*lists)
    for number, own in second.state_dict()["state"].items():
        found = first.state_dict()["state"][number]
        assert all(torch.equal(found[key], own[key]) for key in ("gnorm_vec", "gnorm_step"))
    del first
    third = KINDS[name](make_params(SHAPES), place=place)
    assert third.recover() == 70
    assert not any("gnorm_vec" in own for own in third.state_dict()["state"].values())


@pytest.mark.parametrize("way", ["load_state_dict", "checkpoint", "checkpoint, wrapped"])
def test_norms_of_bitsandbytes_are_loaded(tmp_path, way):
    """As 0.49 saved them, beside its states; the count of steps says where the next one goes."""
    params = make_params(SHAPES)
    clipping = [Clipping(5) for _ in SHAPES]
    for step in range(1, 48):
        for own, grad in zip(clipping, gradients(step), strict=True):
            own(grad)
    state = {
        number: {"step": 47, "state1": torch.zeros_like(p), "state2": torch.ones_like(p),
                 "gnorm_vec": torch.from_numpy(clipping[number].squares.copy())}
        for number, p in enumerate(params)
    }  # fmt: skip
    group = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    saved = {"state": state, "param_groups": [{**group, "params": [0, 1, 2]}]}
    lists = [params, clone_params(params)]
    ours, plain = (
        bnb.Adam(own, percentile_clipping=p) for own, p in zip(lists, (5, 100), strict=True)
    )
    if way == "load_state_dict":
        ours.load_state_dict(saved)
    else:
        wrapped = {
            n: {"step": own.pop("step"), "__bnb_optimizer_quant_state__": own}
            for n, own in copy.deepcopy(state).items()
        }
        torch.save({**saved, "state": wrapped if "wrapped" in way else state}, tmp_path / "theirs")
        checkpoint.load(ours, tmp_path / "theirs")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of states that an optimizer does not have
            for kind in (stepc.torch.Adam, bnb.Adam):
                checkpoint.load(kind(clone_params(params)), tmp_path / "theirs")
    plain.load_state_dict(saved)
    run(ours, lists[0], range(48, 120))
    run(plain, lists[1], range(48, 120), clipping)
    assert bits_equal(*lists)
    state[0]["gnorm_vec"] = torch.zeros(99)
    with pytest.raises(ValueError, match="state 'gnorm_vec' has 99 norms, expected 100"):
        ours.load_state_dict(saved)


def test_a_step_that_fails_or_is_skipped_counts_for_nothing():
    """Gradients are what they were, and so are norms."""
    params = make_params(SHAPES)
    optimizer = bnb.AdamW8bit(params, percentile_clipping=5, skip_nonfinite=True)
    run(optimizer, params, range(1, 4))
    before = {n: own["gnorm_vec"] for n, own in optimizer.state_dict()["state"].items()}

    def same():
        after = optimizer.state_dict()["state"]
        return all(torch.equal(own, after[n]["gnorm_vec"]) for n, own in before.items())

    grads = gradients(9)
    for param, grad in zip(params, grads, strict=True):
        param.grad = 100 * grad
    params[1].grad[0, 0] = float("nan")
    kept = [param.grad for param in params]
    optimizer.step()
    assert optimizer.last_step.skipped and same()
    optimizer.param_groups[0]["weight_decay"] = "none"
    with pytest.raises(Exception, match="none"):
        optimizer.step()
    assert same() and all(p.grad is own for p, own in zip(params, kept, strict=True))


@pytest.mark.parametrize("way", ["gradients", "state asked for"])
def test_gradients_of_0_set_nothing(way):
    """In the first steps: of a LoRA beside a factor of zeros, or of what torch steps for states."""
    net = torch.nn.Linear(96, 64, bias=False)
    first = bnb.AdamW32bit(net.parameters(), lr=0.01, percentile_clipping=5)
    if way == "gradients":
        for _ in range(3):
            net.weight.grad = torch.zeros_like(net.weight)
            first.step()
    else:
        get_optimizer_state_dict(net, first)  # which steps, and counts it
    lists = [[net.weight], clone_params([net.weight])]
    second = bnb.AdamW32bit(lists[1], lr=0.01, percentile_clipping=5)
    plain = first.state_dict()
    del plain["state"][0]["gnorm_vec"], plain["state"][0]["gnorm_step"]
    second.load_state_dict(plain)
    for step in range(1, 31):
        grad = gradients(step)[1]
        lists[0][0].grad, lists[1][0].grad = grad, grad
        first.step()
        second.step()
        assert bits_equal(*lists), step
    squares = [own.state_dict()["state"][0]["gnorm_vec"] for own in (first, second)]
    assert torch.equal(*(own.sort().values for own in squares)) and squares[0].min() > 0


@pytest.mark.parametrize("way", ["made", "deepcopy", "pickle"])
def test_a_scaler_unscales_before(way):
    """Norms are of gradients without the scale, which changes."""
    lists = [make_params(SHAPES)]
    lists.append(clone_params(lists[0]))
    scaled, plain = (bnb.AdamW(own, percentile_clipping=5) for own in lists)
    if way == "deepcopy":
        scaled, lists[0] = copy.deepcopy((scaled, lists[0]))
    elif way == "pickle":
        scaled = pickle.loads(pickle.dumps(scaled))
        lists[0] = scaled.param_groups[0]["params"]
    scaler = stepc.torch.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    scaler.scale(torch.ones(()))
    for step in range(1, 8):
        for param, grad in zip(lists[0], gradients(step), strict=True):
            param.grad = grad * scaler.get_scale()
        scaler.step(scaled)
        scaler.update()
        run(plain, lists[1], [step])
    assert bits_equal(*lists)


def test_bfloat16_gradients_are_rounded():
    """A product of float32, rounded to the gradient's dtype."""
    lists = [[p.detach().bfloat16().requires_grad_() for p in make_params(SHAPES)]]
    lists.append([p.detach().clone().requires_grad_() for p in lists[0]])
    ours, plain = (
        bnb.AdamW(own, percentile_clipping=p) for own, p in zip(lists, (5, 100), strict=True)
    )
    clipping = [Clipping(5) for _ in SHAPES]
    for step in range(1, 30):
        for own, clip in ((lists[0], None), (lists[1], clipping)):
            for number, (param, grad) in enumerate(zip(own, gradients(step), strict=True)):
                grad = grad.bfloat16()
                param.grad = grad if clip is None else clip[number](grad)
        ours.step()
        plain.step()
    assert bits_equal(*lists)


@pytest.mark.parametrize(
    "more",
    [{"loss_scale": 8.0}, {"accumulation_steps": 2}, {"fused_backward": True},
     {"static_grads": True}],
    ids=lambda more: next(iter(more)),
)  # fmt: skip
def test_features_that_make_another_gradient(more):
    (name,) = more
    with pytest.raises(ValueError, match=f"percentile_clipping is 5 beside {name}, expected 100"):
        bnb.AdamW(make_params(SHAPES), percentile_clipping=5, **more)
    bnb.AdamW(make_params(SHAPES), percentile_clipping=100, **more)


def test_an_accumulation_of_one_step_is_none():
    lists = [make_params(SHAPES)]
    lists.append(clone_params(lists[0]))
    first = KINDS["SGD"](lists[0], percentile_clipping=5, accumulation_steps=1)
    run(first, lists[0], range(1, 6))
    run(KINDS["SGD"](lists[1], percentile_clipping=5), lists[1], range(1, 6))
    assert bits_equal(*lists)


def test_a_universal_checkpoint_has_no_norms(tmp_path):
    """DeepSpeed takes every file of a parameter for a state of its shape."""
    params = make_params(SHAPES)
    optimizer = bnb.AdamW32bit(zip("abc", params, strict=True), percentile_clipping=5)
    run(optimizer, params, range(1, 4))
    checkpoint.save(optimizer, tmp_path / "saved", "universal")
    files = {path.name for path in (tmp_path / "saved").rglob("zero/*/*.pt")}
    assert files == {"fp32.pt", "exp_avg.pt", "exp_avg_sq.pt", "step.pt"}
    other = bnb.AdamW32bit(zip("abc", make_params(SHAPES), strict=True), percentile_clipping=5)
    checkpoint.load(other, tmp_path / "saved", parameters=True)
    assert bits_equal([other.state[p]["exp_avg"] for p in other.param_groups[0]["params"]],
                      [optimizer.state[p]["exp_avg"] for p in params])  # fmt: skip


def test_args_say_it():
    args = SimpleNamespace(optim_bits=8, min_8bit_size=4096, max_unorm=0.0, skip_zeros=False)
    assert bnb.AdamW(make_params(SHAPES), args=args).percentile_clipping == percentile.NONE
    args.percentile_clipping = 7
    assert bnb.AdamW(make_params(SHAPES), args=args).percentile_clipping == 7
