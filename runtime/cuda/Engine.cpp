//===- Engine.cpp - steps tensors on a CUDA device ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/Engine.h"

#include "core/Fault.h"
#include "core/Fill.h"
#include "core/Reserve.h"
#include "core/Status.h"

#include <algorithm>

using namespace stepc;
using namespace stepc::cuda;

/// What crosses ranks lies in the device's memory.
static void requireEnqueue(const Model &model, const Mesh &mesh) {
  if (mesh.getWideAxes() != 0 && model.rounds.any() &&
      !mesh.getCommunicator().enqueue)
    fail(STEPC_INVALID_ARGUMENT,
         "the rounds of package '%s' cross ranks, which on a CUDA device needs "
         "a communicator that enqueues: its enqueue is NULL",
         model.package->getName().c_str());
}

void cuda::setEngine(Plan &plan, const StepcCudaConfig &config) {
  const char *call = "stepcPlanSetCuda";
  plan.requireNoStep(call);
  requireConfig(config);
  plan.setEngine(call, [&](Model &model) {
    requireEnqueue(model, model.exchange.getMesh());
    return std::make_unique<cuda::Engine>(model, config);
  });
}

cuda::Engine::Engine(Model &model, const StepcCudaConfig &config)
    : stepc::Engine(model),
      executor(model.package, config, model.config.numThreads, broken),
      placed(model, executor.getDevice()) {
  if (model.exchange.isWide())
    executor.setExchange(&model.exchange);
  if (!model.groups.empty())
    reserveGroups(model.groups.size(), model.groups[0]);
  step.rows.reserve(model.classes.size());
  step.ranges.reserve(model.getManifest().variants.size());
  // Here ends what can fail.
  for (RowClass &rows : model.classes)
    rows.setTogether();
}

cuda::Engine::~Engine() {
  executor.waitForOthers();
  retired->keeps = false;
  retired->blocks.clear();
}

void cuda::Engine::Retired::take(DeviceBlock *block) noexcept {
  std::unique_ptr<DeviceBlock> own(block);
  try {
    if (keeps && !STEPC_FAULT("device-graph-packs-freed"))
      blocks.push_back(std::move(own));
  } catch (...) {
    // There is no memory to remember it: what a graph names stays for good.
    [[maybe_unused]] DeviceBlock *kept = own.release();
  }
}

std::string cuda::Engine::getName() const {
  return "CUDA device " + std::to_string(executor.getOrdinal());
}

/// Takes over a mesh whose communicator does, or nothing of it where there is
/// no memory for what crosses.
void cuda::Engine::setMesh(Mesh &&mesh) {
  requireEnqueue(model, mesh);
  Mesh before = model.exchange.getMesh();
  auto set = [&](Mesh &&own) {
    model.exchange.setMesh(std::move(own));
    executor.setExchange(model.exchange.isWide() ? &model.exchange : nullptr);
  };
  set(std::move(mesh));
  if (model.groups.empty())
    return;
  try {
    reserveRounds(model.tensors.size(), model.groups.size());
  } catch (...) {
    set(std::move(before));
    throw;
  }
}

Memory cuda::Engine::allocate(size_t bytes, const std::string &what) {
  std::shared_ptr<DeviceBlock> block(
      new DeviceBlock(executor.allocate(bytes, what)),
      [own = retired](DeviceBlock *gone) { own->take(gone); });
  auto address = uintptr_t(block->getAddress());
  return {address, block->getSize(), std::move(block)};
}

void cuda::Engine::fill(uintptr_t address, int64_t elements,
                        const Operand &state) {
  std::vector<char> values(size_t(elements * getByteSize(state.storage)));
  fillElements(values.data(), elements, state.storage, state.initialValue);
  executor.write(address, values.data(), values.size());
}

