//===- LayoutFile.cpp - how the tensors of a model lie, from a file -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Files are JSON, read by LLVM's parser of YAML, of which JSON is a part: its
// nodes know their lines.
//
//===----------------------------------------------------------------------===//
#include "passes/bind/LayoutFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/YAMLParser.h"

using namespace mlir;
using namespace mlir::step;
namespace yaml = llvm::yaml;

namespace {
/// Reads one file. Once a function has returned false, `message` is what is
/// wrong with it.
class Reader {
public:
  explicit Reader(LayoutFile &file) : file(file) {}

  bool read(const llvm::MemoryBuffer &buffer);
  std::string message;

private:
  using Field = llvm::function_ref<bool(StringRef key, yaml::Node *value)>;

  bool fail(yaml::Node *node, const Twine &what);
  bool readFields(yaml::Node *node, StringRef what, Field read);
  bool readItems(yaml::Node *node, StringRef what,
                 llvm::function_ref<bool(yaml::Node *)> read);
  bool readText(yaml::Node *node, StringRef what, std::string &text);
  bool readNumber(yaml::Node *node, StringRef what, int64_t least,
                  int64_t &number);
  bool readMesh(yaml::Node *node);
  bool readAxes(yaml::Node *node, std::vector<std::string> &axes);
  bool readLayout(yaml::Node *node, AxesOfDims &layout);
  bool readGradient(yaml::Node *node);
  bool readDivisor(yaml::Node *node);
  bool readWire(yaml::Node *node);
  bool readTensor(yaml::Node *node);
  bool readField(StringRef key, yaml::Node *value);
  bool countFromEnd(yaml::Node *node, AxesOfDims &layout);
  bool checkTensor(yaml::Node *node);

  LayoutFile &file;
  StringRef text;
  yaml::Stream *stream = nullptr;
  /// The tensor that is read, and which of its layouts the file has said.
  TensorLayouts tensor;
  bool hasGrad = false, hasStates = false;
};
} // namespace

static std::string join(ArrayRef<std::string> names) {
  return llvm::join(names, ", ");
}

/// The first message counts.
static void note(const llvm::SMDiagnostic &diagnostic, void *context) {
  auto &message = *static_cast<std::string *>(context);
  if (message.empty())
    message =
        (diagnostic.getFilename() + ":" + Twine(diagnostic.getLineNo()) + ":" +
         Twine(diagnostic.getColumnNo() + 1) + ": " + diagnostic.getMessage())
            .str();
}

bool Reader::fail(yaml::Node *node, const Twine &what) {
  // What begins with a bracket is said to begin behind it.
  llvm::SMRange range = node->getSourceRange();
  const char *begin = range.Start.getPointer();
  if (llvm::isa<yaml::MappingNode, yaml::SequenceNode>(node) &&
      begin != text.begin() && (begin[-1] == '{' || begin[-1] == '['))
    range.Start = llvm::SMLoc::getFromPointer(begin - 1);
  stream->printError(range, what);
  return false;
}

/// Reads an object, each of whose keys comes once.
bool Reader::readFields(yaml::Node *node, StringRef what, Field read) {
  auto *object = llvm::dyn_cast_or_null<yaml::MappingNode>(node);
  if (!object)
    return fail(node, what + " is no object");
  llvm::StringSet<> seen;
  for (yaml::KeyValueNode &pair : *object) {
    std::string key;
    if (!readText(pair.getKey(), "a key of " + what.str(), key))
      return false;
    if (!seen.insert(key).second)
      return fail(pair.getKey(), what + " has '" + key + "' twice");
    if (!read(key, pair.getValue()))
      return false;
  }
  return !stream->failed();
}

bool Reader::readItems(yaml::Node *node, StringRef what,
                       llvm::function_ref<bool(yaml::Node *)> read) {
  auto *list = llvm::dyn_cast_or_null<yaml::SequenceNode>(node);
  if (!list)
    return fail(node, what + " is no list");
  for (yaml::Node &item : *list)
    if (!read(&item))
      return false;
  return !stream->failed();
}

