#!/usr/bin/env python3
"""Reads the signatures of other libraries' optimizers, schedules and plugins from their sources, of
which nothing is run, into test/frontend/original_signatures.json:

    read_originals.py "deepspeed 0.19.8=FOLDER" "galore_torch 2cc66f8=FOLDER" ...

FOLDER is an unpacked source distribution, wheel or checkout. Libraries that are not named stay as
they are in the file. test/frontend/test_original_arguments.py walks it.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import ast
import json
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "test" / "frontend" / "original_signatures.json"
METHODS = ("__init__", "step", "setup_distributed")

# Where the public classes and functions of a library are, and which of them. "*": all there;
# "AdamW=GaLoreAdamW": the class AdamW, which the library exports by the other name.
SOURCES = {
    "deepspeed": {
        "deepspeed/ops/ad*/*.py": "FusedAdam DeepSpeedCPUAdam DeepSpeedCPUAdagrad",
        "deepspeed/ops/l*/*.py": "FusedLamb FusedLion DeepSpeedCPULion",
        "deepspeed/runtime/zero/muon/*.py": "*",
        "deepspeed/runtime/lr_schedules.py": "LRRangeTest OneCycle WarmupLR WarmupDecayLR "
        "WarmupCosineLR",
        "deepspeed/runtime/fp16/loss_scaler.py": "DynamicLossScaler",
    },
    "colossalai": {
        "colossalai/nn/optimizer/*.py": "* get_galore_param_groups",
        "colossalai/nn/lr_scheduler/*.py": "*",
        "colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py": "*",
        "colossalai/booster/plugin/*_plugin.py": "LowLevelZeroPlugin GeminiPlugin "
        "HybridParallelPlugin MoeHybridParallelPlugin TorchDDPPlugin",
    },
    "bitsandbytes": {"bitsandbytes/optim/*.py": "*"},
    "torchao": {"torchao/optim/adam.py": "*", "torchao/optim/cpu_offload.py": "*"},
    "apex": {"apex/optimizers/fused_*.py": "*"},
    "galore_torch": {
        "galore_torch/adamw.py": "AdamW=GaLoreAdamW",
        "galore_torch/adamw8bit.py": "AdamW8bit=GaLoreAdamW8bit",
        "galore_torch/adafactor.py": "Adafactor=GaLoreAdafactor",
    },
    "apollo_torch": {
        "apollo_torch/apollo.py": "AdamW=APOLLOAdamW",
        "apollo_torch/q_apollo.py": "AdamW=QAPOLLOAdamW",
    },
    "dion": {"dion/dion.py": "Dion"},
    "muon": {"muon.py": "*"},
    "moonlight": {"examples/toy_train.py": "Muon"},
    "normuon": {"normuon.py": "*"},
    "soap": {"soap.py": "*"},
    "sophia": {"sophia.py": "SophiaG"},
    "distributed_shampoo": {"distributed_shampoo/distributed_shampoo.py": "*"},
}
# What stands in these files for other ends than a user's.
INNER = {
    "MultiTensorApply", "NVMeOptimizer", "GaLoreProjector", "GlobalOptimManager", "MockArgs",
    "Optimizer8bit", "Optimizer1State", "Optimizer2State", "TwoStageScheduler", "PytorchLARS",
    "BaseMuonWithAuxAdam",
}  # fmt: skip


def value(node, names):
    """A default as JSON has it; of what is no literal its text."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        pass
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return value(node.left, names) ** value(node.right, names)
    return {"text": ast.unparse(node)}


def arguments(function, names):
    """A list of [name, default] or, without a default, of [name]; no ``self``, ``*args``,
    ``**others``."""
    own = function.args
    both = [*own.posonlyargs, *own.args]
    defaults = [None] * (len(both) - len(own.defaults)) + own.defaults
    pairs = [*zip(both, defaults, strict=True), *zip(own.kwonlyargs, own.kw_defaults, strict=True)]
    if both and both[0].arg in ("self", "cls"):
        pairs = pairs[1:]
    return [[a.arg] if d is None else [a.arg, value(d, names)] for a, d in pairs]


def signatures(path, wanted):
    """Of each class and method in the file that is wanted, and of functions that are named."""
    tree = ast.parse(path.read_text())
    names = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    exported = dict(item.partition("=")[::2] for item in wanted.split() if item != "*")
    for node in tree.body:
        name = getattr(node, "name", "_")
        public = isinstance(node, ast.ClassDef) and name[0] != "_" and name not in INNER
        if name not in exported and not ("*" in wanted.split() and public):
            continue
        name = exported.get(name) or name
        if isinstance(node, ast.FunctionDef):
            yield name, arguments(node, names)
            continue
        for own in node.body:
            if isinstance(own, ast.FunctionDef) and own.name in METHODS:
                whole = name if own.name == "__init__" else f"{name}.{own.name}"
                yield whole, arguments(own, names)


def read(library, folder):
    found = {}
    for pattern, wanted in SOURCES[library].items():
        paths = sorted(folder.glob(pattern))
        if not paths:
            sys.exit(f"{folder} has no {pattern}")
        for path in paths:
            found |= dict(signatures(path, wanted))
    return dict(sorted(found.items()))


def main():
    made = json.loads(OUT.read_text()) if OUT.exists() else {}
    for given in sys.argv[1:]:
        said, _, folder = given.partition("=")
        library, _, version = said.partition(" ")
        made[library] = {"version": version, "signatures": read(library, Path(folder))}
    lines = []
    for library, own in sorted(made.items()):
        rows = [f"{json.dumps(n)}: {json.dumps(args)}" for n, args in own["signatures"].items()]
        head = f'"{library}": {{"version": {json.dumps(own["version"])}, "signatures": {{\n'
        lines.append(head + ",\n".join(rows) + "\n}}")
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
