# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures of ``python -m stepc explain --svg``.

Each is well-formed XML that refers to nothing outside, names all that the document does, has no
text on another text or beyond its edge, and is the same when it is made again.
"""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from stepc.plan import picture

ROOT = Path(__file__).resolve().parents[2]
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
ZOO = ROOT / "frontend" / "optimizers"
SPACE, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
SCALED = [f"--fragment={ZOO}/fragments/{name}.mlir" for name in ("torch_scaler", "clip_by_norm")]
CASES = [[path.name] for path in sorted(ZOO.glob("*.mlir"))] + [
    ["adamw.mlir", *SCALED],
    ["came.mlir", *SCALED, "--param=bf16", "--grad=bf16"],
    ["came.mlir", *SCALED, "--layout=zero1", "--layout=tp(1)*fsdp2"],
    ["lamb.mlir", "--layout=fsdp2"],
    ["adafactor.mlir", "--exclusive-writes"],
]


def explain(definition, *arguments):
    command = [STEPC, ZOO / definition, *arguments, "--explain=json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def names(document):
    """Of what a picture is to show."""
    for program in document["programs"]:
        yield program["name"]
        yield from (one["name"] for one in [*program["memory"], *program["entries"]])
        yield from (f"{one['dim']} over {'+'.join(one['axes'])}" for one in program["layout"])
        calls = [call for entry in program["entries"] for call in entry.get("calls", ())]
        yield from (call["function"] for call in calls)
        yield from (f"scalar {name}" for call in calls for name in call["scalars"])
        yield from (f"statistic {name}" for call in calls for name in call["statistics"])
        yield from (one["value"] for one in program["recomputed"])


def boxes(root):
    """Where each text is: characters are at most this wide and high."""
    for text in root.iter(f"{SPACE}text"):
        width = 6.6 if "font-size: 11px" in text.get("style") else 7.25
        x, y = float(text.get("x")), float(text.get("y"))
        yield x, y - 9, x + width * len(text.text), y + 3, text.text


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def check(document, drawn):
    root = ElementTree.fromstring(drawn.encode())
    assert root.tag == f"{SPACE}svg"
    assert all(one.get(LINK, "#").startswith("#") for one in root.iter())
    texts = sorted(boxes(root))
    said = "\n".join(one[4] for one in texts)
    assert [name for name in names(document) if name not in said] == []
    _, _, width, height = map(float, root.get("viewBox").split())
    for index, box in enumerate(texts):
        assert box[0] >= 0 and box[2] <= width and box[3] <= height, f"beyond the edge: {box}"
        for other in texts[index + 1 :]:
            if other[0] >= box[2]:
                break
            assert not overlap(box, other), f"on each other: {box[4]!r}, {other[4]!r}"


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_picture(case):
    document = explain(*case)
    check(document, picture.draw(document))


def test_the_checks_see_what_is_wrong():
    document = explain("adamw.mlir")
    drawn = picture.draw(document)
    document["programs"][0]["memory"][0]["name"] = "another"
    with pytest.raises(AssertionError, match="another"):
        check(document, drawn)
    with pytest.raises(AssertionError, match="beyond the edge"):
        check(explain("adamw.mlir"), drawn.replace("param f32", "param f32" + "x" * 1000))
    with pytest.raises(AssertionError, match="on each other"):
        check(explain("adamw.mlir"), drawn.replace("param f32", "param f32" + "x" * 40))


def stepc(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "stepc", "explain", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "frontend"), **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_command_writes_it(tmp_path):
    path = tmp_path / "made.svg"
    done = stepc("adafactor", "--svg", path, "--", "--layout=fsdp2")
    assert done.returncode == 0 and done.stdout == f"wrote '{path}'\n", done.stderr
    # Another process has drawn it: the same text.
    assert path.read_text() == picture.draw(explain("adafactor.mlir", "--layout=fsdp2"))
    refused = stepc("adafactor", "--svg", path, "--", "--layout=tp(9)")
    assert refused.returncode != 0 and "tp(9)" in refused.stderr


def test_without_the_library(tmp_path):
    """Only a picture needs it, and says so in one line."""
    (tmp_path / "matplotlib.py").write_text("raise ImportError('No module named matplotlib')\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT / "frontend")))
    made = tmp_path / "made.svg"
    done = stepc("adamw", "--svg", made, PYTHONPATH=path)
    assert done.returncode == 1 and not made.exists()
    assert done.stderr == "stepc: error: pictures need matplotlib: pip install matplotlib\n"
    assert "least possible 28" in stepc("adamw", PYTHONPATH=path).stdout
    page = tmp_path / "page.html"
    assert stepc("gpt2", "--html", page, PYTHONPATH=path).returncode == 0


def test_of_a_model_there_is_none(tmp_path):
    done = stepc("gpt2", "--svg", tmp_path / "made.svg")
    assert done.returncode == 1
    assert done.stderr == "stepc: error: --svg draws a definition, and 'gpt2' is a model\n"
