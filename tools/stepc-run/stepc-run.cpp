//===- stepc-run.cpp - runs a definition or a package on tensors ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Definition.h"
#include "Execute.h"
#include "Zip.h"

#include "dialect/RandomBits.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace stepc::run;
using mlir::step::kMostSeed;
using mlir::step::reference::Mode;

static constexpr char overview[] =
    R"(Runs optimizer steps on tensors from files.

INPUT is a definition (.mlir), which is compiled first, or a package (.stepc).
With --interpret it is not compiled but interpreted: its meaning, operation by
operation. With --compare both are done, and every difference is reported.

Arrays are named "param" and "grad", and by the names of the states. A state that
is not given has its initial value. Names may begin with a prefix that ends in
"/", as "0/param", "0/grad", "1/param": then each prefix is a tensor of its own.
Elements are float16, float32 or float64, or uint16: numpy has no bf16, so an array of
uint16 holds the bits of one. The output has "param" and the states.

  stepc-run adamw.mlir --tensors=in.npz --hyper lr=0.01 -o out.npz
  stepc-run adamw.mlir --tensors=param=p.npy --tensors=grad=g.npy --compare
  stepc-run adamw.stepc --tensors=in.npz --count 7 --steps 3 -o out.npz

With --mode=bound the results of one step are intervals: "NAME:low" and "NAME:high"
of each array, "NAME:nan", 1 where it may be NaN, and "jumps", how many elements of
comparisons and signs there were, and how many of these could be either.

With --together the tensors are those of one model and step together. Then, and
for any definition that says something of the whole step, the output also has
"report:NAME" and "scalar:NAME", a number for each step or a row with one for each
group, and "step:skipped". An array "grad:K" is the gradient of step K, from 0.

With --batch, each line of a file is a case, a JSON object; the keys "input",
"fragments", "prefix", "rule", "hypers", "options", "count", "fresh", "steps",
"mode", "param", "grad" and "state" stand for the options of the command line, which
give the defaults:

  {"prefix": "0/", "hypers": {"lr": 0.01}, "options": {"amsgrad": true}}

A line can describe a model: "groups" is a list of objects with "hypers", "options"
and "scalars", "tensors" one of objects with "prefix" and "group", "rule", "count",
"fresh" (a boolean, or the names of the states that the first step creates),
"participates" (a boolean, or one for each step), "param", "grad" and "state". What
is said outside of these holds for each. "scalars" outside are the
model's.

  {"groups": [{"hypers": {"lr": 0.1}}, {}],
   "tensors": [{"prefix": "a/"}, {"prefix": "b/", "group": 1}]}

Exit status: 0; 1 where an input is refused or a comparison finds a difference;
2 for bad usage.
)";

static cl::OptionCategory category("Options of stepc-run");

static cl::opt<std::string> input(cl::Positional, cl::desc("INPUT"),
                                  cl::cat(category));
static cl::list<std::string>
    fragments("fragment",
              cl::desc("a file of fragments that come before the optimizer "
                       "(repeatable)"),
              cl::value_desc("FILE.mlir"), cl::cat(category));
static cl::list<std::string> tensors("tensors",
                                     cl::desc("arrays to work on (repeatable)"),
                                     cl::value_desc("FILE.npz|NAME=FILE.npy"),
                                     cl::cat(category));
static cl::opt<std::string> output("o", cl::desc("file for the results"),
                                   cl::value_desc("FILE.npz"),
                                   cl::cat(category));
static cl::opt<bool> interpretOnly("interpret", cl::desc("do not compile"),
                                   cl::cat(category));
static cl::opt<bool>
    compare("compare", cl::desc("compare compiled with interpreted results"),
            cl::cat(category));
static cl::opt<Mode>
    mode("mode", cl::desc("how to interpret"),
         cl::values(clEnumValN(Mode::Exact, "exact",
                               "to the bit as compiled code does (default)"),
                    clEnumValN(Mode::F64, "f64", "everything in f64"),
                    clEnumValN(Mode::Bound, "bound",
                               "the intervals in which results lie")),
         cl::init(Mode::Exact), cl::cat(category));
static cl::list<std::string> hypers("hyper",
                                    cl::desc("a hyper-parameter (repeatable)"),
                                    cl::value_desc("NAME=NUMBER"),
                                    cl::cat(category));
static cl::list<std::string> options("option",
                                     cl::desc("an option (repeatable)"),
                                     cl::value_desc("NAME=true|false|INTEGER"),
                                     cl::cat(category));
