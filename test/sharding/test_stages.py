# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that have other tensors than others: stages of a pipeline, experts, and what is
counted over all of them. Each as the unsharded run of all tensors."""

import numpy as np
import pytest
from layouts import bounds_of
from placement import Dims, Flat, even_cuts
from ranks import RankCase
from stages import Row, check, make_model, on_stage, stages
from stepc._mesh import Mesh
from test_bounds import outside

CLIPPED = [("adamw", ["clip_by_norm"]), ("sgd", ["clip_by_inf_norm"]), ("lamb", []),
           ("adafactor", ["clip_by_norm"]), ("came", []), ("dadapt_adam", []),
           ("dadapt_sgd", ["clip_by_norm"])]  # fmt: skip
HYPERS = {"max_norm": 0.1, "lr": 0.02, "momentum": 0.9, "weight_decay": 0.01}


def hypers_of(name, **more):
    if name == "dadapt_sgd":
        more.pop("lr", None)  # read for the whole model: one for all groups
    return HYPERS | more


def pipeline(layouts=("whole", "fsdp2", "flat", "tp")):
    """Three stages, the last of which has one small tensor."""
    return [
        on_stage(0, (66, 9), layouts[0]),
        on_stage(1, (12, 7), layouts[1]),
        on_stage(0, (40,), layouts[2]),
        on_stage(1, (30, 20), layouts[2], group=1),
        on_stage(1, (8, 8), layouts[3], idle=(1,)),
        on_stage(2, (5,), "whole", group=1),
    ]


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name, fragments", CLIPPED, ids=lambda v: v if isinstance(v, str) else "")
def test_stages_count_together(name, fragments, tmp_path):
    """A global norm, a distance: over all stages, each tensor once."""
    groups = [hypers_of(name), hypers_of(name, lr=0.05)]
    models = [
        make_model(name, fragments, mesh, rows, groups)
        for mesh, rows in [
            (stages(3), pipeline(["whole"] * 4)),
            (stages(3, 2), pipeline()),
            (stages(4, 2), pipeline(("tp", "flat", "fsdp2", "whole"))),  # one has no tensor
        ]
    ]
    for model, results in zip(models, check(models, tmp_path), strict=True):
        assert any(not RankCase(model, rank).tensors for rank in range(8)) or model.world < 8
        assert all(np.isfinite(results[key]).all() for key in results if key.endswith("param"))


def test_stages_lie_within_the_bound(tmp_path):
    """One step, with the interval of the oracle for all tensors together."""
    models = [
        make_model(name, fragments, stages(3, 2), pipeline(), [hypers_of(name)] * 2,
                   steps=1)
        for name, fragments in CLIPPED
    ]  # fmt: skip
    bounds = bounds_of(models)
    for own, results in zip(bounds, check(models, tmp_path), strict=True):
        assert not isinstance(own, str), own
        known = {k: v for k, v in own.items() if k.rpartition(":")[0] in results}
        assert outside(results, known) == {}


def test_the_norm_is_of_all_stages(tmp_path):
    """By numpy, so that not both runs leave out the same."""
    rows = pipeline()
    model = make_model("sgd", ["clip_by_norm"], stages(3, 2), rows, [{"max_norm": 1.0}] * 2)
    [results] = check([model], tmp_path)
    tensors = model.case.tensors
    for step in range(3):
        grads = [t.arrays[f"grad:{step}" if step else "grad"] for t in tensors
                 if t.takes_part(step)]  # fmt: skip
        norm = np.sqrt(sum(np.square(g).astype("f8").sum() for g in grads))
        assert results["report:grad_norm"][step] == pytest.approx(norm, rel=1e-12)


@pytest.mark.parametrize("name, fragments", CLIPPED[:4], ids=lambda v: str(v)[:9])
def test_experts(name, fragments, tmp_path):
    """Experts lie on ranks of the axis over which the other tensors are cut."""
    mesh = Mesh(("ep", "tp"), (4, 2))
    rows = [Row((16, 10), Dims({0: ("ep",), 1: ("tp",)})), Row((9,), Dims({}))]
    rows += [Row((6 + e, 8), Dims({1: ("tp",)}, at={"ep": e}), group=1) for e in range(4)]
    rows += [Row((7, 4), Flat(("tp",), even_cuts(28, 2), {"ep": 3}), group=1, idle=(0,))]
    # Few tokens went to the second: it has no gradient in two steps.
    rows[3].idle = (0, 2)
    groups = [hypers_of(name)] * 2
    check([make_model(name, fragments, mesh, rows, groups)], tmp_path)


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name, fragments", CLIPPED, ids=lambda v: str(v)[:9])
def test_tensors_that_are_bound_late(name, fragments, tmp_path):
    """Behind steps of others: by a bind of its own on the ranks that have it."""
    mesh, line = stages(2, 2), Mesh(("dp",), (4,))
    rows = [
        on_stage(0, (12, 7), "fsdp2"),
        on_stage(1, (20,), "flat"),
        on_stage(1, (66, 9), "flat", late=1),
        on_stage(0, (5, 6), "tp", late=2, group=1),
    ]
    flat = [
        Row((30, 9), Flat(("dp",), even_cuts(270, 4))),
        Row((9, 70), Dims({1: ("dp",)}), late=2, group=1),
        Row((3,), Flat(("dp",), even_cuts(3, 4)), late=2),
    ]
    groups = [hypers_of(name)] * 2
    models = [make_model(name, fragments, *given, groups, steps=4)
              for given in ((mesh, rows), (line, flat))]  # fmt: skip
    check(models, tmp_path)


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name, fragments", CLIPPED, ids=lambda v: str(v)[:9])
def test_hyper_parameters_change(name, fragments, tmp_path):
    """As a schedule sets them, each group's own."""
    groups = [hypers_of(name), hypers_of(name, lr=0.05)]
    key = "lr" if name != "adafactor" else "decay_rate"
    schedule = {1: (0.01, 0.03), 3: (0.04, 0.002)}
    if key == "decay_rate":
        schedule = {1: (-0.2, -0.6), 3: (-0.9, -0.04)}
    if name == "dadapt_sgd":
        schedule = {step: (first, first) for step, (first, _) in schedule.items()}
    changes = {
        step: [group | {key: value} for group, value in zip(groups, values, strict=True)]
        for step, values in schedule.items()
    }
    model = make_model(name, fragments, stages(3, 2), pipeline(), groups, 4, changes)
    [results] = check([model], tmp_path)
    # They do change what comes out.
    same = make_model(name, fragments, stages(3, 2), pipeline(), groups, 4)
    [others] = check([same], tmp_path)
    assert any(not np.array_equal(results[k], others[k]) for k in results)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("layout", ["stages", "dims", "flat", "replicated"])
