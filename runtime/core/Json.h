//===- Json.h - JSON text as values ---------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A strict reader of RFC 8259 for manifests. It is our own because it has to
// survive running out of memory at any point, and any input: values nest at
// most 32 deep, no key comes twice in an object.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_JSON_H
#define STEPC_CORE_JSON_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepc {

struct Json {
  enum class Kind : uint8_t {
    Null,
    Boolean,
    /// A number written without fraction and exponent that fits 64 bits.
    Integer,
    Number,
    String,
    Array,
    Object
  };

  Kind kind = Kind::Null;
  bool boolean = false;
  int64_t integer = 0;
  /// Set for integers, too.
  double number = 0.0;
  std::string string;
  /// Of an array, or the values of an object.
  std::vector<Json> elements;
  std::vector<std::string> keys;
  /// Of an object, the places of its keys in their order.
  std::vector<size_t> sorted;

  bool is(Kind expected) const { return kind == expected; }

  /// The value of an object's key; null when there is none.
  const Json *find(std::string_view key) const;
};

/// Reads all of `text` as one value; false when it is none.
bool parseJson(std::string_view text, Json &out);

} // namespace stepc

#endif // STEPC_CORE_JSON_H
