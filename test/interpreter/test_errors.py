# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the interpreter refuses, in its own words."""

import numpy as np
import pytest
from oracle import ZOO, Refused, interpret, write_definition

ONE = np.ones(1, "f4")
PAIR = {"param": ONE, "grad": ONE}


def refusal(definition, arrays=PAIR, **settings):
    with pytest.raises(Refused) as refused:
        interpret(definition, arrays, **settings)
    return str(refused.value)


def test_unknown_hyper_parameter():
    message = refusal(ZOO / "adamw.mlir", hypers={"rate": 1.0})
    assert "'rate' is no hyper-parameter of 'adamw', which has lr, beta1, beta2" in message


def test_unknown_option():
    message = refusal(ZOO / "adamw.mlir", options={"fast": True})
    assert "'fast' is no option of 'adamw', which has amsgrad, maximize" in message


def test_derived_option():
    message = refusal(ZOO / "sgd.mlir", options={"has_momentum": True})
    assert "'has_momentum' follows from hyper-parameter 'momentum' and cannot be set" in message


def test_unknown_rule():
    assert "'matrix' is no rule of 'adamw', which has any" in refusal(
        ZOO / "adamw.mlir", rule="matrix"
    )


@pytest.mark.parametrize("missing", ["param", "grad"])
def test_missing_array(missing):
    arrays = {name: array for name, array in PAIR.items() if name != missing}
    assert f"array '0/{missing}' is not given" in refusal(ZOO / "lion.mlir", arrays)


def test_superfluous_array():
    message = refusal(ZOO / "lion.mlir", {**PAIR, "exp_avg_sq": ONE})
    assert "array '0/exp_avg_sq' is none of param, grad, exp_avg" in message


def test_state_whose_option_does_not_hold():
    message = refusal(ZOO / "adamw.mlir", {**PAIR, "max_exp_avg_sq": ONE})
    assert "array '0/max_exp_avg_sq' is none of param, grad, exp_avg, exp_avg_sq" in message


@pytest.mark.parametrize("name", ["grad", "exp_avg"])
def test_wrong_shape(name):
    arrays = {"param": np.ones((2, 3), "f4"), "grad": np.ones((2, 3), "f4")}
    arrays[name] = np.ones((3, 2), "f4")
    assert f"'{name}' has shape 3x2, expected 2x3" in refusal(ZOO / "lion.mlir", arrays)


def test_scalar_is_named_in_messages():
    arrays = {"param": np.float32(1).reshape(()), "grad": ONE}
    assert "'grad' has shape 1, expected scalar" in refusal(ZOO / "lion.mlir", arrays)


def test_rank_that_the_rule_does_not_take(tmp_path):
    path = write_definition(
        tmp_path, "step.return %p : [n, m]", "%p: param[n, m], %g: grad[n, m]"
    )  # fmt: skip
    assert "'param' has shape 1, the rule wants 2 dims" in refusal(path)


def test_dims_of_one_name_and_several_extents(tmp_path):
    path = write_definition(
        tmp_path, "step.return %p : [n, n]", "%p: param[n, n], %g: grad[n, n]"
    )  # fmt: skip
    wide = np.ones((2, 3), "f4")
    message = refusal(path, {"param": wide, "grad": wide})
    assert "'param' has shape 2x3, where dim 'n' is 2 and 3" in message


def test_dim_of_one(tmp_path):
    path = write_definition(
        tmp_path, "step.return %p : [n, 1]", "%p: param[n, 1], %g: grad[n, 1]"
    )  # fmt: skip
    wide = np.ones((2, 3), "f4")
    message = refusal(path, {"param": wide, "grad": wide})
    assert "'param' has shape 2x3, where dim '1' is 1 and 3" in message


def test_new_value_that_needs_an_absent_state(tmp_path):
    path = write_definition(
        tmp_path,
        "%a = step.add %p, %s : [*]\n%m = step.compare lt, %a, %g : [*]\n"
        "%b = step.select %m, %p, %g : mask[*], [*]\n step.return %b, %s",
        '%p: param[*], %g: grad[*], %s: state "memory"[*] if %o',
        '%o = step.option "remember" = false',
    )
    message = refusal(path)
    assert "'param' needs state 'memory', which exists only with option 'remember'" in message
    assert_works(path, options={"remember": True})


def test_state_that_needs_an_absent_state(tmp_path):
    path = write_definition(
        tmp_path,
        "step.return %p, %s, %s",
        '%p: param[*], %g: grad[*], %s: state "memory"[*] if %o, %t: state "other"[*]',
        '%o = step.option "remember" = false',
    )
    assert "the new value of 'other' needs state 'memory'" in refusal(path)
    assert_works(path, options={"remember": True})


def assert_works(path, **settings):
    assert interpret(path, PAIR, **settings)["param"].shape == (1,)


def test_operations_that_passes_insert_are_not_of_a_source(tmp_path):
    path = write_definition(tmp_path, "%r = step.broadcast %p : [*] to [*]\n step.return %r")
    assert "'step.broadcast' is no operation of a source definition" in refusal(path)


def test_bound_rules_are_not_sources(tmp_path):
    path = tmp_path / "bound.mlir"
    path.write_text(
        "step.optimizer @example {\n"
        "  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32)\n"
        '    variant #step.variant<"any", {}, f32> {\n    step.return %p\n  }\n}\n'
    )
    assert "rule 'any' is bound; the interpreter runs definitions" in refusal(path)


def test_state_named_as_another_array(tmp_path):
    path = write_definition(
        tmp_path, "step.return %p, %s", '%p: param[*], %g: grad[*], %s: state "grad"[*]'
    )
    assert "calls a state 'grad', which is the name of another role" in refusal(path)


def test_definition_that_does_not_parse(tmp_path):
    path = write_definition(tmp_path, "%r = step.total %p\n step.return %r")
    message = refusal(path)
    assert f"{path}:4:6: error:" in message
    assert "is no valid definition" in message


def test_file_without_an_optimizer(tmp_path):
    path = tmp_path / "empty.mlir"
    path.write_text("// nothing\n")
    assert "holds 0 optimizers, expected one" in refusal(path)


def test_missing_file(tmp_path):
    assert "cannot read" in refusal(tmp_path / "none.mlir")
