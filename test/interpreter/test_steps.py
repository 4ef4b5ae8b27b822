# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of several tensors: statistics, rounds, kept scalars, rules, fragments."""

import os
import subprocess

import numpy as np
import pytest
import tree
from oracle import ROOT, ZOO, Batch, Refused, assert_same, bf16_from, bf16_to_f32, interpret

STEPC_OPT = os.environ.get("STEPC_OPT", str(ROOT / "build" / "bin" / "stepc-opt"))
RULE = "step.rule @any(%p: param[*], %g: grad[*]) {{\n{}\n}}"


def write(folder, text, name="definition.mlir"):
    path = folder / name
    path.write_text(text)
    return path


def optimizer(*parts):
    return "step.optimizer @example {\n" + "\n".join(parts) + "\n}\n"


def model(tensors):
    """Arrays and a line's "tensors" of a list of {name: array, setting: value}."""
    arrays, lines = {}, []
    for index, tensor in enumerate(tensors):
        prefix = f"t{index}/"
        settings = {name: value for name, value in tensor.items() if not hasattr(value, "dtype")}
        lines.append({"prefix": prefix, **settings})
        for name, value in tensor.items():
            if hasattr(value, "dtype"):
                arrays[prefix + name] = value
    return arrays, lines


def step(path, tensors, **settings):
    arrays, lines = model(tensors)
    return interpret(path, arrays, tensors=lines, **settings)


def ones(*shape):
    return np.ones(shape, dtype="f4")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


NORM = optimizer(
    '%s = step.statistic "s" sum over model',
    "%r = step.scalars over model {",
    '  %n = step.sqrt %s : f64\n step.report "norm", %n\n step.yield %n : f64\n}',
    RULE.format(
        "%q = step.mul %g, %g : [*]\n %c = step.sum %q : [*]\n step.contribute %s, %c\n"
        "%p1 = step.div %g, %r : [*], f64\n step.return %p1"
    ),
)


def norm(gradients):
    squares = [tree.reduce(g * g, ["*"], None, "sum") for g in gradients]
    return float(np.sqrt(tree.statistic(squares)))


# --- Statistics ---------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 64, 65, 200])
def test_tensors_count_in_the_order_in_which_they_were_bound(tmp_path, count):
    gradients = [normal(5, seed=i) * np.float32(10.0 ** (i % 7)) for i in range(count)]
    result = step(write(tmp_path, NORM), [{"param": ones(5), "grad": g} for g in gradients])
    expected = norm(gradients)
    assert_same(result["report:norm"], [expected])
    for index, g in enumerate(gradients):
        assert_same(result[f"t{index}/param"], g / np.float32(expected))


def test_a_tensor_that_takes_no_part_counts_as_nothing(tmp_path):
    tensors = [{"param": ones(3), "grad": normal(3, seed=i)} for i in range(3)]
    tensors[1]["participates"] = False
    result = step(write(tmp_path, NORM), tensors)
    assert_same(result["report:norm"], [norm([tensors[0]["grad"], tensors[2]["grad"]])])
    assert_same(result["t1/param"], ones(3))
    # By steps: it does in the second one, and its count is its own.
    tensors[1]["participates"] = [False, True]
    result = step(write(tmp_path, NORM), tensors, steps=3)
    everything = norm([t["grad"] for t in tensors])
    assert_same(result["report:norm"][1:], [everything, everything])


def test_amax_of_no_contribution(tmp_path):
    text = NORM.replace('"s" sum', '"s" amax').replace("step.sqrt %s", "step.neg %s")
    result = step(write(tmp_path, text), [{"param": ones(2), "grad": ones(2)}] * 1)
    assert_same(result["report:norm"], [-2.0])
    text = text.replace("step.contribute %s, %c", "")
    assert_same(
        step(write(tmp_path, text), [{"param": ones(2), "grad": ones(2)}])["report:norm"], [np.inf]
    )


