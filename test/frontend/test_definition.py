# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Definitions and packages as input: their names, and what is wrong with them."""

import pickle

import pytest
import stepc.torch
import torch
from common import ZOO
from stepc import errors
from stepc.definition import Definition, Interface

BROKEN = """step.optimizer @broken {
  %lr = step.hyper "lr" = 1.0e-3
  step.rule @any(%p: param[*], %g: grad[*]) {
    %u = step.frobnicate %g, %lr : [*], f64
    step.return %u
  }
}
"""
UNTYPED = BROKEN.replace("step.frobnicate %g, %lr", "step.mul %g, %nothing")


def params():
    return [torch.nn.Parameter(torch.ones(3))]


def test_interface_of_sgd():
    interface = Definition.open(ZOO / "sgd.mlir").interface()
    assert interface.name == "sgd"
    assert interface.hyper_names == ("lr", "momentum", "dampening", "weight_decay")
    assert interface.option_names == ("nesterov", "maximize")
    assert set(interface.derived) == {"has_momentum", "has_weight_decay"}


def test_derived_options():
    interface = Definition.open(ZOO / "sgd.mlir").interface()
    full = interface.resolve({"nesterov": True}, (0.1, 0.9, 0.0, 0.0))
    assert full == {
        "nesterov": True,
        "maximize": False,
        "has_momentum": True,
        "has_weight_decay": False,
    }


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [("eq", "010"), ("ne", "101"), ("lt", "100"), ("le", "110"), ("gt", "001"), ("ge", "011")],
)
def test_predicates(predicate, expected):
    data = {
        "optimizer": "x",
        "hypers": [{"name": "h", "default": 0.0}],
        "options": [{"name": "o", "derived": {"hyper": "h", "predicate": predicate, "value": 0.5}}],
    }
    interface = Interface.from_json(data)
    got = "".join(str(int(interface.resolve({}, (h,))["o"])) for h in (0.25, 0.5, 0.75))
    assert got == expected


@pytest.mark.parametrize(("text", "line", "column"), [(BROKEN, 4, 10), (UNTYPED, 4, 23)])
def test_definition_that_does_not_parse(tmp_path, text, line, column):
    path = tmp_path / "mine.mlir"
    path.write_text(text)
    with pytest.raises(errors.DefinitionError, match=r"mine\.mlir:4:\d+: error: ") as caught:
        stepc.torch.Optimizer(params(), path)
    first = caught.value.diagnostics[0]
    assert (first.file, first.line, first.severity) == (str(path), line, "error")
    assert abs(first.column - column) <= 1


def test_fragment_that_does_not_parse(tmp_path):
    """Named as the user's, not as the snapshot that the compiler saw."""
    lion = Definition.from_zoo("lion")
    path = str(tmp_path / "mine.mlir")
    broken = "step.fragment @mine {\n  step.rule @any(%g: grad[*]) {\n    step.return %h\n  }\n}\n"
    definition = Definition(lion.path, lion.text, fragments=((path, broken),))
    with pytest.raises(errors.DefinitionError, match=r"mine\.mlir:3:\d+: error: ") as caught:
        definition.interface()
    assert caught.value.diagnostics[0].file == path


def test_interface_behind_fragments():
    """The names of all, as they are where they are free."""
    definition = Definition.from_zoo("lion").with_fragments(("unscale", "clip_by_value"))
    names = definition.interface().hyper_names
    assert sorted(names) == sorted(
        ("lr", "beta1", "beta2", "weight_decay", "loss_scale", "clip_value")
    )


def test_file_that_is_neither(tmp_path):
    path = tmp_path / "noise.mlir"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(errors.DefinitionError, match="neither a definition in UTF-8 nor a package"):
        stepc.torch.Optimizer(params(), path)
    with pytest.raises(FileNotFoundError):
        stepc.torch.Optimizer(params(), tmp_path / "missing.mlir")


