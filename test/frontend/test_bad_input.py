# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that cannot be stepped: an error that names them, or torch's own step;
nothing changed."""

import warnings

import pytest
import stepc.torch
import torch
from common import ZOO, bits_equal, clone_params, distance, make_params, set_grads, states, train
from stepc import errors


def refuse(optimizer, params, match, kind=errors.TensorError):
    """One step that must be refused, twice alike, and change nothing."""
    before = [p.detach().clone() for p in params if p.device.type == "cpu"]
    for _ in range(2):
        with pytest.raises(kind, match=match):
            optimizer.step()
        assert not optimizer.state
        after = [p.detach() for p in params if p.device.type == "cpu"]
        assert all(a.equal(b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Lion"])
def test_integers(kind):
    fine = torch.nn.Parameter(torch.ones(3))
    odd = torch.ones(3, dtype=torch.int64)
    optimizer = getattr(stepc.torch, kind)([fine, odd], lr=1.0)
    fine.grad = torch.ones(3)
    odd.grad = torch.ones(3, dtype=torch.int64)
    match = "parameter 1 of group 0 has dtype torch.int64; supported are torch.float32, torch.bf"
    refuse(optimizer, [fine, odd], match)


def test_complex_parameters_of_a_file():
    params = [
        torch.nn.Parameter(torch.ones(3)),
        torch.nn.Parameter(torch.ones(3, dtype=torch.complex64)),
    ]
    optimizer = stepc.torch.Optimizer(params, ZOO / "adamw.mlir")
    set_grads(params)
    refuse(optimizer, params, "parameter 1 of group 0 has complex dtype torch.complex64")


def test_names_of_the_user():
    params = [("encoder.weight", torch.nn.Parameter(torch.ones(3, dtype=torch.complex64)))]
    optimizer = stepc.torch.Lion(params)
    params[0][1].grad = torch.ones(3, dtype=torch.complex64)
    refuse(optimizer, [params[0][1]], "parameter 'encoder.weight' has complex dtype torch.complex")


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Lion"])
def test_meta_device(kind):
    params = [torch.nn.Parameter(torch.ones(3, device="meta"))]
    optimizer = getattr(stepc.torch, kind)(params, lr=1.0)
    params[0].grad = torch.ones(3, device="meta")
    refuse(optimizer, params, "parameter 0 of group 0 is on device 'meta' and has no memory")


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Lion"])
def test_overlapping_parameters(kind):
    memory = torch.ones(10)
    params = [torch.nn.Parameter(memory[:6]), torch.nn.Parameter(memory[4:])]
    # Of those that torch has its own step takes them, but does not clip.
    clip = None if kind == "Lion" else stepc.torch.ClipByNorm(1.0)
    optimizer = getattr(stepc.torch, kind)(params, lr=1.0, clip=clip)
    set_grads(params)
    before = memory.clone()
    words = "parameter 0 of group 0 and parameter 1 of group 0 share memory"
    kind_of = errors.TensorError if kind == "Lion" else errors.StepcError
    with pytest.raises(kind_of, match=words) as caught:
        optimizer.step()
    assert kind != "Lion" or caught.value.status == "STEPC_OVERLAP"
    assert memory.equal(before) and not optimizer.state


def test_parameter_that_overlaps_itself():
    p = torch.nn.Parameter(torch.ones(1).expand(4))
    optimizer = stepc.torch.SGD([p], lr=1.0)
    p.grad = torch.ones(4)
    refuse(optimizer, [p], "parameter 0 of group 0")


def test_gradient_that_is_the_parameter():
    p = torch.nn.Parameter(torch.ones(4))
    optimizer = stepc.torch.SGD([p], lr=1.0)
    p.grad = p.data
    refuse(optimizer, [p], "parameter 0 of group 0")


def test_errors_are_value_errors_with_a_status():
    p = torch.nn.Parameter(torch.ones(3, device="meta"))
    optimizer = stepc.torch.Lion([p])
    p.grad = torch.ones(3, device="meta")
    with pytest.raises(ValueError, match="meta") as caught:
        optimizer.step()
    assert isinstance(caught.value, stepc.StepcError) and caught.value.status.startswith("STEPC_")


def test_error_after_good_steps_keeps_all():
    """A parameter joins that overlaps, which torch's step would not clip: refused."""
    params = make_params([(4,), (6,)])
    twin = clone_params(params)
    clip = stepc.torch.ClipByNorm(1e9)
    a, b = stepc.torch.AdamW(params, clip=clip), stepc.torch.AdamW(twin)
    train((a, b), (params, twin), 3)
    bad = torch.nn.Parameter(params[1].data[2:])
    bad.grad = torch.ones(4)
    a.add_param_group({"params": [bad]})
    before = clone_params(params)
    with pytest.raises(errors.StepcError, match="parameter 0 of group 1|parameter 1 of group 0"):
        a.step()
    assert bits_equal(params, before) and bad not in a.state
    assert a.state[params[0]]["step"] == 3
    bad.grad = None
    train((a, b), (params, twin), 2, first=3)
    assert bits_equal(params, twin)


