# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups and arguments that GaLore-AdamW refuses."""

import copy
import math

import pytest
import torch
from common import make_params
from stepc.torch import GaLoreAdamW
from stepc.torch.colossal import DistGaloreAwamW
from test_galore import groups_of


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"rank": 0}, "rank is 0, expected a whole number from 1 on"),
        ({"rank": 2.5}, "rank is 2.5, expected a whole number"),
        ({"rank": None}, "rank is None, expected a whole number"),
        ({"rank": math.inf}, "rank is inf, expected a whole number"),
        ({"rank": math.nan}, "rank is nan, expected a whole number"),
        ({"update_proj_gap": math.inf}, "update_proj_gap is inf, expected a whole number"),
        ({"update_proj_gap": None}, "update_proj_gap is None, expected a whole number"),
        ({"update_proj_gap": 0}, "update_proj_gap is 0, expected a whole number"),
        ({"proj_type": "up"}, "proj_type is 'up', expected one of std, reverse_std"),
        ({"dim": 3}, "dim is 3, expected 2: only matrices are projected"),
        ({"proj_quant": True}, "proj_quant is True, expected False"),
    ],
    ids=str,
)
def test_refused_groups(group, words):
    params = make_params([(4, 3)])
    with pytest.raises(ValueError, match=words):
        GaLoreAdamW(groups_of(params, [], **group))
    optimizer = GaLoreAdamW(make_params([(4, 3)]))
    with pytest.raises(ValueError, match=words):
        optimizer.add_param_group(groups_of(params, [], **group)[0])
    assert len(optimizer.param_groups) == 1


def test_a_refused_group_leaves_nothing():
    """Neither a hook on its parameters nor a count of groups."""
    optimizer = GaLoreAdamW(make_params([(4, 3)]), fused_backward=True)
    (vector,) = make_params([(5,)])
    before = copy.copy(optimizer.__dict__)
    with pytest.raises(ValueError, match="only matrices are projected"):
        optimizer.add_param_group({"params": vector, "rank": 2})
    assert optimizer.__dict__ == before
    vector.sum().backward()
    assert vector.grad.equal(torch.ones(5))
    (matrix,) = make_params([(6, 4)])
    optimizer.add_param_group({"params": iter([matrix]), "rank": 2})
    matrix.sum().backward()
    optimizer.step()
    assert matrix.grad is None and optimizer.state[matrix]["projection"].shape == (4, 2)


def test_vectors_have_no_rank():
    params = make_params([(4, 3), (5,)])
    with pytest.raises(ValueError, match=r"parameter 1 of a group with rank 3 has shape \(5,\)"):
        GaLoreAdamW(groups_of(params, []))


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0 - should be >= 0.0"),
        ({"betas": (1.0, 0.9)}, r"Invalid beta parameter: 1.0 - should be in \[0.0, 1.0\)"),
        ({"eps": -1.0}, "Invalid epsilon value: -1.0 - should be >= 0.0"),
    ],
    ids=str,
)
def test_refused_arguments(kwargs, words):
    with pytest.raises(ValueError, match=words):
        GaLoreAdamW(make_params([(4, 3)]), **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"nbits": 32, "percentile_clipping": -1}, "percentile_clipping is -1, expected a whole"),
        ({"block_wise": False}, "block_wise is False, expected True"),
        ({"min_8bit_size": -1}, "min_8bit_size is -1, expected an integer from 0 on"),
        ({"nbits": 32, "args": {}}, "args is {}, expected None or an object with optim_bits"),
        ({"state_dtype": "q8"}, "state_dtype is 'q8' beside 8 bits, expected None"),
        ({"nbits": 32, "lr": -1.0}, "Invalid learning rate: -1.0"),
    ],
    ids=str,
)
def test_refusals_of_colossals(kwargs, words):
    with pytest.raises(ValueError, match=words):
        DistGaloreAwamW(make_params([(4, 3)]), **kwargs)


def test_bits_of_colossals():
    with pytest.raises(NotImplementedError, match="Amount of optimizer bits not supported: 4"):
        DistGaloreAwamW(make_params([(4, 3)]), nbits=4)
