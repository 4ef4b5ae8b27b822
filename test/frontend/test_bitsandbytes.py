# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The classes of bitsandbytes: their arguments, how many bits their states have, and what is
refused. Their formulas are in test_written_out.py, their checkpoints in
test_bitsandbytes_states.py."""

import copy
import inspect
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import stepc.torch as st
import torch
import written_out_peers as peers
from common import KEYWORDS, bits_equal, clone_params, make_params, train
from stepc.torch import bitsandbytes as bnb
from stepc.torch.bitsandbytes import bits
from stepc.torch.colossal import DistGaloreAwamW

# The constructors of bitsandbytes 0.50.2, bitsandbytes/optim/*.py: name and default.
REQUIRED = inspect.Parameter.empty
OPTIM_BITS, PAGED = ("optim_bits", 32), ("is_paged", False)
REST = [("args", None), ("min_8bit_size", 4096)]


def of_adam(decay, *more):
    return [
        ("lr", 1e-3), ("betas", (0.9, 0.999)), ("eps", 1e-8), ("weight_decay", decay),
        ("amsgrad", False), OPTIM_BITS, *REST, *more,
    ]  # fmt: skip


LION = [("lr", 1e-4), ("betas", (0.9, 0.99)), ("weight_decay", 0)]
SGD = [
    ("lr", REQUIRED), ("momentum", 0), ("dampening", 0), ("weight_decay", 0), ("nesterov", False),
]  # fmt: skip
RMSPROP = [
    ("lr", 1e-2), ("alpha", 0.99), ("eps", 1e-8), ("weight_decay", 0), ("momentum", 0),
    ("centered", False),
]  # fmt: skip
ADAGRAD = [
    ("lr", 1e-2), ("lr_decay", 0), ("weight_decay", 0), ("initial_accumulator_value", 0),
    ("eps", 1e-10),
]  # fmt: skip
BITS = ("", "8bit", "32bit")
ORIGINALS = {
    **{f"{paged}Adam{n}": of_adam(0, PAGED) for paged in ("", "Paged") for n in BITS},
    **{f"AdamW{n}": of_adam(1e-2, PAGED) for n in BITS},
    **{f"PagedAdamW{n}": of_adam(1e-2) for n in BITS},
    "Lion": [*LION, OPTIM_BITS, *REST, PAGED],
    "PagedLion": [*LION, OPTIM_BITS, *REST],
    **{f"Lion{n}": [*LION, *REST, PAGED] for n in BITS[1:]},
    **{f"PagedLion{n}": [*LION, *REST] for n in BITS[1:]},
    "SGD": [*SGD, OPTIM_BITS, *REST],
    **{f"SGD{n}": [*SGD, *REST] for n in BITS[1:]},
    "RMSprop": [*RMSPROP, OPTIM_BITS, *REST],
    **{f"RMSprop{n}": [*RMSPROP, *REST] for n in BITS[1:]},
    **{f"Adagrad{n}": [*ADAGRAD, OPTIM_BITS, *REST] for n in ("", "32bit")},
    "Adagrad8bit": [*ADAGRAD, ("optim_bits", 8), *REST],
}
SHAPES = [(64, 96), (96,), (3, 5), (5000,)]  # of which the first one is encoded
FAMILIES = {  # beside what of ours, with which arguments of both
    "Adam": (st.AdamW, {"lr": 0.01, "weight_decay": 0.1}, {}),
    "AdamW": (st.AdamW, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-6}, {}),
    "Lion": (st.Lion, {"lr": 0.01, "weight_decay": 0.1}, {}),
    "SGD": (st.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}, {}),
    "RMSprop": (st.RMSprop, {"lr": 0.01, "alpha": 0.9, "weight_decay": 0.1}, {}),
    "Adagrad": (st.Adagrad, {"lr": 0.1, "weight_decay": 0.1}, {}),
}


def make(name, params, **kwargs):
    """A class with what it cannot be without."""
    needed = {"lr": 0.1, "momentum": 0.9} if name.startswith("SGD") else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "stepc: is_paged")
        return getattr(bnb, name)(params, **{**needed, **kwargs})


def family(name):
    return name.removeprefix("Paged").removesuffix("8bit").removesuffix("32bit")


def all_states(optimizer, params):
    return [{n: s for n, s in optimizer.state[p].items() if n != "step"} for p in params]


def same_states(a, b):
    return all(
        one.keys() == other.keys() and bits_equal(one.values(), other.values())
        for one, other in zip(a, b, strict=True)
    )


# --- Arguments ----------------------------------------------------------------


def test_every_class_is_there():
    assert sorted(bnb.__all__) == sorted(ORIGINALS)


@pytest.mark.parametrize("name", ORIGINALS)
def test_arguments_as_the_originals(name):
    parameters = list(inspect.signature(getattr(bnb, name)).parameters.values())
    positional = [(p.name, p.default) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    assert positional == [("params", REQUIRED), *ORIGINALS[name]]
    keywords = [(p.name, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert keywords == [("percentile_clipping", 100), ("block_wise", True), *KEYWORDS]


def test_groups_have_the_keys_of_the_originals():
    params = make_params([(3,)])
    for name in ORIGINALS:
        group = make(name, params).param_groups[0]
        assert set(group) == {"params", "lr", "betas", "eps", "weight_decay"}
    assert make("SGD", params, momentum=0.7).param_groups[0]["betas"] == (0.7, 0)
    assert make("RMSprop", params, alpha=0.7).param_groups[0]["betas"] == (0.7, 0)


def test_betas_as_a_text():
    for name in ("Adam", "AdamW8bit", "PagedAdamW"):
        group = make(name, make_params([(3,)]), betas="(0.5, 0.25)").param_groups[0]
        assert group["betas"] == (0.5, 0.25)


# --- Bits ---------------------------------------------------------------------


def test_bits_of_each_class():
    """By the name, or by the argument; `args` stands in place of arguments."""
    params = make_params([(3,)])
    fields = {"min_8bit_size": 4096, "max_unorm": 0.0, "skip_zeros": False}
    for name, arguments in ORIGINALS.items():
        given = 8 if name.endswith("8bit") else 32
        optimizer = make(name, params)
        assert (optimizer.optim_bits, optimizer._state_dtype) == (
            given, st.Codes("q8", min_size=4096) if given == 8 else None,
        )  # fmt: skip
        assert optimizer.is_paged == name.startswith("Paged")
        if OPTIM_BITS in arguments and "bit" not in name:
            assert make(name, params, optim_bits=8)._state_dtype.format == "q8"
        other = make(name, params, args=SimpleNamespace(optim_bits=40 - given, **fields))
        assert other.optim_bits == 40 - given


@pytest.mark.parametrize("name", FAMILIES)
def test_8_bits_are_q8_of_ours(name):
    """To the bit; other parameters, as those of 32 bits, have float32."""
    ours_class, both, own = FAMILIES[name]
    optimizers, lists = [], [make_params(SHAPES)]
    lists += [clone_params(lists[0]) for _ in range(3)]
    optimizers.append(make(f"{name}8bit", lists[0], **both, **own))
    optimizers.append(make(name, lists[1], optim_bits=8, **both, **own))
    optimizers.append(ours_class(lists[2], state_dtype="q8", **both))
    optimizers.append(make(f"{name}32bit", lists[3], **both, **own))
    train(optimizers, lists, 4)
    assert bits_equal(lists[0], lists[1]) and bits_equal(lists[0], lists[2])
    found = [all_states(o, ps) for o, ps in zip(optimizers, lists, strict=True)]
    assert same_states(found[0], found[1]) and same_states(found[0], found[2])
    codes = [[n for n, s in own.items() if s.dtype is torch.uint8] for own in found[0]]
    assert [len(names) for names in codes] == [1 + name.startswith("Adam"), 0, 0, 0]
    assert all(s.dtype is torch.float32 for own in found[3] for s in own.values())
    assert not bits_equal(lists[0][:1], lists[3][:1]) and bits_equal(lists[0][1:], lists[3][1:])


WRITTEN = {
    "Adam": peers.bnb_adam, "AdamW": peers.bnb_adam, "Lion": peers.bnb_lion,
    "SGD": peers.bnb_momentum, "RMSprop": peers.bnb_rmsprop, "Adagrad": peers.bnb_adagrad,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_32_bits_are_what_is_written_out(name):
    """And 8 bits are near it: after 20 steps within a tenth of the way."""
    kwargs = FAMILIES[name][1]
    lists = [make_params(SHAPES)]
    lists += [clone_params(lists[0])]
    optimizers = [make(name, lists[0], **kwargs), make(f"{name}8bit", lists[1], **kwargs)]
    values = [p.detach().numpy().copy() for p in lists[0]]
    begin, states = [v.copy() for v in values], [{} for _ in values]
    for step in range(20):
        train(optimizers, lists, 1, first=step)
        for k, param in enumerate(lists[0]):
            h = {**optimizers[0].param_groups[0], **kwargs}
            values[k] = WRITTEN[name](values[k], param.grad.numpy(), states[k], step + 1, h)
    for k, (exact, coded) in enumerate(zip(*lists, strict=True)):
        np.testing.assert_allclose(exact.detach().numpy(), values[k], rtol=2e-5, atol=2e-6)
        way = np.linalg.norm(values[k] - begin[k])
        assert np.linalg.norm(coded.detach().numpy() - values[k]) < 0.1 * way


def test_states_beside_float64_are_float64():
    params = make_params([(64, 96)], torch.float64)
    optimizer = make("AdamW8bit", params)
    train([optimizer], [params], 1)
    assert optimizer.state[params[0]]["exp_avg"].dtype is torch.float64


@pytest.mark.parametrize("how", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_keep_their_bits(how):
    optimizer = how(make("PagedLion8bit", make_params([(64, 96)])))
    assert (optimizer.optim_bits, optimizer.is_paged) == (8, True)
    params = optimizer.param_groups[0]["params"]
    train([optimizer], [params], 1)
    assert optimizer.state[params[0]]["exp_avg"].dtype is torch.uint8


# --- Refusals -----------------------------------------------------------------

OLD = {"optim_bits": 8, "min_8bit_size": 4096, "max_unorm": 0.0, "skip_zeros": False}


@pytest.mark.parametrize(
    ("name", "kwargs", "error", "words"),
    [
        ("Adam", {"optim_bits": 4}, NotImplementedError,
         "Amount of optimizer bits not supported: 4"),
        ("Adam8bit", {"optim_bits": 8}, ValueError,
         r"Adam8bit only supports optim_bits=32 \(default value for compatibility\)"),
        ("PagedAdamW32bit", {"optim_bits": 8}, ValueError, "PagedAdamW32bit only supports"),
        ("Adagrad8bit", {"optim_bits": 32}, ValueError, "Adagrad8bit only supports optim_bits=8"),
        ("AdamW8bit", {"amsgrad": True}, ValueError, "AdamW8bit does not support amsgrad=True"),
        ("AdamW", {"amsgrad": True}, ValueError, "AdamW does not support amsgrad=True"),
        ("AdamW8bit", {"min_8bit_size": -1}, ValueError,
         "min_8bit_size is -1, expected an integer from 0 on"),
        ("AdamW8bit", {"min_8bit_size": 4096.0}, ValueError, "min_8bit_size is 4096.0, expected"),
        ("AdamW8bit", {"percentile_clipping": 101}, ValueError,
         "percentile_clipping is 101, expected a whole number from 0 to 100"),
        ("Lion8bit", {"block_wise": False}, ValueError, "block_wise is False, expected True"),
        ("AdamW8bit", {"state_dtype": torch.bfloat16}, ValueError,
         "state_dtype is torch.bfloat16 beside 8 bits, expected None"),
        ("AdamW", {"args": {"optim_bits": 8}}, ValueError, "it has no 'optim_bits'"),
        ("AdamW", {"args": SimpleNamespace(**{**OLD, "max_unorm": 1.0})}, ValueError,
         "max_unorm is 1.0, expected 0.0"),
        ("AdamW", {"args": SimpleNamespace(**{**OLD, "skip_zeros": True})}, ValueError,
         "skip_zeros is True, expected False"),
        ("AdamW", {"args": SimpleNamespace(**OLD, percentile_clipping=0.05)}, ValueError,
         "percentile_clipping is 0.05, expected a whole number"),
        ("SGD", {"momentum": 0}, NotImplementedError, "SGD without momentum is not supported!"),
        ("SGD8bit", {"dampening": 0.5}, ValueError, "dampening is 0.5, expected 0: bitsandbytes"),
        ("SGD", {"nesterov": True}, ValueError, "nesterov is True, expected False: bitsandbytes"),
        ("RMSprop", {"alpha": 0}, NotImplementedError, "alpha==0.0 is not supported!"),
        ("RMSprop8bit", {"centered": True}, NotImplementedError, "Centered RMSprop is not"),
        ("RMSprop", {"momentum": 0.5}, ValueError, "momentum is 0.5, expected 0: bitsandbytes"),
        ("Adagrad", {"lr_decay": 0.1}, ValueError, "Lr Decay != 0.0 not supported!"),
        ("Adagrad32bit", {"initial_accumulator_value": 0.1}, ValueError,
         "Initial accumulator value != 0.0 not supported!"),
        ("Adam", {"lr": -1.0}, ValueError, "Invalid learning rate: -1.0"),
        ("Lion", {"betas": (0.9, 1.0)}, ValueError, "Invalid beta parameter at index 1: 1.0"),
        ("SGD", {"momentum": 1.5}, ValueError, "Invalid beta parameter at index 0: 1.5"),
        ("RMSprop", {"eps": -1.0}, ValueError, "Invalid epsilon value: -1.0"),
        ("Adagrad", {"weight_decay": -1.0}, ValueError, "Invalid weight_decay value: -1.0"),
    ],
)  # fmt: skip
def test_refusals(name, kwargs, error, words):
    with pytest.raises(error, match=words):
        make(name, make_params([(3,)]), **kwargs)


def test_any_least_size_with_32_bits():
    assert make("AdamW", make_params([(3,)]), min_8bit_size=1).optim_bits == 32


def test_groups_that_are_added_are_checked():
    params = make_params([(3,), (4,)])
    optimizer = make("AdamW8bit", params[:1])
    with pytest.raises(ValueError, match="Invalid learning rate"):
        optimizer.add_param_group({"params": params[1:], "lr": -1.0})
    assert len(optimizer.param_groups) == 1


def test_pages_are_spoken_of_once():
    for kind, kwargs in [(bnb.PagedAdamW8bit, {}), (DistGaloreAwamW, {"is_paged": True})]:
        bits.tell_of_pages.cache_clear()
        words = f"stepc: is_paged of {kind.__name__} makes no difference"
        with pytest.warns(RuntimeWarning, match=words) as told:
            kind(make_params([(3,)]), **kwargs)
        assert told[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kind(make_params([(3,)]), **kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bnb.AdamW8bit(make_params([(3,)]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LAMB", "has no trust ratio; stepc.torch.apex.FusedLAMB"),
        ("LAMB8bit", "has no trust ratio"),
        ("LARS32bit", "stepc.torch.LARS is LARS"),
        ("PytorchLARS", "stepc.torch.LARS is LARS"),
        ("PagedAdEMAMix8bit", "there is no definition of AdEMAMix"),
        ("GlobalOptimManager", "an optimizer of their own, with optim_bits=32"),
        ("Adan", "has no attribute 'Adan'"),
    ],
)
def test_what_is_not_here_says_why(name, words):
    assert not hasattr(bnb, name)
    with pytest.raises(AttributeError, match=words):
        getattr(bnb, name)