/// Of memory that is zeros.
void cuda::Engine::fillCodes(const StateCodes &codes, double value) {
  if (value == 0.0 || codes.elements == 0)
    return;
  std::vector<uint8_t> allCodes(size_t(codes.getCodeBytes()));
  std::vector<float> allScales(size_t(codes.numScales));
  StateCodes here = codes;
  here.codes = reinterpret_cast<uintptr_t>(allCodes.data());
  here.scales = reinterpret_cast<uintptr_t>(allScales.data());
  here.fill(value);
  executor.write(codes.codes, allCodes.data(), allCodes.size());
  executor.write(codes.scales, allScales.data(), size_t(codes.getScaleBytes()));
}

/// What lies in a store is brought where the device reaches it.
bool cuda::Engine::hasMemory(uintptr_t address) const noexcept {
  return (model.store && model.store->contains(address)) ||
         executor.hasMemory(address);
}

void cuda::Engine::requireMemory(uintptr_t address,
                                 const OperandName &name) const {
  if (!model.store || !model.store->contains(address))
    executor.requireMemory(address, name);
}

/// Takes what so many groups like this one need. Lists name all of them.
void cuda::Engine::reserveGroups(size_t numGroups, const Group &like) {
  size_t words = numGroups * (like.hypers.size() + like.options.size());
  executor.reserveGroups(words);
  reserveAtLeast(step.groups, words);
  reserveRounds(model.tensors.size(), numGroups);
  model.listsValid = false;
}

void cuda::Engine::reserveRounds(size_t numTensors, size_t numGroups) {
  executor.reserveRounds(numTensors, numGroups);
  reserveAtLeast(step.values, numGroups * size_t(executor.getLayout().words));
  reserveAtLeast(step.rounds.active, numGroups);
  reserveAtLeast(step.rounds.idle, model.exchange.countSlices());
  reserveAtLeast(step.rounds.groupOf, numTensors);
  reserveAtLeast(step.rounds.contributions,
                 numTensors * model.getManifest().statistics.size());
}

size_t cuda::Engine::countCarriedWords(size_t numTensors) const {
  size_t most = 0;
  for (const Variant &variant : model.getManifest().variants)
    most = std::max(most, variant.carried.size());
  return numTensors * most * STEPC_CARRIED_ENTRY_WORDS;
}

void cuda::Engine::reserveTensors(size_t numTensors) {
  executor.reserveCohorts(numTensors, model.cohorts.getSlots());
  executor.reserveCarried(countCarriedWords(numTensors));
  reserveAtLeast(step.carried, countCarriedWords(numTensors));
  reserveRounds(numTensors, model.groups.size());
  for (size_t c = 0; c < model.classes.size(); ++c)
    reserveRows(c);
  reserveAtLeast(step.scalars, numTensors * STEPC_SCALAR_ENTRY_WORDS);
  reserveAtLeast(listedCohorts, numTensors);
}

/// Where states are codes, or lie in a store, each window may have a piece of a
/// row more.
void cuda::Engine::reserveRows(size_t rowClass) {
  const RowClass &rows = model.classes[rowClass];
  int64_t numWindows = countWindows();
  executor.reserveRows(
      rowClass, rows.getTableCapacity() + numWindows * rows.getRowWords(),
      rows.getChunkCapacity(), rows.getFinishCapacity());
  if (model.getManifest().variants[rowClass / 2].handsOver() &&
      executor.reserveRecords(rowClass, rows.getFinishCapacity()))
    placeHanded();
  if (need.piece)
    placed.reserveRows(rowClass, numWindows);
  if (need.codedStates)
    coded[rowClass].reserve(rows, numWindows,
                            model.getManifest().getNumSegments(),
                            countCodesOfPieces());
}

