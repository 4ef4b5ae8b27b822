//===- Compile.cpp - from a definition to a package -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Compile.h"
#include "dialect/FileMessages.h"
#include "dialect/Nesting.h"
#include "passes/package/CodeGen.h"
#include "passes/package/Explain.h"
#include "passes/package/PackageWriter.h"
#include "passes/package/WriteFile.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <map>

using namespace mlir;
using namespace mlir::step;

void mlir::step::registerTranslations(DialectRegistry &registry) {
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

/// The definition in a module that was checked.
static OptimizerOp findOptimizer(ModuleOp module) {
  return *module.getOps<OptimizerOp>().begin();
}

/// Where a file's errors are that have no place in it: at its begin.
static Location getPlace(ModuleOp module) {
  auto place = dyn_cast<FileLineColLoc>(module.getLoc());
  if (!place || place.getLine() != 0)
    return module.getLoc();
  return FileLineColLoc::get(place.getFilename(), 1, 1);
}

/// A file holds one definition, and fragments that belong to it.
static LogicalResult checkFile(ModuleOp module) {
  for (Operation &op : *module.getBody())
    if (!isa<OptimizerOp, FragmentOp>(op))
      return op.emitOpError() << "is not allowed beside step.optimizer";
  auto optimizers = llvm::to_vector(module.getOps<OptimizerOp>());
  if (optimizers.empty())
    return emitError(getPlace(module),
                     "expected exactly one step.optimizer: 0");
  if (optimizers.size() == 1)
    return success();
  InFlightDiagnostic diagnostic = optimizers[1].emitError()
                                  << "expected exactly one step.optimizer: "
                                  << optimizers.size();
  diagnostic.attachNote(optimizers[0].getLoc()) << "the first one is here";
  return diagnostic;
}

/// What the later stages made is none of a definition's.
static LogicalResult checkDefinition(OptimizerOp optimizer) {
  for (Operation &op : optimizer.getBody().front()) {
    auto rule = dyn_cast<RuleOp>(op);
    if (isa<ProgramOp>(op) || (rule && rule.getVariantAttr()))
      return op.emitOpError() << "is bound already";
  }
  if (optimizer.getBody().getOps<RuleOp>().empty())
    return optimizer.emitOpError() << "has no rule";
  return success();
}

/// Parses the first file of a manager: a parser reads no other.
static OwningOpRef<ModuleOp> parseFile(const llvm::SourceMgr &source,
                                       MLIRContext *context) {
  FileMessages messages(source, context);
  return parseSourceFile<ModuleOp>(source, context);
}

/// Appends the fragments of one more file to `module`.
static LogicalResult parseFragments(const llvm::MemoryBuffer &buffer,
                                    ModuleOp module) {
  llvm::SourceMgr source;
  source.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBuffer(buffer.getMemBufferRef()),
      llvm::SMLoc());
  OwningOpRef<ModuleOp> file = parseFile(source, module.getContext());
  if (!file)
    return failure();
  if (file->getBody()->empty())
    return emitError(getPlace(*file), "expected a step.fragment");
  for (Operation &op : llvm::make_early_inc_range(*file->getBody())) {
    auto fragment = dyn_cast<FragmentOp>(op);
    if (!fragment)
      return op.emitOpError() << "is not allowed in a file of fragments";
    if (Operation *other =
            SymbolTable::lookupSymbolIn(module, fragment.getSymNameAttr())) {
      InFlightDiagnostic diagnostic =
          fragment.emitOpError() << "has the name of something before it: '"
                                 << fragment.getSymName() << "'";
      diagnostic.attachNote(other->getLoc()) << "which is here";
      return diagnostic;
    }
    op.moveBefore(module.getBody(), module.getBody()->end());
  }
  return success();
}

static OwningOpRef<ModuleOp> parse(llvm::SourceMgr &source,
                                   MLIRContext *context) {
  for (unsigned id = 1; id <= source.getNumBuffers(); ++id)
    if (failed(checkNesting(source, id, context)))
      return {};
  OwningOpRef<ModuleOp> module = parseFile(source, context);
  if (!module || failed(checkFile(*module)) ||
      failed(checkDefinition(findOptimizer(*module))))
    return {};
  for (unsigned id = 2; id <= source.getNumBuffers(); ++id)
    if (failed(parseFragments(*source.getMemoryBuffer(id), *module)))
      return {};
  return module;
}

