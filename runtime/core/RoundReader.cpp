//===- RoundReader.cpp - the rounds of a manifest -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"

#include <algorithm>

using namespace stepc;

namespace {

constexpr size_t kMaxResults = 65536;

/// Reads what crosses tensors.
class RoundReader {
public:
  RoundReader(const FieldReader &fields, Manifest &manifest)
      : fields(fields), manifest(manifest) {}

  void read(const Json &root);

private:
  void readScalars(const Json &list);
  void readStatistics(const Json &list);
  RoundCall readCall(const Json &value, const std::string &where);
  void readUpdates(const Json &value, const std::string &where,
                   RoundCall &call);
  void readReports(const Json &list);

  const FieldReader &fields;
  Manifest &manifest;
  /// The call that writes a result, or none yet.
  std::vector<const Json *> writers;
  std::vector<Scope> resultScopes;
  std::vector<bool> updated;
};

} // namespace

void RoundReader::read(const Json &root) {
  readScalars(fields.getArray(root, "scalars", ""));
  readStatistics(fields.getArray(root, "statistics", ""));
  manifest.numResults =
      fields.getIndex(root, "results", kMaxResults + 1,
                      "is not an integer from 0 to 65536", "");
  writers.assign(manifest.numResults, nullptr);
  resultScopes.assign(manifest.numResults, Scope::Model);
  updated.assign(manifest.scalars.size(), false);
  const Json &rounds = fields.getArray(root, "rounds", "");
  for (size_t r = 0; r < rounds.elements.size(); ++r) {
    std::string where = at("rounds", r);
    const Json &calls = fields.getArray(rounds.elements[r], "calls", where);
    Round round;
    for (size_t i = 0; i < calls.elements.size(); ++i)
      round.calls.push_back(
          readCall(calls.elements[i], at(at(where, "calls"), i)));
    manifest.rounds.push_back(std::move(round));
  }
  readReports(fields.getArray(root, "reports", ""));
}

void RoundReader::readScalars(const Json &list) {
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("scalars", i);
    const Json &element = list.elements[i];
    manifest.scalars.push_back({fields.getString(element, "name", where),
                                fields.getNumber(element, "default", where),
                                fields.getScope(element, where)});
  }
  if (hasTwins(manifest.scalars))
    fields.bad("scalars", "has a name twice");
}

void RoundReader::readStatistics(const Json &list) {
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("statistics", i);
    const Json &element = list.elements[i];
    Statistic statistic;
    statistic.name = fields.getString(element, "name", where);
    std::string kind = fields.getString(element, "kind", where);
    if (kind != "sum" && kind != "amax")
      fields.bad(at(where, "kind"), "is neither sum nor amax");
    statistic.maximum = kind == "amax";
    statistic.scope = fields.getScope(element, where);
    manifest.statistics.push_back(std::move(statistic));
  }
  if (hasTwins(manifest.statistics))
    fields.bad("statistics", "has a name twice");
}

RoundCall RoundReader::readCall(const Json &value, const std::string &where) {
  RoundCall call;
  call.function = fields.getString(value, "function", where);
  call.scope = fields.getScope(value, where);
  call.hypers = fields.getIndices(value, "hypers", manifest.hypers.size(),
                                  "is not a hyper-parameter", where);
  call.options = fields.getIndices(value, "options", manifest.options.size(),
                                   "is not an option", where);
  call.results = fields.getIndices(value, "results", manifest.numResults,
                                   "is not a result", where);
  for (size_t result : call.results) {
    if (writers[result])
      fields.bad(at(where, "results"), "names a result of another call");
    writers[result] = &value;
    resultScopes[result] = call.scope;
  }
  call.maySkip = fields.getBool(value, "may_skip", where);
  readUpdates(value, where, call);
  return call;
}

void RoundReader::readUpdates(const Json &value, const std::string &where,
                              RoundCall &call) {
  const Json &list = fields.getArray(value, "updates", where);
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string place = at(at(where, "updates"), i);
    RoundCall::Update update;
    update.scalar =
        fields.getIndex(list.elements[i], "scalar", manifest.scalars.size(),
                        "is not a scalar", place);
    update.always = fields.getBool(list.elements[i], "always", place);
    if (manifest.scalars[update.scalar].scope != call.scope)
      fields.bad(at(place, "scalar"), "has another scope than the call");
    if (updated[update.scalar])
      fields.bad(at(place, "scalar"), "is updated twice");
    updated[update.scalar] = true;
    call.updates.push_back(update);
  }
}

void RoundReader::readReports(const Json &list) {
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("reports", i);
    const Json &element = list.elements[i];
    Report report;
    report.name = fields.getString(element, "name", where);
    report.scope = fields.getScope(element, where);
    report.result = fields.getIndex(element, "result", manifest.numResults,
                                    "is not a result", where);
    if (writers[report.result] && resultScopes[report.result] != report.scope)
      fields.bad(at(where, "scope"), "is another one than its result's");
    manifest.reports.push_back(std::move(report));
  }
  if (hasTwins(manifest.reports))
    fields.bad("reports", "has a name twice");
  for (const Json *writer : writers)
    if (!writer)
      fields.bad("results", "counts a result that no call writes");
}

void stepc::readRounds(const FieldReader &fields, const Json &root,
                       Manifest &manifest) {
  RoundReader(fields, manifest).read(root);
}
