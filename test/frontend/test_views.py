# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The key ``view`` of a group: a rule sees a parameter in another shape. Beside the same optimizer
of parameters that are reshaped by hand, to the bit. test/distributed/viewed.py has ranks,
test_views_states.py states, test_views_refused.py what is refused."""

import itertools
import pickle
import warnings
import weakref

import numpy
import pytest
import stepc.torch as st
import torch
from common import bits_equal, make_params, set_grads
from stepc import errors
from stepc.torch import muon
from stepc.torch.tensors import patterns
from viewed_params import BLOCKS, CONV, KINDS, assert_alike, by_hand, give, groups_of, made

pytestmark = pytest.mark.filterwarnings("ignore:stepc. S.* has no (bases|factors) of vectors")


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name", KINDS)
def test_as_reshaped_by_hand(name):
    cases = KINDS[name][1]
    params = make_params([shape for shape, *_ in cases])
    hand = by_hand(params, cases)
    optimizer, alone = made(name, params, cases), made(name, hand, cases, views=False)
    where = [p.data_ptr() for p in params]
    for step in range(4):
        versions = [p._version for p in params]
        give(params, hand, step)
        optimizer.step()
        alone.step()
        assert all(p._version > v for p, v in zip(params, versions, strict=True))
    assert_alike(optimizer, params, alone, hand)
    assert where == [p.data_ptr() for p in params]


MATRICES = ("Muon", "GramMuon", "NorMuon", "Jordan's", "Moonshot's")


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.float32) for name in MATRICES), ("NorMuon", torch.bfloat16)]
)
def test_blocks_are_as_parameters_of_their_own(name, dtype):
    """Query, key and value of one tensor, and heads that are side by side: to the bit."""
    cases = [((12, 5), "(3 n) m -> 3 n m"), ((10, 12), "(5 n) m -> 5 n m")]
    params = make_params([shape for shape, _ in cases], dtype)
    blocks = [
        [torch.nn.Parameter(b.clone()) for b in p.detach().chunk(count)]
        for p, count in zip(params, (3, 5), strict=True)
    ]
    flat = list(itertools.chain.from_iterable(blocks))
    own = [(*case, None) for case in cases]
    optimizer, alone = made(name, params, own), made(name, flat, [((), None, None)] * 8, False)
    for step in range(3):
        set_grads(params, seed=step)
        for p, parts in zip(params, blocks, strict=True):
            for part, grad in zip(parts, p.grad.chunk(len(parts)), strict=True):
                part.grad = grad.clone()
        optimizer.step()
        alone.step()
    for p, parts in zip(params, blocks, strict=True):
        assert bits_equal([p], [torch.cat(parts)])
        buffers = [alone.state[part]["momentum_buffer"] for part in parts]
        assert bits_equal([optimizer.state[p]["momentum_buffer"]], [torch.cat(buffers)])


def rms(tensor):
    return float(tensor.square().mean().sqrt())


FACTORS = {
    "transformers'": ("exp_avg_sq_row", "exp_avg_sq_col"),
    "torch's": ("row_var", "col_var"),
}


def adafactor_of(kind, groups, threshold):
    if kind == "torch's":
        return st.Adafactor(groups, lr=0.1, weight_decay=0.0, d=threshold)
    return st.hf.Adafactor(groups, lr=0.1, relative_step=False, clip_threshold=threshold)


@pytest.mark.parametrize("kind", FACTORS)
def test_adafactors_measure_the_whole(kind):
    """Blocks have rows and columns of their own; what clips and scales is of all of them."""
    sizes = torch.tensor([1.0, 2.0, 3.0]).repeat_interleave(4)[:, None]
    value = make_params([BLOCKS[0]])[0].detach() * sizes
    steep = torch.eye(4, 5) * 0.3 ** torch.arange(4)[:, None]  # no product of rows and columns
    grad = steep.repeat(3, 1) + torch.linspace(0, 0.05, 60).view(12, 5)
    moves = []
    for threshold in (1e6, 1.0):
        param = torch.nn.Parameter(value.clone())
        blocks = [torch.nn.Parameter(block.clone()) for block in value.chunk(3)]
        for p, own in zip((param, *blocks), (grad, *grad.chunk(3)), strict=True):
            p.grad = own.clone()
        whole = adafactor_of(kind, [{"params": [param], "view": BLOCKS[1]}], threshold)
        apart = adafactor_of(kind, blocks, threshold)
        whole.step()
        apart.step()
        for name in FACTORS[kind]:
            own = torch.cat([apart.state[block][name].flatten() for block in blocks])
            assert torch.allclose(whole.state[param][name].flatten(), own, rtol=1e-6)
        moves.append([param.detach() - value, torch.cat(blocks).detach() - value])
    (free, free_apart), (clipped, clipped_apart) = moves
    scales = torch.tensor([rms(block) for block in value.chunk(3)])
    rates = scales.repeat_interleave(4)[:, None]
    assert torch.allclose(free / rms(value), free_apart / rates, rtol=1e-4, atol=3e-6)
    assert not torch.allclose(free, free_apart, rtol=0.1)
    growth = rms(free) / (0.1 * rms(value))
    assert growth > 1.1
    assert torch.allclose(clipped, free / growth, rtol=1e-4, atol=3e-6)
    growths = torch.tensor([rms(b) for b in free_apart.chunk(3)]) / (0.1 * scales)
    expected = free_apart / growths.clamp_min(1).repeat_interleave(4)[:, None]
    assert torch.allclose(clipped_apart, expected, rtol=1e-4, atol=3e-6)
    assert float(growths.max() - growths.min()) > 0.01


def test_what_a_step_has_beside():
    """Clipping by the norm, averages, masters, copies; within the backward pass; ahead."""
    more = {"clip": st.ClipByNorm(0.1), "average": st.EMA(0.5), "param_copy": torch.bfloat16}
    cases = (CONV, BLOCKS)
    for dtype, kept in ((torch.float32, {}), (torch.bfloat16, {"master": "f32"})):
        params = make_params([shape for shape, *_ in cases], dtype)
        hand = by_hand(params, cases)
        optimizer = st.AdamW(groups_of(params, cases, True), **more, **kept)
        alone = st.AdamW(groups_of(hand, cases, False), **more, **kept)
        optimizer.precompile()
        for step in range(3):
            give(params, hand, step)
            optimizer.step()
            alone.step()
        assert_alike(optimizer, params, alone, hand)
        assert optimizer.last_step.grad_norm == alone.last_step.grad_norm
        assert f"view '{CONV[1]}'" in optimizer.describe_layouts()
        copies = zip(optimizer.parameter_copies(), alone.parameter_copies(), strict=True)
        for (a, b), p in zip(copies, params, strict=True):
            assert a.shape == p.shape and a.reshape(b.shape).equal(b)
        with optimizer.averaged(), alone.averaged():
            assert bits_equal([p.reshape(q.shape) for p, q in zip(params, hand, strict=True)], hand)
        again = pickle.loads(pickle.dumps(optimizer))
        assert [group["view"] for group in again.param_groups] == [CONV[1], BLOCKS[1]]
        twins = [group["params"][0] for group in again.param_groups]
        for step in (3, 4):
            set_grads(params, twins, seed=step)
            optimizer.step()
            again.step()
        assert bits_equal(params, twins)
        for p, q in zip(params, twins, strict=True):
            assert bits_equal(optimizer.state[p].values(), again.state[q].values())


def test_within_the_backward_pass():
    params, twins = (make_params([CONV[0], (5,)]) for _ in range(2))
    fused = st.SOAP([{"params": params[:1], "view": CONV[1]}, {"params": params[1:]}],
                    fused_backward=True)  # fmt: skip
    behind = st.SOAP([{"params": twins[:1], "view": CONV[1]}, {"params": twins[1:]}])
    for _ in range(3):
        for own_params, optimizer in ((params, fused), (twins, behind)):
            optimizer.zero_grad()
            sum(p.square().sum() + p.sin().sum() for p in own_params).backward()
            optimizer.step()
    assert bits_equal(params, twins) and params[0].grad is None


def test_gradients_are_gone_with_the_users():
    """Behind a step nothing else has their memory."""
    params = make_params([CONV[0], BLOCKS[0], (5,)])
    groups = groups_of(params[:2], (CONV, BLOCKS), True)
    optimizer = st.AdamW([*groups, {"params": params[2:]}])
    for _ in range(2):
        memory = [numpy.ones(tuple(p.shape), numpy.float32) for p in params]
        for param, own in zip(params, memory, strict=True):
            param.grad = torch.from_numpy(own)
        known = [weakref.ref(own) for own in memory]
        del memory, own
        optimizer.step()
        assert all(own() is not None for own in known)
        optimizer.zero_grad()
        assert all(own() is None for own in known)


def test_parameters_that_move():
    (param,), (twin,) = make_params([CONV[0]]), make_params([CONV[0]])
    optimizer, other = (st.Muon([{"params": [p], "view": CONV[1]}]) for p in (param, twin))
    for step in range(4):
        set_grads([param], [twin], seed=step)
        if step == 2:
            twin.data = twin.detach().clone()
        if step == 3:
            param.requires_grad_(False)
            param.requires_grad_(True)
        optimizer.step()
        other.step()
    assert bits_equal([param], [twin])


def test_strides_that_change_alone():
    """A square parameter that is transposed has its memory and its shape: refused."""
    (param,) = make_params([(6, 6)])
    optimizer = st.AdamW([{"params": [param], "view": "(2 n) m -> 2 n m"}])
    set_grads([param])
    optimizer.step()
    before = param.detach().clone()
    param.data = param.data.t()
    set_grads([param], seed=1)
    with pytest.raises(errors.TensorError, match=r"has strides \(1, 6\) for shape \(6, 6\)"):
        optimizer.step()
    assert param.detach().t().equal(before)
    param.data = param.detach().contiguous()
    optimizer.step()


def test_a_gradient_of_a_graph():
    """``backward(create_graph=True)``: the step is no part of it, whatever the view's shape."""
    for text in ("n m -> n m", "n m -> (n m)"):
        params, plain = make_params([(3, 4)]), make_params([(3, 4)])
        optimizer, alone = st.AdamW([{"params": params, "view": text}]), st.AdamW(plain)
        for p in (*params, *plain):
            p.sin().sum().backward(create_graph=True)
            assert p.grad.requires_grad
        optimizer.step()
        alone.step()
        assert bits_equal(params, plain)


