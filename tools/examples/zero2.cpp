//===- zero2.cpp - a perceptron, trained with ZeRO-2 over MPI -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each rank has all parameters, and gradients of its own data. A step adds the
// gradients up where the states are, of which each rank has its part, and puts
// the parameters together again; a gradient leaves as soon as it is there.
//
//   stepc frontend/optimizers/adamw.mlir --layout=zero2 -o zero2.stepc
//   mpicxx -std=c++17 -Iruntime/include tools/examples/zero2.cpp
//       -Lbuild/lib -lstepc_mpi -lstepc_runtime -o zero2
//   mpirun -n 4 ./zero2 zero2.stepc
//   mpirun -n 1 ./zero2 zero2.stepc 4
//
// The second run takes the same 4 batches one after the other, in the order of
// the ranks, and prints the same to the last bit.
//
//===----------------------------------------------------------------------===//

#include "stepc/mpi.h"
#include "stepc/stepc.h"

// MPI's C++ classes are none of ours.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {
constexpr int64_t kInputs = 20, kHidden = 48, kOutputs = 3, kPoints = 16;
constexpr int kSteps = 200;

int numRanks = 1, ownRank = 0;

[[noreturn]] void fail(const char *status, const char *message) {
  std::fprintf(stderr, "zero2: rank %d: %s: %s\n", ownRank, status, message);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void check(StepcStatus status) {
  if (status != STEPC_OK)
    fail(stepcStatusString(status), stepcLastErrorMessage());
}

/// Numbers from -1 to 1, the same in every run.
class Numbers {
public:
  explicit Numbers(uint64_t seed) : state(seed) {}
  float next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state >> 32)) /
           2147483648.0f;
  }
  std::vector<float> make(int64_t count) {
    std::vector<float> values(count);
    for (float &value : values)
      value = next();
    return values;
  }

private:
  uint64_t state;
};

/// A parameter, and the sum of its gradients over the batches of this rank.
struct Parameter {
  const char *name;
  std::vector<int64_t> shape;
  std::vector<float> values, gradient;
  int64_t id = -1;

  Parameter(const char *itsName, std::vector<int64_t> dims, float scale,
            Numbers &numbers)
      : name(itsName), shape(std::move(dims)) {
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    values = numbers.make(count);
    for (float &value : values)
      value *= scale;
    gradient.assign(count, 0.0f);
  }

  DLTensor describe(std::vector<float> &data) {
    DLTensor tensor{};
    tensor.data = data.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape.data();
    return tensor;
  }
};

/// y = second relu(first x + bias) + shift. The last layer comes first, as its
/// gradients do.
struct Perceptron {
  Parameter shift, second, bias, first;

  explicit Perceptron(Numbers &numbers)
      : shift("shift", {kOutputs}, 0.0f, numbers),
        second("second", {kOutputs, kHidden}, 0.2f, numbers),
        bias("bias", {kHidden}, 0.1f, numbers),
        first("first", {kHidden, kInputs}, 0.3f, numbers) {}

  std::vector<Parameter *> list() { return {&shift, &second, &bias, &first}; }

  void predict(const float *x, float *hidden, float *out) const {
    for (int64_t i = 0; i < kHidden; ++i) {
      float sum = bias.values[i];
      for (int64_t j = 0; j < kInputs; ++j)
        sum += first.values[i * kInputs + j] * x[j];
      hidden[i] = sum > 0.0f ? sum : 0.0f;
    }
    for (int64_t i = 0; i < kOutputs; ++i) {
      float sum = shift.values[i];
      for (int64_t j = 0; j < kHidden; ++j)
        sum += second.values[i * kHidden + j] * hidden[j];
      out[i] = sum;
    }
  }
};

struct Batch {
  std::vector<float> xs, ys;
  /// Of all points, for the pass back: the hidden layer, and the slopes of the
  /// loss by what each layer gives.
  std::vector<float> hidden, slopes, hiddenSlopes;
};

/// The mean of the squared errors.
double passForward(const Perceptron &model, Batch &batch) {
  double loss = 0.0;
  batch.hidden.resize(kPoints * kHidden);
  batch.slopes.resize(kPoints * kOutputs);
  for (int64_t point = 0; point < kPoints; ++point) {
    float out[kOutputs];
    model.predict(&batch.xs[point * kInputs], &batch.hidden[point * kHidden],
                  out);
    for (int64_t i = 0; i < kOutputs; ++i) {
      float error = out[i] - batch.ys[point * kOutputs + i];
      loss += static_cast<double>(error) * error / (kPoints * kOutputs);
      batch.slopes[point * kOutputs + i] = 2.0f * error / (kPoints * kOutputs);
    }
  }
  return loss;
}