def test_unknown_name():
    expected = (
        r"optimizer 'lion' has no hyper-parameter or option 'momentun'; "
        r"hyper-parameters: lr, beta1, beta2, weight_decay; options: maximize"
    )
    with pytest.raises(TypeError, match=expected):
        stepc.torch.Optimizer(params(), ZOO / "lion.mlir", lr=1e-3, momentun=0.5)
    with pytest.raises(TypeError, match="option 'has_momentum' of optimizer 'sgd' follows from"):
        stepc.torch.Optimizer(params(), ZOO / "sgd.mlir", has_momentum=True)


def test_value_of_another_kind():
    with pytest.raises(TypeError, match="hyper-parameter 'lr' is 'fast', expected a number"):
        stepc.torch.Optimizer(params(), ZOO / "lion.mlir", lr="fast")
    with pytest.raises(TypeError, match="option 'maximize' is 0.5, expected True or False"):
        stepc.torch.Optimizer(params(), ZOO / "lion.mlir", maximize=0.5)
    with pytest.raises(TypeError, match="hyper-parameter 'lr' is tensor"):
        stepc.torch.Optimizer(params(), ZOO / "lion.mlir", lr=torch.ones(2))


@pytest.fixture
def package_file(tmp_path):
    """sgd for f32, as one would ship it."""
    definition = Definition.from_zoo("sgd")
    from stepc import _compiler

    path = tmp_path / "sgd.stepc"
    path.write_bytes(_compiler.compile_package(definition.text, "sgd.mlir", []))
    return path


def test_package_needs_no_compiler(package_file, compiler_runs, monkeypatch, tmp_path):
    monkeypatch.setenv("STEPC_COMPILER", "/nonexistent/stepc")
    p = params()
    optimizer = stepc.torch.Optimizer(p, package_file, lr=0.5, momentum=0.9)
    p[0].grad = torch.ones(3)
    optimizer.step()
    assert p[0].detach().equal(torch.full((3,), 0.5))
    assert compiler_runs == []
    again = pickle.loads(pickle.dumps(optimizer))
    package_file.unlink()
    again.param_groups[0]["params"][0].grad = torch.ones(3)
    again.step()  # momentum: 0.9 * 1 + 1


def test_package_without_the_variant(package_file):
    p = [torch.nn.Parameter(torch.ones(3, dtype=torch.float64))]
    optimizer = stepc.torch.Optimizer(p, package_file, lr=0.5)
    p[0].grad = torch.ones_like(p[0])
    with pytest.raises(
        errors.TensorError, match="'sgd' has no variant for parameter 0 of group 0: torch.float64"
    ):
        optimizer.step()
    assert not optimizer.state and bool((p[0] == 1).all())


