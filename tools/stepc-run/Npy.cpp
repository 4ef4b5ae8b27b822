//===- Npy.cpp - arrays in .npy and .npz files ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Npy.h"

#include "Zip.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Endian.h"

#include <cstring>

using namespace llvm;
using namespace stepc::run;
using namespace mlir::step::reference;

static constexpr StringLiteral npyMagic("\x93NUMPY");

size_t stepc::run::getElementSize(Format storage) {
  switch (storage) {
  case Format::F16:
  case Format::BF16:
  case Format::I16:
    return 2;
  case Format::F32:
    return 4;
  case Format::F64:
    return 8;
  }
  llvm_unreachable("not a format");
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

template <typename ElementT>
static ElementT loadAs(const char *address) {
  ElementT element;
  std::memcpy(&element, address, sizeof(element));
  return element;
}

static double loadHalf(uint16_t bits) {
  return APFloat(APFloat::IEEEhalf(), APInt(16, bits)).convertToDouble();
}

/// A value that is an f16 already, or NaN.
static uint16_t storeHalf(double value) {
  APFloat half(value);
  bool losesInfo = false;
  half.convert(APFloat::IEEEhalf(), APFloat::rmNearestTiesToEven, &losesInfo);
  return static_cast<uint16_t>(half.bitcastToAPInt().getZExtValue());
}

static double loadElement(Format storage, const char *address) {
  switch (storage) {
  case Format::F16:
    return loadHalf(loadAs<uint16_t>(address));
  case Format::BF16:
    return bit_cast<float>(uint32_t(loadAs<uint16_t>(address)) << 16);
  case Format::F32:
    return loadAs<float>(address);
  case Format::F64:
    return loadAs<double>(address);
  case Format::I16:
    return loadAs<int16_t>(address);
  }
  llvm_unreachable("not a format");
}

static void storeElement(Format storage, double value, char *address) {
  // Exact but for the payload of NaNs, of which the upper half keeps the bit
  // that makes it one.
  float narrow = static_cast<float>(value);
  uint16_t upper = bit_cast<uint32_t>(narrow) >> 16;
  if (storage == Format::I16)
    upper = static_cast<uint16_t>(static_cast<int16_t>(value));
  if (storage == Format::F16)
    upper = storeHalf(value);
  if (getElementSize(storage) == 2)
    std::memcpy(address, &upper, sizeof(upper));
  else if (storage == Format::F32)
    std::memcpy(address, &narrow, sizeof(narrow));
  else
    std::memcpy(address, &value, sizeof(value));
}

StoredTensor stepc::run::toTensor(const Array &array) {
  StoredTensor stored{makeFilled(array.shape, 0.0), array.storage};
  size_t size = getElementSize(array.storage);
  for (auto [index, element] : enumerate(stored.tensor.elements))
    element = loadElement(array.storage, array.bytes.data() + index * size);
  return stored;
}

stepc::run::Array stepc::run::toArray(const Tensor &tensor, Format storage) {
  size_t size = getElementSize(storage);
  stepc::run::Array array{storage, tensor.shape,
                          std::string(tensor.elements.size() * size, 0)};
  for (auto [index, element] : enumerate(tensor.elements))
    storeElement(storage, roundTo(storage, element),
                 &array.bytes[index * size]);
  return array;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
/// The dictionary in a .npy file: `{'descr': '<f4', 'fortran_order': False,
/// 'shape': (2, 3), }`, with keys in any order.
class HeaderParser {
public:
  explicit HeaderParser(StringRef text) : text(text) {}

  Error parse() {
    expect("{");
    while (!failed && !accept("}")) {
      std::string key = parseString();
      expect(":");
      if (key == "descr")
        descr = parseString();
      else if (key == "fortran_order")
        fortranOrder = accept("True") || !expect("False");
      else if (key == "shape")
        parseShape();
      else
        failed = true;
      if (!accept(",") && !text.starts_with("}"))
        failed = true;
    }
    return failed ? makeError("has a header that is not numpy's")
                  : Error::success();
  }

  std::string descr;
  bool fortranOrder = false;
  Shape shape;

private:
  bool accept(StringRef token) {
    text = text.ltrim();
    bool found = text.consume_front(token);
    text = text.ltrim();
    return found;
  }
  bool expect(StringRef token) {
    bool found = accept(token);
    failed |= !found;
    return found;
  }
  std::string parseString() {
    expect("'");
    auto [word, rest] = text.split('\'');
    text = rest;
    return word.str();
  }
  void parseShape() {
    expect("(");
    while (!failed && !accept(")")) {
      int64_t extent = 0;
      failed |= text.consumeInteger(10, extent) || extent < 0;
      if (!accept(",") && !text.starts_with(")"))
        failed = true;
      if (!failed)
        shape.push_back(extent);
    }
  }

  StringRef text;
  bool failed = false;
};
} // namespace

/// True where an array of this shape has so many bytes. Multiplies with care:
/// extents come from a file.
static bool hasSize(ArrayRef<int64_t> shape, Format storage, uint64_t bytes) {
  if (is_contained(shape, 0))
    return bytes == 0;
  uint64_t size = getElementSize(storage);
  for (int64_t extent : shape) {
    if (uint64_t(extent) > bytes / size)
      return false;
    size *= extent;
  }
  return size == bytes;
}

/// Parses a .npy file. Errors start with a verb; the caller names the array.
static Expected<stepc::run::Array> parseNpy(StringRef bytes) {
  if (bytes.size() < 12 || !bytes.starts_with(npyMagic))
    return makeError("is not in numpy's .npy format");
  unsigned major = bytes[6];
  if (major < 1 || major > 3)
    return makeError("has version " + Twine(major) + " of the .npy format");
  // Since version 2 the header's length has four bytes.
  size_t length = major == 1 ? support::endian::read16le(bytes.data() + 8)
                             : support::endian::read32le(bytes.data() + 8);
  size_t start = major == 1 ? 10 : 12;
  if (bytes.size() - start < length)
    return makeError("is truncated");
  HeaderParser header(bytes.substr(start, length));
  if (Error error = header.parse())
    return error;

  auto storage = StringSwitch<std::optional<Format>>(header.descr)
                     .Case("<f2", Format::F16)
                     .Case("<u2", Format::BF16)
                     .Case("<i2", Format::I16)
                     .Case("<f4", Format::F32)
                     .Case("<f8", Format::F64)
                     .Default(std::nullopt);
  if (!storage)
    return makeError(
        "has dtype '" + header.descr +
        "', expected float16, float32, float64, uint16 for bf16, or int16 "
        "for remainders");
  if (header.fortranOrder && header.shape.size() > 1)
    return makeError("is in Fortran order; save numpy.ascontiguousarray of it");
  StringRef data = bytes.substr(start + length);
  if (!hasSize(header.shape, *storage, data.size()))
    return makeError("has shape " + toString(header.shape) + " and " +
                     Twine(data.size()) + " bytes of data");
  return stepc::run::Array{*storage, header.shape, data.str()};
}

static Error addArray(StringRef path, StringRef name, StringRef bytes,
                      ArrayMap &arrays) {
  Expected<stepc::run::Array> array = parseNpy(bytes);
  if (!array)
    return makeError("array '" + name + "' in '" + path + "' " +
                     toString(array.takeError()));
  if (!arrays.try_emplace(name.str(), std::move(*array)).second)
    return makeError("array '" + name + "' in '" + path +
                     "' is given a second time");
  return Error::success();
}

Error stepc::run::readArrays(StringRef argument, ArrayMap &arrays) {
  StringRef name, path = argument;
  if (!argument.ends_with(".npz")) {
    std::tie(name, path) = argument.split('=');
    if (name.empty() || path.empty())
      return makeError("'" + argument +
                       "' is neither FILE.npz nor NAME=FILE.npy");
  }
  auto buffer = readFile(path);
  if (!buffer)
    return buffer.takeError();
  if (!name.empty())
    return addArray(path, name, (*buffer)->getBuffer(), arrays);

  auto members = readZip((*buffer)->getBuffer());
  if (!members)
    return makeError("cannot read '" + path +
                     "': " + toString(members.takeError()));
  for (const auto &[member, bytes] : *members) {
    StringRef arrayName = member;
    arrayName.consume_back(".npy");
    if (Error error = addArray(path, arrayName, bytes, arrays))
      return error;
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// A .npy file of version 1.
static std::string formatNpy(const stepc::run::Array &array) {
  const char *descr = array.storage == Format::F16    ? "<f2"
                      : array.storage == Format::BF16 ? "<u2"
                      : array.storage == Format::I16  ? "<i2"
                      : array.storage == Format::F32  ? "<f4"
                                                      : "<f8";
  std::string shape;
  for (int64_t extent : array.shape)
    shape += std::to_string(extent) + ",";
  std::string header = std::string("{'descr': '") + descr +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The data start at a multiple of 64.
  size_t prefix = npyMagic.size() + 4;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes = npyMagic.str() + std::string("\1\0", 2);
  char length[2];
  support::endian::write16le(length, header.size());
  return bytes + std::string(length, 2) + header + array.bytes;
}

Error stepc::run::writeArrays(StringRef path, const ArrayMap &arrays) {
  std::map<std::string, std::string> members;
  for (const auto &[name, array] : arrays)
    members[name + ".npy"] = formatNpy(array);
  return writeZip(path, members);
}