# --- What torch can do and we cannot ------------------------------------------


def eager_pair(kind, make, kwargs=None):
    ours, theirs = make(), make()
    kwargs = kwargs or {}
    return (
        ours,
        theirs,
        getattr(stepc.torch, kind)(ours, lr=0.1, **kwargs),
        getattr(torch.optim, kind)(theirs, lr=0.1, **kwargs),
    )


def complex_params():
    g = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(3, 4, dtype=torch.complex64, generator=g))]


def shared_params():
    """Weights tied by ``.data``, and two that overlap in part."""
    memory = torch.arange(10.0)
    params = [torch.nn.Parameter(memory[:6]), torch.nn.Parameter(memory[4:])]
    tied = torch.nn.Parameter(torch.empty(0))
    tied.data = params[0].data
    return [*params, tied]


EAGER = {
    "complex": (complex_params, {}, "has complex dtype torch.complex64"),
    "differentiable": (make_params, {"differentiable": True}, "differentiable is set"),
    "shared memory": (shared_params, {}, "share memory"),
    "float64 gradient": (
        make_params,
        {},
        "has dtype torch.float32 and a gradient of torch.float64",
    ),
}


@pytest.mark.parametrize(
    ("kind", "case"),
    # torch's AdamW does not take the last.
    [(k, c) for c in EAGER for k in ("AdamW", "SGD") if (k, c) != ("AdamW", "float64 gradient")],
)
def test_torchs_own_step_with_one_warning(kind, case):
    make, kwargs, words = EAGER[case]
    ours, theirs, a, b = eager_pair(kind, make, kwargs)
    if case == "differentiable":  # torch refuses leaves that require gradients
        for p in (*ours, *theirs):
            p.requires_grad_(False)
    seen = []
    a.register_step_post_hook(lambda *args: seen.append(1))
    with pytest.warns(RuntimeWarning, match=f"{kind} runs torch's own step.*{words}") as caught:
        for step in range(3):
            for p, q in zip(ours, theirs, strict=True):
                g = torch.Generator().manual_seed(step)
                wide = torch.float64 if case == "float64 gradient" else p.dtype
                p.grad_dtype = q.grad_dtype = None
                p.grad = torch.randn(p.shape, dtype=wide, generator=g)
                q.grad = p.grad.clone()
            a.step()
            b.step()
    assert len([w for w in caught if "torch's own step" in str(w.message)]) == 1
    assert all(p.detach().equal(q.detach()) for p, q in zip(ours, theirs, strict=True))
    assert len(seen) == 3  # hooks run once a step
    assert caught[0].filename == __file__


def test_sparse_gradients_of_sgd():
    ours, theirs, a, b = eager_pair("SGD", lambda: make_params([(5, 2)]))
    with pytest.warns(RuntimeWarning, match="has a gradient that has layout torch.sparse_coo"):
        for p, optimizer in ((ours[0], a), (theirs[0], b)):
            p.grad = torch.eye(5)[:, :2].contiguous().to_sparse()
            optimizer.step()
    assert ours[0].detach().equal(theirs[0].detach())


def test_sparse_gradients_of_adamw():
    params = make_params([(5, 2)])
    optimizer = stepc.torch.AdamW(params)
    params[0].grad = torch.ones(5, 2).to_sparse()
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(RuntimeError, match="Adam does not support sparse gradients, please consid"),
    ):
        optimizer.step()


def test_capturable_is_torchs_error():
    params = make_params([(5,)])
    optimizer = stepc.torch.AdamW(params, capturable=True)
    set_grads(params)
    with (
        pytest.warns(RuntimeWarning, match="capturable is set"),
        pytest.raises(AssertionError, match="If capturable=True, params and state_steps must be"),
    ):
        optimizer.step()


