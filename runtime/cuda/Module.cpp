//===- Module.cpp - the kernels of a package on a device ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/Module.h"

#include "core/Status.h"

#include "stepc/kernel_abi.h"

#include <map>
#include <mutex>

using namespace stepc;
using namespace stepc::cuda;

/// Room for what the driver's assembler says of PTX.
static constexpr size_t kLogBytes = 2048;

/// "8.0"
static std::string describeCapability(int32_t capability) {
  return std::to_string(capability / 10) + "." +
         std::to_string(capability % 10);
}

/// Whether a device runs the code.
static bool runs(const CodeEntry &code, int32_t capability) {
  if (code.computeCapability > capability)
    return false;
  return code.isPTX || code.computeCapability / 10 == capability / 10;
}

static std::string describeNeed(const CodeEntry &code) {
  std::string need = describeCapability(code.computeCapability);
  if (code.isPTX)
    return code.target + " needs " + need;
  return code.target + " needs " + need + " to " +
         std::to_string(code.computeCapability / 10) + ".9";
}

const DeviceCode &stepc::cuda::chooseCode(const Package &package,
                                          int32_t capability) {
  const DeviceCode *best = nullptr;
  std::string refused;
  for (const DeviceCode &code : package.getDeviceCode()) {
    if (!runs(code.entry, capability)) {
      refused += (refused.empty() ? "" : "; ") + describeNeed(code.entry);
      continue;
    }
    auto rank = [](const DeviceCode &code) {
      return std::pair(!code.entry.isPTX, code.entry.computeCapability);
    };
    if (!best || rank(*best) < rank(code))
      best = &code;
  }
  if (best)
    return *best;
  fail(STEPC_UNSUPPORTED_TARGET,
       "package '%s' has no code for a CUDA device of compute capability %s: "
       "%s",
       package.getName().c_str(), describeCapability(capability).c_str(),
       refused.empty() ? "it has none for CUDA devices" : refused.c_str());
}

Module::Module(std::shared_ptr<const Package> ownPackage,
               std::shared_ptr<const Device> ownDevice)
    : package(std::move(ownPackage)), device(std::move(ownDevice)) {
  const DeviceCode &code = chooseCode(*package, device->getCapability());
  codeName = "member '" + code.entry.file + "' of package '" +
             package->getName() + "'";
  ContextScope scope(*device);
  load(code);
  try {
    resolve();
  } catch (...) {
    device->getDriver().cuModuleUnload(module);
    throw;
  }
}

/// Kernels that were launched have ended: an engine has freed its memory
/// before.
Module::~Module() {
  freeIn(*device,
         [&](const DriverTable &driver) { driver.cuModuleUnload(module); });
}

void Module::load(const DeviceCode &code) {
  std::string log(kLogBytes, '\0');
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log.data(), reinterpret_cast<void *>(kLogBytes)};
  // PTX ends with a zero, as every std::string does.
  CUresult result = device->getDriver().cuModuleLoadDataEx(
      &module, code.bytes.c_str(), 2, options, values);
  log.resize(log.find('\0') == std::string::npos ? kLogBytes : log.find('\0'));
  if (result == CUDA_SUCCESS || log.empty())
    return device->require(result, "cuModuleLoadDataEx", " of " + codeName);
  fail(STEPC_DEVICE_ERROR, "cuModuleLoadDataEx of %s on CUDA device %d: %s: %s",
       codeName.c_str(), int(device->getOrdinal()),
       describeResult(device->getDriver(), result).c_str(), log.c_str());
}

std::string Module::getWhat(const std::string &name) const {
  return " of '" + name + "' in " + codeName;
}

Kernel Module::describe(const std::string &name, CUfunction function) const {
  Kernel kernel;
  kernel.name = name;
  kernel.function = function;
  int blocks = 0;
  device->require(
      device->getDriver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &blocks, function, kBlockThreads, 0),
      "cuOccupancyMaxActiveBlocksPerMultiprocessor", getWhat(name));
  if (blocks < 1)
    fail(STEPC_UNSUPPORTED_TARGET,
         "no block of %d threads of kernel '%s' fits on CUDA device %d",
         int(kBlockThreads), name.c_str(), int(device->getOrdinal()));
  kernel.maxBlocks = blocks * device->getMultiprocessors();
  return kernel;
}

