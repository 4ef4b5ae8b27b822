# What an editor sends that opens a file of very many brackets, and ends.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json

document = {"uri": "test:///deep.mlir", "languageId": "mlir", "version": 1}
document["text"] = "module {" * 20000
capabilities = {"processId": 1, "rootPath": "stepc", "capabilities": {}, "trace": "off"}
for request in (
    {"id": 0, "method": "initialize", "params": capabilities},
    {"method": "textDocument/didOpen", "params": {"textDocument": document}},
    {"id": 1, "method": "shutdown"},
    {"method": "exit"},
):
    print(json.dumps({"jsonrpc": "2.0", **request}))
    print("// -----")