/// The gradients of the second layer. Nothing needs its values after that.
void passBackSecond(const Perceptron &model, Batch &batch,
                    std::vector<float> &shift, std::vector<float> &second) {
  batch.hiddenSlopes.assign(kPoints * kHidden, 0.0f);
  for (int64_t point = 0; point < kPoints; ++point)
    for (int64_t i = 0; i < kOutputs; ++i) {
      float slope = batch.slopes[point * kOutputs + i];
      shift[i] += slope;
      for (int64_t j = 0; j < kHidden; ++j) {
        int64_t unit = point * kHidden + j, weight = i * kHidden + j;
        second[weight] += slope * batch.hidden[unit];
        if (batch.hidden[unit] > 0.0f)
          batch.hiddenSlopes[unit] += slope * model.second.values[weight];
      }
    }
}

void passBackFirst(const Batch &batch, std::vector<float> &bias,
                   std::vector<float> &first) {
  for (int64_t point = 0; point < kPoints; ++point)
    for (int64_t j = 0; j < kHidden; ++j) {
      float slope = batch.hiddenSlopes[point * kHidden + j];
      bias[j] += slope;
      for (int64_t k = 0; k < kInputs; ++k)
        first[j * kInputs + k] += slope * batch.xs[point * kInputs + k];
    }
}

/// Adds up the gradients of two parameters over the batches, one batch after
/// the other: what the ranks do with theirs.
template <typename Pass>
void addUp(std::vector<Batch> &batches, Parameter &a, Parameter &b,
           Pass &&pass) {
  for (size_t i = 0; i < batches.size(); ++i) {
    std::vector<float> ga(a.values.size()), gb(b.values.size());
    pass(batches[i], ga, gb);
    for (auto [sum, own] :
         {std::pair(&a.gradient, &ga), std::pair(&b.gradient, &gb)})
      for (size_t k = 0; k < own->size(); ++k)
        (*sum)[k] = i == 0 ? (*own)[k] : (*sum)[k] + (*own)[k];
  }
}

void bind(StepcPlan *plan, Perceptron &model, double numBatches) {
  StepcEntry entry{};
  entry.structSize = sizeof(entry);
  entry.wholeAxes = entry.partialAxes = 1; // "dp"
  entry.divisor = numBatches;
  std::vector<DLTensor> tensors;
  std::vector<StepcLayout> layouts;
  std::vector<StepcBinding> bindings;
  for (Parameter *parameter : model.list()) {
    tensors.push_back(parameter->describe(parameter->values));
    tensors.push_back(parameter->describe(parameter->gradient));
    StepcLayout layout{};
    layout.structSize = sizeof(layout);
    layout.ndim = static_cast<int32_t>(parameter->shape.size());
    layout.shape = parameter->shape.data();
    layout.flat = 1;
    layout.flatAxes = 1;
    layout.begin = -1; // the runtime cuts
    layouts.push_back(layout);
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    StepcBinding binding{};
    binding.structSize = sizeof(binding);
    binding.name = model.list()[i]->name;
    binding.param = &tensors[2 * i];
    binding.grad = &tensors[2 * i + 1];
    binding.fresh = 1;
    binding.layout = &layouts[i];
    binding.entry = &entry;
    bindings.push_back(binding);
  }
  int64_t ids[4];
  check(stepcPlanBind(plan, bindings.data(), 4, ids));
  for (size_t i = 0; i < 4; ++i)
    model.list()[i]->id = ids[i];
}

/// Of all batches, in their order.
double getMean(const std::vector<double> &own, int numBatches) {
  std::vector<double> all(static_cast<size_t>(numBatches));
  MPI_Allgather(own.data(), static_cast<int>(own.size()), MPI_DOUBLE,
                all.data(), static_cast<int>(own.size()), MPI_DOUBLE,
                MPI_COMM_WORLD);
  double sum = 0.0;
  for (double loss : all)
    sum += loss;
  return sum / numBatches;
}

