# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views that are refused, with nothing changed, and what cannot be seen by one."""

import pytest
import stepc.torch as st
import torch
from common import ZOO, bits_equal, make_params, set_grads
from stepc import errors
from stepc.torch import muon

CONV = ((6, 3, 2, 2), "o i h w -> o (i h w)")


BAD = {
    "n m": "view 'n m'( of group [01])? has 0 '->', expected one",
    "n m -> m n": "changes the order of dims, which moves elements: a view is a reshape alone",
    "n m -> n": "has 'm' on one side alone",
    "n m -> n m k": "has 'k' on one side alone",
    "(2 n) m -> 3 n m": "has '2', '3' on one side alone",
    "(2 2 n) m -> 2 n m": "has '2' on one side alone",
    "n n -> n n": "has 'n' twice on one side",
    "(a b) m -> a b m": "does not say how large 'a' and 'b' are: write all but one as numbers",
    "... m -> ... m": r"has '\.\.\.', expected names, numbers and \( \)",
    "(n m -> n m": r"has a '\(' without '\)'",
    "(² n) m -> ² n m": "has '²', expected names, numbers",
    "(٣ n) m -> ٣ n m": "has '٣', expected names, numbers",
    "((n) m) -> n m": r"has '\(', expected names",
    "n-m -> n m": "has '-', expected names",
    "a b c -> a (b c)": r"parameter 'w': view 'a b c -> a \(b c\)' is of 3 dims, and the shape is "
    r"\(12, 5\)",
    "(5 n) m -> 5 n m": r"does not fit the shape \(12, 5\): dim 0 is 12, expected a multiple of 5",
    "n 4 -> n 4": r"does not fit the shape \(12, 5\): dim 1 is 5, expected 4",
    "(0 n) m -> (0 n) m": "dim 0 is 12, expected a multiple of 0",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_views(text):
    """At the constructor, with a group that is added, loaded, and set."""
    (param,), (other,) = make_params([(12, 5)]), make_params([(2, 3)])
    with pytest.raises(ValueError, match=BAD[text]) as refused:
        st.AdamW([{"params": [("w", param)], "view": text}])
    assert any(words in str(refused.value) for words in (f"'{text}' of group 0", "parameter 'w'"))
    for optimizer in (st.AdamW([("v", other)]), muon.SingleDeviceMuon([("v", other)])):
        with pytest.raises(ValueError, match=BAD[text]) as refused:
            optimizer.add_param_group({"params": [("w", param)], "view": text})
        assert any(
            words in str(refused.value) for words in (f"'{text}' of group 1", "parameter 'w'")
        )
        assert len(optimizer.param_groups) == 1
    optimizer = st.AdamW([("w", param)])
    saved = optimizer.state_dict()
    saved["param_groups"][0] |= {"view": text, "lr": 7.0}
    with pytest.raises(ValueError, match=BAD[text]):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 1e-3 and "view" not in optimizer.param_groups[0]


def test_bad_parameters():
    (param,) = make_params([CONV[0]])
    last = torch.nn.Parameter(param.detach().to(memory_format=torch.channels_last))
    words = r"has strides .* is of the memory of a contiguous parameter, as param\.data = "
    with pytest.raises(ValueError, match=words):
        st.Muon([{"params": [last], "view": CONV[1]}])
    with pytest.raises(TypeError, match=r"view is 3, expected a text as 'o i h w"):
        st.Muon([{"params": [param], "view": 3}])
    with pytest.raises(TypeError, match=r"view of group 1 is 3, expected a text as 'o i h w"):
        st.AdamW([{"params": make_params([(3,)])}, {"params": [param], "view": 3}])
    lazy = torch.nn.LazyConv2d(3, 2).weight
    with pytest.raises(ValueError, match="has no shape yet, of which view"):
        st.AdamW([{"params": [lazy], "view": CONV[1]}])
    optimizer = st.Muon([{"params": [param], "view": CONV[1]}])
    set_grads([param])
    optimizer.step()
    param.data = param.detach().to(memory_format=torch.channels_last)
    set_grads([param], seed=1)
    before = param.detach().clone()
    words = "parameter 0 of group 0 has strides .* contig"
    for call in (optimizer.step, optimizer.precompile):
        with pytest.raises(errors.TensorError, match=words):
            call()
    assert bits_equal([param], [before])
    param.data = param.detach().contiguous()
    optimizer.step()


def test_what_sees_no_matrix():
    """Classes look at what is seen, in the words that they have for shapes."""
    matrix, vector = make_params([(4, 6), (4,)])
    words = r"Muon only supports 2D .* torch.Size\(\[24\]\), as view 'n m -> \(n m\)' has "
    with pytest.raises(ValueError, match=words + r"parameter 'w' of shape \(4, 6\)$"):
        st.Muon([{"params": [("w", matrix)], "view": "n m -> (n m)"}])
    optimizer, (kernel,) = st.Muon([matrix]), make_params([(4, 3, 2, 2)])
    (another,) = make_params([(4, 6)])
    with pytest.raises(ValueError, match=words + r"parameter 0 of shape \(4, 6\)$"):
        optimizer.add_param_group({"params": [another], "view": "n m -> (n m)"})
    with pytest.raises(ValueError, match=r"torch.Size\(\[4, 3, 2, 2\]\)$"):
        optimizer.add_param_group({"params": [kernel]})
    with pytest.raises(ValueError, match=r"has shape \(4, 3, 2, 2\), expected a matrix"):
        st.NorMuon([kernel])
    with pytest.raises(ValueError, match=r"has shape \(24,\), expected a matrix"):
        st.Dion([{"params": [matrix], "view": "n m -> (n m)"}])
    with pytest.raises(ValueError, match=r"has shape \(4, 3, 2, 2\), expected a matrix"):
        st.Dion([kernel])
    with pytest.raises(ValueError, match=r"has shape \(24,\), expected a matrix"):
        st.NorMuon([{"params": [matrix], "view": "n m -> (n m)"}])
    st.Muon([{"params": [vector], "view": "n -> 1 n"}])
    optimizer = st.Optimizer([{"params": [matrix], "view": "n m -> (n m)"}], ZOO / "muon.mlir")
    set_grads([matrix])
    with pytest.raises(errors.TensorError, match=r"no rule of optimizer 'muon' .* \(24,\)"):
        optimizer.step()


@pytest.mark.parametrize("twice", [False, True])
def test_the_callers_dict_is_as_it_was(twice):
    """Where a group is refused, by the class or by torch."""
    (kernel, uneven) = make_params([(8, 4, 2, 2), (13, 3, 2, 2)])
    param = kernel if twice else uneven
    jordans = muon.SingleDeviceMuon([kernel])
    mixed = muon.MuonWithAuxAdam([{"params": [kernel], "use_muon": True}])
    of_adam = {"use_muon": False, "lr": 0.1 if twice else -1.0}
    galore = st.GaLoreAdamW([kernel])
    for optimizer, more in (
        (jordans, {}),
        (mixed, {"use_muon": True}),
        (mixed, of_adam),
        (galore, {"rank": 2, "view": CONV[1], "lr": 0.1 if twice else -1.0}),
    ):
        group = {"params": [param], **more}
        with pytest.raises(
            ValueError, match=r"more than one parameter group|scales by its|Invalid"
        ):
            optimizer.add_param_group(group)
        assert group == {"params": [param], **more} and len(optimizer.param_groups) == 1
    group = {"params": iter([param])}
    with pytest.raises(ValueError, match=r"more than one parameter group|scales by its"):
        jordans.add_param_group(group)
    assert group == {"params": [param]}


def test_torchs_own_step_knows_no_views():
    (param,) = make_params([CONV[0]])
    optimizer = st.AdamW([{"params": [param], "view": CONV[1]}], differentiable=True)
    set_grads([param])
    with pytest.raises(errors.StepcError, match="does not do what was asked for: view='o i h w"):
        optimizer.step()
    optimizer = st.SGD([{"params": [param], "view": CONV[1]}])
    param.grad = param.detach().to_sparse()
    with pytest.raises(errors.TensorError, match="has a gradient that has layout torch.sparse"):
        optimizer.step()


@pytest.mark.filterwarnings("ignore:stepc. SGD runs torch's own step")
@pytest.mark.parametrize("kind", ["sparse", "complex"])
def test_what_torchs_own_step_takes_beside(kind):
    """A view is of its group: others have what torch's own step takes, with the bits of it."""

    def made(view):
        (param,), (table,) = make_params([CONV[0]]), make_params([(6, 2)])
        if kind == "complex":
            table = torch.nn.Parameter(torch.view_as_complex(table.detach().clone()))
        groups = [{"params": [param], "view": view}, {"params": [table]}]
        return [param, table], groups

    more = {"lr": 0.1, "momentum": 0.9 if kind == "complex" else 0.0}
    params, groups = made(CONV[1])
    plain, others = made(None)
    optimizer = st.SGD(groups, **more)
    expected = torch.optim.SGD(others, **more)
    twin = torch.nn.Parameter(params[0].detach().clone())
    alone = st.SGD([{"params": [twin], "view": CONV[1]}], **more)
    for step in range(4):
        set_grads(params[:1], [twin], plain[:1], seed=step)
        for table in (params[1], plain[1]):
            torch.manual_seed(step)
            table.grad = torch.randn(table.shape, dtype=table.dtype)
            if kind == "sparse" and step != 2:
                table.grad = table.grad.to_sparse(1)
        for one in (optimizer, alone, expected):
            one.step()
    assert bits_equal(params[:1], [twin])
    assert torch.allclose(params[1], plain[1], rtol=1e-6)
    if kind == "complex":
        held, theirs = optimizer.state[params[1]], expected.state[plain[1]]
        assert torch.allclose(held["momentum_buffer"], theirs["momentum_buffer"], rtol=1e-6)
    optimizer.param_groups[1]["view"] = "n m -> n m" if kind == "sparse" else "n -> n"
    with pytest.raises(errors.StepcError, match="has a gradient that has layout|view='n -> n'"):
        optimizer.step()


def test_what_knows_ranges_alone():
    (param,) = make_params([CONV[0]])
    optimizer = st.AdamW([{"params": [param], "view": CONV[1]}])
    optimizer.setup_distributed()
    set_grads([param])
    with pytest.raises(errors.TensorError, match="setup_distributed gives the optimizer ranges"):
        optimizer.step()


def test_a_parameter_that_takes_another_shape():
    (param,) = make_params([(4, 6)])
    optimizer = st.AdamW([{"params": [param], "view": "(2 n) m -> 2 n m"}])
    set_grads([param])
    optimizer.step()
    param.data = param.detach().view(3, 8)
    set_grads([param], seed=1)
    with pytest.raises(errors.TensorError, match=r"does not fit the shape \(3, 8\): dim 0 is 3"):
        optimizer.step()
