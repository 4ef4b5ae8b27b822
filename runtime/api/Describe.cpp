//===- Describe.cpp - the C ABI: what tensors would get -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stepc/describe.h"
#include "core/Cuts.h"
#include "core/Description.h"
#include "core/Groups.h"
#include "core/Status.h"
#include "core/StructList.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

using namespace stepc;

struct StepcInterface {
  std::shared_ptr<const Interface> interface;
};

namespace {

/// What the caller gets; what it points to is behind it.
struct OwnedDescription : StepcDescription {
  explicit OwnedDescription(std::shared_ptr<const Interface> interface)
      : StepcDescription{}, content(std::move(interface)) {}

  Description content;
};

} // namespace

StepcStatus stepcInterfaceLoad(const char *json, size_t size,
                               StepcInterface **out) {
  return guarded([&] {
    requireNotNull(json, "json");
    requireNotNull(out, "out");
    auto made = std::make_unique<StepcInterface>();
    made->interface =
        std::make_shared<const Interface>(std::string_view(json, size));
    *out = made.release();
  });
}

void stepcInterfaceDestroy(StepcInterface *interface) { delete interface; }

StepcStatus stepcInterfaceResolve(const StepcInterface *interface,
                                  const StepcOption *options,
                                  int64_t numOptions, const double *hypers,
                                  int64_t numHypers, int64_t *outValues) {
  return guarded([&] {
    requireNotNull(interface, "interface");
    const Manifest &manifest = interface->interface->getManifest();
    std::vector<int64_t> values = makeOptions(
        manifest, makeHypers(manifest, hypers, numHypers), options, numOptions);
    if (!values.empty())
      requireNotNull(outValues, "outValues");
    std::copy(values.begin(), values.end(), outValues);
  });
}

StepcStatus stepcInterfaceDescribe(const StepcInterface *interface,
                                   const StepcTensorQuery *queries, int64_t n,
                                   const StepcDescription **out) {
  return guarded([&] {
    requireNotNull(interface, "interface");
    requireNotNull(out, "out");
    if (n < 0 || (n > 0 && !queries))
      fail(STEPC_INVALID_ARGUMENT, "%lld tensors were asked about%s",
           static_cast<long long>(n), n < 0 ? "" : ", without a list");
    auto made = std::make_unique<OwnedDescription>(interface->interface);
    const Manifest &manifest = interface->interface->getManifest();
    StructList<StepcTensorQuery> list(queries, n,
                                      offsetof(StepcTensorQuery, coded),
                                      "StepcTensorQuery", "query");
    for (int64_t i = 0; i < n; ++i) {
      list.require(i, std::to_string(i));
      made->content.add(makeQuery(manifest, list[i], i));
    }
    made->structSize = sizeof(StepcDescription);
    made->numTensors = n;
    made->tensors = made->content.getTensors();
    *out = made.release();
  });
}

StepcStatus stepcChooseOwners(const double *costs, int64_t n, int64_t numRanks,
                              double *loads, int64_t *outOwners) {
  return guarded([&] {
    if (n < 0 || (n > 0 && (!costs || !outOwners)))
      fail(STEPC_INVALID_ARGUMENT, "%lld tensors are to have owners%s",
           static_cast<long long>(n), n < 0 ? "" : ", without a list");
    if (numRanks < 1)
      fail(STEPC_INVALID_ARGUMENT, "%lld ranks are to own tensors",
           static_cast<long long>(numRanks));
    auto require = [](const std::string &what, const double *list,
                      int64_t size) {
      for (int64_t i = 0; i < size; ++i)
        if (!(list[i] >= 0.0) || std::isinf(list[i]))
          fail(STEPC_INVALID_ARGUMENT, "%s costs %s, not a number from 0 on",
               (what + std::to_string(i)).c_str(),
               describeNumber(list[i]).c_str());
    };
    require("tensor ", costs, n);
    std::vector<double> own;
    if (loads) {
      require("what is owned by rank ", loads, numRanks);
      own.assign(loads, loads + numRanks);
    }
    std::vector<int64_t> owners = chooseOwners(
        std::vector<double>(costs, costs + n), size_t(numRanks), own);
    std::copy(owners.begin(), owners.end(), outOwners);
    if (loads)
      std::copy(own.begin(), own.end(), loads);
  });
}

void stepcDescriptionDestroy(const StepcDescription *description) {
  delete static_cast<const OwnedDescription *>(description);
}
