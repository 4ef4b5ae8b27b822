# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every public argument of every original: ours has it, with the same default, or
original_arguments.py says what is here in its place, which docs/arguments.md repeats. Originals
that tests have installed are asked themselves; of others read_originals.py has read the sources."""

import functools
import inspect
import json
from pathlib import Path

import pytest
import stepc.torch
import torch
from original_arguments import MODULES, OTHERS, SAID, Said
from stepc.torch import colossal_plugins
from stepc.torch.deepspeed import classes

RECORDED = json.loads(Path(__file__).with_name("original_signatures.json").read_text())
INSTALLED = {"transformers": "transformers.optimization"}  # where another module has them
REQUIRED = inspect.Parameter.empty
VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def arguments_of(function, first=0):
    """Defaults by name, but for those in front of the first."""
    own = list(inspect.signature(function).parameters.values())[first:]
    return {p.name: p.default for p in own if p.kind not in VARIABLE}


def signatures(library):
    """Of the classes and their ``step``: arguments by name, and theirs with defaults."""
    if library in RECORDED:
        own = ((n, a) for n, a in RECORDED[library]["signatures"].items() if "Plugin" not in n)
        return {n: {a[0]: (*a, REQUIRED)[1] for a in args} for n, args in own}
    module = pytest.importorskip(INSTALLED.get(library, library))
    found = {}
    for name, kind in vars(module).items():
        is_class = isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
        if is_class and name[0] != "_" and kind is not torch.optim.Optimizer:
            found |= {name: arguments_of(kind), f"{name}.step": arguments_of(kind.step, 1)}
    assert found, library
    return found


def at(path):
    return functools.reduce(lambda own, part: getattr(own, part, None), path, stepc.torch)


def counterpart(library, name):
    """The class or function of ours; None where there is none."""
    if name in OTHERS.get(library, {}):
        return at(OTHERS[library][name].split("."))
    places = [tuple(filter(None, (module, name))) for module in MODULES[library]]
    return next((own for own in map(at, places) if own is not None), None)


def plain(value):
    """For comparisons: a list is a tuple, 1 is 1.0 and not True."""
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return isinstance(value, bool), value


def differences(library, found):
    """Names of classes or methods, with an argument that ours does not have, or has with another
    default; "*": without a class of ours."""
    for whole, arguments in found.items():
        name, _, method = whole.partition(".")
        own = counterpart(library, name)
        if own is None:
            if not method:
                yield whole, "*"
            continue
        ours = arguments_of(getattr(own, method), 1) if method else arguments_of(own)
        for argument, default in arguments.items():
            if argument not in ours or plain(ours[argument]) != plain(default):
                yield whole, argument


def said_of(library, name, argument):
    return [row for row in SAID if row.is_of(library, name, argument)]


@pytest.mark.parametrize("library", MODULES)
def test_every_argument_is_here_or_said(library):
    found = differences(library, signatures(library))
    assert [pair for pair in found if not said_of(library, *pair)] == []


def test_what_is_said_is_so():
    """Each argument of each row, and each of its names, of an argument that is not here."""
    missing = {library: list(differences(library, signatures(library))) for library in MODULES}
    stale = []
    for row in SAID:
        for names, arguments in (
            *((name, row.arguments) for name in row.names.split()),
            *((row.names, argument) for argument in row.arguments.split()),
        ):
            part = Said(row.origin, names, arguments, row.here)
            if not any(part.is_of(row.origin, *pair) for pair in missing[row.origin]):
                stale.append(part)
    assert stale == []


def test_every_counterpart_is_there():
    for library, own in OTHERS.items():
        there = signatures(library)
        for name, path in own.items():
            assert name in there and at(path.split(".")) is not None, (library, name, path)
    assert set(RECORDED) | set(INSTALLED) <= set(MODULES)


def test_a_new_argument_or_class_is_found():
    """The walk fails for what a release of theirs might add, and for another default."""
    there = signatures("deepspeed")
    changed = {
        "FusedAdam": {**there["FusedAdam"], "eps": 1e-6, "fuse": None},
        "FusedAdam.step": {"closure": None, "lazily": False},
        "FusedTiger": {"params": REQUIRED},
    }
    found = list(differences("deepspeed", changed))
    assert found == [
        ("FusedAdam", "eps"), ("FusedAdam", "fuse"), ("FusedAdam.step", "lazily"),
        ("FusedTiger", "*"),
    ]  # fmt: skip
    assert not any(said_of("deepspeed", *pair) for pair in found)
    assert plain([1, 0.5]) == plain((1.0, 0.5)) and plain(1) != plain(True)


def test_every_argument_of_an_optimizer_of_a_configuration():
    """``optimizer.params`` of a ``ds_config.json`` are the arguments of these classes. DeepSpeed
    sets the mode of its CPU Adam itself, and refuses ``max_grad_norm``."""
    there = signatures("deepspeed")
    adams = ("FusedAdam", "DeepSpeedCPUAdam")
    for kind, names in {
        "adam": adams, "adamw": adams, "lamb": ("FusedLamb",),
        "lion": ("FusedLion", "DeepSpeedCPULion"), "adagrad": ("DeepSpeedCPUAdagrad",),
    }.items():  # fmt: skip
        theirs = {argument for name in names for argument in there[name]}
        theirs -= {"params", "model_params", "adamw_mode", "max_grad_norm"}
        assert theirs - set(classes._OWN[kind]) == set(), kind


def test_every_argument_of_colossals_plugins():
    """Those of ``configure``, by name and default; sizes of parallelism have one here."""
    recorded = RECORDED["colossalai"]["signatures"]
    assert {name for name in recorded if "Plugin" in name} == set(colossal_plugins.PLUGINS)
    for plugin in colossal_plugins.PLUGINS:
        theirs = {a[0]: (*a, 1)[1] for a in recorded[plugin]}
        ours = colossal_plugins.defaults_of(plugin)
        assert {n: plain(v) for n, v in theirs.items()} == {n: plain(v) for n, v in ours.items()}


# --- What Hugging Face's Trainer makes ------------------------------------------------------------


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))


def test_every_optimizer_of_the_trainer(tmp_path):
    """What ``optim=`` makes of libraries that are installed here: ours takes the same arguments."""
    transformers = pytest.importorskip("transformers")
    names = [member.value for member in transformers.training_args.OptimizerNames]
    made = []
    for name in names:
        given = transformers.TrainingArguments(
            str(tmp_path), optim=name, use_cpu=True, report_to=[], learning_rate=1e-2
        )
        try:
            kind, kwargs = transformers.Trainer.get_optimizer_cls_and_kwargs(given, model())
        except (ImportError, ValueError, RuntimeError):
            continue  # of a library that is not installed
        library = next(n for n in MODULES if kind.__module__.startswith(n.partition(".optim")[0]))
        own = counterpart(library, kind.__name__)
        kwargs.pop("model", None)
        assert own is not None and set(kwargs) <= set(arguments_of(own)), name
        net = model()
        own(net if "model" in arguments_of(own) else net.parameters(), **kwargs)
        made.append(name)
    assert {"adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "rmsprop"} <= set(made)


def test_every_schedule_of_transformers():
    """They drive ours as torch's AdamW: the same learning rates."""
    optimization = pytest.importorskip("transformers.optimization")
    more = {
        "cosine_with_min_lr": {"min_lr": 1e-4},
        "cosine_warmup_with_min_lr": {"min_lr": 1e-4},
        "warmup_stable_decay": {"num_decay_steps": 5},
    }
    for kind in optimization.SchedulerType:
        rates = []
        for optimizer in (stepc.torch.AdamW, torch.optim.AdamW):
            own = optimizer(model().parameters(), lr=1e-2)
            schedule = optimization.get_scheduler(
                kind, own, num_warmup_steps=4, num_training_steps=20,
                scheduler_specific_kwargs=more.get(kind.value),
            )  # fmt: skip
            takes = inspect.signature(schedule.step).parameters
            needs_metrics = "metrics" in takes
            rates.append([])
            for number in range(20):
                own.step()
                schedule.step(*([1.0 / (number % 7 + 1)] if needs_metrics else []))
                rates[-1].append(own.param_groups[0]["lr"])
        assert rates[0] == rates[1], kind
