# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command stepc-plan: what it takes, prints and refuses. Whether its figures are right,
test/sharding/test_plan.py and test/distributed/traffic_cases.py say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stepc.plan import colossal, layouts, machines, models
from stepc.plan.failure import PlanError

ROOT = Path(__file__).resolve().parents[2]
PLAN = ROOT / "frontend" / "stepc" / "plan"

MODEL = "emb 33x20 f32\nlayers.{}.w [16,8] f32 3  # a comment\nlayers.{}.b 16 f32 3\nscale - f32\n"


def run(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "stepc.plan", *map(str, arguments)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text(MODEL)
    return path


def test_json_of_a_file_of_tensors(model):
    made = json.loads(
        run("adafactor", "--model", model, "--ranks", 2, "--layout", "fsdp2", "--json")
    )
    assert made["tensors"] == 8
    assert made["elements"] == 33 * 20 + 3 * (16 * 8 + 16) + 1
    assert made["memory"]["parameters"] == 4 * (17 * 20 + 3 * (8 * 8 + 8) + 1)
    # Rows of a rank's part, whole columns.
    assert made["memory"]["states"]["exp_avg_sq_row"] == 4 * (17 + 3 * 8)
    assert made["memory"]["states"]["exp_avg_sq_col"] == 4 * (20 + 3 * 8)
    assert made["exchanges"]["rounds"] == made["exchanges"]["calls"] == 1
    assert made["estimates"] == {"seconds": {}}
    # The embedding and the scale belong to no block.
    assert [row["calls"] for row in made["beside"][:3]] == [4, 3, 4]


def test_text_and_tables(model):
    text = run("adamw", "--model", model, "--ranks", 4, "--fragment", "clip_by_norm")
    assert "1 rounds, 1 calls, 16 B" in text and "state exp_avg_sq" in text
    assert "ESTIMATE" not in text
    machine = PLAN / "example-machine.json"
    arguments = ("--model", model, "--machine", machine, "--ranks")
    assert "ESTIMATE" in run("adamw", *arguments, 16)
    table = run("adamw,came", *arguments, "8,16", "--layout", "zero1,tp(0)*hsdp", "--axis", "tp=2",
                "--axis", "shard=2")  # fmt: skip
    assert table.count("| came |") == 8 and "(estimate)" in table


def test_who_owns_what(tmp_path):
    """By FLOPs, not by elements: of matrices of as many, the square is the dearest to Muon, and
    the wide one to SOAP, for its basis of 4096 columns."""
    path = tmp_path / "matrices.txt"
    path.write_text("wide 64x4096\nsquare 512x512\nflat 96x96\n")
    wide, square, flat = 64 * 64 * 4096, 512**3, 96**3
    # 15 n n m + 5 n n n
    by_hand = [float(20 * square), float(15 * wide + 5 * 64**3 + 20 * flat)]
    for layout in ("zero1", "zero2", "fsdp2"):
        found = json.loads(run("muon", "--model", path, "--ranks", 2, "--layout", layout, "--json"))
        work = found["work"]
        assert work["flops"] == by_hand, layout
        assert work["balance"] == max(by_hand) * 2 / sum(by_hand), layout
        assert work["owned"] == 3, layout
        # Of zero the owner alone has states; else it has a rank's part of all beside. Whose
        # products need most memory has the square.
        beside = 4 * (2 * 512 * 512 + 96 * 96) // 2 if layout == "fsdp2" else 0
        state = found["memory"]["states"]["momentum_buffer"]
        assert state == 4 * 512 * 512 + beside, layout
    soap = json.loads(run("soap", "--model", path, "--ranks", 2, "--layout", "zero1", "--json"))
    assert soap["work"]["flops"][0] > 20 * soap["work"]["flops"][1]
    alone = json.loads(run("muon", "--model", path, "--ranks", 2, "--layout", "ddp", "--json"))
    assert alone["work"] == {"flops": [sum(by_hand)], "most": sum(by_hand), "balance": 1.0,
                             "owned": 0}  # fmt: skip
    text = run("muon", "--model", path, "--ranks", 2, "--layout", "zero1")
    assert f"balance {max(by_hand) * 2 / sum(by_hand):.3f}" in text
    assert "3 tensors have owners, which step all of each" in text
    assert "FLOPs" not in run("adamw", "--model", path, "--ranks", 2)


def test_options_and_rules(model):
    states = []
    for value in ("false", "true"):
        made = run("adamw", "--model", model, "--ranks", 2, "--set", f"amsgrad={value}", "--json")
        states.append(set(json.loads(made)["memory"]["states"]))
    assert states[1] - states[0] == {"max_exp_avg_sq"}
    made = json.loads(run("lamb", "--model", model, "--ranks", 2, "--layout", "tp", "--rule",
                          r"layers.*\.w=1", "--json"))  # fmt: skip
    assert made["memory"]["parameters"] == 4 * (33 * 20 + 3 * (16 * 4 + 16) + 1)


def test_codes_and_masters(tmp_path):
    """Bytes are those of docs/states.md: of rows of 100 two scales, of no small state or vector."""
    path = tmp_path / "tables.txt"
    path.write_text("up 70x100 bf16\nsmall 9x9 bf16\nnorm 7000 bf16\n")
    arguments = ("adamw", "--model", path, "--ranks", 1, "--layout", "ddp", "--json")

    def memory(*more):
        return json.loads(run(*arguments, *more))["memory"]

    codes, floats, elements = 7000 + 70 * 2 * 4, 4 * (81 + 7000), 7000 + 81 + 7000
    of_all = memory("--state", "q8", "--master", "remainder")["states"]
    assert of_all == {"exp_avg": codes + floats, "exp_avg_sq": codes + floats,
                      "remainder": 2 * elements}  # fmt: skip
    assert memory("--state", "f8_e4m3", "--master", "remainder")["states"] == of_all
    four_bits = memory("--state", "exp_avg:q4", "--master", "remainder")["states"]
    assert four_bits["exp_avg"] == 70 * (13 * 4 + 2 * 4) + floats  # eight codes in four bytes
    for least, kept in ((7000, codes + 4 * 7081), (7001, 4 * elements)):
        states = memory("--state", f"f8_e4m3:{least}")["states"]
        assert states == {"exp_avg": kept, "exp_avg_sq": kept}
    states = memory("--state", "exp_avg:q8:7001,exp_avg_sq:q8")["states"]
    assert states == {"exp_avg": 4 * elements, "exp_avg_sq": codes + floats}
    of_one = memory("--state", "exp_avg:q8,exp_avg_sq:bf16", "--master", "f32")["states"]
    assert of_one == {"exp_avg": codes + floats, "exp_avg_sq": 2 * elements, "master": 4 * elements}
    assert "master" not in memory("--dtype", "f32", "--master", "f32")["states"]
    # Of LAMB, whose norms cross, a part of a step leaves float32 for the next.
    arguments = ("lamb", *arguments[1:], "--layout", "zero1")
    assert memory("--state", "q8")["f32 of codes between rounds"] == 2 * 4 * 7000
    arguments = ("adamw", *arguments[1:])
    assert memory("--state", "q8")["f32 of codes between rounds"] == 0
    # Of two ranks that share columns the first has 50, of a block that the other has 14 of, and
    # two words of each row for either.
    path.write_text("up 70x100 bf16\n")
    arguments = ("adamw", *arguments[1:4], 2, "--layout", "tp(-1)", "--json")
    of_shared = memory("--state", "exp_avg:q8")
    assert of_shared["states"]["exp_avg"] == 70 * (50 + 4)
    assert of_shared["f32 of codes between rounds"] == 4 * 70 * 50
    assert of_shared["exchange buffers"] == 8 * 70 * 2 * 2
    # Of 4 bits ranks share whole blocks, or it is refused, as by a binding.
    words = (
        "state 'exp_avg' of shape (70, 100) is kept as q4, of which an element has several codes"
    )
    assert words in run(*arguments, "--state", "exp_avg:q4", code=1)
    path.write_text("up 70x256 bf16\n")
    assert memory("--state", "exp_avg:q4")["states"]["exp_avg"] == 70 * (64 + 8)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["nosuch", "--ranks", 2], "'nosuch' is no file and no name of the zoo"),
        (["adamw"], "neither --ranks nor --machine says how many ranks there are"),
        (["adamw", "--ranks", 2, "--workers", 0], "workers is 0, the least is 1"),
        (["adamw", "--ranks", 2, "--layout", "zero4"], "unknown layout 'zero4', known: ddp"),
        (["adamw", "--ranks", 2, "--layout", "tp"], "has no rules for tp: --rule 'REGEX=DIM'"),
        (["adamw", "--ranks", 2, "--layout", "tp*zero1"], "takes plain parameters"),
        (["adamw", "--ranks", 6, "--layout", "tp(0)*fsdp2", "--axis", "tp=4"],
         "6 ranks are not a multiple of tp = 4"),
        (["adamw", "--ranks", 2, "--set", "nosuch=1"], "no option or hyper-parameter 'nosuch'"),
        (["adamw", "--ranks", 2, "--set", "nosuch"], "'nosuch' is not NAME=VALUE"),
        (["adamw", "--ranks", 2, "--layout", "zero2", "--gradients", "reduced"],
         "reduces local gradients itself"),
        (["adamw", "--ranks", 2, "--state", "exp:q8"],
         "'adamw' has no state 'exp', it has: exp_avg, exp_avg_sq"),
        (["adamw", "--ranks", 2, "--state", "exp_avg:q3"], "of 'exp_avg' is 'q3', known: f32"),
        (["adamw", "--ranks", 2, "--state", "exp_avg:q8:few"],
         "state is 'q8:few': elements are 'few', expected a number from 1 on"),
        (["adamw", "--ranks", 2, "--state", "q8:0"], "elements are '0', expected a number"),
        (["adamw", "--ranks", 2, "--state", "q8,exp_avg:f32"], "expected T or NAME:T,NAME:T"),
        (["adamw", "--ranks", 2, "--disk-bandwidth", "3GB"], "is given, which is of --advise"),
        (["adamw", "--ranks", 2, "--compare", "colossalai"], "no calls of ColossalAI's 'adamw'"),
    ],
)  # fmt: skip
def test_refusals(model, arguments, words):
    said = run(*arguments, "--model", model, code=1)
    assert words in said and said.startswith("stepc-plan: error: ") and "Traceback" not in said