def test_a_view_that_is_set_later():
    """Holds from the next step on, where states can have it."""
    (param,), (plain,) = make_params([BLOCKS[0]]), make_params([BLOCKS[0]])
    optimizer, alone = muon.SingleDeviceMuon([param]), muon.SingleDeviceMuon([plain])
    set_grads([param], [plain])
    optimizer.step()
    alone.step()
    hand = torch.nn.Parameter(plain.detach().reshape(BLOCKS[2]).clone())
    after = muon.SingleDeviceMuon([hand])
    state = alone.state_dict()
    state["state"][0]["momentum_buffer"] = alone.state[plain]["momentum_buffer"].reshape(BLOCKS[2])
    after.load_state_dict(state)
    optimizer.param_groups[0]["view"] = BLOCKS[1]
    for step in (1, 2):
        set_grads([param], seed=step)
        hand.grad = param.grad.reshape(hand.shape).clone()
        optimizer.step()
        after.step()
        assert bits_equal([param.detach().reshape(hand.shape)], [hand])
    assert f"view '{BLOCKS[1]}'" in optimizer.describe_layouts()
    optimizer.param_groups[0]["view"] = "(4 n) m -> 4 n m"  # before a step with it
    assert "view '(4 n) m -> 4 n m'" in optimizer.describe_layouts()
    optimizer.param_groups[0]["view"] = "n -> n 1"
    before = param.detach().clone()
    with pytest.raises(ValueError, match="of 1 dim, and the shape is"):
        optimizer.step()
    assert bits_equal([param], [before])


