//===- stepc.cpp - the compiler's command line ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/bind/LayoutFile.h"
#include "passes/bind/LayoutPresets.h"
#include "passes/package/Compile.h"
#include "passes/package/Explain.h"
#include "passes/package/WriteFile.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <utility>
#include <vector>

namespace cl = llvm::cl;
using namespace mlir;
using namespace mlir::step;

static cl::OptionCategory category("options of stepc");

static cl::opt<std::string> input(cl::Positional, cl::Required,
                                  cl::desc("DEFINITION.mlir"),
                                  cl::cat(category));
static cl::list<std::string>
    fragments("fragment",
              cl::desc("a file of fragments, which come before the optimizer; "
                       "may be given again, in the order of their application"),
              cl::value_desc("FRAGMENT.mlir"), cl::cat(category));
static cl::opt<std::string>
    output("o",
           cl::desc("where to write: the package, or the IR with "
                    "--compile-to (default: standard output for IR)"),
           cl::value_desc("file"), cl::cat(category));
static cl::opt<std::string>
    targetName("target",
               cl::desc("what to compile for: x86-64-v3, or cpu, which is the "
                        "same (default); x86-64-v4; x86-64-v4-512; sm_80, "
                        "sm_90, sm_100, or cuda, which "
                        "is all of them and later devices; compute_80, ... "
                        "for PTX alone"),
               cl::value_desc("names"), cl::init("x86-64-v3"),
               cl::cat(category));
static cl::opt<std::string> assembler(
    "ptxas",
    cl::desc("the assembler of cubins; an empty name for none, so that devices "
             "get PTX (default: ptxas, where PATH has one)"),
    cl::value_desc("program"), cl::init("ptxas"), cl::cat(category));
static cl::opt<std::string>
    param("param",
          cl::desc("storage of the parameter: f32 (default), bf16, f16, f64"),
          cl::value_desc("type"), cl::cat(category));
static cl::opt<std::string>
    grad("grad", cl::desc("storage of the gradient (default: the parameter's)"),
         cl::value_desc("type"), cl::cat(category));
static cl::opt<std::string> state(
    "state",
    cl::desc("storage of the states: one type for all, or name:type,... "
             "(default: what is computed in, f32, or f64 for f64 parameters)"),
    cl::value_desc("types"), cl::cat(category));
static cl::opt<std::string> master(
    "master",
    cl::desc("how the f32 of a 16-bit parameter is kept: f32, a state, or "
             "remainder, the bits that the parameter lacks (default: "
             "not)"),
    cl::value_desc("form"), cl::cat(category));
static cl::opt<std::string> rounding(
    "rounding",
    cl::desc(
        "how what is stored as bf16 is rounded: stochastic, by random bits "
        "of the hyper-parameter rounding_seed (default: to nearest)"),
    cl::value_desc("form"), cl::cat(category));
static cl::list<std::string>
    optionValues("option",
                 cl::desc("value of an option of the definition; may be given "
                          "again. What is not given keeps its default; derived "
                          "options take both values"),
                 cl::value_desc("name=true|false"), cl::cat(category));
static cl::list<std::string> variantTexts(
    "variant",
    cl::desc("an exact variant; may be given again. A list such as "
             "param=bf16,grad=bf16,state.exp_avg=f32,option.amsgrad=true; what "
             "it does not name is as by the options above"),
    cl::value_desc("spec"), cl::cat(category));
static cl::list<std::string> layoutTexts(
    "layout",
    cl::desc("how parameters lie on a mesh of ranks; may be given again, each "
             "but files beside unsharded ones. ddp, zero1, zero2, zero3, "
             "fsdp2, hsdp, "
             "tp(DIM), ep, pp, a product as tp(1)*fsdp2, or axes of dims "
             "counted from the last: -2=dp,-1=tp, or flat=dp, with whole=, "
             "partial=, owned= and wire= for what lies otherwise outside of "
             "the step; or FILE.json, "
             "which has a mesh and the layouts of tensors by their names "
             "(docs/sharding.md)"),
    cl::value_desc("layout"), cl::cat(category));
static cl::opt<bool>
    interfaceOnly("interface",
                  cl::desc("print the definition's hyper-parameters, options "
                           "and states as JSON, and compile nothing"),
                  cl::cat(category));
static cl::opt<Stage> compileTo(
    "compile-to",
    cl::desc("the last stage to run; before package, prints the IR"),
    cl::values(clEnumValN(Stage::Define, "define", "rules on whole tensors"),
               clEnumValN(Stage::Bind, "bind", "one rule for each variant"),
               clEnumValN(Stage::Shard, "shard", "local programs of a rank"),
               clEnumValN(Stage::Schedule, "schedule", "programs of phases"),
               clEnumValN(Stage::Lower, "lower", "kernels in the LLVM dialect"),
               clEnumValN(Stage::Package, "package", "a package (default)")),
    cl::init(Stage::Package), cl::cat(category));
static cl::opt<std::string>
    dumpDirectory("dump-dir",
                  cl::desc("write the IR after each stage to files "
                           "of this directory"),
                  cl::value_desc("directory"), cl::cat(category));