/// The text of all files, which is one definition again.
static std::string joinSources(const llvm::SourceMgr &source) {
  std::string text;
  for (unsigned id = 1; id <= source.getNumBuffers(); ++id) {
    if (id != 1 && !StringRef(text).ends_with("\n"))
      text += "\n";
    text += source.getMemoryBuffer(id)->getBuffer();
  }
  return text;
}

static std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  stream << "\n";
  return text;
}

namespace {
/// Runs the stages one after the other. Invariant: `module` is valid IR after
/// the last stage that ran, and its verifier has passed.
class Compilation {
public:
  Compilation(ModuleOp module, const CompileOptions &options,
              CompileResult &result)
      : module(module), options(options), result(result) {}

  LogicalResult run(StringRef source);

private:
  LogicalResult runStage(Stage stage, StringRef name, ModuleOp of,
                         function_ref<void(OpPassManager &)> build);
  LogicalResult runStage(Stage stage, StringRef name,
                         function_ref<void(OpPassManager &)> build) {
    return runStage(stage, name, module, build);
  }
  LogicalResult lower();
  llvm::Expected<std::string> makeCode(const Target &target);
  LogicalResult package(StringRef source, llvm::json::Object manifest);
  LogicalResult dump(Stage stage, StringRef name, ModuleOp of);
  /// Of errors that are not about a place in the definition.
  LogicalResult refuse(llvm::Error error) {
    return emitError(UnknownLoc::get(module.getContext()),
                     llvm::toString(std::move(error)));
  }
  bool stopsAfter(Stage stage) {
    if (options.stopAfter != stage)
      return false;
    result.ir = print(module);
    return true;
  }
  /// Measures `work` as stage `name`.
  LogicalResult timed(StringRef name, function_ref<LogicalResult()> work);

  /// The place in `lowered` of what is for a processor. Where nothing is
  /// multiplied it is the same for all.
  bool isForAVX512(const Target &target) const {
    return hasProducts && target.avx512;
  }

  ModuleOp module;
  bool hasProducts = false;
  /// What the lower stage made for processors, by `isForAVX512`.
  std::map<bool, OwningOpRef<ModuleOp>> lowered;
  /// What it made for devices.
  OwningOpRef<ModuleOp> deviceModule;
  const CompileOptions &options;
  CompileResult &result;
};
} // namespace

LogicalResult Compilation::timed(StringRef name,
                                 function_ref<LogicalResult()> work) {
  auto begin = std::chrono::steady_clock::now();
  LogicalResult outcome = work();
  std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  result.times.push_back({name.str(), elapsed.count()});
  return outcome;
}

LogicalResult Compilation::dump(Stage stage, StringRef name, ModuleOp of) {
  if (options.dumpDirectory.empty())
    return success();
  llvm::SmallString<128> path(options.dumpDirectory);
  if (std::error_code code = llvm::sys::fs::create_directories(path))
    return refuse(llvm::createStringError(
        code, "cannot make the directory '" + path + "': " + code.message()));
  llvm::sys::path::append(path, llvm::Twine(static_cast<int>(stage) + 1) + "-" +
                                    name + ".mlir");
  if (llvm::Error error = writeFile(path, print(of)))
    return refuse(std::move(error));
  return success();
}

LogicalResult Compilation::runStage(Stage stage, StringRef name, ModuleOp of,
                                    function_ref<void(OpPassManager &)> build) {
  LogicalResult outcome = timed(name, [&] {
    PassManager pm(module.getContext());
    // Of what is lowered the verifier would see ten thousand operations behind
    // each pass, which takes as long as the passes: it sees the last ones.
    bool isLowered = stage == Stage::Lower;
    pm.enableVerifier(!isLowered);
    build(pm);
    if (options.extend)
      options.extend(stage, pm);
    return failure(failed(pm.run(of)) || (isLowered && failed(verify(of))));
  });
  return failed(outcome) ? outcome : dump(stage, name, of);
}

llvm::Expected<std::string> Compilation::makeCode(const Target &target) {
  if (target.isDevice()) {
    auto kernels = *deviceModule->getOps<gpu::GPUModuleOp>().begin();
    auto ptx = generatePTX(kernels, target);
    if (!ptx)
      return ptx.takeError();
    if (llvm::Error error = checkPTX(*ptx))
      return error;
    if (target.kind == CodeKind::PTX)
      return ptx;
    return assemblePTX(*ptx, target, options.assembler);
  }
  auto objects = generateObjects(*lowered.at(isForAVX512(target)), target);
  if (!objects)
    return objects.takeError();
  auto shared = linkSharedObject(*objects);
  if (!shared)
    return shared.takeError();
  if (llvm::Error error = checkSharedObject(*shared))
    return error;
  return shared;
}