Kernel Module::getKernel(const std::string &name) const {
  CUfunction function = nullptr;
  device->require(
      device->getDriver().cuModuleGetFunction(&function, module, name.c_str()),
      "cuModuleGetFunction", getWhat(name));
  return describe(name, function);
}

Kernel Module::findKernel(const std::string &name) const {
  CUfunction function = nullptr;
  CUresult result =
      device->getDriver().cuModuleGetFunction(&function, module, name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND)
    return {};
  device->require(result, "cuModuleGetFunction", getWhat(name));
  return describe(name, function);
}

std::vector<Kernel> Module::getEntry(const ScheduleEntry &entry,
                                     bool strided) const {
  if (!entry.isCalled())
    return {};
  if (entry.kind == EntryKind::Kernel)
    return {getKernel(strided ? entry.stridedFunction : entry.function)};
  std::vector<Kernel> kernels;
  for (size_t k = 0; k < entry.stages.size(); ++k)
    kernels.push_back(entry.stages[k] == FinishStage::Call
                          ? Kernel()
                          : getKernel(entry.getStageName(k)));
  return kernels;
}

void Module::resolve() {
  store = getKernel(STEPC_STORE_KERNEL);
  set = getKernel(STEPC_SET_KERNEL);
  advance = getKernel(STEPC_ADVANCE_KERNEL);
  copy = getKernel(STEPC_COPY_KERNEL);
  fill = getKernel(STEPC_FILL_KERNEL);
  order = getKernel(STEPC_ORDER_KERNEL);
  unorder = getKernel(STEPC_UNORDER_KERNEL);
  check = getKernel(STEPC_CHECK_KERNEL);
  compare = getKernel(STEPC_COMPARE_KERNEL);
  forget = getKernel(STEPC_FORGET_KERNEL);
  begin = getKernel(STEPC_BEGIN_KERNEL);
  decide = getKernel(STEPC_DECIDE_KERNEL);
  if (package->hasTransfers()) {
    convert = getKernel(STEPC_CONVERT_KERNEL);
    sum = getKernel(STEPC_SUM_KERNEL);
  }
  for (int32_t number = 1; number <= kCodeFormats; ++number) {
    const std::string name = findCodeFormat(number)->name;
    decode[number - 1] = findKernel(STEPC_DECODE_KERNEL + name);
    encode[number - 1] = findKernel(STEPC_ENCODE_KERNEL + name);
  }
  resolveRounds();
  for (const Variant &variant : package->getManifest().variants) {
    VariantKernels kernels;
    for (const std::string &function : variant.scalarFunctions)
      kernels.scalars.push_back(function.empty() ? Kernel()
                                                 : getKernel(function));
    for (const ScheduleEntry &entry : variant.schedule)
      for (int kind = 0; kind < 2; ++kind)
        kernels.entries[kind].push_back(getEntry(entry, kind == 1));
    variants.push_back(std::move(kernels));
  }
}

void Module::resolveRounds() {
  const Manifest &manifest = package->getManifest();
  for (const Statistic &statistic : manifest.statistics) {
    Kernel &kernel = statistics[statistic.maximum];
    if (!kernel.function)
      kernel =
          getKernel(statistic.maximum ? "statistics_amax" : "statistics_sum");
  }
  for (const Round &round : manifest.rounds) {
    rounds.emplace_back();
    for (const RoundCall &call : round.calls)
      rounds.back().push_back(getKernel(call.function));
  }
}

std::shared_ptr<const Module>
stepc::cuda::getModule(std::shared_ptr<const Package> package,
                       std::shared_ptr<const Device> device) {
  // A module keeps its package and its context alive, so that a key whose
  // module lives is of these.
  static std::mutex mutex;
  static std::map<std::pair<const Package *, CUcontext>,
                  std::weak_ptr<const Module>>
      modules;
  std::lock_guard<std::mutex> lock(mutex);
  for (auto it = modules.begin(); it != modules.end();)
    it = it->second.expired() ? modules.erase(it) : std::next(it);
  std::weak_ptr<const Module> &known =
      modules[{package.get(), device->getContext()}];
  std::shared_ptr<const Module> module = known.lock();
  if (!module) {
    module =
        std::make_shared<const Module>(std::move(package), std::move(device));
    known = module;
  }
  return module;
}
