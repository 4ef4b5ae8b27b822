# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``stepc-plan --advise``: the ladder, what is on disk against a store, the line that is printed,
and DeepSpeed's estimates against what DeepSpeed printed."""

import json
import operator

import pytest
from stepc.plan import advice, command, deepspeed, disk, planning
from stepc.plan.failure import PlanError
from stepc.plan.machines import Machine, amount
from stepc.plan.models import Model, Tensor, load
from stepc.plan.package import open_source

SHAPES = {"up": (700, 100), "down": (256, 192), "small": (64, 64), "norm": (7,)}
ELEMENTS = 70000 + 49152 + 4096 + 7


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "tables.txt"
    lines = [f"{name} {'x'.join(map(str, shape))} bf16" for name, shape in SHAPES.items()]
    path.write_text("\n".join(lines))
    return path


def advise(model, *more, name="adamw"):
    given = [name, "--model", model, "--ranks", 4, "--advise", "--json", *more]
    return json.loads(command.run(list(map(str, given))))


def test_the_ladder(model):
    found = advise(model)
    rungs = found["rungs"]
    keys = ("place", "state", "stage", "master")
    order = [tuple(rung[key] for key in keys) for rung in rungs]
    assert order == [
        (place, state, stage, master)
        for place in ("memory", "disk")
        for state in (None, "bf16", "q8")
        for stage in (0, 1, 2, 3)
        for master in ("f32", "remainder")
    ]
    parts = ("parameters", "gradients", "states", "windows", "other")
    for rung in rungs:
        assert rung["total"] == sum(rung[part] for part in parts) and rung["fits"], rung
    assert found["first"] == 0
    by_key = dict(zip(order, rungs, strict=True))
    # Two moments and a master of float32; codes of rows of 100 and of 64 elements, with scales.
    assert rungs[0]["states"] == 12 * ELEMENTS and rungs[0]["elsewhere"] == 0
    codes = 70000 + 700 * 2 * 4 + 49152 // 64 * 68 + 4096 // 64 * 68 + 4 * 7
    least = by_key["memory", "q8", 0, "remainder"]
    assert least["states"] == 2 * codes + 2 * ELEMENTS
    assert by_key["disk", "q8", 0, "remainder"]["windows"] == 4 * 8 * 2**20


@pytest.mark.parametrize("asked", [("memory", None, 1, "remainder"), ("memory", "q8", 2, "f32")])
def test_the_first_that_fits(model, asked):
    """Memory for just this rung: those before it take more."""
    rungs = advise(model)["rungs"]
    of = operator.itemgetter("place", "state", "stage", "master")
    [at] = [i for i, rung in enumerate(rungs) if of(rung) == asked]
    within = [i for i, rung in enumerate(rungs) if rung["total"] <= rungs[at]["total"]]
    found = advise(model, "--memory-per-rank", rungs[at]["total"])
    assert found["first"] == within[0]
    assert [i for i, rung in enumerate(found["rungs"]) if rung["fits"]] == within
    one = advise(model, "--memory-per-rank", rungs[at]["total"] - 1)
    assert not one["rungs"][at]["fits"]
    assert advise(model, "--memory-per-rank", 1)["first"] is None