def test_bad_models(tmp_path):
    for text, words in (
        ("a 2x2 f8\n", ":1: dtype is 'f8', known: f32, bf16, f16, f64"),
        ("ok 2\na\n", ":2: 'a', expected: name shape [dtype] [count]"),
        ('[{"name": "a"}]', "tensor 0: not a name, shape, dtype and count"),
        ('[{"name": "a", "shape": [1e999]}]', "tensor 0: not a name, shape, dtype and count"),
    ):
        path = tmp_path / "bad.txt"
        path.write_text(text)
        assert words in run("adamw", "--model", path, "--ranks", 2, code=1)
    for data, words in (
        (b"\xff\xfe", "is no text"),
        (b"{}", "has no list of 'tensors'"),
        (b'{"tensors": 1}', "has no list of 'tensors'"),
        (b"# none\n", "has no tensors"),
        (b"[]", "has no tensors"),
        (b"[" * 100_000, "bad.txt: "),
    ):
        path.write_bytes(data)
        with pytest.raises(PlanError, match=words):
            models.load(str(path))


@pytest.mark.parametrize(
    "field, value, words",
    [
        ("ranks", 2.0, "ranks of the machine is 2.0, no integer"),
        ("ranks_per_node", True, "ranks_per_node of the machine is True, no integer"),
        ("memory", -1e9, "memory of the machine is -1000000000.0, expected 0 or more"),
        ("between", "3e9", "between of the machine is '3e9', expected 0 or more"),
        ("latency_inside", float("nan"), "latency_inside of the machine is nan"),
    ],
)
def test_bad_machines(tmp_path, field, value, words):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"ranks": 2, field: value}))
    with pytest.raises(PlanError, match=words):
        machines.load(str(path), None)


