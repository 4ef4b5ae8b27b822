//===- Definition.cpp - definitions and packages --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Definition.h"

#include "Zip.h"

#include "dialect/FileMessages.h"
#include "dialect/Nesting.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
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

/// Parses one file, of which messages show the lines.
static mlir::OwningOpRef<mlir::ModuleOp>
parseText(StringRef text, const std::string &path, mlir::MLIRContext &context) {
  SourceMgr sources;
  sources.AddNewSourceBuffer(MemoryBuffer::getMemBufferCopy(text, path),
                             SMLoc());
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  if (failed(checkNesting(sources, sources.getMainFileID(), &context)))
    return {};
  FileMessages messages(sources, &context);
  return mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
}

Error Definition::parse(StringRef text, mlir::MLIRContext &context) {
  module = parseText(text, path, context);
  if (!module)
    return makeError("'" + path + "' is no valid definition");
  for (const std::string &fragment : fragments) {
    auto buffer = readFile(fragment);
    if (!buffer)
      return buffer.takeError();
    auto file = parseText((*buffer)->getBuffer(), fragment, context);
    if (!file || file->getOps<FragmentOp>().empty())
      return makeError("'" + fragment + "' holds no valid fragment");
    for (FragmentOp op : make_early_inc_range(file->getOps<FragmentOp>()))
      op->moveBefore(module->getBody(), module->getBody()->end());
  }
  auto optimizers = module->getOps<OptimizerOp>();
  unsigned count = std::distance(optimizers.begin(), optimizers.end());
  if (count != 1)
    return makeError("'" + path + "' holds " + Twine(count) +
                     " optimizers, expected one");
  optimizer = *optimizers.begin();
  return Error::success();
}

Expected<std::unique_ptr<Definition>>
Definition::load(StringRef path, ArrayRef<std::string> fragments,
                 mlir::MLIRContext &context) {
  auto buffer = readFile(path);
  if (!buffer)
    return buffer.takeError();
  StringRef bytes = (*buffer)->getBuffer();
  auto definition = std::make_unique<Definition>();
  definition->path = path.str();
  definition->fragments = fragments;
  if (!path.ends_with(".stepc")) {
    if (Error error = definition->parse(bytes, context))
      return error;
    return definition;
  }

  if (!fragments.empty())
    return makeError("'" + path +
                     "' is a package, whose fragments are chosen "
                     "when it is compiled");
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

Expected<PackageHandle> Definition::compile(ArrayRef<std::string> variants) {
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

  std::vector<std::string> fragmentOptions;
  for (const std::string &fragment : fragments)
    fragmentOptions.push_back("--fragment=" + fragment);
  SmallVector<StringRef> arguments = {"stepc", path, "-o", output};
  append_range(arguments, fragmentOptions);
  append_range(arguments, variants);
  std::string message;
  int status = sys::ExecuteAndWait(*compiler, arguments, std::nullopt, {}, 0, 0,
                                   &message);
  if (status != 0)
    return makeError("'stepc' refused '" + path + "' with " +
                     join(variants, " ") +
                     (message.empty() ? "" : ": " + message));
  StepcPackage *package;
  if (stepcPackageLoad(output.c_str(), &package) != STEPC_OK)
    return makeRuntimeError("cannot load what 'stepc' made of '" + path + "'");
  return PackageHandle(package);
}

/// The tensor's variant in the syntax of `stepc --variant`.
static std::string describeVariant(const PreparedTensor &tensor,
                                   const GroupRequest &group) {
  std::string variant =
      ("param=" + mlir::step::reference::getName(tensor.param.storage) +
       ",grad=" + mlir::step::reference::getName(tensor.grad.storage))
          .str();
  Master master = tensor.request.master;
  if (master != Master::None)
    variant += (",master=" + mlir::step::reference::getName(master)).str();
  if (tensor.request.roundingSeed)
    variant += ",rounding=stochastic";
  for (const auto &[name, state] : tensor.states)
    if (name != getStateName(master))
      variant += (",state." + name + "=" +
                  mlir::step::reference::getName(state.storage))
                     .str();
  // Integers are part of no variant.
  for (const auto &[name, value] : group.options)
    if (const bool *flag = std::get_if<bool>(&value))
      variant += ",option." + name + (*flag ? "=true" : "=false");
  return variant;
}

Expected<StepcPackage *> Definition::getPackage(const PreparedCase &prepared) {
  std::vector<std::string> variants;
  for (const PreparedTensor &tensor : prepared.tensors)
    variants.push_back(
        "--variant=" +
        describeVariant(tensor, prepared.groups[tensor.request.group]));
  sort(variants);
  variants.erase(std::unique(variants.begin(), variants.end()), variants.end());
  std::string key = packages.count("") ? std::string() : join(variants, " ");
  auto found = packages.find(key);
  if (found == packages.end()) {
    Expected<PackageHandle> package = compile(variants);
    if (!package)
      return package.takeError();
    found = packages.try_emplace(key, std::move(*package)).first;
  }
  return found->second.get();
}
