//===- PackageWriter.cpp - packages made by hand --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/PackageWriter.h"
#include "stepc/kernel_abi.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>

using namespace stepc_test;
using nlohmann::json;

namespace {

void put16(std::string &out, uint32_t value) {
  out.push_back(char(value));
  out.push_back(char(value >> 8));
}

void put32(std::string &out, uint32_t value) {
  put16(out, value & 0xffff);
  put16(out, value >> 16);
}

uint32_t crc32(const std::string &bytes) {
  uint32_t crc = 0xffffffff;
  for (unsigned char byte : bytes) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i)
      crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

/// The fields that a local header and a directory entry share.
std::string makeCommonFields(const std::string &name, const std::string &data) {
  std::string out;
  put16(out, 20);
  put16(out, 0);
  put16(out, 0);
  put32(out, 0x5a210000);
  put32(out, crc32(data));
  put32(out, uint32_t(data.size()));
  put32(out, uint32_t(data.size()));
  put16(out, uint32_t(name.size()));
  put16(out, 0);
  return out;
}

} // namespace

std::string stepc_test::makeZip(const Members &members) {
  std::string out, directory;
  for (const auto &[name, data] : members) {
    std::string common = makeCommonFields(name, data);
    put32(directory, 0x02014b50);
    put16(directory, 20);
    directory += common;
    put16(directory, 0);
    put16(directory, 0);
    put16(directory, 0);
    put32(directory, 0);
    put32(directory, uint32_t(out.size()));
    directory += name;
    put32(out, 0x04034b50);
    out += common;
    out += name;
    out += data;
  }
  uint32_t begin = uint32_t(out.size());
  out += directory;
  put32(out, 0x06054b50);
  put16(out, 0);
  put16(out, 0);
  put16(out, uint32_t(members.size()));
  put16(out, uint32_t(members.size()));
  put32(out, uint32_t(directory.size()));
  put32(out, begin);
  put16(out, 64);
  return out + std::string(64, '0');
}

std::string stepc_test::sign(std::string zip) {
  zip.resize(zip.size() - 64);
  return zip + sha256(zip);
}

