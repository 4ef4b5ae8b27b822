# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules that users and libraries expect of a ``torch.optim.Optimizer``."""

import inspect
import warnings

import pytest
import stepc.torch
import torch
from common import (
    KEYWORDS,
    bits_equal,
    clone_params,
    distance,
    make_params,
    set_grads,
    train,
)
from contract_kinds import KINDS, SHAPES, each_kind, make
from torch.optim.optimizer import register_optimizer_step_post_hook

# --- Construction -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_same_constructor_as_torch(kind):
    ours = list(inspect.signature(getattr(stepc.torch, kind)).parameters.values())
    theirs = list(inspect.signature(getattr(torch.optim, kind)).parameters.values())
    assert [(p.name, p.kind, p.default) for p in ours[: -len(KEYWORDS)]] == [
        (p.name, p.kind, p.default) for p in theirs
    ]
    keywords = [(p.name, p.kind, p.default) for p in ours[-len(KEYWORDS) :]]
    only = inspect.Parameter.KEYWORD_ONLY
    assert keywords == [(name, only, default) for name, default in KEYWORDS]
    assert issubclass(getattr(stepc.torch, kind), getattr(torch.optim, kind))


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        ("AdamW", {"lr": -1.0}),
        ("AdamW", {"betas": (1.0, 0.9)}),
        ("AdamW", {"betas": (0.9, -0.1)}),
        ("AdamW", {"eps": -1.0}),
        ("AdamW", {"weight_decay": -1.0}),
        ("AdamW", {"lr": torch.ones(2)}),
        ("AdamW", {"fused": True, "foreach": True}),
        ("AdamW", {"fused": True, "differentiable": True}),
        ("AdamW", {"lr": torch.tensor(0.1), "foreach": True}),
        ("SGD", {"lr": -1.0}),
        ("SGD", {"momentum": -0.5}),
        ("SGD", {"weight_decay": -0.5}),
        ("SGD", {"nesterov": True}),
        ("SGD", {"frobnicate": True}),
    ],
)
def test_same_errors_as_torch(kind, kwargs):
    with pytest.raises(Exception) as theirs:
        getattr(torch.optim, kind)(make_params(SHAPES), **kwargs)
    with pytest.raises(type(theirs.value)) as ours:
        getattr(stepc.torch, kind)(make_params(SHAPES), **kwargs)
    assert str(ours.value) == str(theirs.value)


