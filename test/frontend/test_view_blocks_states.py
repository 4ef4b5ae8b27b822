# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of parameters that are stepped as several tensors: one of each name, of all blocks."""

import copy
import io

import pytest
import stepc.torch as st
import torch
from common import bits_equal, make_params, set_grads
from stepc import errors
from viewed_blocks import (
    EXPERTS,
    GROUPED,
    HEADS,
    KINDS,
    QKV,
    alike,
    groups_of,
    made_of,
    optimizers_of,
    pieces,
    stepped,
)

pytestmark = pytest.mark.filterwarnings("ignore:stepc. S.* has no (bases|factors) of vectors")
CASES = (EXPERTS, GROUPED)
SHAPES = {
    "SOAP": {"exp_avg": ((3, 6, 4), (24, 7)), "Q_0": ((3, 6, 6), (2, 4, 4)),
             "GG_1": ((3, 4, 4), (3, 7, 7))},
    "Shampoo": {"filtered_grad": ((3, 6, 4), (24, 7)),
                "factor_matrix_0": ((3, 6, 6), (16 * 16 + 2 * 4 * 4,))},
    "Dion": {"momentum": ((3, 6, 4), (24, 7)), "Q": ((3, 4, 3), (7 * 3 + 2 * 4 * 3,))},
    "GaLore": {"projection": ((3, 4, 2), (7 * 2 + 2 * 4 * 2,)),
               "exp_avg": ((3, 6, 2), (16 * 2 + 2 * 2 * 7,))},
    "GaLore's Adafactor": {"exp_avg_sq_row": ((3, 6), (16 + 2 * 2,)),
                           "exp_avg_sq_col": ((3, 2), (2 + 2 * 7,))},
    "APOLLO": {"projection": ((3, 4, 2), (7 * 2 + 2 * 4 * 2,)),
               "scaled_grad": ((3, 1, 1), (3, 1, 1))},
}  # fmt: skip


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", SHAPES)
def test_saved_and_loaded(kind):
    """In the middle of a gap, into another optimizer and a copy, in the shapes of the view."""
    params, blocks = made_of(CASES)
    optimizer, alone = optimizers_of(kind, params, blocks, CASES)
    for step in range(3):
        stepped(optimizer, alone, params, blocks, CASES, step)
    for name, shapes in SHAPES[kind].items():
        assert tuple(tuple(optimizer.state[p][name].shape) for p in params) == shapes, name
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    bare = copy.deepcopy(saved)
    for group in bare["param_groups"]:
        del group["view"]
    for state in (saved, bare):
        twins = [torch.nn.Parameter(p.detach().clone()) for p in params]
        others = [[torch.nn.Parameter(b.detach().clone()) for b in own] for own in blocks]
        again, apart = optimizers_of(kind, twins, others, CASES)
        again.load_state_dict(state)
        apart.load_state_dict(copy.deepcopy(alone.state_dict()))
        for step in (3, 4):
            stepped(again, apart, twins, others, CASES, step)
        alike(again, apart, twins, others, CASES)
    copied = copy.deepcopy(optimizer)
    own = [group["params"][0] for group in copied.param_groups]
    for step in (3, 4):
        set_grads(own, seed=step)
        copied.step()
    assert bits_equal(own, twins)


def test_states_of_parameters_of_their_own_load():
    """As they are put together: matrices one behind the other, of one size in a dim of their
    own."""
    cases = (QKV, GROUPED)
    params, blocks = made_of(cases)
    optimizer, alone = optimizers_of("Shampoo", params, blocks, cases)
    for block in (b for own in blocks for b in own):
        set_grads([block], seed=1)
    alone.step()
    for param, own in zip(params, blocks, strict=True):
        param.data = torch.cat([b.detach() for b in own])
    saved = optimizer.state_dict()
    for number, own in enumerate(blocks):
        states = [alone.state[block] for block in own]
        made = {"step": states[0]["step"]}
        for name in states[0].keys() - {"step"}:
            theirs = [of[name] for of in states]
            if name in ("filtered_grad", "adagrad", "momentum_buffer"):
                made[name] = torch.cat(theirs)
            elif len({t.shape for t in theirs}) == 1:
                made[name] = torch.stack(theirs)
            else:
                made[name] = torch.cat([t.reshape(-1) for t in theirs])
        saved["state"][number] = made
    optimizer.load_state_dict(saved)
    for step in (2, 3):
        stepped(optimizer, alone, params, blocks, cases, step)
    alike(optimizer, alone, params, blocks, cases)