def test_overflow_on_one_rank_skips_all(value, layout, tmp_path):
    """Only one rank sees it; all skip, and the scales stay equal."""
    bad = {1: value}
    mesh, rows = {
        "stages": (stages(3, 2), [*pipeline(), on_stage(2, (4, 4), "tp", grads=bad)]),
        "dims": (Mesh(("dp",), (5,)), [Row((11, 3), Dims({0: ("dp",)}), grads=bad),
                                       Row((2, 8), Dims({0: ("dp",)}))]),
        "flat": (Mesh(("dp",), (3,)), [Row((31,), Flat(("dp",), [0, 10, 30, 31]), grads=bad),
                                       Row((6, 3), Flat(("dp",), [0, 0, 18, 18]))]),
        "replicated": (Mesh(("dp",), (2,)), [Row((7,), Dims({}), grads=bad),
                                             Row((6,), Dims({0: ("dp",)}))]),
    }[layout]  # fmt: skip
    groups = [{"growth_interval": 2.0, "max_norm": 0.5}] * 2
    fragments = ["torch_scaler", "clip_by_norm"]
    models = [make_model(name, fragments, mesh, rows, groups, steps=4, scale=65536.0)
              for name in ("adamw", "lamb")]  # fmt: skip
    for results in check(models, tmp_path):
        assert list(results["step:skipped"]) == [0, 1, 0, 0]
        assert list(results["scalar:scale"]) == [65536, 32768, 32768, 65536]


def test_steps_in_which_few_take_part(tmp_path):
    """On one stage only, on none, and of one group only."""
    rows = [
        on_stage(0, (6, 8), "tp", idle=(0, 1, 3)),
        on_stage(1, (9,), "flat", idle=(1, 2, 3)),
        on_stage(0, (5, 5), "fsdp2", group=1, idle=(0, 1, 2)),
    ]
    for name, fragments in CLIPPED:
        groups = [hypers_of(name)] * 2
        check([make_model(name, fragments, stages(2, 2), rows, groups, steps=5)], tmp_path)


def test_elementwise_stages_have_the_bits(tmp_path):
    models = [make_model(name, [], stages(3, 2), pipeline(), [{}, {}], storages=storages)
              for name in ("adamw", "lion")
              for storages in (("f32",) * 3, ("bf16",) * 3)]  # fmt: skip
    check(models, tmp_path, bits=True)