bool Reader::readText(yaml::Node *node, StringRef what, std::string &text) {
  auto *scalar = llvm::dyn_cast_or_null<yaml::ScalarNode>(node);
  if (!scalar)
    return fail(node, what + " is no text");
  SmallString<32> storage;
  text = scalar->getValue(storage).str();
  return !stream->failed();
}

bool Reader::readNumber(yaml::Node *node, StringRef what, int64_t least,
                        int64_t &number) {
  std::string text;
  if (!readText(node, what, text))
    return false;
  if (StringRef(text).getAsInteger(10, number) || number < least)
    return fail(node, what + " is '" + text + "', no integer from " +
                          Twine(least) + " on");
  return true;
}

bool Reader::readMesh(yaml::Node *node) {
  return readFields(node, "'mesh'", [&](StringRef axis, yaml::Node *value) {
    if (axis.empty() || axis.find_first_of("+,;:=") != StringRef::npos)
      return fail(value, "'" + axis + "' is no name of an axis");
    int64_t size = 0;
    if (!readNumber(value, "the size of axis '" + axis.str() + "'", 1, size))
      return false;
    file.mesh.emplace_back(axis.str(), size);
    return true;
  });
}

/// "tp", "tp+cp", or a list of names.
bool Reader::readAxes(yaml::Node *node, std::vector<std::string> &axes) {
  auto add = [&](yaml::Node *place, StringRef name) {
    auto known = llvm::to_vector(llvm::make_first_range(file.mesh));
    if (!llvm::is_contained(known, name))
      return fail(place, "axis '" + name + "' is none of the mesh's: " +
                             (known.empty() ? "it has none" : join(known)));
    axes.push_back(name.str());
    return true;
  };
  std::string text;
  if (llvm::isa_and_nonnull<yaml::SequenceNode>(node))
    return readItems(node, "axes", [&](yaml::Node *item) {
      return readText(item, "an axis", text) && add(item, text);
    });
  if (!readText(node, "the axes", text))
    return false;
  SmallVector<StringRef> names;
  StringRef(text).split(names, '+');
  return llvm::all_of(names, [&](StringRef name) { return add(node, name); });
}

/// {"-2": "tp"}, {"flat": "dp"}; no axis twice.
bool Reader::readLayout(yaml::Node *node, AxesOfDims &layout) {
  layout.clear();
  llvm::StringSet<> seen;
  return readFields(node, "a layout", [&](StringRef key, yaml::Node *value) {
    int64_t dim = VariantRequest::kFlat;
    // Dims from the first are told apart from `flat` by an offset, until the
    // rank is known.
    if (key != "flat") {
      if (key.getAsInteger(10, dim) || dim < -64 || dim > 64)
        return fail(value, "dim '" + key + "' is neither flat nor a number");
      dim = dim < 0 ? dim : dim + 1;
    }
    if (!layout.empty() && (key == "flat" || layout.count(0)))
      return fail(value, "a layout is flat or shards dims");
    std::vector<std::string> axes;
    if (!readAxes(value, axes))
      return false;
    for (const std::string &axis : axes)
      if (!seen.insert(axis).second)
        return fail(value, "axis '" + axis + "' shards twice");
    if (!axes.empty())
      layout[dim] = std::move(axes);
    return true;
  });
}

bool Reader::readDivisor(yaml::Node *node) {
  std::string text;
  if (!readText(node, "'divisor'", text))
    return false;
  if (StringRef(text).getAsDouble(tensor.divisor) || !(tensor.divisor > 0) ||
      std::isinf(tensor.divisor))
    return fail(node, "'divisor' is '" + text + "', no number above 0");
  return true;
}

bool Reader::readWire(yaml::Node *node) {
  return readText(node, "'wire'", tensor.wire) &&
         (llvm::is_contained({"f32", "bf16", "f16", "f64"}, tensor.wire) ||
          fail(node,
               "'wire' is '" + tensor.wire + "', none of f32, bf16, f16, f64"));
}

