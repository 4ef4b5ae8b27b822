//===- TransferCut.cpp - buckets, and which parts ranks step --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/StateCodes.h"
#include "core/Status.h"
#include "core/Transfers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <new>
#include <numeric>
#include <utility>

using namespace stepc;

namespace {

/// Puts tensors into buckets and cuts these.
class TensorCutter {
public:
  TensorCutter(const Mesh &mesh, BucketSizes bytes)
      : mesh(mesh), bytes(bytes) {}

  std::vector<TransferBucket> fill(const std::vector<EntryTensor> &created,
                                   const std::vector<EntryTerms> &terms) const;
  void cut(TransferBucket &bucket, const std::vector<int64_t> &ownersOf,
           std::vector<EntryTensor> &created) const;
  std::vector<int64_t> chooseOwners(const std::vector<EntryTensor> &created,
                                    const std::vector<EntryTerms> &terms,
                                    Owners &chosen) const;

private:
  const Mesh &mesh;
  BucketSizes bytes;
};

} // namespace

int64_t
TransferBucket::countElements(const std::vector<EntryTensor> &tensors) const {
  int64_t elements = 0;
  for (size_t member : members)
    if (__builtin_add_overflow(elements, tensors[member].elements, &elements) ||
        elements > INT64_MAX / 64)
      throw std::bad_alloc();
  return elements;
}

/// Tensors of equal terms, in their order, of at most so many bytes together.
/// A bucket is as late as its last tensor, in whose order gradients come.
std::vector<TransferBucket>
TensorCutter::fill(const std::vector<EntryTensor> &created,
                   const std::vector<EntryTerms> &terms) const {
  std::vector<TransferBucket> made;
  std::vector<std::pair<size_t, int64_t>> open; // buckets, and their bytes
  for (size_t i = 0; i < created.size(); ++i) {
    const EntryTerms &own = terms[i];
    // Of what is not reduced the parameters alone cross.
    int64_t size = created[i].elements *
                   getByteSize(own.partialAxes ? own.wire : own.param);
    auto found = std::find_if(open.begin(), open.end(), [&](auto &entry) {
      return made[entry.first].terms == own;
    });
    if (found != open.end() && found->second + size > bytes.gradients)
      found = open.erase(found), found = open.end();
    if (found == open.end()) {
      open.push_back({made.size(), 0});
      found = open.end() - 1;
      made.emplace_back().terms = own;
    }
    made[found->first].members.push_back(i);
    found->second += size;
  }
  std::stable_sort(made.begin(), made.end(), [](auto &left, auto &right) {
    return left.members.back() < right.members.back();
  });
  return made;
}

/// For each tensor its owner's place along wholeAxes; -1: it has none.
std::vector<int64_t>
TensorCutter::chooseOwners(const std::vector<EntryTensor> &created,
                           const std::vector<EntryTerms> &terms,
                           Owners &chosen) const {
  std::map<std::pair<uint64_t, uint64_t>, std::vector<size_t>> owned;
  for (size_t i = 0; i < created.size(); ++i)
    if (terms[i].owned)
      owned[{terms[i].wholeAxes, terms[i].getReduceAxes()}].push_back(i);
  std::vector<int64_t> all(created.size(), -1);
  for (const auto &[axes, list] : owned) {
    std::vector<double> costs;
    std::vector<int64_t> given;
    for (size_t i : list) {
      costs.push_back(created[i].cost);
      given.push_back(created[i].owner);
    }
    std::vector<int64_t> found =
        chosen.choose(axes, costs, given, mesh.getGroupSize(axes.first));
    for (size_t k = 0; k < list.size(); ++k)
      all[list[k]] = found[k];
  }
  return all;
}

/// Which elements of its members this rank steps.
void TensorCutter::cut(TransferBucket &bucket,
                       const std::vector<int64_t> &ownersOf,
                       std::vector<EntryTensor> &created) const {
  const EntryTerms &terms = bucket.terms;
  int64_t size = mesh.getGroupSize(terms.wholeAxes);
  auto rank = size_t(mesh.getGroupRank(terms.wholeAxes));
  std::vector<int64_t> sizes;
  for (size_t member : bucket.members)
    sizes.push_back(created[member].elements);
  std::vector<Cuts> lines = cutLine(sizes, size);
  for (size_t k = 0; k < bucket.members.size(); ++k) {
    EntryTensor &tensor = created[bucket.members[k]];
    if (terms.owned)
      lines[k] = giveWhole(sizes[k], ownersOf[bucket.members[k]], size);
    else if (terms.rows)
      lines[k] =
          cutRows(tensor.shape[0],
                  std::accumulate(tensor.shape.begin() + 1, tensor.shape.end(),
                                  int64_t(1), std::multiplies<int64_t>()),
                  size);
    else if (tensor.codedColumns)
      alignCuts(tensor.codedColumns, kCodeBlock, lines[k]);
    tensor.cuts = lines[k];
    tensor.begin = tensor.cuts[rank];
    tensor.end = tensor.cuts[rank + 1];
    tensor.ownElements = tensor.end - tensor.begin;
    tensor.elsewhere =
        terms.owned && ownersOf[bucket.members[k]] != int64_t(rank);
    bucket.ownElements += tensor.end - tensor.begin;
  }
}

BucketSizes stepc::makeBucketSizes(int64_t gradients, int64_t parameters,
                                   int64_t underWay) {
  BucketSizes made;
  for (auto [given, own] : {std::pair(gradients, &made.gradients),
                            std::pair(parameters, &made.parameters)}) {
    if (given < 0)
      fail(STEPC_INVALID_ARGUMENT, "a bucket has %lld bytes, which is negative",
           static_cast<long long>(given));
    if (given)
      *own = given;
  }
  if (underWay < 0)
    fail(STEPC_INVALID_ARGUMENT,
         "%lld buckets are to be under way, which is negative",
         static_cast<long long>(underWay));
  if (underWay)
    made.underWay = underWay;
  return made;
}

NewTransfers stepc::cutTensors(const Mesh &mesh, BucketSizes bytes,
                               const Owners &before, size_t firstBucket,
                               std::vector<EntryTensor> created,
                               const std::vector<EntryTerms> &terms) {
  TensorCutter cutter(mesh, bytes);
  NewTransfers made;
  made.owners = before;
  made.tensors = std::move(created);
  std::vector<int64_t> ownersOf =
      cutter.chooseOwners(made.tensors, terms, made.owners);
  made.buckets = cutter.fill(made.tensors, terms);
  for (size_t b = 0; b < made.buckets.size(); ++b) {
    TransferBucket &bucket = made.buckets[b];
    bucket.countElements(made.tensors); // in range
    cutter.cut(bucket, ownersOf, made.tensors);
    for (size_t member : bucket.members)
      made.tensors[member].bucket = firstBucket + b;
  }
  return made;
}