double step(StepcPlan *plan, Perceptron &model, std::vector<Batch> &batches,
            int numBatches) {
  std::vector<double> losses;
  for (Batch &batch : batches)
    losses.push_back(passForward(model, batch));
  auto ready = [&](const Parameter &parameter) {
    check(stepcGradReady(plan, &parameter.id, 1));
  };
  check(stepcStepBegin(plan));
  addUp(batches, model.shift, model.second,
        [&](Batch &batch, auto &a, auto &b) {
          passBackSecond(model, batch, a, b);
        });
  // They cross while the next ones are computed.
  ready(model.shift);
  ready(model.second);
  addUp(batches, model.bias, model.first,
        [](Batch &batch, auto &a, auto &b) { passBackFirst(batch, a, b); });
  ready(model.bias);
  ready(model.first);
  check(stepcStepEnd(plan));
  return getMean(losses, numBatches);
}

/// FNV-1a over the bits of all parameters, which all ranks have alike.
uint64_t getHash(Perceptron &model) {
  uint64_t hash = 14695981039346656037u;
  for (Parameter *parameter : model.list()) {
    auto *bytes = reinterpret_cast<unsigned char *>(parameter->values.data());
    for (size_t i = 0; i < 4 * parameter->values.size(); ++i)
      hash = (hash ^ bytes[i]) * 1099511628211u;
  }
  uint64_t ends[] = {hash, ~hash};
  MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  if (ends[0] != ~ends[1])
    fail("error", "ranks have other parameters");
  return hash;
}

/// Data that a network of the same kind made.
std::vector<Batch> makeBatches(int first, int count) {
  Numbers numbers(7);
  Perceptron truth(numbers);
  std::vector<Batch> batches;
  for (int number = first; number < first + count; ++number) {
    Batch &batch = batches.emplace_back();
    batch.xs =
        Numbers(100 + static_cast<uint64_t>(number)).make(kPoints * kInputs);
    batch.ys.resize(kPoints * kOutputs);
    std::vector<float> hidden(kHidden);
    for (int64_t point = 0; point < kPoints; ++point)
      truth.predict(&batch.xs[point * kInputs], hidden.data(),
                    &batch.ys[point * kOutputs]);
  }
  return batches;
}
} // namespace

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &numRanks);
  MPI_Comm_rank(MPI_COMM_WORLD, &ownRank);
  if (argc != 2 && argc != 3)
    fail("usage", "zero2 PACKAGE [BATCHES]");
  int numBatches = argc == 3 ? std::atoi(argv[2]) : numRanks;
  if (numBatches < numRanks || numBatches % numRanks)
    fail("usage", "BATCHES is a multiple of the number of ranks");

  StepcMpiWorld *world = nullptr;
  StepcCommunicator communicator{};
  communicator.structSize = sizeof(communicator);
  char message[512];
  int64_t size = numRanks;
  if (stepcMpiWorldCreate(&size, 1, 60000, &world, message, sizeof(message)))
    fail("world", message);
  check(stepcMpiWorldGetCommunicator(world, &communicator));
  StepcAxis axis{"dp", numRanks, ownRank};

  StepcPackage *package = nullptr;
  StepcPlan *plan = nullptr;
  check(stepcPackageLoad(argv[1], &package));
  check(stepcPlanCreate(package, nullptr, &plan));
  check(stepcPlanAddGroup(plan, nullptr, 0, nullptr, 0, nullptr));
  check(stepcPlanSetMesh(plan, &axis, 1, &communicator));
  check(stepcPlanSetBuckets(plan, 640, 2048, 0));

  Numbers numbers(1);
  Perceptron model(numbers);
  int each = numBatches / numRanks;
  std::vector<Batch> batches = makeBatches(ownRank * each, each);
  bind(plan, model, numBatches);
  for (int number = 0; number <= kSteps; ++number) {
    double loss = step(plan, model, batches, numBatches);
    if (ownRank == 0 && number % 50 == 0)
      std::printf("step %3d  loss %.17g\n", number, loss);
  }
  uint64_t hash = getHash(model);
  if (ownRank == 0)
    std::printf("parameters %016llx\n", static_cast<unsigned long long>(hash));

  stepcPlanDestroy(plan);
  stepcPackageDestroy(package);
  stepcMpiWorldDestroy(world);
  MPI_Finalize();
  return 0;
}