static cl::opt<std::string>
    rule("rule",
         cl::desc("the rule (default: the first that the parameter fits)"),
         cl::value_desc("NAME"), cl::cat(category));
static cl::opt<bool> together("together",
                              cl::desc("the tensors are of one model"),
                              cl::cat(category));
static cl::opt<int64_t>
    firstCount("count", cl::desc("number of the first step (default: 1)"),
               cl::init(1), cl::cat(category));
static cl::opt<int64_t> steps("steps", cl::value_desc("N"),
                              cl::desc("steps, with the same gradient "
                                       "(default: 1)"),
                              cl::init(1), cl::cat(category));
static cl::opt<cl::boolOrDefault>
    fresh("fresh",
          cl::desc("the first step creates the states, or none (default: "
                   "those that are not given)"),
          cl::cat(category));
static cl::opt<std::string> paramStorage(
    "param",
    cl::desc("storage type of the parameter: bf16, f16, f32 or f64; an "
             "array of another is rounded (default: the array's)"),
    cl::value_desc("TYPE"), cl::cat(category));
static cl::opt<std::string> gradStorage("grad", cl::value_desc("TYPE"),
                                        cl::desc("the same of the gradient"),
                                        cl::cat(category));
static cl::opt<std::string>
    stateStorage("state", cl::value_desc("TYPE|NAME:TYPE,..."),
                 cl::desc("the same of the states, of all or by name"),
                 cl::cat(category));
static cl::opt<std::string> masterForm(
    "master", cl::value_desc("f32|remainder"),
    cl::desc("how the f32 of a 16-bit parameter is kept (default: it "
             "is not)"),
    cl::cat(category));
static cl::opt<int64_t>
    roundingSeed("rounding-seed",
                 cl::desc("round what is stored as bf16 by random bits of this "
                          "seed (default: to nearest)"),
                 cl::value_desc("NUMBER"), cl::cat(category));
static cl::opt<std::string>
    batch("batch", cl::desc("run the cases in a file; - is standard input"),
          cl::value_desc("FILE.jsonl"), cl::cat(category));

[[noreturn]] static void refuseUsage(const Twine &message) {
  WithColor::error(errs(), "stepc-run") << message << "\n";
  std::exit(2);
}

/// The case that the command line describes.
static Case readCommandLine() {
  Case result;
  result.input = input;
  result.fragments.assign(fragments.begin(), fragments.end());
  result.mode = mode;
  result.steps = steps;
  result.tensor.rule = rule;
  result.tensor.count = firstCount;
  if (fresh != cl::BOU_UNSET)
    result.tensor.fresh = fresh == cl::BOU_TRUE;
  for (StringRef item : hypers) {
    auto [name, text] = item.split('=');
    if (text.getAsDouble(result.group.hypers[name.str()]))
      refuseUsage("--hyper " + item + ": expected NAME=NUMBER");
  }
  for (StringRef item : options) {
    auto [name, text] = item.split('=');
    mlir::step::reference::OptionValue &value =
        result.group.options[name.str()];
    int64_t integer;
    if (text == "true" || text == "false")
      value = text == "true";
    else if (!text.getAsInteger(10, integer))
      value = integer;
    else
      refuseUsage("--option " + item +
                  ": expected NAME=true, NAME=false or NAME=INTEGER");
  }
  if (!masterForm.empty()) {
    auto master = mlir::step::reference::parseMaster(masterForm);
    if (!master)
      refuseUsage("--master " + masterForm + ": expected f32 or remainder");
    result.tensor.master = *master;
  }
  if (roundingSeed.getNumOccurrences()) {
    if (roundingSeed < 0 || roundingSeed > kMostSeed)
      refuseUsage("--rounding-seed " + Twine(roundingSeed) +
                  ": expected an integer from 0 to " + Twine(kMostSeed));
    result.tensor.roundingSeed = roundingSeed;
  }
  for (auto [role, text] :
       {std::pair("param", &paramStorage), std::pair("grad", &gradStorage),
        std::pair("state", &stateStorage)})
    if (!text->empty())
      if (Error error = parseStorages(role, *text, result.tensor.storages))
        refuseUsage(toString(std::move(error)));
  return result;
}

/// One case for each prefix under which there is a param.
static std::vector<Case> findCases(const Case &defaults,
                                   const ArrayMap &arrays) {
  std::vector<Case> cases;
  for (const auto &[name, array] : arrays) {
    StringRef prefix = name;
    if (!prefix.consume_back("param") ||
        !(prefix.empty() || prefix.ends_with("/")))
      continue;
    cases.push_back(defaults);
    cases.back().prefix = prefix.str();
  }
  return cases;
}