TAKEN_AWAY = {
    "Muon": (lambda groups: st.Muon(groups), r"torch.Size\(\[6, 3, 2, 2\]\)$"),
    "GramMuon": (lambda groups: st.GramMuon(groups), r"torch.Size\(\[6, 3, 2, 2\]\)$"),
    "NorMuon": (lambda groups: st.NorMuon(groups), "expected a matrix"),
    "Jordan's": (lambda groups: muon.SingleDeviceMuon(groups), "expected a matrix, or matrices"),
    "Moonshot's": (lambda groups: made("Moonshot's", groups[0]["params"], [CONV]), "adamw_params"),
    "Dion": (lambda groups: st.Dion(groups, rank=3), "expected a matrix"),
    "SOAP": (lambda groups: st.SOAP(groups), "at most two dims"),
    "Shampoo": (lambda groups: st.Shampoo(groups), "at most two dims"),
    "GaLore": (KINDS["GaLore"][0], "only matrices are projected"),
    "APOLLO": (KINDS["APOLLO"][0], "only matrices are projected"),
}


@pytest.mark.parametrize("kind", TAKEN_AWAY)
@pytest.mark.parametrize("stepped", [False, True])
def test_a_view_that_is_taken_away(kind, stepped):
    """Shapes are then the parameters', which the class refuses as when a group is added."""
    (param,) = make_params([CONV[0]])
    make, words = TAKEN_AWAY[kind]
    optimizer = make([{"params": [param], "view": CONV[1]}])
    set_grads([param])
    if stepped:
        optimizer.step()
    optimizer.param_groups[-1]["view"] = None
    before = param.detach().clone()
    for call in (optimizer.step, optimizer.precompile):
        with pytest.raises(ValueError, match=words):
            call()
    assert bits_equal([param], [before])
    optimizer.param_groups[-1]["view"] = CONV[1]
    for _ in range(2):  # the first of SOAP moves nothing
        optimizer.step()
    assert not bits_equal([param], [before])