def test_built_in_shapes_are_those_of_the_benchmark():
    sys.path.insert(0, str(ROOT / "tools" / "bench"))
    import shapes

    for name, expected in (("gpt2", shapes.gpt2()), ("bert-large", shapes.bert())):
        assert sorted(t.shape for t in models.load(name).tensors) == sorted(expected)
    counts = {name: (len(models.load(name).tensors), models.load(name).elements)
              for name in ("llama-7b", "llama-70b")}  # fmt: skip
    assert counts == {"llama-7b": (291, 6_738_415_616), "llama-70b": (723, 68_976_648_192)}


def test_colossal_by_hand():
    model = models.Model("small", tuple(
        models.Tensor(f"t{i}", shape) for i, shape in enumerate([(8, 4), (6, 4), (5,)])
    ))  # fmt: skip
    # Column statistic; gradient and square gathered; nothing; and a value of each.
    count = colossal.count(model, "adafactor", 4)
    assert (count.calls, count.bytes) == (1 + 2 + 3, 4 * (4 + 2 * 24 + 3))
    count = colossal.count(model, "came", 4)
    assert (count.calls, count.bytes) == (2 + 4 + 3, 4 * (2 * 4 + 4 * 24 + 3))
    count = colossal.count(model, "adafactor", 2, [1, 0, None])
    assert (count.calls, count.bytes) == (2 + 3, 4 * (8 + 4 + 6 + 2))
    count = colossal.count(model, "lamb", 4)
    assert (count.calls, count.bytes) == (3, 12)


def test_groups_inside_and_between_nodes():
    layout = layouts.parse("tp(0)*fsdp2", models.Model("m", ()), 64, {"tp": 8})
    assert layout.axes == {"dp": 8, "tp": 8}
    assert layout.reach(("tp",)) == 7 and layout.reach(("dp",)) == 56
