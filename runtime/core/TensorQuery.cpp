//===- TensorQuery.cpp - what a tensor is that is asked about -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/TensorQuery.h"

#include "core/StateCodes.h"
#include "core/Status.h"
#include "core/TensorView.h"

#include "stepc/codes.h"

#include <cstddef>

using namespace stepc;

namespace {

/// Checks one query.
class QueryReader {
public:
  QueryReader(const Manifest &manifest, const StepcTensorQuery &given,
              TensorQuery &query)
      : manifest(manifest), given(given), query(query),
        name(query.name.c_str()) {}

  void run();

private:
  void readOptions();
  void readShape();
  void readRange();
  void readPart();
  void readRequest();
  void readCoded();
  Storage requireType(DLDataType type, const char *what) const;

  const Manifest &manifest;
  const StepcTensorQuery &given;
  TensorQuery &query;
  const char *name;
  int64_t elements = 0;
};

} // namespace

/// Those that stepcInterfaceResolve gives.
void QueryReader::readOptions() {
  size_t size = manifest.options.size();
  if (size && !given.options)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s has no values of the %zu options of optimizer '%s'", name,
         size, manifest.optimizer.c_str());
  query.options.assign(given.options, given.options + size);
  for (size_t i = 0; i < size; ++i)
    if (!manifest.options[i].integer && query.options[i] != 0 &&
        query.options[i] != 1)
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: option '%s' is %lld, neither 0 nor 1", name,
           manifest.options[i].name.c_str(),
           static_cast<long long>(query.options[i]));
}

void QueryReader::readShape() {
  int32_t rank = given.ndim;
  if (rank < 0 || (rank > 0 && !given.shape))
    fail(STEPC_INVALID_ARGUMENT, "tensor %s has rank %d and %s shape", name,
         int(rank), given.shape ? "a" : "no");
  if (rank > kMaxRank)
    fail(STEPC_SHAPE_MISMATCH, "tensor %s has rank %d, the most is %d", name,
         int(rank), kMaxRank);
  elements = countElements(given.shape, rank);
  if (elements < 0)
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s has shape %s, which no memory can hold", name,
         describeShape(given.shape, rank).c_str());
  query.layout.shape.assign(given.shape, given.shape + rank);
  query.layout.dimAxes.assign(size_t(rank), 0);
}

void QueryReader::readRange() {
  if (given.shardedDims || given.part)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s has a range of elements and %s as well", name,
         given.part ? "a part" : "dims that ranks share");
  if (given.begin < 0 || given.begin > given.end || given.end > elements)
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s: elements from %lld to %lld are not inside the %lld of "
         "shape %s",
         name, static_cast<long long>(given.begin),
         static_cast<long long>(given.end), static_cast<long long>(elements),
         describeShape(given.shape, given.ndim).c_str());
  query.layout.flat = true;
  query.layout.flatAxes = 1;
  query.layout.begin = given.begin;
  query.layout.end = given.end;
  query.extents = {given.end - given.begin};
}

void QueryReader::readPart() {
  int32_t rank = given.ndim;
  if (rank < kMaxRank && given.shardedDims >> rank)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: shardedDims names a dim beyond the %d of its shape", name,
         int(rank));
  const int64_t *part = given.part ? given.part : given.shape;
  query.extents.assign(part, part + rank);
  for (int32_t i = 0; i < rank; ++i) {
    query.layout.dimAxes[size_t(i)] = given.shardedDims >> i & 1;
    bool isCut = query.layout.dimAxes[size_t(i)];
    if (part[i] < 0 || part[i] > given.shape[i] ||
        (!isCut && part[i] != given.shape[i]))
      fail(STEPC_SHAPE_MISMATCH,
           "tensor %s: a part of shape %s is not one of shape %s that ranks "
           "share",
           name, describeShape(part, rank).c_str(),
           describeShape(given.shape, rank).c_str());
  }
  // One of nothing may begin anywhere.
  int64_t size = countElements(part, rank);
  if (size && (given.begin < 0 || given.begin > elements - size))
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s: a part of %lld elements from %lld on is not inside the "
         "%lld of shape %s",
         name, static_cast<long long>(size),
         static_cast<long long>(given.begin), static_cast<long long>(elements),
         describeShape(given.shape, rank).c_str());
  query.layout.begin = size ? given.begin : 0;
}

Storage QueryReader::requireType(DLDataType type, const char *what) const {
  Storage storage;
  if (!getStorage(type, storage))
    fail(STEPC_DTYPE_MISMATCH,
         "tensor %s: %s has dtype %s, known are f32, f64, bf16 and f16", name,
         what, describe(type).c_str());
  return storage;
}

void QueryReader::readCoded() {
  const size_t size = given.structSize;
  const bool hasFormats =
      size > offsetof(StepcTensorQuery, formats) && given.formats;
  const bool hasLeast = size > offsetof(StepcTensorQuery, least) && given.least;
  for (int64_t k = 0; k < given.numCoded; ++k) {
    if (!given.coded || !given.coded[k])
      fail(STEPC_INVALID_ARGUMENT, "tensor %s: coded state %lld has no name",
           name, static_cast<long long>(k));
    const std::string state =
        "tensor " + std::string(name) + ": state '" + given.coded[k] + "'";
    int64_t least = hasLeast ? given.least[k] : 0;
    if (least < 0)
      fail(STEPC_INVALID_ARGUMENT, "%s is coded from %lld elements on",
           state.c_str(), static_cast<long long>(least));
    query.coded.push_back(
        {given.coded[k],
         &requireFormat(hasFormats ? given.formats[k] : STEPC_STATE_Q8, state),
         least ? least : kLeastCoded});
  }
}

void QueryReader::readRequest() {
  if (given.reserved != 0)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: a reserved field is %d, not 0",
         name, int(given.reserved));
  if (given.rounds != 0 && given.rounds != 1)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: rounds is %d, neither 0 nor 1",
         name, int(given.rounds));
  if (given.structSize > offsetof(StepcTensorQuery, coded))
    readCoded();
  if (!given.param.bits || manifest.variants.empty())
    return;
  VariantRequest &request = query.request.emplace();
  request.param = requireType(given.param, "parameter");
  request.grad =
      given.grad.bits ? requireType(given.grad, "gradient") : request.param;
  request.anyEntry = true;
  request.kept.emplace();
  request.kept->rounds = given.rounds;
  if (given.master)
    request.kept->master = given.master;
}

void QueryReader::run() {
  readOptions();
  readShape();
  if (given.flat != 0 && given.flat != 1)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: flat is %d, neither 0 nor 1", name,
         int(given.flat));
  if (given.flat)
    readRange();
  else
    readPart();
  readRequest();
}

TensorQuery stepc::makeQuery(const Manifest &manifest,
                             const StepcTensorQuery &given, int64_t index) {
  TensorQuery query;
  query.name =
      given.name ? "'" + std::string(given.name) + "'" : std::to_string(index);
  QueryReader(manifest, given, query).run();
  return query;
}