LogicalResult Compilation::package(StringRef source,
                                   llvm::json::Object manifest) {
  std::vector<PackageMember> members = {
      {"manifest.json", toText(std::move(manifest))},
      {"source.mlir", source.str()}};
  auto generate = [&]() -> LogicalResult {
    for (const Target *target : options.targets) {
      auto code = makeCode(*target);
      if (!code)
        return refuse(code.takeError());
      members.push_back({target->getFile(), std::move(*code)});
    }
    return success();
  };
  auto write = [&] {
    result.package = writePackage(members);
    return success();
  };
  return failure(failed(timed("code", generate)) ||
                 failed(timed("package", write)));
}

/// The kernels of processors and those of devices are lowered from the same
/// programs, each on their own; those of processors with AVX-512 and without
/// where there are products.
LogicalResult Compilation::lower() {
  module.walk([&](ProductOp) { hasProducts = true; });
  for (const Target *target : options.targets) {
    OwningOpRef<ModuleOp> &own =
        target->isDevice() ? deviceModule : lowered[isForAVX512(*target)];
    if (!own)
      own = cast<ModuleOp>(module->clone());
  }
  std::string name = "lower";
  for (auto &[avx512, own] : lowered) {
    LowerOptions lower;
    lower.avx512 = avx512;
    if (avx512 && lowered.size() > 1)
      name = "lower-avx512";
    if (failed(runStage(Stage::Lower, name, *own, [&](OpPassManager &pm) {
          buildLowerPipeline(pm, lower);
        })))
      return failure();
  }
  if (deviceModule && failed(runStage(Stage::Lower, "lower-to-cuda",
                                      *deviceModule, buildLowerToCUDAPipeline)))
    return failure();
  if (options.stopAfter != Stage::Lower)
    return success();
  for (auto &[avx512, own] : lowered)
    result.ir += print(*own);
  if (deviceModule)
    result.ir += print(*deviceModule);
  return success();
}

LogicalResult Compilation::run(StringRef source) {
  if (failed(runStage(Stage::Define, "define", buildDefinePipeline)))
    return failure();
  llvm::json::Object interface = buildInterface(findOptimizer(module));
  if (stopsAfter(Stage::Define))
    return success();

  BindOptions bind;
  for (const std::string &request : options.variants)
    bind.variants.push_back(request);
  if (failed(runStage(Stage::Bind, "bind",
                      [&](OpPassManager &pm) { buildBindPipeline(pm, bind); })))
    return failure();
  if (stopsAfter(Stage::Bind))
    return success();

  ShardOptions shard;
  shard.reproducible = options.reproducible;
  if (failed(runStage(Stage::Shard, "shard", [&](OpPassManager &pm) {
        buildShardPipeline(pm, shard);
      })))
    return failure();
  if (stopsAfter(Stage::Shard))
    return success();

  ScheduleOptions schedule;
  schedule.exclusiveWrites = options.exclusiveWrites;
  if (failed(runStage(Stage::Schedule, "schedule", [&](OpPassManager &pm) {
        buildSchedulePipeline(pm, schedule);
      })))
    return failure();
  OptimizerOp scheduled = findOptimizer(module);
  if (options.explains)
    result.explanation = explainSchedule(scheduled);
  llvm::json::Object manifest =
      buildManifest(std::move(interface), scheduled, options.targets);
  if (options.reproducible)
    manifest["reproducible"] = true;
  if (stopsAfter(Stage::Schedule))
    return success();

  if (failed(lower()))
    return failure();
  if (options.stopAfter == Stage::Lower)
    return success();
  return package(source, std::move(manifest));
}

FailureOr<std::string> mlir::step::readInterface(llvm::SourceMgr &source,
                                                 MLIRContext *context) {
  OwningOpRef<ModuleOp> module = parse(source, context);
  if (!module)
    return failure();
  // Fragments add to it, and states that nothing uses are none of it.
  PassManager pm(context);
  buildDefinePipeline(pm);
  if (failed(pm.run(*module)))
    return failure();
  return toText(buildInterface(findOptimizer(*module)));
}

FailureOr<CompileResult> mlir::step::compile(llvm::SourceMgr &source,
                                             MLIRContext *context,
                                             const CompileOptions &options) {
  CompileResult result;
  OwningOpRef<ModuleOp> module;
  auto begin = std::chrono::steady_clock::now();
  module = parse(source, context);
  if (!module)
    return failure();
  std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  result.times.push_back({"parse", elapsed.count()});
  if (failed(Compilation(*module, options, result).run(joinSources(source))))
    return failure();
  return result;
}