GROUPS = optimizer(
    '%lr = step.hyper "lr" = 1.0\n%s = step.statistic "s" sum over group',
    '%d = step.scalar "d" = 0.5 over group\n%all = step.statistic "all" sum over model',
    "%r = step.scalars over group {",
    "  %x = step.add %s, %d : f64\n %y = step.mul %x, %lr : f64\n step.update %d, %y",
    '  step.report "x", %x\n %z = step.add %y, %all : f64\n step.yield %z : f64\n}',
    RULE.format(
        "%c = step.sum %g : [*]\n step.contribute %s, %c\n step.contribute %all, %c\n"
        "%p1 = step.mul %g, %r : [*], f64\n %p2 = step.mul %p1, %d : [*], f64\n step.return %p2"
    ),
)


def test_groups_have_statistics_and_scalars_of_their_own(tmp_path):
    tensors = [
        {"param": ones(2), "grad": ones(2), "group": 0},
        {"param": ones(3), "grad": ones(3), "group": 1},
        {"param": ones(4), "grad": ones(4), "group": 0},
    ]
    groups = [{"hypers": {"lr": 2.0}}, {"scalars": {"d": 4.0}}, {}]
    result = step(write(tmp_path, GROUPS), tensors, groups=groups, steps=2)
    # Group 0: 6 + 0.5 = 6.5, times 2; then 6 + 13 = 19. The last has no tensor,
    # so that nothing is run for it.
    assert_same(result["report:x"], [[6.5, 7.0, np.nan], [19.0, 10.0, np.nan]])
    assert_same(result["scalar:d"], [[13.0, 7.0, 0.5], [38.0, 10.0, 0.5]])
    # Rules read the scalar as it was before the step.
    assert_same(result["t0/param"], np.full(2, (38 + 9) * 13, "f4"))
    assert_same(result["t1/param"], np.full(3, (10 + 9) * 7, "f4"))


def test_what_is_read_over_the_model_is_equal_in_all_groups(tmp_path):
    text = NORM.replace("%s = ", '%lr = step.hyper "lr" = 1.0\n%s = ')
    text = text.replace("step.sqrt %s", "step.mul %s, %lr")
    tensors = [{"param": ones(1), "grad": ones(1)}]
    with pytest.raises(Refused, match="'lr' is read over the model, and groups differ in it"):
        step(write(tmp_path, text), tensors, groups=[{"hypers": {"lr": 2.0}}, {}])
    step(write(tmp_path, text), tensors, groups=[{"hypers": {"lr": 2.0}}] * 2)


# --- Rounds -------------------------------------------------------------------


def test_rounds_follow_from_what_depends_on_what(tmp_path):
    # What is written last runs first: %b needs no other, %a needs what it makes.
    text = optimizer(
        '%a = step.statistic "a" sum over model\n%b = step.statistic "b" sum over group',
        '%rb = step.scalars over group {\n step.report "b", %b\n step.yield %b : f64\n}',
        '%ra = step.scalars over model {\n step.report "a", %a\n step.yield %a : f64\n}',
        RULE.format(
            "%x = step.sum %g : [*]\n step.contribute %b, %x\n"
            "%y = step.mul %g, %rb : [*], f64\n %z = step.sum %y : [*]\n"
            "step.contribute %a, %z\n %p1 = step.mul %y, %ra : [*], f64\n step.return %p1"
        ),
    )
    tensors = [{"param": ones(n), "grad": ones(n), "group": n % 2} for n in (1, 2, 3)]
    result = step(write(tmp_path, text), tensors, groups=[{}, {}])
    # Group 0: 2, group 1: 4; the sum of 1 * 4, 2 * 2, 3 * 4.
    assert_same(result["report:b"], [[2.0, 4.0]])
    assert_same(result["report:a"], [20.0])
    assert_same(result["t1/param"], np.full(2, 40, "f4"))