def test_damaged_package(package_file):
    data = bytearray(package_file.read_bytes())
    data[len(data) // 3] ^= 1
    package_file.write_bytes(data)
    with pytest.raises(errors.PackageError) as caught:
        stepc.torch.Optimizer(params(), package_file)
    assert caught.value.status == "STEPC_CORRUPT_PACKAGE"


def test_runtime_library_that_is_missing(monkeypatch):
    monkeypatch.setenv("STEPC_RUNTIME_LIBRARY", "/nonexistent/lib.so")
    p = params()
    optimizer = stepc.torch.Lion(p)
    p[0].grad = torch.ones(3)
    with pytest.raises(errors.RuntimeLibraryError, match="'/nonexistent/lib.so'"):
        optimizer.step()
    assert not optimizer.state


def test_damaged_package_is_named(package_file):
    package_file.write_bytes(package_file.read_bytes()[:-100])
    with pytest.raises(errors.PackageError) as caught:
        stepc.torch.Optimizer(params(), package_file)
    assert str(package_file) in str(caught.value) and "<memory>" not in str(caught.value)


def test_package_without_the_option(package_file):
    """Refused when the optimizer is made, not at its first step."""
    words = "no variant with .*nesterov=true.*; it has: .*nesterov=false"
    for kwargs in ({"nesterov": True, "momentum": 0.9}, {"maximize": True}):
        with pytest.raises(errors.PackageError, match=words.replace("nesterov", list(kwargs)[0])):
            stepc.torch.Optimizer(params(), package_file, lr=0.5, **kwargs)
    optimizer = stepc.torch.Optimizer(params(), package_file, lr=0.5)
    with pytest.raises(errors.PackageError, match="no variant with .*maximize=true"):
        optimizer.add_param_group({"params": params(), "maximize": True})
    assert len(optimizer.param_groups) == 1


def test_values_in_groups():
    """Checked as those of the constructor."""
    p, q = params(), params()

    def make(**kwargs):
        return stepc.torch.Optimizer([{"params": p, **kwargs}], ZOO / "lion.mlir")

    for kwargs, words in (
        ({"learning_rate": 1.0}, "no hyper-parameter or option 'learning_rate'"),
        ({"lr": "fast"}, "hyper-parameter 'lr' is 'fast', expected a number"),
        ({"maximize": 1}, "option 'maximize' is 1, expected True or False"),
    ):
        with pytest.raises(TypeError, match=words):
            make(**kwargs)
        optimizer = make(lr=1.0, initial_lr=2.0, name="body")
        with pytest.raises(TypeError, match=words):
            optimizer.add_param_group({"params": q, **kwargs})
        assert len(optimizer.param_groups) == 1
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        stepc.torch.Lion([{"params": p, "lr": -1.0}])


def test_foreign_checkpoints():
    p = params()
    optimizer = stepc.torch.Optimizer(p, ZOO / "lion.mlir", lr=0.5)
    foreign = torch.optim.SGD(params(), lr=0.1)
    with pytest.raises(ValueError, match="group 0 of the loaded state has no 'beta1'"):
        optimizer.load_state_dict(foreign.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.5
    saved = optimizer.state_dict()
    saved["state"] = {0: {"step": 1.0, "exp_avg": torch.ones(3), "shadow": torch.ones(3)}}
    with pytest.warns(RuntimeWarning, match="has 'shadow', .*; its states are 'exp_avg'") as caught:
        optimizer.load_state_dict(saved)
    assert caught[0].filename == __file__
    p[0].grad = torch.ones(3)
    optimizer.step()
    assert optimizer.state[p[0]]["step"] == 2


NAMED = """step.optimizer @named {{
  %h = step.hyper "{hyper}" = 0.5
  %o = step.option "{option}" = true
  step.rule @any(%p: param[*], %g: grad[*], %m: state "{state}"[*]) {{
    %m1 = step.add %m, %g : [*]
    %d = step.select %o, %m1, %g : [*]
    %u = step.mul %d, %h : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %m1
  }}
}}
"""
NAMES = {"hyper": "h", "option": "o", "state": "m"}


@pytest.mark.parametrize(
    ("kind", "name", "owner"),
    [("hyper", "clip", "an argument of"), ("hyper", "zero", "an argument of"),
     ("option", "average", "an argument of"), ("hyper", "definition", "an argument of"),
     ("hyper", "param_names", "a key of param_groups"), ("option", "name", "a key of param_groups"),
     ("state", "step", "a key of each"),
     ("state", "master", "a key of each"), ("state", "remainder", "a key of each")],
)  # fmt: skip
def test_names_that_torch_or_we_have_already(kind, name, owner, tmp_path):
    """What has one meaning in a definition would have two here."""
    path = tmp_path / "named.mlir"
    path.write_text(NAMED.format(**NAMES | {kind: name}))
    with pytest.raises(errors.DefinitionError, match=f"'{name}' of optimizer 'named' .*{owner}"):
        stepc.torch.Optimizer(params(), path)


@pytest.mark.parametrize("word", ["flat", "count", "fresh", "param", "grad", "temp0", "B", "rule"])
def test_any_other_word_is_a_name(word, tmp_path):
    path = tmp_path / "named.mlir"
    for kind in NAMES:
        if kind == "state" and word in ("param", "grad"):
            continue
        path.write_text(NAMED.format(**NAMES | {kind: word}))
        [param] = own = params()
        optimizer = stepc.torch.Optimizer(own, path)
        for _ in range(2):
            param.grad = torch.ones(3)
            optimizer.step()
        assert param.tolist() == [-0.5] * 3  # 1 - 0.5 * 1 - 0.5 * 2
