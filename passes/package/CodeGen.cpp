//===- CodeGen.cpp - object code ------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/CodeGen.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

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
  initializeBackends();
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

/// LLVM's own cleanup. Its vectorizers stay off: the loops are vectorized, and
/// what remains are tails. No function is known by name, so that a loop that
/// copies is not turned into a call of memcpy, which nobody links.
static void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
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
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2)
      .run(module, modules);
}

static llvm::Expected<llvm::SmallVector<char, 0>>
emitFile(llvm::Module &module, llvm::TargetMachine &machine,
         llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
    return llvm::createStringError("the code generator cannot write files");
  passes.run(module);
  return bytes;
}

/// Object code, or text, of what was lowered for the target.
static llvm::Expected<llvm::SmallVector<char, 0>>
generate(Operation *module, const Target &target, llvm::CodeGenFileType type) {
  auto machine = createTargetMachine(target);
  if (!machine)
    return machine.takeError();
  // Accesses whose alignment is not given have that of their type.
  module->setAttr(
      LLVM::LLVMDialect::getDataLayoutAttrName(),
      StringAttr::get(
          module->getContext(),
          (*machine)->createDataLayout().getStringRepresentation()));
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(module, context, "stepc");
  if (!llvmModule)
    return llvm::createStringError("the module does not translate to LLVM IR");
  llvmModule->setTargetTriple((*machine)->getTargetTriple());
  for (llvm::Function &function : *llvmModule) {
    function.addFnAttr("no-builtins");
    function.addFnAttr("target-cpu", target.cpu);
    function.addFnAttr("target-features", target.features);
    function.addFnAttr(llvm::Attribute::NoUnwind);
    if (function.hasInternalLinkage() &&
        !function.hasFnAttribute(llvm::Attribute::NoInline))
      function.addFnAttr(llvm::Attribute::AlwaysInline);
  }
  optimize(*llvmModule, **machine);
  return emitFile(*llvmModule, **machine, type);
}

llvm::Expected<llvm::SmallVector<char, 0>>
mlir::step::generateObject(ModuleOp module, const Target &target) {
  return generate(module, target, llvm::CodeGenFileType::ObjectFile);
}

llvm::Expected<std::string> mlir::step::generatePTX(gpu::GPUModuleOp module,
                                                    const Target &target) {
  auto text = generate(module, target, llvm::CodeGenFileType::AssemblyFile);
  if (!text)
    return text.takeError();
  return std::string(text->begin(), text->end());
}
