//===- FieldReader.cpp - checked access to JSON values ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/FieldReader.h"

#include "core/Status.h"

#include "stepc/kernel_abi.h"

#include <algorithm>

using namespace stepc;

std::string stepc::at(const std::string &where, size_t i) {
  return where + "[" + std::to_string(i) + "]";
}

std::string stepc::at(const std::string &where, const char *key) {
  return where.empty() ? key : where + "." + key;
}

std::string FieldReader::describeFile() const {
  return file ? "package '" + std::string(file) + "'" : "the interface";
}

void FieldReader::bad(const std::string &where, const char *what) const {
  fail(STEPC_CORRUPT_PACKAGE, "%s is corrupt: %s'%s' %s",
       describeFile().c_str(), file ? "manifest.json: " : "", where.c_str(),
       what);
}

const Json &FieldReader::get(const Json &object, const char *key,
                             const std::string &where) const {
  const Json *found = object.find(key);
  if (!found)
    bad(at(where, key), "is missing");
  return *found;
}

const Json &FieldReader::getArray(const Json &object, const char *key,
                                  const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Array))
    bad(at(where, key), "is not a list");
  return value;
}

const Json &FieldReader::getObject(const Json &object, const char *key,
                                   const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Object))
    bad(at(where, key), "is not an object");
  return value;
}

std::string FieldReader::getString(const Json &object, const char *key,
                                   const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::String) || value.string.empty())
    bad(at(where, key), "is not a string, or empty");
  return value.string;
}

double FieldReader::getNumber(const Json &object, const char *key,
                              const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Number) && !value.is(Json::Kind::Integer))
    bad(at(where, key), "is not a number");
  return value.number;
}

bool FieldReader::getBool(const Json &object, const char *key,
                          const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Boolean))
    bad(at(where, key), "is not true or false");
  return value.boolean;
}

int64_t FieldReader::getInteger(const Json &object, const char *key,
                                const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Integer))
    bad(at(where, key), "is not an integer");
  return value.integer;
}

size_t FieldReader::getIndex(const Json &object, const char *key, size_t limit,
                             const char *what, const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Integer) || value.integer < 0 ||
      uint64_t(value.integer) >= limit)
    bad(at(where, key), what);
  return size_t(value.integer);
}

std::vector<size_t> FieldReader::getIndices(const Json &object, const char *key,
                                            size_t limit, const char *what,
                                            const std::string &where) const {
  std::vector<size_t> indices;
  for (const Json &element : getArray(object, key, where).elements) {
    std::string place = at(at(where, key), indices.size());
    if (!element.is(Json::Kind::Integer) || element.integer < 0 ||
        uint64_t(element.integer) >= limit)
      bad(place, what);
    size_t index = size_t(element.integer);
    if (std::count(indices.begin(), indices.end(), index))
      bad(place, "comes twice");
    indices.push_back(index);
  }
  return indices;
}

Predicate FieldReader::getPredicate(const Json &object,
                                    const std::string &where) const {
  std::string name = getString(object, "predicate", where);
  for (Predicate predicate : {Predicate::EQ, Predicate::NE, Predicate::LT,
                              Predicate::LE, Predicate::GT, Predicate::GE})
    if (name == getName(predicate))
      return predicate;
  bad(at(where, "predicate"), "is not a predicate");
}

Scope FieldReader::getScope(const Json &object,
                            const std::string &where) const {
  std::string name = getString(object, "scope", where);
  if (name != "model" && name != "group")
    bad(at(where, "scope"), "is neither model nor group");
  return name == "model" ? Scope::Model : Scope::Group;
}

/// `*` alone, or at most `...` and four more.
Dims FieldReader::getDims(const Json &object, const std::string &where) const {
  Dims dims;
  for (const Json &element : getArray(object, "dims", where).elements) {
    if (!element.is(Json::Kind::String) || element.string.empty())
      bad(at(where, "dims"), "has an element that is not a string, or empty");
    dims.push_back(element.string);
  }
  bool leading = !dims.empty() && dims[0].rfind("...", 0) == 0;
  if (dims.size() > size_t(leading) + STEPC_NAMED_DIMS_MOST)
    bad(at(where, "dims"), "has more than four dims besides leading ones");
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == "*" && dims.size() > 1)
      bad(at(where, "dims"), "has '*' beside other dims");
    if (i > 0 && dims[i].rfind("...", 0) == 0)
      bad(at(where, "dims"), "has leading dims that do not stand first");
  }
  return dims;
}
