//===- TransferRefusalTest.cpp - entries that are refused -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

#include <cmath>
#include <cstddef>

using namespace stepc_test;

namespace {

using Change = std::function<void(StepcBinding &, StepcEntry &, StepcLayout &)>;

EntrySpec makeWhole(std::vector<int64_t> shape = {8, 6}) {
  EntrySpec spec;
  spec.shape = std::move(shape);
  spec.whole = spec.partial = A;
  return spec;
}

/// Binds one tensor 'w' of a rank of 2 x 2, which `change` spoils.
void refuseEntry(StepcStatus status, const char *message, const Change &change,
                 EntrySpec spec = makeWhole()) {
  EntryWorld world(getToyTransfers(), {2, 2}, {spec});
  EXPECT_REFUSED(
      status, message,
      world.ranks[0].bind(
          0, 1,
          [&](StepcBinding &binding, StepcEntry &entry, StepcLayout &layout) {
            binding.name = "w";
            change(binding, entry, layout);
          }));
  EXPECT_EQ(0, getInfo(world.ranks[0].plan.get()).numTensors);
}

void refuseInvalid(const char *message, const Change &change,
                   EntrySpec spec = makeWhole()) {
  refuseEntry(STEPC_INVALID_ARGUMENT, message, change, std::move(spec));
}

TEST(TransferRefusal, fields) {
  refuseInvalid("StepcEntry has struct size 8, the least is 48",
                [](auto &, auto &entry, auto &) { entry.structSize = 8; });
  refuseInvalid("tensor 'w': divideBefore of the entry is 2, neither 0 nor 1",
                [](auto &, auto &entry, auto &) { entry.divideBefore = 2; });
  refuseInvalid("tensor 'w': owned of the entry is -1, neither 0 nor 1",
                [](auto &, auto &entry, auto &) { entry.owned = -1; });
  for (double divisor : {0.0, -2.0, double(INFINITY), double(NAN)})
    refuseInvalid(
        ("tensor 'w': the entry's divisor is " +
         std::string(divisor == 0.0 ? "0"
                     : divisor < 0  ? "-2"
                     : divisor > 0  ? "inf"
                                    : "nan") +
         ", not a positive number")
            .c_str(),
        [&](auto &, auto &entry, auto &) { entry.divisor = divisor; });
  refuseInvalid("tensor 'w': the entry divides by 2 a sum over no axis",
                [](auto &, auto &entry, auto &) {
                  entry.divisor = 2.0;
                  entry.partialAxes = 0;
                });
  refuseInvalid("tensor 'w' has 2 states without a list",
                [](auto &binding, auto &, auto &) { binding.numStates = 2; });
  refuseInvalid("tensor 'w' has no parameter",
                [](auto &binding, auto &, auto &) { binding.param = nullptr; });
  refuseInvalid("tensor 'w': group 7 does not exist, the plan has 1",
                [](auto &binding, auto &, auto &) { binding.group = 7; });
}

/// States are of the part, and of an owner's alone.
TEST(TransferRefusal, states) {
  Array whole(Type::F32, {8, 6}), part(Type::F32, {32});
  const DLTensor *given[] = {whole.dl(), part.dl()};
  auto give = [&](auto &binding, auto &, auto &) {
    binding.states = given;
    binding.numStates = 2;
  };
  refuseEntry(STEPC_SHAPE_MISMATCH,
              "tensor 'w': state 'second' has shape [8, 6], the bound "
              "parameter has [32]",
              give);
  EntrySpec owned = makeWhole();
  owned.owned = true;
  EntryWorld world(getToyTransfers(), {2, 2}, {owned});
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 0 has states, and another rank owns it",
                 world.ranks[2].bind(0, 1, give));
}