def test_what_is_read_of_options_is_seen():
    """Shampoo's limit and SOAP's of the dims of the view, and what says it."""
    (param,) = make_params([CONV[0]])
    with pytest.warns(RuntimeWarning, match=r"parameters 0 \(6, 12\) are stepped with"):
        st.Shampoo([{"params": [param], "view": CONV[1]}], max_preconditioner_dim=8)
    optimizer = st.SOAP([{"params": [param], "view": CONV[1]}])
    set_grads([param])
    optimizer.step()
    optimizer.param_groups[0]["max_precond_dim"] = 10
    with pytest.raises(ValueError, match=r"has state 'Q_1'"):
        optimizer.step()


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("o i h w -> o (i h w)", [0, None]),
        ("(3 n) m -> 3 n m", [None, None, 1]),
        ("4 4 m -> 4 4 m", [0, 1, 2]),
        ("(4 4) 4 -> 4 4 4", [None, None, 1]),
        ("n 1 m -> 1 n m", [None, 0, 2]),
        ("(03 n) m -> 3 n m", [None, None, 1]),
    ],
)
def test_dims_that_stay(text, dims):
    """By which states lie where a parameter is cut: also where sizes are the same."""
    view = patterns.parse(text)
    assert [view.own_dim(number) for number in range(len(dims))] == dims


@pytest.mark.parametrize("kind", ["SOAP", "Shampoo"])
def test_a_warning_that_is_an_error(kind):
    """Of an added group, which is then refused as by another error."""
    matrix, vector = make_params([(3, 3), (3,)])
    optimizer = getattr(st, kind)([matrix])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="parameters 0 "):
            optimizer.add_param_group({"params": [vector]})
    assert len(optimizer.param_groups) == 1
    with pytest.warns(RuntimeWarning, match="parameters 0 "):
        optimizer.add_param_group({"params": [vector]})
    assert len(optimizer.param_groups) == 2