def test_what_is_written_is_seen():
    """To a state in its memory; to a count, which all blocks have; a state that is replaced."""
    params, blocks = made_of((GROUPED,))
    optimizer, alone = optimizers_of("APOLLO", params, blocks, (GROUPED,))
    (param,), (own,) = params, blocks
    stepped(optimizer, alone, params, blocks, (GROUPED,), 0)
    held = optimizer.state[param]["exp_avg"]
    held.mul_(0.5)
    for block in own:
        alone.state[block]["exp_avg"].mul_(0.5)
    stepped(optimizer, alone, params, blocks, (GROUPED,), 1)
    assert optimizer.state[param]["exp_avg"] is held
    optimizer.state[param]["step"].fill_(40)
    for block in own:
        alone.state[block]["step"].fill_(40)
    stepped(optimizer, alone, params, blocks, (GROUPED,), 2)
    alike(optimizer, alone, params, blocks, (GROUPED,))
    assert float(optimizer.state[param]["step"]) == 41
    optimizer.state[param]["exp_avg_sq"] = optimizer.state[param]["exp_avg_sq"] * 2
    for block in own:
        alone.state[block]["exp_avg_sq"] = alone.state[block]["exp_avg_sq"] * 2
    del optimizer.state[param]["projection"]  # it is made again in any step
    for block in own:
        del alone.state[block]["projection"]
    for step in (3, 4):
        stepped(optimizer, alone, params, blocks, (GROUPED,), step)
    optimizer.add_param_group({"params": make_params([(3, 3)])})  # which has all bound anew
    alone.add_param_group({"params": make_params([(3, 3)])})
    stepped(optimizer, alone, params, blocks, (GROUPED,), 5)
    alike(optimizer, alone, params, blocks, (GROUPED,))


def test_sixteen_bits_and_large_blocks():
    """States that are not small lie together, too."""
    case = ((2, 150, 140), "e n m -> e n m", [(150, 140)] * 2)
    params, blocks = made_of((case,), torch.bfloat16)
    optimizer, alone = optimizers_of("GaLore", params, blocks, (case,), state_dtype=torch.bfloat16)
    for step in range(2):
        stepped(optimizer, alone, params, blocks, (case,), step)
    alike(optimizer, alone, params, blocks, (case,))
    assert optimizer.state[params[0]]["exp_avg"].dtype is torch.bfloat16
    assert "state exp_avg" in str(optimizer)


def test_a_state_of_no_parts_loads_with_them():
    """Muon's, whose buffer has the parameter's shape in any view, and torch's."""
    (param,), (plain,) = make_params([HEADS[0]]), make_params([HEADS[0]])
    theirs = torch.optim.Muon([plain])
    set_grads([param], [plain])
    theirs.step()
    optimizer = st.Muon(groups_of([param], [HEADS]))
    param.data.copy_(plain.detach())
    optimizer.load_state_dict(theirs.state_dict())
    own = [torch.nn.Parameter(block) for block in pieces(param, HEADS[2])]
    alone = st.Muon([{"params": own}])
    saved = alone.state_dict()
    buffers = pieces(theirs.state[plain]["momentum_buffer"], HEADS[2])
    saved["state"] = {n: {"momentum_buffer": buffer} for n, buffer in enumerate(buffers)}
    alone.load_state_dict(saved)
    for step in (1, 2):
        stepped(optimizer, alone, [param], [own], [HEADS], step)
    alike(optimizer, alone, [param], [own], [HEADS])
    theirs.load_state_dict(optimizer.state_dict())
    assert theirs.state[plain]["momentum_buffer"].shape == HEADS[0]


def test_states_of_other_blocks_are_refused():
    """With nothing changed; and names that nobody knows."""
    (param,) = make_params([QKV[0]])
    optimizer = st.SOAP([{"params": [("w", param)], "view": QKV[1]}])
    set_grads([param])
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"][0] = {**saved["state"][0], "GG_0": torch.eye(12)}
    optimizer.load_state_dict(saved)
    before = param.detach().clone()
    words = r"state 'GG_0' of parameter 'w' has shape \(12, 12\), expected \(3, 4, 4\)"
    with pytest.raises(errors.TensorError, match=words):
        optimizer.step()
    del optimizer.state[param]["GG_0"]
    optimizer.state[param]["exp_average"] = torch.zeros(12, 5)
    words = "block 0 of parameter 'w' has a state 'exp_average', .*nearest is 'exp_avg'"
    with pytest.raises(errors.NameNotFoundError, match=words):
        optimizer.step()
    assert bits_equal([param], [before])
    assert set(KINDS) >= set(SHAPES)