enum class Explanation { None, Text, Json };
static cl::opt<Explanation> explainStep(
    "explain", cl::ValueOptional,
    cl::desc("print kernels, finishes and rounds, the operations in each, and "
             "bytes per parameter against the least possible"),
    cl::values(clEnumValN(Explanation::Text, "text", "in words (default)"),
               clEnumValN(Explanation::Json, "json",
                          "as data (docs/explain.md)"),
               clEnumValN(Explanation::Text, "", "")),
    cl::init(Explanation::None), cl::cat(category));
static cl::opt<bool> exclusiveWrites(
    "exclusive-writes",
    cl::desc("carry statistics of parameters from step to step; promises that "
             "only steps write them"),
    cl::cat(category));
static cl::opt<bool> reproducible(
    "reproducible",
    cl::desc("sums whose bits do not depend on the order of additions, so on "
             "no sharding"),
    cl::cat(category));
static cl::opt<bool> timeStages("time",
                                cl::desc("print the stages and their times"),
                                cl::cat(category));

static int refuse(const llvm::Twine &message, int code = 1) {
  llvm::errs() << "stepc: error: " << message << "\n";
  return code;
}

/// The states' types: one for all, or name:type,...
static llvm::Error readStates(VariantRequest &request) {
  llvm::SmallVector<llvm::StringRef> items;
  llvm::StringRef(state).split(items, ',', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef item : items) {
    auto [name, type] = item.split(':');
    std::string given = ("state=" + item).str();
    if (llvm::Error error =
            item.contains(':') ? request.setState(name, type, given)
                               : request.setStorage(request.state, item, given))
      return error;
  }
  return llvm::Error::success();
}

/// The request that --param, --grad, --state, --master, --rounding and --option
/// make.
static llvm::Error readBaseRequest(VariantRequest &request) {
  if (!param.empty())
    if (llvm::Error error =
            request.setStorage(request.param, param, "param=" + param))
      return error;
  if (!grad.empty())
    if (llvm::Error error =
            request.setStorage(request.grad, grad, "grad=" + grad))
      return error;
  if (!master.empty())
    if (llvm::Error error = request.parse("master=" + master))
      return error;
  if (!rounding.empty())
    if (llvm::Error error = request.parse("rounding=" + rounding))
      return error;
  for (llvm::StringRef item : optionValues) {
    auto [name, value] = item.split('=');
    if (llvm::Error error =
            request.setOption(name, value, ("option=" + item).str()))
      return error;
  }
  return readStates(request);
}

/// All requests as text for the bind stage, and for --explain what the files
/// of layouts say beside them.
static llvm::Error readRequests(std::vector<std::string> &requests,
                                llvm::json::Array &explained) {
  VariantRequest base;
  if (llvm::Error error = readBaseRequest(base))
    return error;
  if (layoutTexts.getNumOccurrences() != 0) {
    // A file says of all tensors how they lie; others say it of some.
    std::vector<VariantRequest> layouts;
    if (!llvm::all_of(layoutTexts, isLayoutFile))
      layouts.push_back(base);
    for (const std::string &text : layoutTexts) {
      if (!isLayoutFile(text)) {
        if (llvm::Error error = addLayout(text, base, layouts))
          return error;
        continue;
      }
      llvm::Expected<LayoutFile> file = readLayoutFile(text);
      if (!file)
        return file.takeError();
      addLayouts(*file, base, layouts);
      explained.push_back(explainLayouts(*file, base));
    }
    for (const VariantRequest &request : layouts)
      requests.push_back(request.str());
  }
  for (const std::string &text : variantTexts) {
    VariantRequest request = base;
    if (llvm::Error error = request.parse(text))
      return error;
    requests.push_back(request.str());
  }
  if (requests.empty())
    requests.push_back(base.str());
  return llvm::Error::success();
}

/// What --target and --ptxas say. An assembler that was asked for must be
/// there.
static llvm::Error readTargetOptions(CompileOptions &options) {
  if (!assembler.empty()) {
    auto found = llvm::sys::findProgramByName(assembler);
    if (found)
      options.assembler = *found;
    else if (assembler.getNumOccurrences() != 0)
      return llvm::createStringError("no program '" + assembler +
                                     "': " + found.getError().message());
  }
  auto targets = readTargets(targetName, !options.assembler.empty());
  if (!targets)
    return targets.takeError();
  options.targets = std::move(*targets);
  return llvm::Error::success();
}

/// Says what is wrong with the combination of options; empty if nothing is.
static llvm::StringRef checkUsage() {
  bool hasStage = compileTo.getNumOccurrences() != 0;
  bool explains = explainStep != Explanation::None;
  if (interfaceOnly &&
      (hasStage || explains || timeStages || !dumpDirectory.empty()))
    return "--interface compiles nothing: it goes without --compile-to, "
           "--explain, --time and --dump-dir";
  if (explains && compileTo < Stage::Schedule)
    return "--explain needs the schedule stage, which --compile-to leaves out";
  if (explainStep == Explanation::Json && timeStages)
    return "--explain=json is one document: it goes without --time";
  if (reproducible && exclusiveWrites)
    return "--reproducible makes sums in two traversals, which "
           "--exclusive-writes cannot leave out";
  if (output.empty() && compileTo == Stage::Package && !interfaceOnly &&
      !explains && !timeStages)
    return "no output: give -o FILE, --explain, --interface or "
           "--compile-to=STAGE";
  return "";
}