def test_an_i1_of_a_round_selects_in_rules(tmp_path):
    text = optimizer(
        '%s = step.statistic "s" sum over model\n%limit = step.hyper "limit" = 1.0',
        "%r, %big = step.scalars over model {\n %b = step.compare gt, %s, %limit : f64",
        "  step.yield %s, %b : f64, i1\n}",
        RULE.format(
            "%c = step.sum %g : [*]\n step.contribute %s, %c\n %u = step.div %g, %r : [*], f64\n"
            "%p1 = step.select %big, %u, %g : [*]\n step.return %p1"
        ),
    )
    path = write(tmp_path, text)
    tensors = [{"param": ones(4), "grad": ones(4)}]
    assert_same(step(path, tensors)["t0/param"], ones(4) / 4)
    assert_same(step(path, tensors, hypers={"limit": 5.0})["t0/param"], ones(4))


SCALER = optimizer(
    '%scale = step.scalar "scale" = 8.0 over model\n%steps = step.scalar "steps" = 0.0 over model',
    '%sum = step.statistic "sum" sum over model\n%sum2 = step.statistic "sum2" sum over model',
    "%r = step.scalars over model {\n %ok = step.is_finite %sum : f64\n %bad = step.not %ok : i1",
    "  %one = step.constant 1.0\n %half = step.constant 0.5\n %two = step.constant 2.0",
    "  %f = step.select %bad, %half, %two : f64\n %s1 = step.mul %scale, %f : f64",
    "  %n = step.add %steps, %one : f64\n step.update %scale, %s1 always\n step.update %steps, %n",
    '  step.report "sum", %sum\n step.skip_if %bad\n step.yield %scale : f64\n}',
    '%later = step.scalars over model {\n step.report "later", %sum2\n step.yield %sum2 : f64\n}',
    'step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %t: count, %f: fresh) {',
    "  %c = step.sum %g : [*]\n step.contribute %sum, %c\n %u = step.div %g, %r : [*], f64",
    "  %d = step.sum %u : [*]\n step.contribute %sum2, %d\n %two = step.constant 2.0",
    "  %pw = step.powi %two, %t\n %m1 = step.add %m, %u : [*]\n %p1 = step.mul %m1, %pw : [*], f64",
    "  %p2 = step.select %f, %u, %p1 : [*]\n step.return %p2, %m1\n}",
)


def test_a_skipped_step_changes_nothing_but_what_says_always(tmp_path):
    tensors = [
        {"param": ones(2), "grad": 8 * ones(2), "grad:1": np.array([1, np.inf], "f4")},
        {"param": ones(1), "grad": 16 * ones(1)},
    ]
    result = step(write(tmp_path, SCALER), tensors, steps=3)
    assert_same(result["step:skipped"], [0.0, 1.0, 0.0])
    assert_same(result["report:sum"], [32.0, np.inf, 32.0])
    # A round after the one that skips does not run, and its report stays.
    assert_same(result["report:later"], [4.0, 4.0, 4.0])
    assert_same(result["scalar:scale"], [16.0, 8.0, 16.0])
    assert_same(result["scalar:steps"], [1.0, 1.0, 2.0])
    # m: 8 / 8, then 8 / 8 again; the count of the last step is 2, for it is the
    # second that was taken.
    assert_same(result["t0/m"], np.full(2, 2, "f4"))
    assert_same(result["t0/param"], np.full(2, 8, "f4"))


def test_a_skipped_first_step_leaves_the_next_one_the_first(tmp_path):
    nan = np.array([np.nan], "f4")
    result = step(
        write(tmp_path, SCALER), [{"param": ones(1), "grad": 4 * ones(1), "grad:0": nan}], steps=2
    )
    # Fresh again: the param is the update itself.
    assert_same(result["t0/param"], ones(1))
    assert_same(result["report:later"], [np.nan, 1.0])


def test_a_step_without_tensors_is_none(tmp_path):
    tensor = {"param": ones(1), "grad": np.array([np.nan], "f4"), "participates": [False, True]}
    result = step(write(tmp_path, SCALER), [tensor], steps=2)
    assert_same(result["scalar:scale"], [8.0, 4.0])
    assert_same(result["report:sum"], [np.nan, np.nan])
    assert_same(result["step:skipped"], [0.0, 1.0])


# --- Rules --------------------------------------------------------------------