/// What is asked before there is a plan is checked as in a binding.
TEST(TransferRefusal, parts) {
  Array param(Type::F32, {8, 6});
  StepcBinding binding = makeBinding("w", param.dl(), nullptr, 0);
  binding.gradDtype = getDLType(Type::F32);
  StepcEntry entry = {};
  entry.structSize = sizeof(entry);
  entry.wholeAxes = A;
  entry.divisor = 1.0;
  binding.entry = &entry;
  StepcAxis axis = {"dp", 2, 1};
  int64_t begin = -1, end = -1, bucket = -1;
  auto ask = [&] {
    return stepcGetParts(&axis, 1, &binding, 1, 0, 0, &begin, &end, &bucket);
  };
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 "tensor 'w': its entry is whole over 'dp', and no layout says "
                 "how a step cuts it",
                 ask());
  entry.owned = 1;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': one rank owns it, and the entry does not say "
                 "which",
                 ask());
  for (int64_t owner : {-1, 3}) {
    entry.owner = owner;
    std::string words = "tensor 'w': the entry's owner is " +
                        std::to_string(owner) + ", and 2 ranks may own it";
    EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, words.c_str(), ask());
  }
  for (int64_t owner : {1, 2}) {
    entry.owner = owner;
    ASSERT_OK(ask());
    EXPECT_EQ(owner == 2 ? 48 : 0, end - begin);
    EXPECT_EQ(0, bucket);
  }
  binding.entry = nullptr;
  ASSERT_OK(ask());
  EXPECT_EQ(0, begin);
  EXPECT_EQ(48, end);
  EXPECT_EQ(-1, bucket);
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT, "a bucket has -1 bytes, which is negative",
      stepcGetParts(&axis, 1, &binding, 1, -1, 0, &begin, &end, &bucket));
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT, "1 bindings were given, without values",
      stepcGetParts(&axis, 1, nullptr, 1, 0, 0, &begin, &end, &bucket));
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT, "outEnd is NULL",
      stepcGetParts(&axis, 1, &binding, 1, 0, 0, &begin, nullptr, nullptr));
  binding.param = nullptr;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "tensor 0 has no parameter", ask());
}

TEST(TransferRefusal, structSizes) {
  EntryWorld world(getToyTransfers(), {2}, {makeWhole(), makeWhole()});
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 1: struct size 112, that of the first binding is 136",
                 world.ranks[0].bind(0, 2, [](auto &binding, auto &, auto &) {
                   binding.structSize = offsetof(StepcBinding, entry);
                 }));
  // Nothing is read where the first says that the second is.
  std::vector<StepcBinding> bindings(2);
  bindings[0].structSize = size_t(1) << 60;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "StepcBinding has struct size 1152921504606846976, the least "
                 "is 88",
                 stepcPlanBind(world.plan.get(), bindings.data(), 2, nullptr));
}

/// A caller of an earlier version has no entry, whatever lies there.
TEST(TransferRefusal, shorterBinding) {
  EntrySpec spec;
  spec.shape = {8, 6};
  EntryWorld world(getToyTransfers(), {2}, {spec});
  ASSERT_OK(world.ranks[0].bind(0, 1, [](auto &binding, auto &entry, auto &) {
    binding.structSize = offsetof(StepcBinding, entry);
    entry.structSize = 3;
    binding.entry = &entry;
  }));
}

TEST(TransferRefusal, axes) {
  refuseInvalid("tensor 'w': the entry names no axis",
                [](auto &, auto &entry, auto &) {
                  entry.wholeAxes = entry.partialAxes = 0;
                });
  refuseInvalid("tensor 'w': the entry names axis 3, the mesh has 2",
                [](auto &, auto &entry, auto &) { entry.partialAxes |= 8; });
  refuseInvalid("tensor 'w': the entry's gradient is partial over 'b', which "
                "are some of the axes over which it is whole, 'a', 'b', and "
                "not all",
                [](auto &, auto &entry, auto &) {
                  entry.wholeAxes = A | B;
                  entry.partialAxes = B;
                });
  refuseInvalid("tensor 'w': the entry has an owner and no axis over which the "
                "parameter is whole",
                [](auto &, auto &entry, auto &) {
                  entry.wholeAxes = 0;
                  entry.owned = 1;
                });
}

