//===- CodeGen.cpp - object code ------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/CodeGen.h"

#include "passes/lower/Products.h"

#include "passes/package/ComputeInLoops.h"
#include "passes/package/PermuteWords.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/GVN.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopRotation.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/SplitModule.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

using namespace mlir;
using namespace mlir::step;

static void initializeBackends() {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
}

static llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
createTargetMachine(const Target &target) {
  static std::once_flag initialized; // by one of the threads that compile
  std::call_once(initialized, initializeBackends);
  std::string message;
  llvm::Triple triple(target.isDevice() ? "nvptx64-nvidia-cuda"
                                        : "x86_64-unknown-linux-gnu");
  const llvm::Target *backend =
      llvm::TargetRegistry::lookupTarget(triple, message);
  if (!backend)
    return llvm::createStringError("no code generator for " + triple.str() +
                                   ": " + message);
  llvm::TargetOptions options;
  // Products and sums stay two roundings, whatever the processor can fuse.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(backend->createTargetMachine(
      triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
      std::nullopt, llvm::CodeGenOptLevel::Default));
}

/// LLVM's own cleanup of a device's kernels. Its vectorizers stay off: a lane
/// has an element.
static llvm::ModulePassManager makeDevicePasses(llvm::PassBuilder &builder) {
  return builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
}

/// That of a processor's: the loops are vectorized, calls inlined, and
/// operations folded. What is left is to do once, and not as often as -O2 does:
/// that takes four times as long, and its code is no faster (builds.py of
/// tools/bench compares two compilers).
static llvm::ModulePassManager makeProcessorPasses() {
  llvm::LoopPassManager loops;
  loops.addPass(llvm::LoopRotatePass());
  loops.addPass(llvm::LICMPass(llvm::LICMOptions()));
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(loops),
                                                       /*UseMemorySSA=*/true));
  passes.addPass(llvm::GVNPass());
  passes.addPass(llvm::SimplifyCFGPass());
  llvm::ModulePassManager all;
  all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  return all;
}

/// No function is known by name, so that a loop that copies is not turned into
/// a call of memcpy, which nobody links.
static void optimize(llvm::Module &module, llvm::TargetMachine &machine,
                     const Target &target) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::TargetLibraryInfoImpl library(machine.getTargetTriple());
  library.disableAllFunctions();
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  auto passes =
      target.isDevice() ? makeDevicePasses(builder) : makeProcessorPasses();
  passes.run(module, modules);
}

/// Cuts long blocks into pieces. Schedulers and the expansion of pseudo
/// instructions take time by the square of a block's length; in pieces of a
/// bounded length the whole is linear. A piece falls through to the next. What
/// has its address taken is not joined again to what is before it.
static void cutLongBlocks(llvm::Module &module) {
  constexpr size_t kLongest = 1000; // instructions; a kernel of the zoo has 300
  for (llvm::Function &function : module)
    for (llvm::BasicBlock &block : function) {
      size_t length = 0;
      for (llvm::Instruction &op : block) {
        if (length++ < kLongest || llvm::isa<llvm::PHINode>(op) ||
            op.isTerminator())
          continue;
        llvm::BlockAddress::get(block.splitBasicBlock(&op));
        break; // the rest is the next block
      }
    }
}

static llvm::Expected<llvm::SmallVector<char, 0>>
emitFile(llvm::Module &module, llvm::TargetMachine &machine,
         llvm::CodeGenFileType type) {
  cutLongBlocks(module);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
    return llvm::createStringError("the code generator cannot write files");
  passes.run(module);
  return bytes;
}

/// What was lowered for the target, as an LLVM module.
static llvm::Expected<std::unique_ptr<llvm::Module>>
translate(Operation *module, const Target &target, llvm::TargetMachine &machine,
          llvm::LLVMContext &context) {
  // Accesses whose alignment is not given have that of their type.
  module->setAttr(
      LLVM::LLVMDialect::getDataLayoutAttrName(),
      StringAttr::get(module->getContext(),
                      machine.createDataLayout().getStringRepresentation()));
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(module, context, "stepc");
  if (!llvmModule)
    return llvm::createStringError("the module does not translate to LLVM IR");
  llvmModule->setTargetTriple(machine.getTargetTriple());
  for (llvm::Function &function : *llvmModule) {
    function.addFnAttr("no-builtins");
    function.addFnAttr("target-cpu", target.cpu);
    std::string features = target.features.str();
    if (function.getName() == kDotsName)
      features += ",+avx512bf16";
    function.addFnAttr("target-features", features);
    function.addFnAttr(llvm::Attribute::NoUnwind);
    if (!target.isDevice()) {
      bool isProduct = function.getName().starts_with(kProductPrefix);
      std::string width =
          std::to_string(isProduct && target.avx512 ? 512 : target.vectorWidth);
      function.addFnAttr("prefer-vector-width", width);
      function.addFnAttr("min-legal-vector-width", width);
    }
    if (function.hasInternalLinkage() &&
        !function.hasFnAttribute(llvm::Attribute::NoInline))
      function.addFnAttr(llvm::Attribute::AlwaysInline);
  }
  return llvmModule;
}