RULES = optimizer(
    '%min = step.option "min" = 4\n%factored = step.option "factored" = true',
    "step.rule @square(%p: param[n, n], %g: grad[n, n]) where extent 0 lt 3 {",
    "  %a = step.constant 1.0\n %r = step.mul %a, %g : f64, [n, n]\n step.return %r : [n, n]\n}",
    "step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m])",
    "    where rank ge 2, extent -1 ge %min, extent -2 ge 2, %factored {",
    "  %a = step.constant 2.0\n %r = step.mul %a, %g : f64, [...b, n, m]",
    "  step.return %r : [...b, n, m]\n}",
    "step.rule @deep(%p: param[*], %g: grad[*]) where extent 2 ge 1 {",
    "  %a = step.constant 3.0\n %r = step.mul %a, %g : f64, [*]\n step.return %r\n}",
    "step.rule @flat(%p: param[*], %g: grad[*]) where not %factored {",
    "  %a = step.constant 4.0\n %r = step.mul %a, %g : f64, [*]\n step.return %r\n}",
    "step.rule @rest(%p: param[*], %g: grad[*]) where rank ne 0 {",
    "  %a = step.constant 5.0\n %r = step.mul %a, %g : f64, [*]\n step.return %r\n}",
)


@pytest.mark.parametrize(
    ("shape", "options", "rule"),
    [
        ((2, 2), {}, 1), ((3, 3), {}, 5), ((4, 4), {}, 2), ((2, 4), {}, 2), ((1, 4), {}, 5),
        ((7, 1, 4), {}, 3), ((7, 2, 4), {}, 2), ((7, 2, 4), {"min": 5}, 3), ((3, 3), {"min": 3}, 2),
        ((4, 4), {"factored": False}, 4), ((9,), {}, 5), ((2, 3, 2, 4), {}, 2), ((2, 2, 0), {}, 5),
        ((0, 0), {}, 1),
    ],
)  # fmt: skip
def test_the_first_rule_that_fits_is_taken(tmp_path, shape, options, rule):
    result = interpret(
        write(tmp_path, RULES), {"param": ones(*shape), "grad": ones(*shape)}, options=options
    )
    assert_same(result["param"], np.full(shape, rule, "f4"))


def test_no_rule_fits(tmp_path):
    scalar = ones()
    with pytest.raises(Refused, match="'example' has no rule for a param of shape scalar"):
        interpret(write(tmp_path, RULES), {"param": scalar, "grad": scalar})


def test_a_rule_can_be_named_for_each_tensor(tmp_path):
    tensors = [{"param": ones(2, 2), "grad": ones(2, 2), "rule": name} for name in ("rest", "deep")]
    result = step(write(tmp_path, RULES), [*tensors, {"param": ones(2, 2), "grad": ones(2, 2)}])
    assert [result[f"t{i}/param"][0, 0] for i in range(3)] == [5, 3, 1]


def test_leading_dims(tmp_path):
    text = optimizer(
        'step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %r: state "r"[...b, n, 1]) {',
        "  %x = step.add %r, %g : [...b, n, 1], [...b, n, m]",
        "  step.return %x, %r : [...b, n, m], [...b, n, 1]\n}",
    )
    path, batch = write(tmp_path, text), Batch()
    shapes = [(3, 4), (2, 3, 4), (5, 2, 3, 4), (0, 3, 4)]
    for shape in shapes:
        r = normal(*shape[:-1], 1)
        batch.add(path, {"param": ones(*shape), "grad": ones(*shape), "r": r})
    for shape, result in zip(shapes, batch.run(), strict=True):
        assert_same(result["param"], np.broadcast_to(result["r"], shape) + np.float32(1))
    with pytest.raises(Refused, match="'param' has shape 3, the rule wants 2 dims or more"):
        interpret(path, {"param": ones(3), "grad": ones(3)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min": True}, "option 'min' is an integer, and something else is given"),
        ({"factored": 1}, "option 'factored' is true or false, and something else is given"),
        ({"max": 1}, "'max' is no option of 'example', which has min, factored"),
    ],
)
def test_options_of_the_wrong_kind(tmp_path, options, message):
    with pytest.raises(Refused, match=message):
        interpret(write(tmp_path, RULES), {"param": ones(2), "grad": ones(2)}, options=options)