/// All rows are worked on at once, but where a step has windows.
void cuda::Engine::reserveWorkspace(const WorkspaceNeed &own) {
  executor.reserveWorkspace(size_t(own.total));
  if (own.handedTotal &&
      executor.reserveHanded(size_t(own.handedTotal), size_t(own.routine),
                             size_t(own.handedMatrices)))
    placeHanded();
  need = own;
  if (need.codedStates)
    reserveCodes();
  placed.reserve(need);
  auto windows = size_t(countWindows());
  size_t segments = size_t(model.getManifest().getNumSegments());
  executor.reserveLaunches(windows *
                           ((2 + 2 * size_t(kCodeFormats)) * segments +
                            model.getManifest().getMostLaunches()));
}

/// Lists name what is handed over.
void cuda::Engine::placeHanded() noexcept {
  for (size_t c = 0; c < model.classes.size(); ++c)
    model.classes[c].setHanded(executor.getRecords(c), executor.getHanded());
  model.listsValid = false;
}

/// How many windows a class has at most; two side by side have more than the
/// bytes of one, of f32 or in a slot.
int64_t cuda::Engine::countWindows() const {
  if (!need.codedStates && !need.piece)
    return 0;
  auto windows = int64_t(model.classes.size());
  if (need.codedStates)
    windows += 2 * need.codedTotal / kCodesWindowBytes;
  if (need.piece)
    windows += 2 * need.placedTotal / model.store->getConfig().windowBytes;
  return windows;
}

/// How many states that are codes all pieces of windows have at most.
size_t cuda::Engine::countCodesOfPieces() const {
  size_t mostStates = 0;
  for (const Variant &variant : model.getManifest().variants)
    mostStates = std::max(mostStates, variant.states.size());
  return size_t(need.codedStates) + size_t(countWindows()) * mostStates;
}

void cuda::Engine::reserveCodes() {
  coded.resize(model.classes.size());
  auto passes = 2 * size_t(model.getManifest().getNumSegments());
  size_t words = passes * countCodesOfPieces() * STEPC_CODES_ENTRY_WORDS;
  executor.reserveCodes(size_t(getCodesBytes(need)), words);
  reserveAtLeast(step.codes, words);
}

/// What graphs may still name is kept when it goes.
void cuda::Engine::commit() noexcept {
  model.exchange.freeReplaced();
  if (placed.commit())
    step.chunksChanged = true; // entries of codes have addresses in the ring
  executor.setPlaced(placed.any() ? &placed : nullptr);
}

/// The next step or upload does it, for all tensors.
void cuda::Engine::forgetCarried(size_t first, size_t end) noexcept {
  if (first != end)
    step.forgets = model.package->carries();
}

void cuda::Engine::requireNoCapture(const char *call) {
  if (executor.isCapturing())
    fail(STEPC_WRONG_STATE, "%s while the stream captures a graph", call);
}

void cuda::Engine::beginChange(const char *call, Change change) {
  requireNoCapture(call);
  if (change != Change::Values)
    takeCounts();
  if (change != Change::Counts)
    takeValues();
}

/// Whether the device has the lists of the last step, or there are none: what
/// has no elements is on no list, and a step without lists stores none.
bool cuda::Engine::listsAreStored() const {
  if (!model.areListsValid())
    return false;
  bool hasLists =
      model.isWaitedFor() ||
      std::any_of(model.classes.begin(), model.classes.end(),
                  [](const RowClass &rows) { return rows.hasList(); });
  return !step.chunksChanged || !hasLists;
}

/// A step that is captured must not store counts and hyper-parameters, which
/// each launch of the graph would store again; nor lists.
void cuda::Engine::requireStep() {
  capturing = executor.isCapturing();
  if (capturing && placed.any())
    fail(STEPC_WRONG_STATE, "the stream captures a graph, and steps bring "
                            "states from disk, for which the host waits");
  if (capturing && !listsAreStored())
    fail(STEPC_WRONG_STATE,
         "the stream captures a graph, and other tensors have gradients than "
         "in the last step; call stepcPlanUpload before");
}

