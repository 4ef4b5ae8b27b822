//===- PlanDevice.cpp - plans whose tensors are on a device ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cohorts, rows and chunks are those of the processor, with addresses of the
// device. A step lists what the device works on (PlanDeviceLists.cpp), and the
// engine stores there what has changed.
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"

#include "core/Fault.h"
#include "core/Reserve.h"
#include "core/Status.h"

using namespace stepc;

void Plan::setCuda(const StepcCudaConfig &config) {
  requireNoStep("stepcPlanSetCuda");
  requireStructSize(&config, sizeof(config), "StepcCudaConfig");
  if (config.reserved0 != 0)
    fail(STEPC_INVALID_ARGUMENT, "a reserved field of the config is %d, not 0",
         int(config.reserved0));
  if (device)
    fail(STEPC_WRONG_STATE, "the plan runs on CUDA device %d already",
         int(device->getOrdinal()));
  if (!tensors.empty())
    fail(STEPC_WRONG_STATE, "stepcPlanSetCuda after %zu tensors were bound",
         tensors.size());
  requireEnqueue(exchange.getMesh());
  auto engine = std::make_unique<cuda::Engine>(package, config);
  if (exchange.isWide())
    engine->setExchange(&exchange);
  if (!groups.empty())
    reserveDeviceGroups(*engine, groups.size(), groups[0]);
  deviceStep.rows.reserve(classes.size());
  deviceStep.ranges.reserve(package->getManifest().variants.size());
  for (RowClass &rows : classes)
    rows.setTogether();
  device = std::move(engine);
  exchange.setMemory([own = device.get()](size_t bytes) -> PackMemory {
    auto block = std::make_shared<cuda::DeviceBlock>(
        own->allocate(bytes, "what crosses ranks"));
    auto address = uintptr_t(block->getAddress());
    return {address, bytes, std::move(block)};
  });
  place = {kDLCUDA, config.device};
}

Plan::~Plan() {
  if (device)
    device->waitForRanks();
}

/// What crosses ranks lies in the device's memory.
void Plan::requireEnqueue(const Mesh &mesh) const {
  if (mesh.getWideAxes() != 0 && rounds.any() &&
      !mesh.getCommunicator().enqueue)
    fail(STEPC_INVALID_ARGUMENT,
         "the rounds of package '%s' cross ranks, which on a CUDA device needs "
         "a communicator that enqueues: its enqueue is NULL",
         package->getName().c_str());
}

/// Takes over a mesh whose communicator has been found to do, or nothing of it
/// where there is no memory for what crosses.
void Plan::setDeviceMesh(Mesh &&mesh) {
  Mesh before = exchange.getMesh();
  auto set = [&](Mesh &&own) {
    exchange.setMesh(std::move(own));
    device->setExchange(exchange.isWide() ? &exchange : nullptr);
  };
  set(std::move(mesh));
  if (groups.empty())
    return;
  try {
    reserveDeviceRounds(*device, tensors.size(), groups.size());
  } catch (...) {
    set(std::move(before));
    throw;
  }
}

void Plan::setStream(void *stream) {
  if (!device)
    fail(STEPC_WRONG_STATE, "stepcPlanSetStream, but the plan runs on the cpu");
  device->setStream(stream);
}

/// Runs what enqueues; what is left half done poisons the plan.
template <typename Work>
void Plan::guardDevice(Work &&work) {
  try {
    work();
  } catch (...) {
    poisoned = device->isBroken();
    throw;
  }
}

bool Plan::isCapturing() {
  bool capturing = false;
  guardDevice([&] { capturing = device->isCapturing(); });
  return capturing;
}

/// Takes over what the device alone knows, before a call that changes the plan.
void Plan::takeFromDevice(const char *call) {
  if (!device)
    return;
  requireNoCapture(call);
  takeCounts();
  takeValues();
}

void Plan::requireNoCapture(const char *call) {
  if (isCapturing())
    fail(STEPC_WRONG_STATE, "%s while the stream captures a graph", call);
}

/// Takes what so many groups like this one need.
void Plan::reserveDeviceGroups(cuda::Engine &engine, size_t numGroups,
                               const Group &group) {
  size_t words = numGroups * (group.hypers.size() + group.options.size());
  engine.reserveGroups(words);
  reserveAtLeast(deviceStep.groups, words);
  reserveDeviceRounds(engine, tensors.size(), numGroups);
}

void Plan::reserveDeviceRounds(cuda::Engine &engine, size_t numTensors,
                               size_t numGroups) {
  engine.reserveRounds(numTensors, numGroups);
  reserveAtLeast(deviceStep.values,
                 numGroups * size_t(engine.getLayout().words));
  reserveAtLeast(deviceStep.rounds.active, numGroups);
  reserveAtLeast(deviceStep.rounds.idle, exchange.countSlices());
  reserveAtLeast(deviceStep.rounds.groupOf, numTensors);
  reserveAtLeast(deviceStep.rounds.contributions,
                 numTensors * package->getManifest().statistics.size());
}