# --- Fragments ----------------------------------------------------------------

CLIP = """
step.fragment @clip {
  %max_norm = step.hyper "max_norm" = 1.0
  %norm2 = step.statistic "norm2" sum over model
  %coef = step.scalars over model {
    %one = step.constant 1.0
    %norm = step.sqrt %norm2 : f64
    %ratio = step.div %max_norm, %norm : f64
    %c = step.minimum %ratio, %one : f64
    step.report "norm", %norm
    step.yield %c : f64
  }
  step.rule @any(%g: grad[*]) {
    %gg = step.mul %g, %g : [*]
    %s = step.sum %gg : [*]
    step.contribute %norm2, %s
    %g1 = step.mul %g, %coef : [*], f64
    step.return %g1
  }
}
"""
WARM_UP = """
step.fragment @warm_up {
  %max_norm = step.hyper "max_norm" = 0.5
  step.rule @any(%t: count, %g: grad[*]) {
    %f = step.powi %max_norm, %t
    %g1 = step.mul %g, %f : [*], f64
    step.return %g1
  }
}
"""


def test_fragments_come_before_the_rules_in_their_order(tmp_path):
    fragments = [write(tmp_path, CLIP, "clip.mlir"), write(tmp_path, WARM_UP, "warm.mlir")]
    gradients = [normal(50, seed=1), normal(60, seed=2)]
    tensors = [{"param": ones(g.size), "grad": g, "count": 3} for g in gradients]
    path = write(tmp_path, optimizer(RULE.format("step.return %g")))
    hypers = {"max_norm": 2.0, "warm_up.max_norm": 0.25}
    for order, norms in ((fragments, gradients), (fragments[::-1], None)):
        if norms is None:  # the names follow the order
            hypers = {"max_norm": 0.25, "clip.max_norm": 2.0}
            norms = [g * np.float32(0.25**3) for g in gradients]
        result = step(path, tensors, fragments=[str(f) for f in order], hypers=hypers)
        expected = norm(norms)
        assert_same(result["report:norm"], [expected])
        coefficient = np.float32(min(2.0 / expected, 1.0))
        for index, g in enumerate(gradients):
            warm = np.float32(0.25**3)
            new = g * coefficient * warm if order is fragments else g * warm * coefficient
            assert_same(result[f"t{index}/param"], new)


AFTER = """
step.fragment @watch {
  %size = step.statistic "size" sum over model
  step.scalars over model {
    step.report "size", %size
    step.yield
  }
  step.rule @any(%p: param[*], %a: state "mean"[*] kept, %c: state "copy"[*] kept, %t: count) {
    %n = step.to_f64 %t
    %s = step.sum %p : [*]
    step.contribute %size, %s
    %d = step.div %p, %n : [*], f64
    %a1 = step.add %a, %d : [*]
    step.return %a1, %p
  }
}
"""


def test_fragments_after_the_rules_see_the_param_as_it_is_stored(tmp_path):
    """And what they store is rounded alone."""
    text = optimizer(RULE.format("step.return %g")) + AFTER
    g = normal(100)
    one = {"param": np.zeros(100, "f4"), "grad": g}
    result = step(write(tmp_path, text), [one], state="mean:f32,copy:bf16", param="bf16")
    seen = bf16_to_f32(bf16_from(g))
    assert_same(result["t0/param"], bf16_from(g))
    assert_same(result["t0/mean"], seen)
    assert_same(result["t0/copy"], bf16_from(g))
    result = step(write(tmp_path, text), [one], state="mean:f32,copy:bf16")
    assert_same(result["t0/param"], g)
    assert_same(result["t0/mean"], g)
    assert_same(result["t0/copy"], bf16_from(g))