/// In how many parts a module is compiled: by its size and not by the machine's
/// cores, since packages are the same bytes everywhere.
static unsigned countParts(const llvm::Module &module) {
  constexpr unsigned kSmall = 1000; // instructions; below it threads cost more
  constexpr unsigned kMost = 4;
  unsigned size = module.getInstructionCount();
  return std::clamp(size / kSmall, 1u, kMost);
}

/// Inlines what is inlined anyway.
static void inlineFunctions(llvm::Module &module) {
  llvm::ModuleAnalysisManager analyses;
  llvm::PassBuilder builder;
  llvm::FunctionAnalysisManager functions;
  builder.registerModuleAnalyses(analyses);
  builder.registerFunctionAnalyses(functions);
  analyses.registerPass(
      [&] { return llvm::FunctionAnalysisManagerModuleProxy(functions); });
  functions.registerPass(
      [&] { return llvm::ModuleAnalysisManagerFunctionProxy(analyses); });
  llvm::ModulePassManager passes;
  passes.addPass(llvm::AlwaysInlinerPass());
  passes.addPass(llvm::GlobalDCEPass());
  passes.run(module, analyses);
}

/// Bitcode of parts of the module. Functions become hidden symbols, which the
/// linker resolves: kept local they would tie all kernels that call one, so a
/// rule whose phases run by row blocks, into one part. The longest functions
/// are dealt first, so that parts take as long as each other.
static std::vector<llvm::SmallVector<char, 0>> split(llvm::Module &module,
                                                     unsigned parts) {
  module.getFunctionList().sort([](llvm::Function &a, llvm::Function &b) {
    return a.getInstructionCount() > b.getInstructionCount();
  });
  std::vector<llvm::SmallVector<char, 0>> found;
  auto keep = [&](std::unique_ptr<llvm::Module> part) {
    llvm::raw_svector_ostream stream(found.emplace_back());
    llvm::WriteBitcodeToFile(*part, stream);
  };
  llvm::SplitModule(module, parts, keep, /*PreserveLocals=*/false,
                    /*RoundRobin=*/true);
  return found;
}

static llvm::Expected<llvm::SmallVector<char, 0>>
compileModule(llvm::Module &module, llvm::TargetMachine &machine,
              const Target &target) {
  optimize(module, machine, target);
  if (target.vectorWidth == 512)
    permuteWords(module);
  return emitFile(module, machine, llvm::CodeGenFileType::ObjectFile);
}

/// Object code of one part, in a context and with a machine of its own.
static llvm::Expected<llvm::SmallVector<char, 0>>
compilePart(ArrayRef<char> bitcode, const Target &target) {
  llvm::LLVMContext context;
  auto machine = createTargetMachine(target);
  if (!machine)
    return machine.takeError();
  auto module = llvm::parseBitcodeFile(
      {StringRef(bitcode.data(), bitcode.size()), "stepc"}, context);
  if (!module)
    return module.takeError();
  return compileModule(**module, **machine, target);
}

/// Object code of all parts, by as many threads as there are cores.
static llvm::Expected<ObjectFiles>
compileParts(ArrayRef<llvm::SmallVector<char, 0>> parts, const Target &target) {
  std::vector<std::optional<llvm::Expected<llvm::SmallVector<char, 0>>>> made(
      parts.size());
  llvm::DefaultThreadPool pool(llvm::optimal_concurrency(parts.size()));
  for (size_t part = 0; part < parts.size(); ++part)
    pool.async(
        [&, part] { made[part].emplace(compilePart(parts[part], target)); });
  pool.wait();
  ObjectFiles objects;
  llvm::Error failed = llvm::Error::success();
  for (auto &object : made) {
    if (*object)
      objects.push_back(std::move(**object));
    else
      failed = llvm::joinErrors(std::move(failed), object->takeError());
  }
  if (failed)
    return failed;
  return objects;
}

namespace {
/// A module for a target, in LLVM's own representation, with what it is of.
struct TargetModule {
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
};
} // namespace

static llvm::Expected<TargetModule> translateFor(Operation *module,
                                                 const Target &target) {
  auto machine = createTargetMachine(target);
  if (!machine)
    return machine.takeError();
  auto context = std::make_unique<llvm::LLVMContext>();
  auto made = translate(module, target, **machine, *context);
  if (!made)
    return made.takeError();
  return TargetModule{std::move(*machine), std::move(context),
                      std::move(*made)};
}

llvm::Expected<ObjectFiles> mlir::step::generateObjects(ModuleOp module,
                                                        const Target &target) {
  auto made = translateFor(module, target);
  if (!made)
    return made.takeError();
  unsigned parts = countParts(*made->module);
  inlineFunctions(*made->module);
  if (parts > 1)
    return compileParts(split(*made->module, parts), target);
  auto object = compileModule(*made->module, *made->machine, target);
  if (!object)
    return object.takeError();
  ObjectFiles objects;
  objects.push_back(std::move(*object));
  return objects;
}

llvm::Expected<std::string> mlir::step::generatePTX(gpu::GPUModuleOp module,
                                                    const Target &target) {
  auto made = translateFor(module, target);
  if (!made)
    return made.takeError();
  optimize(*made->module, *made->machine, target);
  computeInLoops(*made->module);
  auto text = emitFile(*made->module, *made->machine,
                       llvm::CodeGenFileType::AssemblyFile);
  if (!text)
    return text.takeError();
  return std::string(text->begin(), text->end());
}