def test_duplicate_parameter():
    """torch warns, and steps it twice."""
    ours, theirs = make_params([(4,)]), make_params([(4,)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a = stepc.torch.SGD(ours * 2, lr=0.1)
        b = torch.optim.SGD(theirs * 2, lr=0.1)
        set_grads(ours, theirs)
        a.step()
        b.step()
    assert ours[0].detach().equal(theirs[0].detach())


def test_in_and_out_of_torchs_step():
    """The float32 states of bfloat16 parameters keep their bits while torch steps."""
    ours = make_params([(64,), (3, 5)], dtype=torch.bfloat16)
    twin = clone_params(ours)
    a, b = stepc.torch.AdamW(ours, lr=1e-2), stepc.torch.AdamW(twin, lr=1e-2)
    train((a, b), (ours, twin), 3)
    before = [p.data_ptr() for p in ours]
    a.param_groups[0]["decoupled_weight_decay"] = False
    a.param_groups[0]["weight_decay"] = b.param_groups[0]["weight_decay"] = 0.0
    with pytest.warns(RuntimeWarning, match="decoupled_weight_decay is False"):
        train((a, b), (ours, twin), 2, first=3)
    assert all(p.dtype == p.grad.dtype == torch.bfloat16 for p in ours)
    assert [p.data_ptr() for p in ours] == before
    a.param_groups[0]["decoupled_weight_decay"] = True
    train((a, b), (ours, twin), 2, first=5)
    assert a.state[ours[0]]["step"] == 7
    for name in ("exp_avg", "exp_avg_sq"):
        assert all(s.dtype == torch.float32 for s in states(a, name))
        assert distance(states(a, name), states(b, name)) < 50
    assert distance(ours, twin) <= 2


def test_states_survive_a_step_that_torch_refuses():
    params = make_params([(4, 2), (3,)], dtype=torch.bfloat16)
    optimizer = stepc.torch.AdamW(params, lr=1e-2)
    train((optimizer,), (params,), 2)
    before = clone_params(params), [s.clone() for s in states(optimizer, "exp_avg")]
    params[0].grad = torch.ones(4, 2, dtype=torch.bfloat16).to_sparse()
    with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError, match="sparse gradients"):
        optimizer.step()
    assert params[0].grad.is_sparse
    assert bits_equal(params, before[0]) and bits_equal(states(optimizer, "exp_avg"), before[1])


def test_one_warning_a_reason():
    params = make_params([(4,)])
    optimizer = stepc.torch.SGD([("w", params[0])], lr=0.1)
    set_grads(params)
    with pytest.warns(RuntimeWarning) as caught:
        for _ in range(2):
            optimizer.param_groups[0]["differentiable"] = True
            with torch.no_grad():
                params[0].requires_grad_(False)
                optimizer.step()
                params[0].requires_grad_(True)
            optimizer.param_groups[0]["differentiable"] = False
            params[0].grad = params[0].grad.to_sparse()
            optimizer.step()
            set_grads(params)
    words = [str(w.message) for w in caught if "torch's own step" in str(w.message)]
    assert len(words) == 2
    assert "for all its parameters: differentiable is set in group 0" in words[0]
    assert "for 1 parameter: parameter 'w' has a gradient that has layout" in words[1]


def test_tensor_subclass():
    """A subclass with its own dispatch is not read behind its back."""
    from torch.testing._internal.two_tensor import TwoTensor

    p = torch.nn.Parameter(TwoTensor(torch.ones(3), torch.ones(3)))
    optimizer = stepc.torch.Lion([p])
    p.grad = TwoTensor(torch.ones(3), torch.ones(3))
    with pytest.raises(errors.TensorError, match="parameter 0 of group 0 is a 'TwoTensor'"):
        optimizer.step()


def test_compiler_missing_at_the_first_step(own_cache, monkeypatch):
    params = make_params([(3,)])
    optimizer = stepc.torch.AdamW(params)
    set_grads(params)
    monkeypatch.setenv("STEPC_COMPILER", "/nonexistent/stepc")
    refuse(optimizer, params, "'/nonexistent/stepc'", errors.CompilerNotFoundError)
    monkeypatch.undo()
    optimizer.step()
    assert len(optimizer.state) == 1


@pytest.mark.parametrize("names", [None, ("head", "tail")])
def test_names_are_not_doubled(names):
    memory = torch.ones(10)
    params = [torch.nn.Parameter(memory[:6]), torch.nn.Parameter(memory[4:])]
    given = list(zip(names, params, strict=True)) if names else params
    optimizer = stepc.torch.Lion(given, lr=1.0)
    set_grads(params)
    with pytest.raises(errors.TensorError) as caught:
        optimizer.step()
    text = str(caught.value)
    if names:
        assert "'head'" in text and "'tail'" in text and "parameter 'head'" not in text
    else:
        assert "parameter 0 of group 0" in text and "tensor" not in text
    assert "parameter parameter" not in text and ": parameter:" not in text
    print(text)