def test_a_state_of_a_fragment_that_the_rule_has(tmp_path):
    text = (ZOO / "lion.mlir").read_text() + AFTER.replace('"mean"', '"exp_avg"')
    one = {"param": ones(1), "grad": ones(1)}
    with pytest.raises(Refused, match="state 'exp_avg' of a fragment is one of rule 'any'"):
        step(write(tmp_path, text), [one])


@pytest.mark.parametrize("name", ["adamw", "lion", "sgd", "adafactor"])
def test_fragments_are_what_inlining_makes_of_them(tmp_path, name):
    text = (ZOO / f"{name}.mlir").read_text() + CLIP + WARM_UP
    text += AFTER.replace("return %a1, %p", "return %a1, %a1")  # no op that passes insert
    whole = write(tmp_path, text, "whole.mlir")
    inlined = write(tmp_path, "", "inlined.mlir")
    subprocess.run(
        [STEPC_OPT, whole, "-step-inline-fragments", "-o", inlined], check=True, capture_output=True
    )
    tensors = [{"param": normal(40, seed=i), "grad": normal(40, seed=9 + i)} for i in range(3)]
    settings = {"steps": 3, "hypers": {"lr": 0.1, "max_norm": 0.7}, "state": "bf16"}
    expected, actual = (step(path, tensors, **settings) for path in (whole, inlined))
    assert expected.keys() == actual.keys() and "report:norm" in actual
    for key in expected:
        assert_same(actual[key], expected[key], key)


def test_the_new_gradient_is_rounded_only_where_it_is_stored(tmp_path):
    negate = "step.fragment @n {\n step.rule @any(%g: grad[*]) {\n %n = step.neg %g : [*]\n"
    text = optimizer(
        'step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {',
        "  %p1 = step.add %p, %g : [*]\n step.return %p1, %g\n}",
    )
    path = write(tmp_path, text + negate + "step.return %n\n }\n}\n")
    g = normal(100)
    result = interpret(path, {"param": np.zeros(100, "f4"), "grad": g}, state="m:bf16")
    assert_same(result["param"], -g)
    assert_same(result["m"], bf16_from(-g))
    assert (bf16_to_f32(result["m"]) != -g).any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("// nothing", "holds no valid fragment"),
        ("step.fragment @x {}", "holds no valid fragment"),
        (None, "cannot read"),
    ],
)
def test_files_without_fragments(tmp_path, text, message):
    path = tmp_path / "fragment.mlir"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Refused, match=message):
        interpret(ZOO / "lion.mlir", {"param": ones(1), "grad": ones(1)}, fragments=[str(path)])


# --- Requests -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scalars": {"e": 1.0}}, "'e' is no scalar over model of 'example', which has none"),
        ({"groups": [{"scalars": {"e": 1}}]}, "'e' is no scalar over group of 'example', which"),
        ({"tensors": [{"prefix": "a/", "group": 1}]}, "tensor 'a/' is of group 1, there are 1"),
        ({"tensors": [{"prefix": "a/", "lr": 1}]}, "'lr' is no key of one of the tensors"),
        ({"tensors": [{"group": -1}]}, "'group' is no key of one of the tensors or has a wrong"),
        ({"tensors": [{"participates": []}]}, "'participates' is no key of one of the tensors"),
        ({"tensors": [1]}, "'tensors' is no key of a case or has a wrong value"),
        ({"tensors": 1}, "'tensors' is no key of a case or has a wrong value"),
        ({"groups": [{"count": 1}]}, "'count' is no key of one of the groups"),
        ({"tensors": [{"prefix": "b/"}]}, "array '0/b/param' is not given"),
        ({"fragments": "a.mlir"}, "'fragments' is no key of a case or has a wrong value"),
    ],
)
def test_wrong_requests(tmp_path, settings, message):
    arrays = {"a/param": ones(1), "a/grad": ones(1), "param": ones(1), "grad": ones(1)}
    with pytest.raises(Refused, match=message):
        interpret(write(tmp_path, GROUPS), arrays, **settings)


def test_no_group_differs_from_none_given(tmp_path):
    result = interpret(write(tmp_path, NORM), {"param": ones(4), "grad": ones(4)})
    assert_same(result["report:norm"], [2.0])