static std::string formatTimes(const std::vector<StageTime> &times) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  auto print = [&](llvm::StringRef name, double milliseconds) {
    stream << llvm::formatv("{0,-10}{1,10:f2} ms\n", name, milliseconds);
  };
  double total = 0;
  for (const StageTime &stage : times) {
    print(stage.name, stage.milliseconds);
    total += stage.milliseconds;
  }
  print("in all", total);
  return text;
}

/// What to write, and where.
struct Output {
  std::string path;
  std::string bytes;
  /// The tables of --explain and --time.
  std::string tables;
};

static int write(const Output &out) {
  bool takesStandardOutput = out.path == "-";
  if (!out.path.empty())
    if (llvm::Error error = writeFile(out.path, out.bytes))
      return refuse(llvm::toString(std::move(error)));
  if (takesStandardOutput)
    llvm::errs() << out.tables;
  else if (!out.tables.empty())
    if (llvm::Error error = writeFile("-", out.tables))
      return refuse(llvm::toString(std::move(error)));
  return 0;
}

static int run(llvm::SourceMgr &source, MLIRContext &context,
               const CompileOptions &options, const std::string &path,
               llvm::json::Array layouts) {
  Explanation form = explainStep;
  bool times = timeStages;
  Output out{path, "", ""};
  if (interfaceOnly) {
    FailureOr<std::string> interface = readInterface(source, &context);
    if (failed(interface))
      return 1;
    out.bytes = std::move(*interface);
    if (out.path.empty())
      out.path = "-";
    return write(out);
  }
  FailureOr<CompileResult> result = compile(source, &context, options);
  if (failed(result))
    return 1;
  result->explanation["layouts"] = std::move(layouts);
  if (form == Explanation::Json)
    out.tables = toText(std::move(result->explanation));
  else if (form == Explanation::Text)
    out.tables = explainAsText(std::move(result->explanation));
  if (times)
    out.tables += formatTimes(result->times);
  bool isPackage = options.stopAfter == Stage::Package;
  out.bytes = isPackage ? std::move(result->package) : std::move(result->ir);
  if (out.path.empty() && !isPackage)
    out.path = "-";
  return write(out);
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  static constexpr char overview[] =
      "stepc: compiles the definition of an optimizer to a package\n\n"
      "  stepc adamw.mlir -o adamw.stepc\n"
      "  stepc adamw.mlir --param=bf16 --grad=bf16 --state=f32 -o adamw.stepc\n"
      "  stepc sgd.mlir --option=nesterov=true --explain -o sgd.stepc\n"
      "  stepc adamw.mlir --fragment=clip_by_norm.mlir -o adamw.stepc\n"
      "  stepc adafactor.mlir --layout=fsdp2 -o adafactor.stepc\n"
      "  stepc adafactor.mlir --layout=model.json --explain\n"
      "  stepc adamw.mlir --compile-to=schedule\n";
  if (!cl::ParseCommandLineOptions(argc, argv, overview, &llvm::errs()))
    return 2;
  if (llvm::StringRef message = checkUsage(); !message.empty())
    return refuse(message, 2);

  // All options are read before anything is compiled: the linker, a library in
  // this process, resets them.
  CompileOptions options;
  if (llvm::Error error = readTargetOptions(options))
    return refuse(llvm::toString(std::move(error)), 2);
  options.stopAfter = compileTo;
  options.dumpDirectory = dumpDirectory;
  options.explains = explainStep != Explanation::None;
  options.reproducible = reproducible;
  options.exclusiveWrites = exclusiveWrites;
  std::string path = output;
  llvm::json::Array layouts;
  if (llvm::Error error = readRequests(options.variants, layouts))
    return refuse(llvm::toString(std::move(error)), 2);

  std::vector<std::string> paths = {input};
  llvm::append_range(paths, fragments);
  std::string message;
  llvm::SourceMgr source;
  for (const std::string &file : paths) {
    auto buffer = openInputFile(file, &message);
    if (!buffer)
      return refuse(message);
    source.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  }
  DialectRegistry registry;
  registerDialects(registry);
  registerTranslations(registry);
  // One definition is no work for several threads, and starting them takes
  // long.
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  // Messages say where in the definition; the IR of the stage is --dump-dir's.
  context.printOpOnDiagnostic(false);
  SourceMgrDiagnosticHandler handler(source, &context);
  // What has no place in the definition, as a file that cannot be written.
  ScopedDiagnosticHandler plain(&context, [](Diagnostic &diagnostic) {
    if (!isa<UnknownLoc>(diagnostic.getLocation()))
      return failure();
    refuse(diagnostic.str());
    return success();
  });
  return run(source, context, options, path, std::move(layouts));
}