/// One case of the tensors of several.
static Case joinCases(const Case &defaults, ArrayRef<Case> cases) {
  Case joined = defaults;
  for (const Case &one : cases) {
    joined.tensors.push_back(one.tensor);
    joined.tensors.back().prefix = one.prefix;
  }
  return joined;
}

static Expected<std::vector<Case>> findAllCases(const ArrayMap &arrays) {
  Case defaults = readCommandLine();
  if (!batch.empty()) {
    auto buffer = MemoryBuffer::getFileOrSTDIN(batch);
    if (!buffer)
      return makeError("cannot read '" + batch +
                       "': " + buffer.getError().message());
    return readBatch((*buffer)->getBuffer(), defaults);
  }
  std::vector<Case> cases = findCases(defaults, arrays);
  if (together && !cases.empty())
    cases = {joinCases(defaults, cases)};
  if (cases.empty())
    return makeError("array 'param' is not given");
  return cases;
}

/// Runs one case and adds its results, with the case's prefix. `equal` becomes
/// false where a comparison finds a difference.
static Error runCase(const Case &current, Definition &definition,
                     const ArrayMap &arrays, ArrayMap &results, bool &equal) {
  auto prepared = prepare(current, arrays, definition.getOptimizer());
  if (!prepared)
    return prepared.takeError();
  ArrayMap interpreted, compiled;
  if (interpretOnly || compare) {
    auto result = interpretCase(definition.getOptimizer(), *prepared);
    if (!result)
      return result.takeError();
    interpreted = std::move(*result);
  }
  if (!interpretOnly) {
    auto package = definition.getPackage(*prepared);
    if (!package)
      return package.takeError();
    auto result = launchCase(*package, *prepared);
    if (!result)
      return result.takeError();
    compiled = std::move(*result);
  }
  if (compare)
    equal &= compareResults(current.prefix, interpreted, compiled, outs());
  for (auto &[name, array] : interpretOnly ? interpreted : compiled)
    results[current.prefix + name] = std::move(array);
  return Error::success();
}

/// Runs everything; false where a comparison finds a difference.
static Expected<bool> run() {
  ArrayMap arrays, results;
  for (const std::string &argument : tensors)
    if (Error error = readArrays(argument, arrays))
      return error;
  Expected<std::vector<Case>> cases = findAllCases(arrays);
  if (!cases)
    return cases.takeError();

  mlir::DialectRegistry registry;
  registry.insert<mlir::step::StepDialect>();
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false);
  std::map<std::pair<std::string, std::vector<std::string>>,
           std::unique_ptr<Definition>>
      definitions;
  bool equal = true;
  for (const Case &current : *cases) {
    std::unique_ptr<Definition> &definition =
        definitions[{current.input, current.fragments}];
    if (!definition) {
      auto loaded = Definition::load(current.input, current.fragments, context);
      if (!loaded)
        return loaded.takeError();
      definition = std::move(*loaded);
    }
    if (Error error = runCase(current, *definition, arrays, results, equal))
      return makeError((current.prefix.empty() ? "" : current.prefix + ": ") +
                       toString(std::move(error)));
  }
  if (compare)
    outs() << cases->size() << (cases->size() == 1 ? " case: " : " cases: ")
           << (equal ? "no difference\n" : "differences\n");
  if (!output.empty())
    if (Error error = writeArrays(output, results))
      return error;
  return equal;
}

int main(int argc, char **argv) {
  cl::HideUnrelatedOptions(category);
  if (!cl::ParseCommandLineOptions(argc, argv, overview, &errs()))
    return 2;
  if (input.empty() && batch.empty())
    refuseUsage("no INPUT is given; see --help");
  if (interpretOnly && compare)
    refuseUsage("--interpret and --compare exclude each other");
  if (mode != Mode::Exact && !interpretOnly)
    refuseUsage(Twine("--mode=") + (mode == Mode::F64 ? "f64" : "bound") +
                " needs --interpret");
  if (output.empty() && !compare)
    refuseUsage("no -o FILE.npz is given");
  if (firstCount < 1)
    refuseUsage("--count=" + Twine(firstCount) + ": expected 1 or more");
  if (steps < 1)
    refuseUsage("--steps=" + Twine(steps) + ": expected 1 or more");
  Expected<bool> equal = run();
  if (!equal) {
    WithColor::error(errs(), "stepc-run")
        << toString(equal.takeError()) << "\n";
    return 1;
  }
  return *equal ? 0 : 1;
}