/// Takes what steps of so many tensors need.
void Plan::reserveDevice(size_t numTensors) {
  device->reserveCohorts(numTensors, cohorts.getSlots());
  device->reserveCarried(countCarriedWords(numTensors));
  reserveAtLeast(deviceStep.carried, countCarriedWords(numTensors));
  reserveDeviceRounds(*device, numTensors, groups.size());
  for (size_t c = 0; c < classes.size(); ++c)
    reserveDeviceRows(c);
  reserveAtLeast(deviceStep.scalars, numTensors * STEPC_SCALAR_ENTRY_WORDS);
  reserveAtLeast(deviceCohorts, numTensors);
}

void Plan::reserveDeviceRows(size_t rowClass) {
  const RowClass &rows = classes[rowClass];
  device->reserveRows(rowClass, rows.getTableCapacity(),
                      rows.getChunkCapacity(), rows.getFinishCapacity());
}

std::string Plan::describeRows(size_t rowClass) const {
  int64_t count = 0;
  const std::string *first = nullptr;
  for (size_t id = 0; id < tensors.size(); ++id) {
    if (size_t(tensors[id].rowClass) != rowClass || !tensors[id].hasGrad)
      continue;
    ++count;
    if (!first)
      first = &names[id];
  }
  if (!first)
    return "";
  return " for " + std::to_string(count) + " tensors, the first " + *first;
}

/// A step that is captured must not store counts and hyper-parameters, which
/// each launch of the graph would store again.
void Plan::stepOnDevice() {
  bool capturing = isCapturing();
  bool waitedFor = isWaitedFor();
  // What has no elements is on no list, and a step without lists stores none.
  bool hasLists = waitedFor || std::any_of(classes.begin(), classes.end(),
                                           [](const RowClass &rows) {
                                             return rows.hasList();
                                           });
  bool listed = !deviceStep.chunksChanged || !hasLists;
  if (capturing && !(cohortsValid && listsValid && numToggled == 0 && listed))
    fail(STEPC_WRONG_STATE,
         "the stream captures a graph, and other tensors have gradients than "
         "in the last step; call stepcPlanUpload before");
  prepareStep();
  prepareDevice(/*activeOnly=*/true);
  bool tells = !device->hasScalars(deviceStep) || deviceStep.forgets;
  if (capturing && tells && !STEPC_FAULT("device-capture-stores-counts"))
    fail(STEPC_WRONG_STATE,
         "the stream captures a graph, and counts, scalars or hyper-parameters "
         "have changed since the last step; call stepcPlanUpload before");
  deviceStep.graph = capturing;
  deviceStep.waitedFor = waitedFor;
  bool some = !listedIds.empty() || waitedFor;
  if (some) {
    captured |= capturing;
    guardDevice([&] {
      device->run(deviceStep,
                  [this](size_t rows) { return describeRows(rows); });
    });
    leaveToDevice();
    valuesOnDevice = device->hasRounds();
  }
  lastStep = {};
  lastStep.skippedRound = -1;
  lastStep.numTensors = int64_t(listedIds.size());
  skipOnDevice = some && device->maySkip();
  if (capturing)
    return;
  if (some)
    numRounds += int64_t(package->getManifest().rounds.size());
  // Whether a step counts that may be skipped, the device alone knows.
  if (!skipOnDevice) {
    device->countKnown(deviceStep.scalars.size());
    countStep();
  }
  ++numSteps;
}

/// The device has the counts, and may go on without the host.
void Plan::leaveToDevice() {
  countsOnDevice = (captured && !STEPC_FAULT("device-counts-of-the-host")) ||
                   device->maySkip();
  valuesOnDevice |= captured && device->hasRounds();
}

/// What stepcStepBegin does: counts change at the end, by the host.
void Plan::fillOnDevice() {
  requireNoCapture("stepcStepBegin");
  if (captured)
    fail(STEPC_WRONG_STATE,
         "stepcStepBegin, but steps of the plan were captured in a graph");
  takeCounts();
  if (!cohortsValid)
    formCohorts();
  prepareDevice(/*activeOnly=*/false);
  deviceStep.rows.clear();
  deviceStep.waitedFor = false;
  deviceStep.graph = false;
  guardDevice([&] { device->runScalars(deviceStep); });
}

/// The kernels over what the classes list. A parameter may have moved since the
/// step began.
void Plan::runOnDevice() {
  listDeviceRows();
  if (deviceStep.forgets)
    listDeviceCarried();
  deviceStep.waitedFor = false;
  guardDevice([&] {
    device->runKernels(deviceStep,
                       [this](size_t rows) { return describeRows(rows); });
  });
}

void Plan::upload() {
  requireNoStep("stepcPlanUpload");
  if (!device)
    fail(STEPC_WRONG_STATE, "stepcPlanUpload, but the plan runs on the cpu");
  requireNoCapture("stepcPlanUpload");
  prepareStep();
  prepareDevice(/*activeOnly=*/true);
  deviceStep.waitedFor = isWaitedFor();
  deviceStep.graph = false;
  guardDevice([&] { device->upload(deviceStep); });
  leaveToDevice();
}