TEST(TransferRefusal, types) {
  refuseEntry(
      STEPC_DTYPE_MISMATCH,
      "tensor 'w': its gradients of f32 cannot cross ranks as f64, "
      "known are f32, bf16 and f16",
      [](auto &, auto &entry, auto &) { entry.wireType = {kDLFloat, 64, 1}; });
  EntrySpec wide = makeWhole();
  wide.type = Type::F64;
  refuseEntry(
      STEPC_DTYPE_MISMATCH,
      "tensor 'w': its gradients of f64 cannot cross ranks as i16, "
      "known are f64, f32, bf16 and f16",
      [](auto &, auto &entry, auto &) { entry.wireType = {kDLInt, 16, 1}; },
      wide);
  refuseEntry(STEPC_DTYPE_MISMATCH,
              "tensor 'w': gradient has dtype i16, and is to be added up",
              [](auto &binding, auto &, auto &) {
                binding.grad = nullptr;
                binding.gradDtype = {kDLInt, 16, 1};
              });
}

/// What a package has is listed with what it brings and gives.
TEST(TransferRefusal, noVariant) {
  nlohmann::json manifest = makeToyTransferManifest();
  nlohmann::json few = nlohmann::json::array();
  for (const nlohmann::json &variant : manifest["variants"]) {
    std::string name = variant["name"];
    if (name == "toy_f32_momentum" ||
        name == "toy_f32_momentum_f32_bf16_reduce_scatter_all_gather")
      few.push_back(variant);
  }
  manifest["variants"] = few;
  PackagePtr package = loadManifest(manifest);
  std::string held = ", it has: param f32, grad f32, state f32, state f32; "
                     "param f32, grad f32, state f32, state f32, "
                     "reduce_scatter of f32 by bf16, all_gather";
  auto refuse = [&](EntrySpec spec, const char *wanted) {
    EntryWorld world(package.get(), {2, 2}, {spec});
    EXPECT_REFUSED(STEPC_DTYPE_MISMATCH,
                   ("tensor 0: the package has no variant for param f32, grad "
                    "f32" +
                    std::string(wanted) + held)
                       .c_str(),
                   world.ranks[0].bind(0, 1));
  };
  EntrySpec spec = makeWhole();
  refuse(spec, ", reduce_scatter of f32 by f32, all_gather");
  spec.partial |= B;
  refuse(spec, ", reduce_scatter of f32 by f32, all_reduce of f32 by f32, "
               "all_gather");
  spec.partial = 0;
  refuse(spec, ", all_slice of f32, all_gather");
  spec.owned = true;
  refuse(spec, ", to_owner of f32, from_owner");
  spec.owned = false;
  spec.whole = 0;
  spec.partial = A;
  refuse(spec, ", all_reduce of f32 by f32");
  // Without an entry none of those is taken.
  manifest["variants"] = nlohmann::json::array({few[1]});
  package = loadManifest(manifest);
  held = ", it has: param f32, grad f32, state f32, state f32, reduce_scatter "
         "of f32 by bf16, all_gather";
  spec.partial = 0;
  refuse(spec, "");
}

