//===- stepc-faulty.cpp - the compiler with a fault -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "SeedFault.h"

#include "passes/package/Compile.h"
#include "passes/package/WriteFile.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace cl = llvm::cl;
using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::faults;

static cl::list<std::string> inputs(cl::Positional,
                                    cl::desc("DEFINITION.mlir FRAGMENT..."));
static cl::opt<std::string> output("o", cl::desc("where to write the package"),
                                   cl::init("-"));
static cl::opt<std::string> faultName("fault", cl::desc("the fault to seed"));
static cl::list<std::string> variants("variant",
                                      cl::desc("as stepc --variant"));
static cl::opt<bool> reproducible("reproducible",
                                  cl::desc("as stepc --reproducible"));
static cl::opt<bool> list("list",
                          cl::desc("list the faults: name, what it is"));

/// The fault has no place in the definition.
static constexpr int kNowhere = 3;

static int refuse(const llvm::Twine &message) {
  llvm::errs() << "stepc-faulty: error: " << message << "\n";
  return 1;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(argc, argv, "stepc with a deliberate fault\n");
  std::vector<Fault> all = getFaults();
  if (list) {
    for (const Fault &fault : all)
      llvm::outs() << fault.name << "\t" << fault.description << "\n";
    return 0;
  }
  auto fault = llvm::find_if(
      all, [&](const Fault &fault) { return fault.name == faultName; });
  if (fault == all.end())
    return refuse("no fault '" + faultName + "'");

  std::string message, path = output;
  llvm::SourceMgr source;
  for (const std::string &file : inputs) {
    auto buffer = openInputFile(file, &message);
    if (!buffer)
      return refuse(message);
    source.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  }
  DialectRegistry registry;
  registerDialects(registry);
  registerTranslations(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  SourceMgrDiagnosticHandler handler(source, &context);
  bool seeded = false;
  CompileOptions options;
  options.variants.assign(variants.begin(), variants.end());
  if (options.variants.empty())
    options.variants.push_back("");
  options.reproducible = reproducible;
  options.extend = [&](Stage stage, PassManager &pm) {
    addFault(pm, stage, *fault, seeded);
  };
  FailureOr<CompileResult> result = compile(source, &context, options);
  if (!seeded)
    return kNowhere;
  if (failed(result))
    return 1;
  if (llvm::Error error = writeFile(path, result->package))
    return refuse(llvm::toString(std::move(error)));
  return 0;
}
