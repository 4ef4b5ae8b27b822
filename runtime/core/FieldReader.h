//===- FieldReader.h - checked access to JSON values --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads the fields of a manifest's objects and says where in it something is
// wrong. Nothing is coerced: a number where a string belongs is an error.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_FIELDREADER_H
#define STEPC_CORE_FIELDREADER_H

#include "core/Json.h"
#include "core/Manifest.h"

#include <string>
#include <vector>

namespace stepc {

class FieldReader {
public:
  /// `file` is the package's; null: of the text of an interface.
  explicit FieldReader(const char *file) : file(file) {}

  /// "package 'x.stepc'"
  std::string describeFile() const;

  [[noreturn]] void bad(const std::string &where, const char *what) const;
  const Json &get(const Json &object, const char *key,
                  const std::string &where) const;
  const Json &getArray(const Json &object, const char *key,
                       const std::string &where) const;
  const Json &getObject(const Json &object, const char *key,
                        const std::string &where) const;
  std::string getString(const Json &object, const char *key,
                        const std::string &where) const;
  double getNumber(const Json &object, const char *key,
                   const std::string &where) const;
  bool getBool(const Json &object, const char *key,
               const std::string &where) const;
  int64_t getInteger(const Json &object, const char *key,
                     const std::string &where) const;
  /// An integer from 0 to `limit` - 1; `what` names its range.
  size_t getIndex(const Json &object, const char *key, size_t limit,
                  const char *what, const std::string &where) const;
  /// A list of such integers, none of them twice.
  std::vector<size_t> getIndices(const Json &object, const char *key,
                                 size_t limit, const char *what,
                                 const std::string &where) const;
  Predicate getPredicate(const Json &object, const std::string &where) const;
  Scope getScope(const Json &object, const std::string &where) const;
  Dims getDims(const Json &object, const std::string &where) const;

private:
  const char *file;
};

/// "a[3]" and "a.b": places in a manifest.
std::string at(const std::string &where, size_t i);
std::string at(const std::string &where, const char *key);

/// The index of what has this name, or the size of the list.
template <typename T>
size_t findName(const std::vector<T> &list, const std::string &name) {
  size_t i = 0;
  while (i < list.size() && list[i].name != name)
    ++i;
  return i;
}

/// Whether two elements have one name.
template <typename T>
bool hasTwins(const std::vector<T> &list) {
  for (size_t i = 0; i < list.size(); ++i)
    if (findName(list, list[i].name) != i)
      return true;
  return false;
}

} // namespace stepc

#endif // STEPC_CORE_FIELDREADER_H
