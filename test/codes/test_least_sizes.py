# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From how many elements on a state is codes: ``Codes(min_size=...)``."""

import pickle

import pytest
import stepc.torch as st
import torch
from test_coded_steps import compare

SHAPES = [(1, 32), (31, 64), (32, 64), (64, 64), (64, 128), (40, 8, 3, 5)]  # the last of 4800
NARROW = [(512, 31), (8192,)]


def named(shapes=SHAPES):
    torch.manual_seed(0)
    return [("x".join(map(str, shape)), torch.nn.Parameter(torch.randn(shape))) for shape in shapes]


def stepped(optimizer, params, steps=1):
    for step in range(steps):
        torch.manual_seed(step)
        for _, param in params:
            param.grad = torch.randn_like(param)
        optimizer.step()
    return optimizer


def coded(optimizer, params, name="exp_avg"):
    """The elements of the states that are codes."""
    states = [optimizer.state[param] for _, param in params]
    for own in states:
        assert (own[name].dtype is torch.uint8) == (f"{name}.scale" in own)
    return [own[name].numel() for own in states if own[name].dtype is torch.uint8]


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        (1, [32, 1984, 2048, 4096, 8192, 4800]),
        (2048, [2048, 4096, 8192, 4800]),
        (None, [4096, 8192, 4800]),
        (4096, [4096, 8192, 4800]),
        (4097, [8192, 4800]),
        (8193, []),
        (2**62, []),
    ],
)
def test_from_how_many_elements_on(least, expected):
    params = named([*SHAPES, *NARROW])
    optimizer = st.AdamW(params, state_dtype=st.Codes("q8", min_size=least))
    stepped(optimizer, params)
    assert coded(optimizer, params) == expected
    assert coded(optimizer, params, "exp_avg_sq") == expected


@pytest.mark.parametrize("format", ["q8", "f8_e4m3"])
def test_small_states_have_the_bits_of_codes(format):
    codes = st.Codes(format, min_size=1)
    seen = compare(lambda ps, **more: st.AdamW(ps, lr=0.05, **more), SHAPES, 3, coded=codes)
    assert len(seen) == 2 * len(SHAPES)


def test_one_for_each_state_and_pattern():
    small = st.Codes("q8", min_size=2048)
    params = named()
    optimizer = st.AdamW(params, state_dtype={"exp_avg": small, "exp_avg_sq": "q8"})
    stepped(optimizer, params)
    assert coded(optimizer, params) == [2048, 4096, 8192, 4800]
    assert coded(optimizer, params, "exp_avg_sq") == [4096, 8192, 4800]
    # Of patterns the last that matches counts; a state's own comes before.
    given = {"*": st.Codes("q8", min_size=8192), "40x*": "q8", "32x*": small}
    for own, squares in (({}, [2048, 8192, 4800]), ({"exp_avg_sq": "q8"}, [4096, 8192, 4800])):
        params = named()
        optimizer = st.AdamW(params, state_dtype={**given, **own})
        stepped(optimizer, params)
        assert coded(optimizer, params) == [2048, 8192, 4800]
        assert coded(optimizer, params, "exp_avg_sq") == squares


@pytest.mark.parametrize("least", [(1, 8192), (8192, 1)])
def test_checkpoints_load_with_another(least):
    """Codes become floats where they are too small, and floats codes."""
    made = []
    for own in least:
        params = named()
        made.append((params, st.AdamW(params, lr=0.05, state_dtype=st.Codes("q8", own))))
    (params, optimizer), (others, other) = made
    stepped(optimizer, params, 2)
    for (_, param), (_, own) in zip(others, params, strict=True):
        param.data.copy_(own)
    other.load_state_dict(optimizer.state_dict())
    # What the first has in float32, where it has codes.
    floats = named()
    wide = st.AdamW(floats, lr=0.05)
    for (_, param), (_, own) in zip(floats, params, strict=True):
        param.data.copy_(own)
    wide.load_state_dict(optimizer.state_dict())
    if least[0] > least[1]:
        for (_, param), (_, own) in zip(params, floats, strict=True):
            for name in ("exp_avg", "exp_avg_sq"):
                if optimizer.state[param][name].dtype is torch.float32:
                    assert torch.equal(optimizer.state[param][name], wide.state[own][name])
    stepped(other, others)
    stepped(wide, floats)
    for (name, param), (_, own) in zip(others, floats, strict=True):
        if least[0] < least[1] and param.numel() < least[1]:
            assert torch.equal(param, own), name  # both went on with what codes stood for
    assert len(coded(other, others)) == (1 if least[1] == 8192 else len(SHAPES))


def test_it_is_pickled_and_shown():
    codes = st.Codes("f8_e4m3", min_size=65536)
    assert pickle.loads(pickle.dumps(codes)) == codes
    assert repr(codes) == "Codes('f8_e4m3', min_size=65536)" and repr(st.Codes("q8")) == (
        "Codes('q8')"
    )
    params = named()
    optimizer = stepped(st.AdamW(params, lr=0.05, state_dtype=st.Codes("q8", min_size=1)), params)
    params, optimizer = pickle.loads(pickle.dumps((params, optimizer)))
    stepped(optimizer, params)
    assert len(coded(optimizer, params)) == len(SHAPES)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (("q9",), ValueError, "format is 'q9', expected 'q8' or 'f8_e4m3'"),
        (("q8", 0), ValueError, "min_size is 0, expected one from 1 to"),
        (("q8", 2**63), ValueError, "min_size is 9223372036854775808, expected one from 1 to"),
        (("q8", 4096.0), TypeError, "min_size is 4096.0, expected an integer or None"),
        (("q8", True), TypeError, "min_size is True, expected an integer or None"),
    ],
)
def test_refused(given, error, words):
    with pytest.raises(error, match=words):
        st.Codes(*given)


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        (st.bitsandbytes.AdamW8bit, {}, [4096, 8192, 4800]),
        (st.bitsandbytes.AdamW8bit, {"min_8bit_size": 0}, [32, 1984, 2048, 4096, 8192, 4800]),
        (st.bitsandbytes.Lion, {"min_8bit_size": 8192, "optim_bits": 8}, [8192]),
    ],
)
def test_bitsandbytes(kind, arguments, expected):
    params = named([*SHAPES, *NARROW])
    optimizer = kind([param for _, param in params], **arguments)
    stepped(optimizer, params)
    assert coded(optimizer, params) == expected


def test_galore_of_colossal():
    torch.manual_seed(0)
    params = [("w", torch.nn.Parameter(torch.randn(64, 96)))]
    for least, kept in ((1536, [16 * 96]), (1537, [])):
        group = {"params": [params[0][1]], "rank": 16, "update_proj_gap": 2, "scale": 1.0}
        optimizer = st.colossal.DistGaloreAwamW([group], min_8bit_size=least)
        stepped(optimizer, params)
        assert coded(optimizer, params) == kept