void cuda::Engine::requireTold() const {
  bool tells = !executor.hasScalars(step) || step.forgets;
  if (capturing && tells && !STEPC_FAULT("device-capture-stores-counts"))
    fail(STEPC_WRONG_STATE,
         "the stream captures a graph, and counts, scalars or hyper-parameters "
         "have changed since the last step; call stepcPlanUpload before");
}

/// In front of all of a step that is captured.
void cuda::Engine::beginTransfers() {
  requireTold();
  captured |= capturing;
  retired->keeps |= captured;
  executor.beginTransfers(capturing);
}

int32_t cuda::Engine::startTransfer(const StepcCommunicator &communicator,
                                    const StepcTransfer &transfer,
                                    void **outWork, char *message,
                                    size_t messageSize) {
  return executor.callCommunicator(communicator.success, [&](void *stream) {
    return communicator.enqueueStart(communicator.context, &transfer, stream,
                                     outWork, message, messageSize);
  });
}

int32_t cuda::Engine::finishTransfer(const StepcCommunicator &communicator,
                                     void *work, char *message,
                                     size_t messageSize) {
  return executor.callCommunicator(communicator.success, [&](void *stream) {
    return communicator.enqueueFinish(communicator.context, work, stream,
                                      message, messageSize);
  });
}

StepOutcome cuda::Engine::run(bool some) {
  requireTold();
  step.graph = capturing;
  step.waitedFor = model.isWaitedFor();
  if (some) {
    captured |= capturing;
    retired->keeps |= captured;
    executor.run(step, [this](size_t rows) { return describeRows(rows); });
    leaveToDevice();
    valuesOnDevice = executor.hasRounds();
  }
  skipOnDevice = some && executor.maySkip();
  if (capturing)
    return {StepOutcome::Kind::Captured, -1};
  if (some)
    model.numRounds += int64_t(model.getManifest().rounds.size());
  // Whether a step counts that may be skipped, the device alone knows.
  if (skipOnDevice)
    return {StepOutcome::Kind::Undecided, -1};
  executor.countKnown(step.scalars.size());
  return {};
}

/// The device has the counts, and may go on without the host.
void cuda::Engine::leaveToDevice() {
  countsOnDevice = (captured && !STEPC_FAULT("device-counts-of-the-host")) ||
                   executor.maySkip();
  valuesOnDevice |= captured && executor.hasRounds();
}

/// In parts counts change at the end, by the host.
void cuda::Engine::requireParts() {
  requireNoCapture("stepcStepBegin");
  if (captured)
    fail(STEPC_WRONG_STATE,
         "stepcStepBegin, but steps of the plan were captured in a graph");
}

void cuda::Engine::beginParts() {
  executor.beginTransfers(/*graph=*/false);
  list(/*activeOnly=*/false);
  step.rows.clear();
  step.waitedFor = false;
  step.graph = false;
  executor.runScalars(step);
}

/// The kernels over what the classes list. A parameter may have moved since the
/// step began.
void cuda::Engine::runParts() {
  listRows();
  if (step.forgets)
    listCarried();
  step.waitedFor = false;
  executor.runKernels(step, [this](size_t rows) { return describeRows(rows); });
}

void cuda::Engine::requireUpload() { requireNoCapture("stepcPlanUpload"); }

void cuda::Engine::upload() {
  step.waitedFor = model.isWaitedFor();
  step.graph = false;
  executor.upload(step);
  leaveToDevice();
}

std::string cuda::Engine::describeRows(size_t rowClass) const {
  int64_t count = 0;
  const std::string *first = nullptr;
  for (size_t id = 0; id < model.tensors.size(); ++id) {
    const BoundTensor &tensor = model.tensors[id];
    if (size_t(tensor.rowClass) != rowClass || !tensor.hasGrad)
      continue;
    ++count;
    if (!first)
      first = &model.names[id];
  }
  if (!first)
    return "";
  return " for " + std::to_string(count) + " tensors, the first " + *first;
}