TEST(TransferRefusal, layouts) {
  auto refuse = [](const char *message, const Change &change,
                   EntrySpec spec = makeWhole()) {
    refuseEntry(STEPC_LAYOUT_UNSUPPORTED, message, change, std::move(spec));
  };
  refuse("tensor 'w': its entry is whole over 'a', and no layout says how a "
         "step cuts it",
         [](auto &binding, auto &, auto &) { binding.layout = nullptr; });
  refuse("tensor 'w': the layout is flat over 'b', and the entry's parameter "
         "is whole over 'a'",
         [](auto &, auto &, auto &layout) { layout.flatAxes = B; });
  refuseInvalid("tensor 'w': the layout begins at 0; with an entry it is -1, "
                "and the runtime chooses",
                [](auto &, auto &, auto &layout) { layout.begin = 0; });
  refuseInvalid("StepcLayout has struct size 9, the least is 56",
                [](auto &, auto &, auto &layout) { layout.structSize = 9; });
  const char *rows = "tensor 'w': the entry's parameter is whole over 'a', "
                     "which cut a range of the elements or rows of dim 0, and "
                     "no other dim";
  uint64_t second[] = {0, A}, both[] = {A, A}, other[] = {B, 0};
  for (uint64_t *axes : {second, both, other})
    refuse(rows, [&](auto &, auto &, auto &layout) {
      layout.flat = 0;
      layout.flatAxes = 0;
      layout.begin = 0;
      layout.dimAxes = axes;
    });
  refuse(
      rows,
      [](auto &binding, auto &, auto &layout) {
        layout.flat = 0;
        layout.flatAxes = 0;
        layout.begin = 0;
        binding.layout = &layout;
      },
      makeWhole({}));
  EntrySpec owned = makeWhole();
  owned.owned = true;
  uint64_t first[] = {A, 0};
  refuse(
      "tensor 'w': the layout cuts it over 'a', along which one rank owns it",
      [&](auto &binding, auto &, auto &layout) {
        layout.dimAxes = first;
        binding.layout = &layout;
      },
      owned);
  uint64_t columns[] = {0, B};
  for (bool flat : {true, false}) {
    EntrySpec summed = makeWhole();
    summed.whole = 0;
    summed.partial = A | B;
    refuse(
        "tensor 'w': the entry's gradient is partial over 'b', over which "
        "the layout cuts the parameter",
        [&](auto &binding, auto &, auto &layout) {
          layout.flat = flat;
          layout.flatAxes = flat ? B : 0;
          layout.begin = 0;
          layout.dimAxes = flat ? nullptr : columns;
          binding.layout = &layout;
        },
        summed);
    summed.whole = A;
    summed.rows = true;
    uint64_t cut[] = {A, B};
    if (!flat)
      refuse(
          "tensor 'w': the entry's gradient is partial over 'b', over which "
          "the layout cuts the parameter",
          [&](auto &, auto &, auto &layout) { layout.dimAxes = cut; }, summed);
  }
  for (uint64_t partial : {A | B, A})
    refuse(partial == A ? "tensor 'w': the entry names 'a', along which the "
                          "layout says that there are other tensors"
                        : "tensor 'w': the entry names 'b', along which the "
                          "layout says that there are other tensors",
           [&](auto &, auto &entry, auto &layout) {
             entry.partialAxes = partial;
             layout.distinctAxes = partial == A ? A : B;
           });
  // What the caller has is the whole over these axes.
  int64_t shape[] = {16, 6};
  refuseEntry(STEPC_SHAPE_MISMATCH,
              "tensor 'w': parameter has shape [8, 6], dim 0 is not sharded "
              "and differs from that of the whole tensor, [16, 6]",
              [&](auto &, auto &, auto &layout) { layout.shape = shape; });
}

TEST(TransferRefusal, strides) {
  Array padded(Type::F32, {8, 6}, Layout::Padded);
  const char *words = " has strides [9, 1]; with an entry it must be row-major "
                      "without gaps";
  ASSERT_EQ(9, padded.strides[0]);
  refuseEntry(
      STEPC_LAYOUT_UNSUPPORTED,
      ("tensor 'w': parameter" + std::string(words)).c_str(),
      [&](auto &binding, auto &, auto &) { binding.param = padded.dl(); });
  refuseEntry(
      STEPC_LAYOUT_UNSUPPORTED,
      ("tensor 'w': gradient" + std::string(words)).c_str(),
      [&](auto &binding, auto &, auto &) { binding.grad = padded.dl(); });
  EntryWorld world(getToyTransfers(), {2}, {makeWhole()});
  world.bindAll();
  StepcPlan *plan = world.ranks[0].plan.get();
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 ("tensor 0: gradient" + std::string(words)).c_str(),
                 stepcPlanSetGrad(plan, 0, padded.dl()));
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 ("tensor 0: parameter" + std::string(words)).c_str(),
                 stepcPlanSetParam(plan, 0, padded.dl()));
  Array wide(Type::F64, {8, 6}), other(Type::F32, {48});
  EXPECT_REFUSED(STEPC_NEEDS_BIND,
                 "tensor 0: gradient has dtype f64, it was bound with f32",
                 stepcPlanSetGrad(plan, 0, wide.dl()));
  EXPECT_REFUSED(STEPC_NEEDS_BIND,
                 "tensor 0: parameter has dtype f64, it was bound with f32",
                 stepcPlanSetParam(plan, 0, wide.dl()));
  EXPECT_REFUSED(
      STEPC_SHAPE_MISMATCH,
      "tensor 0: gradient has shape [48], the bound parameter has [8, 6]",
      stepcPlanSetGrad(plan, 0, other.dl()));
  EXPECT_EQ(
      0, stepcPlanMoveGrad(plan, 0, world.ranks[0].params[0].dl(), wide.dl()));
}

} // namespace