std::string stepc_test::sha256(const std::string &bytes) {
  // The constants are the first 32 bits of the fractional parts of the square
  // and cube roots of the first primes.
  auto fraction = [](long double root) {
    return uint32_t((root - (long double)(uint64_t)root) * 4294967296.0L);
  };
  std::array<uint32_t, 8> h;
  std::array<uint32_t, 64> k;
  int found = 0;
  for (int n = 2; found < 64; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n; ++d)
      prime &= n % d != 0;
    if (!prime)
      continue;
    if (found < 8)
      h[found] = fraction(__builtin_sqrtl((long double)n));
    k[found++] = fraction(__builtin_cbrtl((long double)n));
  }
  std::string padded = bytes + '\x80';
  while (padded.size() % 64 != 56)
    padded.push_back('\0');
  for (int i = 7; i >= 0; --i)
    padded.push_back(char((uint64_t(bytes.size()) * 8) >> (8 * i)));
  auto rot = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
  for (size_t at = 0; at < padded.size(); at += 64) {
    std::array<uint32_t, 64> w;
    for (int i = 0; i < 16; ++i) {
      w[i] = 0;
      for (int b = 0; b < 4; ++b)
        w[i] = w[i] << 8 | uint8_t(padded[at + 4 * i + b]);
    }
    for (int i = 16; i < 64; ++i)
      w[i] = w[i - 16] + w[i - 7] +
             (rot(w[i - 15], 7) ^ rot(w[i - 15], 18) ^ w[i - 15] >> 3) +
             (rot(w[i - 2], 17) ^ rot(w[i - 2], 19) ^ w[i - 2] >> 10);
    auto [a, b, c, d, e, f, g, z] = h;
    for (int i = 0; i < 64; ++i) {
      uint32_t t1 = z + (rot(e, 6) ^ rot(e, 11) ^ rot(e, 25)) +
                    ((e & f) ^ (~e & g)) + k[i] + w[i];
      uint32_t t2 =
          (rot(a, 2) ^ rot(a, 13) ^ rot(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      z = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    std::array<uint32_t, 8> step = {a, b, c, d, e, f, g, z};
    for (int i = 0; i < 8; ++i)
      h[i] += step[i];
  }
  std::string hex;
  for (uint32_t word : h)
    for (int i = 28; i >= 0; i -= 4)
      hex.push_back("0123456789abcdef"[word >> i & 15]);
  return hex;
}

std::string stepc_test::readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

json stepc_test::makeOperand(const char *role, const char *name,
                             const char *storage, bool reads, bool writes,
                             json dims) {
  json operand = {{"role", role},       {"name", name},   {"dims", dims},
                  {"storage", storage}, {"reads", reads}, {"writes", writes}};
  if (operand["role"] == "state")
    operand["init"] = 0.0;
  return operand;
}

void stepc_test::setSchedule(json &variant, std::vector<json> entries) {
  auto isExchange = [](const json &entry) {
    return entry.contains("exchange");
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const json &left, const json &right) {
                     return std::pair(int(left["segment"]), isExchange(left)) <
                            std::pair(int(right["segment"]), isExchange(right));
                   });
  int last = -1; // that is called
  for (size_t i = 0; i < entries.size(); ++i) {
    json &entry = entries[i], after = json::array();
    auto wait = [&](size_t before, const char *scope) {
      after.push_back({{"entry", before}, {"scope", scope}});
    };
    if (last >= 0 && isExchange(entry))
      wait(size_t(last), entry.contains("statistic") ? "model" : "bucket");
    else if (last >= 0 && entries[size_t(last)]["segment"] == entry["segment"])
      wait(size_t(last), "tensor");
    else
      for (size_t x = size_t(last + 1); x < i; ++x)
        wait(x, entries[x].contains("statistic") ? "round" : "bucket");
    if (!isExchange(entry))
      last = int(i);
    entry["after"] = after;
  }
  variant["schedule"] = entries;
}

void stepc_test::addKernel(json &variant, const std::string &kernel,
                           const std::string &strided) {
  json reads = json::array(), writes = json::array();
  for (size_t i = 0; i < variant["operands"].size(); ++i) {
    if (variant["operands"][i]["reads"])
      reads.push_back(i);
    if (variant["operands"][i]["writes"])
      writes.push_back(i);
  }
  setSchedule(variant, {{{"kernel", kernel},
                         {"strided_kernel", strided},
                         {"segment", 0},
                         {"reads", reads},
                         {"writes", writes}}});
  variant["space"] = "elements";
  variant["fresh"] = json::array({json::array()});
  variant["tensor_slots"] = 0;
  variant["workspace"] = json::array();
  variant["layout"] = json::object();
}

static json makeToyVariant(const std::string &type, bool maximize,
                           bool momentum) {
  std::string name = "toy_" + type + (maximize ? "_maximize" : "") +
                     (momentum ? "_momentum" : "_plain");
  const char *state = type == "f64" ? "f64" : "f32";
  json second = makeOperand("state", "second", state, true, true);
  second["init"] = 0.5;
  json operands = {makeOperand("param", "param", type.c_str(), true, true),
                   makeOperand("grad", "grad", type.c_str(), true, false),
                   second};
  if (momentum) {
    json buffer = makeOperand("state", "momentum_buffer", state, true, true);
    buffer["init"] = 0.0;
    operands.push_back(buffer);
  }
  json variant = {
      {"name", name},
      {"rule", "any"},
      {"options", {{"maximize", maximize}, {"has_momentum", momentum}}},
      {"compute", state},
      {"operands", operands},
      {"scalars", {{"functions", {"toy_scalars"}}, {"slots", 3}}},
      {"rounds", false},
      {"subsets", true}};
  addKernel(variant, name, name + "_strided");
  return variant;
}

json stepc_test::makeHead(const std::string &optimizer) {
  return {
      {"format", 5},
      {"kernel_abi", STEPC_KERNEL_ABI_VERSION},
      {"compiler", "by hand"},
      {"optimizer", optimizer},
      {"hypers", json::array()},
      {"options", json::array()},
      {"rules",
       {{{"name", "any"},
         {"dims", {"*"}},
         {"guard", json::array()},
         {"states", json::array()}}}},
      {"scalars", json::array()},
      {"statistics", json::array()},
      {"reports", json::array()},
      {"rounds", json::array()},
      {"results", 0},
      {"variants", json::array()},
      {"code",
       {{{"target", "x86-64-v3"},
         {"file", "code/x86-64-v3.so"},
         {"cpu_features",
          {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}}}}}};
}

json stepc_test::makeToyManifest() {
  json manifest = makeHead("toy");
  manifest["hypers"] = {{{"name", "lr"}, {"default", 0.01}},
                        {{"name", "momentum"}, {"default", 0.9}},
                        {{"name", "decay"}, {"default", 0.1}}};
  manifest["options"] = {
      {{"name", "maximize"}, {"default", false}},
      {{"name", "has_momentum"},
       {"derived",
        {{"hyper", "momentum"}, {"predicate", "ne"}, {"value", 0.0}}}}};
  json second = {{"name", "second"}, {"dims", {"*"}}, {"init", 0.5}};
  json buffer = {{"name", "momentum_buffer"},
                 {"dims", {"*"}},
                 {"init", 0.0},
                 {"guard", "has_momentum"}};
  manifest["rules"][0]["states"] = {second, buffer};
  for (const char *type : {"f32", "f64", "bf16"})
    for (bool maximize : {false, true})
      for (bool momentum : {true, false})
        manifest["variants"].push_back(
            makeToyVariant(type, maximize, momentum));
  return manifest;
}

json stepc_test::makePlainManifest(const std::string &name) {
  json manifest = makeHead(name);
  json variant = {
      {"name", name},
      {"rule", "any"},
      {"options", json::object()},
      {"compute", "f32"},
      {"operands",
       {makeOperand("param", "param", "f32", true, true),
        makeOperand("grad", "grad", "f32", true, false)}},
      {"scalars", {{"functions", {name + "_scalars"}}, {"slots", 0}}},
      {"rounds", false},
      {"subsets", false}};
  addKernel(variant, name, name);
  manifest["variants"].push_back(variant);
  return manifest;
}

std::string stepc_test::makePackage(const json &manifest,
                                    const std::string &sharedObject) {
  return sign(makeZip({{"manifest.json", manifest.dump(1)},
                       {"source.mlir", "// written by hand\n"},
                       {"code/x86-64-v3.so", sharedObject}}));
}

const std::string &stepc_test::getToyPackage() {
  static const std::string package =
      makePackage(makeToyManifest(), readFile(STEPC_TEST_KERNELS));
  return package;
}
