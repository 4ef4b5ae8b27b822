//===- Groups.cpp - parameter groups --------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Groups.h"

#include "core/Status.h"
#include "stepc/kernel_abi.h"

#include <algorithm>
#include <limits>

using namespace stepc;

namespace {

void requireHypers(const Manifest &manifest, const double *hypers,
                   int64_t numHypers) {
  if (numHypers != int64_t(manifest.hypers.size()) || (numHypers && !hypers))
    fail(STEPC_INVALID_ARGUMENT,
         "optimizer '%s' has %zu hyper-parameters, %lld were given",
         manifest.optimizer.c_str(), manifest.hypers.size(),
         static_cast<long long>(hypers ? numHypers : 0));
  if (manifest.seed && !isSeed(hypers[*manifest.seed]))
    fail(STEPC_INVALID_ARGUMENT,
         "hyper-parameter '%s' of optimizer '%s' is %s, not an integer from 0 "
         "to 2^53",
         STEPC_SEED_HYPER, manifest.optimizer.c_str(),
         describeNumber(hypers[*manifest.seed]).c_str());
}

/// The index of the option, which must be one that can be named.
size_t findOption(const Manifest &manifest, const char *name) {
  if (!name)
    fail(STEPC_INVALID_ARGUMENT, "an option has no name");
  std::string known;
  for (size_t i = 0; i < manifest.options.size(); ++i) {
    const Option &option = manifest.options[i];
    if (option.name == name && option.derived)
      fail(STEPC_INVALID_ARGUMENT,
           "option '%s' of optimizer '%s' follows from hyper-parameter '%s'",
           name, manifest.optimizer.c_str(),
           manifest.hypers[option.hyper].name.c_str());
    if (option.name == name)
      return i;
    if (!option.derived)
      known += (known.empty() ? "" : ", ") + option.name;
  }
  fail(STEPC_UNKNOWN_NAME, "optimizer '%s' has no option '%s', it has: %s",
       manifest.optimizer.c_str(), name,
       known.empty() ? "none" : known.c_str());
}

void requireVariant(const Package &package, const Group &group) {
  const Manifest &manifest = package.getManifest();
  for (const Variant &variant : manifest.variants)
    if (manifest.selectSame(variant.options, group.options))
      return;
  std::string values;
  for (size_t i = 0; i < group.options.size(); ++i)
    if (!manifest.options[i].integer)
      values += (values.empty() ? "" : ", ") + manifest.options[i].name +
                " = " + std::to_string(group.options[i]);
  fail(STEPC_INVALID_ARGUMENT, "package '%s' holds no variant with %s",
       package.getName().c_str(), values.c_str());
}

void addRoundMemory(const Manifest &manifest, Group &group) {
  group.numResults = manifest.numResults;
  group.results.assign(manifest.numResults,
                       std::numeric_limits<double>::quiet_NaN());
  for (const Scalar &scalar : manifest.scalars)
    group.results.push_back(scalar.defaultValue);
  group.updated.resize(manifest.scalars.size());
  group.statistics.resize(manifest.statistics.size());
  for (const Statistic &statistic : manifest.statistics)
    group.folds.emplace_back(statistic.maximum);
}

} // namespace

std::vector<double> stepc::makeHypers(const Manifest &manifest,
                                      const double *hypers, int64_t numHypers) {
  std::vector<double> values;
  if (hypers || numHypers) {
    requireHypers(manifest, hypers, numHypers);
    values.assign(hypers, hypers + numHypers);
  } else {
    for (const Hyper &hyper : manifest.hypers)
      values.push_back(hyper.defaultValue);
  }
  return values;
}

std::vector<int64_t> stepc::makeOptions(const Manifest &manifest,
                                        const std::vector<double> &hypers,
                                        const StepcOption *options,
                                        int64_t numOptions) {
  std::vector<int64_t> values;
  for (const Option &option : manifest.options)
    values.push_back(option.derived ? option.derive(hypers)
                                    : option.defaultValue);
  if (numOptions < 0 || (numOptions && !options))
    fail(STEPC_INVALID_ARGUMENT, "%lld options were given, without values",
         static_cast<long long>(numOptions));
  std::vector<bool> named(manifest.options.size());
  for (int64_t i = 0; i < numOptions; ++i) {
    size_t index = findOption(manifest, options[i].name);
    if (named[index])
      fail(STEPC_INVALID_ARGUMENT, "option '%s' is given twice",
           options[i].name);
    if (!manifest.options[index].integer && options[i].value != 0 &&
        options[i].value != 1)
      fail(STEPC_INVALID_ARGUMENT, "option '%s' is %lld, neither 0 nor 1",
           options[i].name, static_cast<long long>(options[i].value));
    named[index] = true;
    values[index] = options[i].value;
  }
  return values;
}

Group stepc::makeGroup(const Package &package, const StepcOption *options,
                       int64_t numOptions, const double *hypers,
                       int64_t numHypers) {
  const Manifest &manifest = package.getManifest();
  Group group;
  group.hypers = makeHypers(manifest, hypers, numHypers);
  group.options = makeOptions(manifest, group.hypers, options, numOptions);
  requireVariant(package, group);
  addRoundMemory(manifest, group);
  return group;
}

void stepc::setHypers(const Package &package, int64_t id, Group &group,
                      const double *hypers, int64_t numHypers) {
  const Manifest &manifest = package.getManifest();
  requireHypers(manifest, hypers, numHypers);
  std::vector<double> values(hypers, hypers + numHypers);
  for (size_t i = 0; i < manifest.options.size(); ++i) {
    const Option &option = manifest.options[i];
    if (!option.derived)
      continue;
    int64_t value = option.derive(values);
    if (value != group.options[i])
      fail(STEPC_NEEDS_BIND,
           "group %lld: option '%s' would change from %lld to %lld, since "
           "'%s' becomes %s",
           static_cast<long long>(id), option.name.c_str(),
           static_cast<long long>(group.options[i]),
           static_cast<long long>(value),
           manifest.hypers[option.hyper].name.c_str(),
           describeNumber(values[option.hyper]).c_str());
  }
  group.hypers = std::move(values);
}
