//===- Definition.cpp - definitions and packages --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Definition.h"

#include "Zip.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SourceMgr.h"

using namespace llvm;
using namespace stepc::run;
using namespace mlir::step;
using namespace mlir::step::reference;

Error stepc::run::makeRuntimeError(const Twine &doing) {
  return makeError(doing + ": " + stepcLastErrorMessage());
}

Error Definition::parse(StringRef text, mlir::MLIRContext &context) {
  SourceMgr sources;
  sources.AddNewSourceBuffer(MemoryBuffer::getMemBufferCopy(text, path),
                             SMLoc());
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  module = mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
  if (!module)
    return makeError("'" + path + "' is no valid definition");
  auto optimizers = module->getOps<OptimizerOp>();
  unsigned count = std::distance(optimizers.begin(), optimizers.end());
  if (count != 1)
    return makeError("'" + path + "' holds " + Twine(count) +
                     " optimizers, expected one");
  optimizer = *optimizers.begin();
  return Error::success();
}

Expected<std::unique_ptr<Definition>>
Definition::load(StringRef path, mlir::MLIRContext &context) {
  auto buffer = readFile(path);
  if (!buffer)
    return buffer.takeError();
  StringRef bytes = (*buffer)->getBuffer();
  auto definition = std::make_unique<Definition>();
  definition->path = path.str();
  if (!path.ends_with(".stepc")) {
    if (Error error = definition->parse(bytes, context))
      return error;
    return definition;
  }

  // The runtime checks the package's hash, so it comes first.
  StepcPackage *package;
  if (stepcPackageLoadBytes(bytes.data(), bytes.size(), &package) != STEPC_OK)
    return makeRuntimeError("cannot load '" + path + "'");
  definition->packages[""].reset(package);
  auto members = readZip(bytes);
  if (!members)
    return makeError("cannot read '" + path +
                     "': " + toString(members.takeError()));
  if (Error error = definition->parse((*members)["source.mlir"], context))
    return error;
  return definition;
}

Expected<PackageHandle> Definition::compile(StringRef variant) {
  // The compiler is a process of its own: it brings code generators that
  // interpreting does not need.
  static int anchor;
  std::string self = sys::fs::getMainExecutable("stepc-run", &anchor);
  auto compiler =
      sys::findProgramByName("stepc", {sys::path::parent_path(self)});
  if (!compiler)
    return makeError("cannot find 'stepc' beside '" + self + "'");
  SmallString<128> output;
  if (auto code = sys::fs::createTemporaryFile("stepc-run", "stepc", output))
    return makeError("cannot create a temporary file: " + code.message());
  FileRemover remover(output);

  std::string option = ("--variant=" + variant).str(), message;
  int status =
      sys::ExecuteAndWait(*compiler, {"stepc", path, "-o", output, option},
                          std::nullopt, {}, 0, 0, &message);
  if (status != 0)
    return makeError("'stepc' refused '" + path + "' with " + option +
                     (message.empty() ? "" : ": " + message));
  StepcPackage *package;
  if (stepcPackageLoad(output.c_str(), &package) != STEPC_OK)
    return makeRuntimeError("cannot load what 'stepc' made of '" + path + "'");
  return PackageHandle(package);
}

/// The variant in the syntax of `stepc --variant`.
static std::string describeVariant(const PreparedCase &prepared) {
  std::string variant =
      ("param=" + mlir::step::reference::getName(prepared.param.storage) +
       ",grad=" + mlir::step::reference::getName(prepared.grad.storage))
          .str();
  for (const auto &[name, state] : prepared.states)
    variant +=
        (",state." + name + "=" + mlir::step::reference::getName(state.storage))
            .str();
  for (const auto &[name, value] : prepared.request.options)
    variant += ",option." + name + (value ? "=true" : "=false");
  return variant;
}

Expected<StepcPackage *> Definition::getPackage(const PreparedCase &prepared) {
  std::string variant =
      packages.count("") ? std::string() : describeVariant(prepared);
  auto found = packages.find(variant);
  if (found == packages.end()) {
    Expected<PackageHandle> package = compile(variant);
    if (!package)
      return package.takeError();
    found = packages.try_emplace(variant, std::move(*package)).first;
  }
  return found->second.get();
}