@each_kind
def test_errors_about_params(kind):
    p = make_params([(2,)])[0]
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts"):
        KINDS[kind](p, lr=0.1)
    with pytest.raises(ValueError, match="empty parameter list"):
        KINDS[kind]([], lr=0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        KINDS[kind]([{"params": [p]}, {"params": [p]}], lr=0.1)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        KINDS[kind]([3.0], lr=0.1)
    with pytest.raises(ValueError, match="non-leaf"):
        KINDS[kind]([p * 2], lr=0.1)


@pytest.mark.parametrize("kwargs", [{"lr": -1.0}, {"betas": (0.9, 1.0)}, {"weight_decay": -1.0}])
def test_lion_checks_its_values(kwargs):
    with pytest.raises(ValueError, match="Invalid"):
        stepc.torch.Lion(make_params(SHAPES), **kwargs)


def test_named_parameters():
    model = torch.nn.Linear(2, 2)
    optimizer = stepc.torch.AdamW(model.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]


def subclasses(base):
    """As users write them, by what they take; torch's classes can all be the base."""

    class Anything(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    class More(base):
        def __init__(self, params, extra=1, **kwargs):
            super().__init__(params, **kwargs)
            self.extra = extra

    class Few(base):
        def __init__(self, params, lr=1e-3):
            super().__init__(params, lr=lr)

    class Named(base):
        """Some of what all classes take is its own."""

        def __init__(self, params, lr=1e-3, *, clip=None, seed=0, **others):
            super().__init__(params, lr=lr, clip=clip, **others)
            self.own_seed = seed

    class OnlyStep(base):
        def step(self, closure=None):
            return super().step(closure)

    return [Anything, More, Few, Named, OnlyStep]


EXPECTED = {
    "Anything": ["args", *(name for name, _ in KEYWORDS), "kwargs"],
    "More": ["params", "extra", *(name for name, _ in KEYWORDS), "kwargs"],
    "Few": ["params", "lr"],
    "Named": [
        *("params", "lr", "clip", "seed"),
        *(name for name, _ in KEYWORDS if name not in ("clip", "seed")),
        "others",
    ],
}
BASES = [getattr(stepc.torch, name) for name in ("AdamW", "SGD", "Lion", "LARS", "NAdam")]


@pytest.mark.parametrize("base", [*BASES, stepc.torch.came.CAME], ids=lambda base: base.__name__)
def test_subclasses_of_users(base):
    """They are defined, say what they take, and step as their base; so do theirs."""
    for cls in subclasses(base):
        for kind in (cls, *subclasses(cls)[:2]):
            if kind.__name__ in EXPECTED and kind is cls:
                assert list(inspect.signature(kind).parameters) == EXPECTED[cls.__name__]
            ours = make_params(SHAPES)
            theirs = clone_params(ours)
            a, b = kind(ours, lr=0.1), base(theirs, lr=0.1)
            train((a, b), (ours, theirs), 2)
            assert bits_equal(ours, theirs)


def test_a_subclass_clips_as_it_says():
    class Mine(stepc.torch.SGD):
        def __init__(self, params, clip=None, **kwargs):
            super().__init__(params, clip=stepc.torch.ClipByNorm(clip), **kwargs)

    params = make_params(SHAPES)
    optimizer = Mine(params, clip=0.5, lr=0.1, skip_nonfinite=True)
    set_grads(params)
    optimizer.step()
    assert optimizer.last_step.grad_norm > 0.5 and optimizer.clip[0].max_norm == 0.5


# --- The step -----------------------------------------------------------------


@each_kind
def test_overridden_methods_keep_their_signatures(kind):
    _, optimizer = make(kind)
    for name in ("step", "zero_grad", "add_param_group", "load_state_dict", "state_dict"):
        ours = inspect.signature(getattr(type(optimizer), name)).parameters.values()
        theirs = inspect.signature(getattr(torch.optim.Optimizer, name)).parameters.values()
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs]
    assert inspect.ismethod(optimizer.step) and callable(optimizer.step.__func__)


@each_kind
def test_nothing_before_the_first_step(kind, compiler_runs, own_cache):
    params, optimizer = make(kind)
    optimizer.zero_grad()
    assert optimizer._binding is None and not optimizer.state
    assert [run for run in compiler_runs if "--interface" not in run] == []
    set_grads(params)
    optimizer.step()
    assert len([run for run in compiler_runs if "--interface" not in run]) == 1


@each_kind
def test_zero_gradients_and_lr_make_state_and_move_nothing(kind):
    """How checkpoint libraries make the state of a fresh optimizer."""
    kwargs = {"sgd": {"momentum": 0.9}}.get(kind, {})
    params, optimizer = make(kind, weight_decay=0.1, **kwargs)
    before = clone_params(params)
    for lr in (0.0, torch.tensor(0.0)):
        for p in params:
            p.grad = torch.zeros_like(p)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step(closure=None)
        assert bits_equal(params, before)
        assert len(optimizer.state) == len(params)
        assert all(state for state in optimizer.state.values())


@each_kind
def test_missing_gradients(kind):
    params, optimizer = make(kind, [(3,), (2, 4), (5,)], weight_decay=0.1)
    before = clone_params(params)
    optimizer.step()
    assert bits_equal(params, before) and not optimizer.state
    set_grads(params)
    params[1].grad = None
    optimizer.step()
    assert params[1].detach().equal(before[1].detach()) and params[1] not in optimizer.state
    assert not params[0].detach().equal(before[0].detach())


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_gradients_that_come_and_go(kind):
    ours = make_params([(3,), (2, 4), (5,), ()])
    theirs = clone_params(ours)
    kwargs = {"AdamW": {}, "SGD": {"momentum": 0.9, "dampening": 0.1}}[kind]
    a = getattr(stepc.torch, kind)(ours, lr=0.1, **kwargs)
    b = getattr(torch.optim, kind)(theirs, lr=0.1, **kwargs)
    for step in range(12):
        set_grads(ours, theirs, seed=step)
        for i in range(4):
            if (step >> i) & 1 or (i == 2 and step < 6):
                ours[i].grad = theirs[i].grad = None
        a.step()
        b.step()
    assert distance(ours, theirs) < 50
    if kind == "AdamW":
        for p, q in zip(ours, theirs, strict=True):
            assert a.state[p]["step"] == b.state[q]["step"]
    assert a._binding.plan.info().numTensors == 4


@each_kind
def test_lazy_modules(kind):
    """Made before there are shapes; one that nobody has called stays without."""
    model = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyLinear(2))
    unused = torch.nn.LazyLinear(4)
    optimizer = KINDS[kind]([*model.parameters(), *unused.parameters()], lr=0.1)
    optimizer.step()
    assert repr(optimizer) and not optimizer.state_dict()["state"]
    for late in (False, True):
        if late:
            unused(torch.ones(2, 5)).sum().backward()
        model(torch.ones(2, 4)).sum().backward()
        before = model[0].weight.detach().clone()
        optimizer.step()
        assert not before.equal(model[0].weight.detach())
    assert optimizer.state.get(unused.weight) or kind == "sgd"


