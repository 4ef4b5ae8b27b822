# The tests that lit runs: the dialect's and the passes'.
#
# A test's RUN lines name our tools and LLVM's without a path. To run some by hand:
#     .venv/bin/lit -v build/test --filter dialect/
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os

import lit.formats

config.name = "stepc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.stepc_build, "test")
# The other folders hold other kinds of tests, or files that tests read.
folders = {"dialect", "passes", "tools"}
config.excludes = [name for name in os.listdir(config.test_source_root) if name not in folders]
config.excludes += ["Inputs"]

path = [config.stepc_tools, config.llvm_tools, config.environment["PATH"]]
config.environment["PATH"] = os.pathsep.join(path)
config.environment["FILECHECK_OPTS"] = "-enable-var-scope --allow-unused-prefixes=false"

config.substitutions += [
    # lit's own %s, %S and %t come after these: they stand for one word each,
    # also where the path of the tree has spaces.
    (r"%s\b", '"%s"'),
    (r"%S\b", '"%S"'),
    (r"%t\b", '"%t"'),
    ("%python", f'"{config.python}"'),
    # `%round-trip %t %s`: the texts and the bytecode of a file mean the same.
    ("%round-trip", f'bash "{config.test_source_root}/round-trip.sh"'),
    ("%bin", f'"{config.stepc_tools}"'),
    ("%zoo", f'"{os.path.join(config.stepc_source, "frontend", "optimizers")}"'),
]