/// {"partial": "dp", "divisor": 4, "divided": "before", "layout": {},
/// "wire": "bf16"}
bool Reader::readGradient(yaml::Node *node) {
  return readFields(node, "'gradient'", [&](StringRef key, yaml::Node *value) {
    if (key == "partial")
      return readAxes(value, tensor.partial);
    if (key == "divisor")
      return readDivisor(value);
    if (key == "layout") {
      hasGrad = true;
      return readLayout(value, tensor.grad);
    }
    if (key == "wire")
      return readWire(value);
    if (key != "divided")
      return fail(value, "'gradient' has '" + key +
                             "', which is none of partial, divisor, "
                             "divided, layout, wire");
    std::string when;
    if (!readText(value, "'divided'", when))
      return false;
    if (when != "before" && when != "after")
      return fail(value,
                  "'divided' is '" + when + "', neither before nor after");
    tensor.dividesBefore = when == "before";
    return true;
  });
}

bool Reader::readField(StringRef key, yaml::Node *value) {
  // Whose names it matches only the caller knows.
  if (key == "name")
    return readText(value, "'name'", tensor.name);
  if (key == "count")
    return readNumber(value, "'count'", 1, tensor.count);
  if (key == "rank")
    return readNumber(value, "'rank'", 1, tensor.rank);
  if (key == "shape")
    return readItems(value, "'shape'", [&](yaml::Node *item) {
      return readNumber(item, "an extent", 0, tensor.shape.emplace_back());
    });
  if (key == "param")
    return readLayout(value, tensor.param);
  if (key == "gradient")
    return readGradient(value);
  if (key == "states") {
    hasStates = true;
    return readLayout(value, tensor.states);
  }
  return fail(value, "a tensor has '" + key +
                         "', which is none of name, rank, shape, count, param, "
                         "gradient, states");
}

/// Dims of the layout as requests have them.
bool Reader::countFromEnd(yaml::Node *node, AxesOfDims &layout) {
  AxesOfDims counted;
  for (auto &[dim, axes] : layout) {
    if (dim > 0 && tensor.rank == 0)
      return fail(node, "dim " + Twine(dim - 1) +
                            " counts from the first, which needs a rank or a "
                            "shape");
    int64_t own = dim > 0 ? dim - 1 - tensor.rank : dim;
    if (tensor.rank && (own < -tensor.rank || (dim > 0 && own >= 0)))
      return fail(node, "dim " + Twine(dim > 0 ? dim - 1 : dim) +
                            " is none of a tensor of rank " +
                            Twine(tensor.rank));
    if (!counted.emplace(own, axes).second)
      return fail(node, "dim " + Twine(own) + " is there twice");
  }
  layout = std::move(counted);
  return true;
}

/// Whether what lies as `fine` says is a part of what lies as `coarse` says.
static bool isPartOf(const AxesOfDims &fine, const AxesOfDims &coarse) {
  bool isFlat = fine.count(VariantRequest::kFlat);
  if (!coarse.empty() && isFlat != bool(coarse.count(VariantRequest::kFlat)))
    return false;
  return llvm::all_of(coarse, [&](const auto &dim) {
    auto own = fine.find(dim.first);
    return own != fine.end() && own->second.size() >= dim.second.size() &&
           std::equal(dim.second.begin(), dim.second.end(),
                      own->second.begin());
  });
}

static bool hasAxis(const AxesOfDims &layout, StringRef axis) {
  return llvm::any_of(layout, [&](const auto &dim) {
    return llvm::is_contained(dim.second, axis);
  });
}

bool Reader::checkTensor(yaml::Node *node) {
  if (tensor.name.empty())
    return fail(node, "a tensor has no 'name'");
  if (!tensor.shape.empty()) {
    if (tensor.rank && tensor.rank != int64_t(tensor.shape.size()))
      return fail(node, "'rank' is " + Twine(tensor.rank) + ", 'shape' has " +
                            Twine(tensor.shape.size()) + " extents");
    tensor.rank = int64_t(tensor.shape.size());
  }
  if (!hasStates)
    tensor.states = tensor.param;
  if (!hasGrad)
    tensor.grad = tensor.param;
  for (AxesOfDims *layout : {&tensor.param, &tensor.grad, &tensor.states})
    if (!countFromEnd(node, *layout))
      return false;
  if (!isPartOf(tensor.states, tensor.param))
    return fail(node, "the states of '" + tensor.name +
                          "' do not lie as parts of what ranks have of the "
                          "parameter");
  if (tensor.grad != tensor.param && tensor.grad != tensor.states)
    return fail(node, "the gradient of '" + tensor.name +
                          "' lies neither as the parameter nor as the states");
  for (const std::string &axis : tensor.partial)
    if (hasAxis(tensor.grad, axis))
      return fail(node, "the gradient of '" + tensor.name +
                            "' is cut and partial over axis '" + axis + "'");
  std::vector<std::string> own = tensor.getWhole();
  int64_t both = llvm::count_if(own, [&](const std::string &axis) {
    return llvm::is_contained(tensor.partial, axis);
  });
  if (both != 0 && both != int64_t(own.size()))
    return fail(node, "the gradient of '" + tensor.name +
                          "' is partial over some of the axes that cut the "
                          "states alone, " +
                          join(own) + ", and not over all");
  if (!tensor.wire.empty() && tensor.partial.empty())
    return fail(node, "the gradient of '" + tensor.name +
                          "' has a wire and is not partial");
  return true;
}