def test_seconds_by_hand(model):
    """AdamW reads and writes 28 bytes of float32 for a parameter; states both ways on a disk."""
    found = advise(model, "--dtype", "f32", "--layout", "ddp", "--state", "f32",
                   "--memory-bandwidth", "2e9", "--link-bandwidth", "1e6", "--disk-bandwidth",
                   "1MB")  # fmt: skip
    memory, on_disk = found["rungs"]
    seconds = {"memory": 28 * ELEMENTS / 2e9, "link": 2 * 4 * ELEMENTS * 3 // 4 / 1e6}
    assert memory["seconds"] == pytest.approx({**seconds, "step": sum(seconds.values())})
    assert memory["bound"] == "link"
    # States of at most 16384 elements stay in memory.
    assert on_disk["elsewhere"] == 8 * (70000 + 49152) and on_disk["states"] == 8 * (4096 + 7)
    read_and_written = 2 * 8 * (70000 + 49152) / 1e6
    expected = {**seconds, "disk": read_and_written, "step": read_and_written + seconds["link"]}
    assert on_disk["seconds"] == pytest.approx(expected) and on_disk["bound"] == "disk"


def test_what_is_on_disk_is_what_a_store_has(tmp_path):
    st, torch = pytest.importorskip("stepc.torch"), pytest.importorskip("torch")
    for name, make, state in (("adamw", st.AdamW, None), ("adamw", st.AdamW, "q8"),
                              ("muon", st.Muon, None)):  # fmt: skip
        shapes = [shape for shape in SHAPES.values() if len(shape) == 2]
        tensors = tuple(Tensor(str(i), shape) for i, shape in enumerate(shapes))
        request = planning.Request(layout="ddp", state=state)
        plan = planning.make(open_source(name), Model("m", tensors), Machine(1), request)
        found = disk.of_plan(plan)
        params = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
        place = st.Place("disk", path=tmp_path)
        optimizer, before = make(params, lr=1e-3, state_dtype=state, place=place), None
        for _ in range(2):
            for param in params:
                param.grad = torch.ones_like(param)
            optimizer.step()
            after = optimizer.stored()
            moved = before and after.bytes_read + after.bytes_written
            moved = moved and moved - before.bytes_read - before.bytes_written
            before = after
        pages = 4096 * 2 * 2 * len(shapes)  # with codes two pieces a state, and each may end in one
        assert 0 <= after.bytes_taken - found.states <= pages, name
        assert 0 <= moved - found.moved <= 2 * pages, name


def test_windows(tmp_path):
    """Of 8 MiB, or of a whole tensor: of LAMB, and of codes that no piece of a row begins with."""
    path = tmp_path / "large.txt"
    path.write_text("even 4096x2048\n")

    def windows(*more, name="adamw"):
        found = advise(path, "--state", *more, name=name)
        return [rung["windows"] for rung in found["rungs"] if rung["place"] == "disk"]

    least, elements = 4 * 8 * 2**20, 4096 * 2048
    assert windows("f32", "--layout", "ddp") == windows("q8", "--layout", "ddp") == [least]
    assert windows("f32", "--layout", "ddp", name="lamb") == [4 * 8 * elements]
    path.write_text("odd 4096x2050\n")
    codes = 2 * (4096 * 2050 + 4 * 4096 * 33)
    assert windows("q8", "--layout", "ddp") == [4 * codes]
    # The second of three ranks begins within a row.
    path.write_text("rows 1000x30720\n")
    own = 1000 * 30720 // 3
    assert windows("q8", "--layout", "fsdp2", "--ranks", "3") == [least]
    assert windows("q8", "--layout", "zero1", "--ranks", "3") == [4 * 2 * own // 64 * 68]


def test_the_line_makes_such_an_optimizer(model, tmp_path):
    """Each is run in a group of one rank, with one step of those whose states are in memory."""
    torch, stepc = pytest.importorskip("torch"), pytest.importorskip("stepc.torch")
    del stepc
    lines = [rung["constructor"] for rung in advise(model)["rungs"] if rung["stage"] < 3]
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1
    )
    try:
        for line in lines:
            net = torch.nn.Linear(96, 64).bfloat16()
            space = {"torch": torch, "model": net}
            exec(f"import stepc.torch\noptimizer = {line}", space)
            if "disk" not in line:
                for param in net.parameters():
                    param.grad = torch.ones_like(param)
                space["optimizer"].step()
    finally:
        torch.distributed.destroy_process_group()
    sharded = [rung["constructor"] for rung in advise(model)["rungs"] if rung["stage"] == 3]
    assert sharded[0] == (
        "torch.distributed.fsdp.fully_shard(model); "
        'stepc.torch.AdamW(model.parameters(), master="f32")'
    )


def test_classes_are_those_of_the_zoo(tmp_path, model):
    st = pytest.importorskip("stepc.torch")
    for name, path in advice.CLASSES.items():
        folder, _, last = path.rpartition(".")
        found = getattr(__import__(f"stepc.torch.{folder}".rstrip("."), fromlist=[last]), last)
        assert found._zoo_name == name, path
    of_zoo = {c._zoo_name for c in vars(st).values() if getattr(c, "_zoo_name", None)}
    assert not of_zoo - set(advice.CLASSES)
    # A definition of one's own may have the name of one of ours.
    text = open_source("adamw").text.replace("0.01", "0.02")
    own = tmp_path / "mine.mlir"
    own.write_text(text)
    [rung, *_] = advise(model, name=str(own))["rungs"]
    line = f'stepc.torch.Optimizer(model.parameters(), "{own}", master="f32")'
    assert rung["constructor"] == line


def test_lines_of_every_class():
    """Each makes its optimizer, with lr, which has no default in some, as the reader adds it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("stepc.torch")
    for name in (*advice.CLASSES, "lomo", "adalomo"):
        source = open_source(name)
        lr = "" if "adafactor" in name else ", lr=1e-3"  # whose own is relative
        for state, master in ((None, "f32"), ("bf16", "remainder"), ("q8", None)):
            rung = advice.Rung("ddp", state, master, advice.MEMORY)
            line = advice.constructor(name, source, rung, "local")
            net = torch.nn.Linear(96, 64, bias=False).bfloat16()
            space = {"torch": torch, "model": net}
            exec(f"import stepc.torch\noptimizer = {line[:-1]}{lr})", space)
            assert space["optimizer"].param_groups[0]["params"] == [net.weight], line


def test_what_the_root_and_ddp_take(tmp_path):
    """By hand: parameters of no block stay gathered beside a block; DDP's buckets hold all
    gradients once more."""
    path = tmp_path / "blocks.txt"
    path.write_text("embed 40x8 f32\nh.0.w 16x8 f32\nh.1.w 24x8 f32\nnorm 8 f32\n")
    source, all_of = open_source("adamw"), 4 * (320 + 128 + 192 + 8)

    def plan(ranks, **more):
        return planning.make(source, load(str(path)), Machine(ranks), planning.Request(**more))

    assert plan(4, layout="fsdp2").largest_unit == 4 * (320 + 8) + 4 * 192
    for more in ({"layout": "ddp"}, {"layout": "zero1", "gradients": "reduced"}):
        assert plan(4, **more).memory["buckets of gradients"] == all_of
        assert "buckets of gradients" not in plan(1, **more).memory
    (path := tmp_path / "no-root.txt").write_text("h.0.w 16x8 f32\nh.1.w 24x8 f32\n")
    assert plan(4, layout="fsdp2").largest_unit == 4 * 192


def test_what_there_is_not(model):
    found = advise(model, "--device", "cuda")
    assert found["memory_per_rank"] == 80e9
    assert {rung["refused"] for rung in found["rungs"]} == {""}
    # In the host's memory states take the bus, both ways at once.
    on_host = next(r for r in found["rungs"] if r["place"] == "host")
    on_disk = next(r for r in found["rungs"] if r["place"] == "disk")
    assert on_host["elsewhere"] == on_disk["elsewhere"] > 0 == on_host["windows"]
    moved = on_disk["seconds"]["disk"] * found["disk_bandwidth"]
    assert on_host["seconds"]["bus"] == pytest.approx(moved / 2 / found["bus_bandwidth"])
    # LAMB's norms cross, and its second part reads moments again, whose float32 lies there too.
    coded, plain = (
        advise(model, "--layout", "zero1", "--state", state, name="lamb")["rungs"]
        for state in ("q8", "f32")
    )
    assert not any(rung["refused"] for rung in coded)
    [of_codes], [of_floats] = (
        [r for r in rungs if r["place"] == "disk"][:1] for rungs in (coded, plain)
    )
    assert of_floats["elsewhere"] < of_codes["elsewhere"] < 1.5 * of_floats["elsewhere"]
    text = command.run(["adamw", "--model", str(model), "--ranks", "4", "--advise",
                        "--device", "cuda"])  # fmt: skip
    assert "refused:" not in text and "the first that fits:" in text
    text = command.run(["adamw", "--model", str(model), "--ranks", "4", "--advise",
                        "--memory-per-rank", "1e5"])  # fmt: skip
    assert "none fits, the least is" in text and "bound by their arithmetic" in text
    with pytest.raises(PlanError, match="layout is 'hsdp', --advise knows: ddp, zero1"):
        advise(model, "--layout", "hsdp")
    with pytest.raises(PlanError, match="'adamw' has no state 'exp'"):
        advise(model, "--state", "exp:q8")


@pytest.mark.parametrize("text", ["", "0", "-1", "80XB", "1.2.3", "nan", "1e999"])
def test_no_number_of_bytes(text):
    with pytest.raises(PlanError, match="is no number of bytes, as 80e9"):
        amount(text)


def test_numbers_of_bytes():
    assert [amount(t) for t in ("80e9", "80GB", "64GiB", "1.5 MiB", "3TB")] == [
        80e9, 80e9, 64 * 2**30, 1.5 * 2**20, 3e12,
    ]  # fmt: skip


# Printed by DeepSpeed, of millions of parameters and of the largest layer's: GiB of a node's
# processor memory and of a device, of stage 3 in its order.
PRINTED = {
    (69503, 1050, 12, 4): [(436.93, 3.91), (4660.54, 3.91), (388.38, 6.61), (4660.54, 6.61),
                           (70.45, 28.19), (4660.54, 28.19)],
    (1557, 80, 2, 1): [(39.17, 0.30), (39.17, 0.30), (34.82, 1.75), (34.82, 1.75), (0.90, 13.36),
                       (17.41, 13.36)],
}  # fmt: skip


@pytest.mark.parametrize("key", PRINTED)
def test_deepspeeds_estimates(key):
    total, layer, devices, nodes = key
    found = deepspeed.estimates(total * 10**6, layer * 10**6, devices, nodes)
    own = [(one.host / 2**30, one.device / 2**30) for one in found if one.stage == 3]
    for pair, printed in zip(own, PRINTED[key], strict=True):
        assert pair == pytest.approx(printed, rel=2e-3, abs=6e-3)
    ranks = devices * nodes
    assert [(one.offload, one.device) for one in found if one.stage == 2] == [
        ("optimizer", 2 * total * 10**6),
        ("", 2 * total * 10**6 + 18 * total * 10**6 // ranks),
    ]


def test_the_largest_layer():
    """A module's own parameters, weight and bias."""
    tensors = (Tensor("a.weight", (10, 10)), Tensor("a.bias", (10,)), Tensor("b.weight", (105,)))
    model = Model("m", tensors)
    assert deepspeed.layer_of(model) == 110
    of_ranks = deepspeed.of_model(model, Machine(12, ranks_per_node=4))
    assert of_ranks == deepspeed.estimates(215, 110, 4, 3)


def test_figures_of_a_file(model, tmp_path):
    """Count where none is given by name."""
    path = tmp_path / "machine.json"
    path.write_text('{"ranks": 4, "inside": 3e9, "between": 2e9, "memory": 1e9}')
    found = advise(model, "--machine", path, "--link-bandwidth", "5e9")
    assert found["link_bandwidth"] == {"inside": 5e9, "between": 5e9}
    assert found["memory_bandwidth"] == 1e9 and found["disk_bandwidth"] == 3e9
    found = advise(model, "--machine", path)
    assert found["link_bandwidth"] == {"inside": 3e9, "between": 2e9}