@pytest.mark.parametrize("sequence", [tuple, list, lambda params: dict.fromkeys(params).keys()])
@each_kind
def test_a_group_has_any_sequence(kind, sequence):
    """As torch's step reads them; one is given again before each step."""
    params, optimizer = make(kind)
    twins = clone_params(params)
    plain = KINDS[kind](twins, lr=0.1)
    for step in range(3):
        train((optimizer, plain), (params, twins), 1, first=step)
        optimizer.param_groups[0]["params"] = sequence(params)
    optimizer.state_dict()
    assert bits_equal(params, twins)


@pytest.mark.parametrize("value", [None, True, False])
@pytest.mark.parametrize("flag", ["fused", "foreach"])
@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Adam", "Adagrad"])
def test_any_implementation_is_the_compiled_one(kind, flag, value):
    """``fused=(device == "cuda")``, also beside what torch's step does not do, and of a group
    that was loaded."""
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    clip = {"clip": stepc.torch.ClipByNorm(0.1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        a = getattr(stepc.torch, kind)(ours, lr=0.1, **{flag: value}, **clip)
        b = getattr(stepc.torch, kind)(theirs, lr=0.1, **clip)
        train((a, b), (ours, theirs), 2)
        a.load_state_dict(a.state_dict())
        train((a, b), (ours, theirs), 1, first=2)
    assert bits_equal(ours, theirs) and a.last_step.grad_norm == b.last_step.grad_norm
    assert a.state_dict()["param_groups"][0][flag] is value


@each_kind
def test_closure(kind):
    params, optimizer = make(kind)

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = sum((p * p).sum() for p in params)
        loss.backward()
        return loss

    with torch.no_grad():
        first = optimizer.step(closure)
        second = optimizer.step(closure=closure)
    assert second < first
    assert optimizer.step() is None


@each_kind
def test_goes_in_the_right_direction(kind):
    params, optimizer = make(kind)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = sum((p * p).sum() for p in params)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@each_kind
def test_gradients_are_not_touched(kind):
    params, optimizer = make(kind)
    set_grads(params)
    held = [(p.grad, p.grad.clone(), p.grad._version) for p in params]
    optimizer.step()
    for p, (grad, copied, version) in zip(params, held, strict=True):
        assert p.grad is grad and grad.equal(copied) and grad._version == version


@each_kind
def test_step_hooks(kind):
    params, optimizer = make(kind)
    set_grads(params)
    seen = []
    handles = [
        optimizer.register_step_pre_hook(lambda o, a, k: seen.append("before")),
        optimizer.register_step_post_hook(lambda o, a, k: seen.append("after")),
        register_optimizer_step_post_hook(
            lambda o, a, k: seen.append("global") if o is optimizer else None
        ),
    ]
    optimizer.step()
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert seen == ["before", "after", "global"]


@each_kind
def test_printing(kind):
    _, optimizer = make(kind)
    text = repr(optimizer)
    assert text.startswith(type(optimizer).__name__ + " (") and "Parameter Group 0" in text
    assert "lr: 0.1" in text


# --- Hyper-parameters ---------------------------------------------------------


@each_kind
def test_a_float_never_compiles_or_binds(kind, compiler_runs):
    params, optimizer = make(kind)
    set_grads(params)
    optimizer.step()
    runs, binding = len(compiler_runs), optimizer._binding
    for step in range(20):
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        for name in ("eps", "beta1", "beta2"):
            if name in optimizer.param_groups[0]:
                optimizer.param_groups[0][name] *= 0.99
        set_grads(params, seed=step)
        optimizer.step()
    assert len(compiler_runs) == runs
    assert optimizer._binding is binding and binding.plan.info().steps == 21


def schedulers():
    s = torch.optim.lr_scheduler
    return {
        "exponential": lambda o: s.ExponentialLR(o, 0.9),
        "one cycle": lambda o: s.OneCycleLR(o, 0.1, total_steps=25),
        "cosine": lambda o: s.CosineAnnealingWarmRestarts(o, 5),
        "chain": lambda o: s.SequentialLR(
            o, [s.LinearLR(o, 0.1, 1.0, 5), s.StepLR(o, 3, 0.5)], [5]
        ),
    }


@pytest.mark.parametrize("name", schedulers())
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_schedulers(kind, name):
    ours = make_params()
    theirs = clone_params(ours)
    kwargs = {"SGD": {"momentum": 0.8}}.get(kind, {})
    a = getattr(stepc.torch, kind)(ours, lr=0.05, **kwargs)
    b = getattr(torch.optim, kind)(theirs, lr=0.05, **kwargs)
    plans = [schedulers()[name](a), schedulers()[name](b)]
    for step in range(20):
        train((a, b), (ours, theirs), 1, first=step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about epochs
            for plan in plans:
                plan.step()
    assert distance(ours, theirs) < 100
    assert a.param_groups[0]["lr"] == b.param_groups[0]["lr"]


def test_plateau_scheduler_over_a_tensor():
    params = make_params(SHAPES)
    optimizer = stepc.torch.AdamW(params, lr=torch.tensor(0.1))
    plan = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    set_grads(params)
    for _ in range(4):
        optimizer.step()
        plan.step(1.0)
    assert float(optimizer.param_groups[0]["lr"]) < 0.1


@pytest.mark.parametrize("lr", [torch.tensor(0.1), torch.tensor([0.1]), torch.tensor(0.1).double()])
def test_tensor_lr(lr):
    """Filled in place, as schedulers do it, it takes effect."""
    ours = make_params()
    theirs = clone_params(ours)
    a, b = stepc.torch.AdamW(ours, lr=lr), stepc.torch.AdamW(theirs, lr=float(lr))
    for step in range(3):
        train((a, b), (ours, theirs), 1, first=step)
        lr.mul_(0.5)
        b.param_groups[0]["lr"] = float(lr)
    assert bits_equal(ours, theirs)


def test_groups_with_their_own_values():
    ours = make_params()
    theirs = clone_params(ours)

    def groups(p):
        return [
            {"params": p[:2], "lr": 0.1},
            {"params": p[2:5], "betas": (0.5, 0.6), "weight_decay": 0.0},
            {"params": p[5:], "eps": 1e-3, "maximize": True},
        ]

    a, b = stepc.torch.AdamW(groups(ours)), torch.optim.AdamW(groups(theirs))
    train((a, b), (ours, theirs), 10)
    assert distance(ours, theirs) < 50