bool Reader::readTensor(yaml::Node *node) {
  tensor = {};
  hasGrad = hasStates = false;
  bool good = readFields(node, "a tensor",
                         [&](StringRef key, yaml::Node *value) {
                           return readField(key, value);
                         }) &&
              checkTensor(node);
  file.tensors.push_back(std::move(tensor));
  return good;
}

bool Reader::read(const llvm::MemoryBuffer &buffer) {
  llvm::SourceMgr sources;
  sources.setDiagHandler(note, &message);
  yaml::Stream own(buffer.getMemBufferRef(), sources, /*ShowColors=*/false);
  stream = &own;
  text = buffer.getBuffer();
  yaml::Node *root = own.begin()->getRoot();
  bool hasMesh = false;
  if (own.failed())
    return false;
  bool good =
      readFields(root, "the file", [&](StringRef key, yaml::Node *value) {
        if (key == "mesh")
          return hasMesh = true, readMesh(value);
        if (key != "tensors")
          return fail(value, "the file has '" + key +
                                 "', which is neither mesh nor tensors");
        if (!hasMesh)
          return fail(value, "'tensors' comes before 'mesh', whose axes it "
                             "names");
        return readItems(value, "'tensors'",
                         [&](yaml::Node *item) { return readTensor(item); });
      });
  if (good && !hasMesh)
    return fail(root, "the file has no 'mesh'");
  if (good && file.tensors.empty())
    return fail(root, "the file has no 'tensors'");
  return good;
}

std::vector<std::string> TensorLayouts::getAxesOfStatesAlone() const {
  std::vector<std::string> found;
  for (const auto &dim : states)
    llvm::copy_if(
        dim.second, std::back_inserter(found),
        [&](const std::string &axis) { return !hasAxis(param, axis); });
  return found;
}

std::vector<std::string> TensorLayouts::getWhole() const {
  return grad == param ? getAxesOfStatesAlone() : std::vector<std::string>();
}

int64_t LayoutFile::countRanks(ArrayRef<std::string> axes) const {
  int64_t ranks = 1;
  for (const auto &[name, size] : mesh)
    ranks *= llvm::is_contained(axes, name) ? size : 1;
  return ranks;
}

bool mlir::step::isLayoutFile(StringRef text) {
  return text.ends_with(".json");
}

llvm::Expected<LayoutFile> mlir::step::readLayoutFile(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer)
    return llvm::createStringError("cannot read '" + path +
                                   "': " + buffer.getError().message());
  LayoutFile file;
  file.path = path.str();
  Reader reader(file);
  if (!reader.read(**buffer))
    return llvm::createStringError(reader.message);
  return file;
}

void mlir::step::addLayouts(const LayoutFile &file, const VariantRequest &base,
                            std::vector<VariantRequest> &requests) {
  for (const TensorLayouts &tensor : file.tensors) {
    VariantRequest request = base;
    request.layout = tensor.states;
    request.rank = tensor.states.empty() ? 0 : tensor.rank;
    request.whole = tensor.getWhole();
    request.partial = tensor.partial;
    request.wire = tensor.wire;
    bool known = llvm::any_of(requests, [&](const VariantRequest &other) {
      return other.str() == request.str();
    });
    if (!known)
      requests.push_back(std::move(request));
  }
}
