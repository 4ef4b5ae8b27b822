//===- PackageTest.cpp - loading packages, good and bad -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <immintrin.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

using namespace stepc_test;

namespace {

StepcStatus load(const std::string &bytes) {
  StepcPackage *package = nullptr;
  StepcStatus status =
      stepcPackageLoadBytes(bytes.data(), bytes.size(), &package);
  EXPECT_EQ(status == STEPC_OK, package != nullptr);
  stepcPackageDestroy(package);
  return status;
}

std::string getMessage() { return stepcLastErrorMessage(); }

/// A file in a directory of its own that is gone at the end.
class TemporaryFile {
public:
  TemporaryFile() {
    char name[] = "/tmp/stepc-test-XXXXXX";
    directory = mkdtemp(name);
    path = directory + "/toy.stepc";
  }
  ~TemporaryFile() {
    unlink(path.c_str());
    rmdir(directory.c_str());
  }
  std::string directory, path;
};

TEST(Package, fromFile) {
  TemporaryFile file;
  std::ofstream(file.path, std::ios::binary) << getToyPackage();
  StepcPackage *loaded = nullptr;
  ASSERT_OK(stepcPackageLoad(file.path.c_str(), &loaded));
  PackagePtr package(loaded);
  const char *text;
  size_t size;
  ASSERT_OK(stepcPackageManifest(loaded, &text, &size));
  EXPECT_EQ(makeToyManifest(), nlohmann::json::parse(text, text + size));
}

TEST(Package, filesThatCannotBeRead) {
  TemporaryFile file;
  StepcPackage *package = nullptr;
  EXPECT_STATUS(STEPC_FILE_ERROR,
                stepcPackageLoad(file.path.c_str(), &package));
  EXPECT_EQ("cannot open '" + file.path + "': No such file or directory",
            getMessage());
  EXPECT_STATUS(STEPC_FILE_ERROR,
                stepcPackageLoad(file.directory.c_str(), &package));
  EXPECT_EQ("cannot read '" + file.directory + "': not a regular file",
            getMessage());
  EXPECT_STATUS(STEPC_FILE_ERROR, stepcPackageLoad("/dev/zero", &package));
  // Opening must not wait for a writer.
  ASSERT_EQ(0, mkfifo(file.path.c_str(), 0600));
  EXPECT_STATUS(STEPC_FILE_ERROR,
                stepcPackageLoad(file.path.c_str(), &package));
}

TEST(Package, messagesNameTheFile) {
  TemporaryFile file;
  std::ofstream(file.path, std::ios::binary) << "short";
  StepcPackage *package = nullptr;
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE,
                stepcPackageLoad(file.path.c_str(), &package));
  EXPECT_EQ("package '" + file.path +
                "' is corrupt: it has 5 bytes, the least is 86",
            getMessage());
}

TEST(Package, hashIsCheckedBeforeAllElse) {
  // Nothing in it is right; the hash is what is complained about.
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE, load(std::string(500, 'x')));
  EXPECT_NE(std::string::npos, getMessage().find("the sha-256 of its first 436 "
                                                 "bytes is "))
      << getMessage();
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE, load(sign(std::string(500, 'x'))));
  EXPECT_EQ("package '<memory>' is corrupt: no end record before the hash",
            getMessage());
}

/// No flipped bit goes unnoticed, wherever it is.
TEST(Package, tenThousandBitFlips) {
  const std::string &good = getToyPackage();
  std::string bytes = good;
  std::mt19937 random(20261121);
  auto flip = [&](size_t bit) { bytes[bit / 8] ^= char(1 << bit % 8); };
  for (int i = 0; i < 10000; ++i) {
    size_t bit = random() % (good.size() * 8);
    flip(bit);
    ASSERT_EQ(STEPC_CORRUPT_PACKAGE, load(bytes)) << "bit " << bit;
    flip(bit);
  }
  // All of the records at the end, and of the beginning.
  for (size_t bit = (good.size() - 86) * 8; bit < good.size() * 8; ++bit) {
    flip(bit);
    ASSERT_EQ(STEPC_CORRUPT_PACKAGE, load(bytes)) << "bit " << bit;
    flip(bit);
  }
  EXPECT_EQ(STEPC_OK, load(bytes));
}

TEST(Package, everyTruncation) {
  const std::string &good = getToyPackage();
  for (size_t size = 0; size < good.size(); ++size)
    ASSERT_EQ(STEPC_CORRUPT_PACKAGE, load(good.substr(0, size)))
        << size << " bytes";
  EXPECT_EQ(STEPC_CORRUPT_PACKAGE, load(good + '\0'));
}

/// The hash is no defence against who can compute it: whatever a signed file
/// says, it is refused or loaded, without a crash. Flips in the code are left
/// out: to load a package is to run it.
TEST(Package, signedFlipsInRecords) {
  std::string code = readFile(STEPC_TEST_KERNELS);
  const std::string good = makePackage(makeToyManifest(), code);
  size_t codeBegin = good.find(code);
  ASSERT_NE(std::string::npos, codeBegin);
  std::mt19937 random(7);
  int refused = 0, total = 0;
  auto attempt = [&](size_t at, char mask) {
    if (at >= codeBegin && at < codeBegin + code.size())
      return;
    std::string bytes = good;
    bytes[at] ^= mask;
    refused += load(sign(bytes)) != STEPC_OK;
    ++total;
  };
  for (size_t at = codeBegin + code.size(); at < good.size() - 64; ++at)
    attempt(at, char(1 << random() % 8));
  for (int i = 0; i < 300; ++i)
    attempt(random() % codeBegin, char(1 << random() % 8));
  EXPECT_GT(total, 400);
  EXPECT_GT(refused, total / 2);
}

/// Each rule of the strict zip reader, broken by itself.
TEST(Package, zipRules) {
  const std::string &good = getToyPackage();
  size_t end = good.size() - 86;
  size_t directory = good.find("PK\1\2");
  auto refuse = [&](size_t at, char value, const char *what) {
    std::string bytes = good;
    ASSERT_NE(bytes[at], value);
    bytes[at] = value;
    EXPECT_REFUSED(
        STEPC_CORRUPT_PACKAGE,
        ("package '<memory>' is corrupt: " + std::string(what)).c_str(),
        load(sign(bytes)));
  };
  refuse(end, 'Q', "no end record before the hash");
  refuse(end + 20, 63, "no end record before the hash");
  refuse(end + 4, 1, "an archive of several parts");
  refuse(end + 8, 2, "an archive of several parts");
  refuse(end + 19, 1, "the central directory does not end at the end record");
  refuse(end + 12, char(good[end + 12] + 1),
         "the central directory does not end at the end record");
  refuse(directory, 'Q', "a bad entry in the central directory");
  refuse(directory + 8, 8, "a member is not stored plainly");
  refuse(directory + 8, 1, "a member is not stored plainly");
  refuse(directory + 10, 8, "a member is not stored plainly");
  refuse(directory + 20, char(good[directory + 20] + 1),
         "a member is not stored plainly");
  refuse(directory + 30, 1, "a member has an extra field or a comment");
  refuse(directory + 32, 1, "a member has an extra field or a comment");
  refuse(directory + 34, 1, "a member has an extra field or a comment");
  refuse(directory + 29, 0x7f,
         "a member's name lies beyond the central directory");
  refuse(directory + 46, ' ', "a member has a name that is not allowed");
  refuse(directory + 46, '/', "a member has a name that is not allowed");
  refuse(directory + 42, 1,
         "a member does not begin where the one before ends");
  refuse(directory + 16, char(good[directory + 16] + 1),
         "a member's header differs from its entry in the directory");
  refuse(0, 'Q', "a member's header differs from its entry in the directory");
  refuse(30, 'n', "a member's header differs from its entry in the directory");
}

TEST(Package, zipMembers) {
  auto refuse = [](const Members &members, const char *what) {
    EXPECT_REFUSED(
        STEPC_CORRUPT_PACKAGE,
        ("package '<memory>' is corrupt: " + std::string(what)).c_str(),
        load(sign(makeZip(members))));
  };
  std::string manifest = makeToyManifest().dump();
  refuse({}, "it has no member 'manifest.json'");
  refuse({{"manifest.json", manifest}}, "it has no member 'code/x86-64-v3.so'");
  refuse({{"manifest.json", manifest}, {"manifest.json", manifest}},
         "two members have one name");
  refuse({{"../manifest.json", manifest}},
         "a member has a name that is not allowed");
  refuse({{"", manifest}}, "a member has a name that is not allowed");

  // A gap before the directory.
  std::string zip = makeZip({{"manifest.json", manifest}});
  size_t directory = zip.find("PK\1\2");
  zip.insert(directory, "hidden");
  uint32_t begin = uint32_t(directory + 6);
  std::memcpy(&zip[zip.size() - 86 + 16], &begin, 4);
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE, load(sign(zip)));
  EXPECT_EQ("package '<memory>' is corrupt: bytes between its members and its "
            "directory",
            getMessage());

  // A member that is longer than what comes before the directory.
  zip = makeZip({{"manifest.json", manifest}});
  for (size_t at : {size_t(18), size_t(22), directory + 20, directory + 24})
    zip[at + 2] = 1;
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE, load(sign(zip)));
  EXPECT_EQ("package '<memory>' is corrupt: a member reaches into the central "
            "directory",
            getMessage());
}

TEST(Package, codeThatIsNone) {
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE,
                load(makePackage(makeToyManifest(), "not an object")));
  EXPECT_EQ(0u, getMessage().find("cannot load member 'code/x86-64-v3.so' of "
                                  "package '<memory>': "))
      << getMessage();

  nlohmann::json manifest = makeToyManifest();
  manifest["variants"][0]["schedule"][0]["kernel"] = "absent";
  EXPECT_REFUSED(STEPC_CORRUPT_PACKAGE,
                 "member 'code/x86-64-v3.so' of package '<memory>' has no "
                 "symbol 'absent'",
                 load(makePackage(manifest, readFile(STEPC_TEST_KERNELS))));
}

/// Decided before the code is opened: here it is none at all.
TEST(Package, processorsWithoutAFeature) {
  nlohmann::json manifest = makeToyManifest();
  nlohmann::json &code = manifest["code"];
  code[0]["target"] = "x86-64-v9";
  code[0]["cpu_features"] = {"avx2", "quantum", "warp"};
  EXPECT_REFUSED(STEPC_UNSUPPORTED_TARGET,
                 "package '<memory>' has no code for this processor: x86-64-v9 "
                 "needs quantum, warp",
                 load(makePackage(manifest, "not an object")));
  code.push_back(code[0]);
  code[1]["target"] = "other";
  code[1]["cpu_features"] = {"quantum"};
  EXPECT_REFUSED(STEPC_UNSUPPORTED_TARGET,
                 "package '<memory>' has no code for this processor: x86-64-v9 "
                 "needs quantum, warp; other needs quantum",
                 load(makePackage(manifest, "not an object")));
}

/// Of the entries that the processor can run the most demanding one is taken.
TEST(Package, bestCodeIsChosen) {
  nlohmann::json manifest = makeToyManifest();
  nlohmann::json entry = manifest["code"][0];
  manifest["code"] = {entry, entry, entry};
  manifest["code"][0]["file"] = "code/basic.so";
  manifest["code"][0]["cpu_features"] = nlohmann::json::array();
  manifest["code"][2]["file"] = "code/future.so";
  manifest["code"][2]["cpu_features"].push_back("quantum");
  std::string good = readFile(STEPC_TEST_KERNELS);
  EXPECT_EQ(STEPC_OK, load(sign(makeZip({{"manifest.json", manifest.dump()},
                                         {"code/basic.so", "bad"},
                                         {"code/x86-64-v3.so", good},
                                         {"code/future.so", "bad"}}))))
      << getMessage();
}

/// Two packages at the same time keep their own code, although the loader
/// knows both objects by the number of a file descriptor.
TEST(Package, descriptorsDoNotMixUpPackages) {
  PackagePtr toy = loadPackage(getToyPackage());
  PackagePtr plain = loadPackage(makePackage(makePlainManifest("throwing"),
                                             readFile(STEPC_TEST_THROWING)));
  ASSERT_TRUE(toy && plain);
}

size_t countEntries(const char *directory) {
  DIR *dir = opendir(directory);
  size_t count = 0;
  while (readdir(dir))
    ++count;
  closedir(dir);
  return count;
}

size_t countMappings() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  size_t count = 0;
  while (std::getline(maps, line))
    count += line.find("stepc-package") != std::string::npos;
  return count;
}

TEST(Package, thousandLoadsLeaveNothing) {
  size_t files = countEntries("/proc/self/fd");
  size_t mappings = countMappings();
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(STEPC_OK, load(getToyPackage())) << getMessage();
  EXPECT_EQ(files, countEntries("/proc/self/fd"));
  EXPECT_EQ(mappings, countMappings());
}

TEST(Package, refusedLoadsLeaveNothing) {
  size_t files = countEntries("/proc/self/fd");
  std::string bad = makePackage(makeToyManifest(), "not an object");
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(STEPC_CORRUPT_PACKAGE, load(bad));
  EXPECT_EQ(files, countEntries("/proc/self/fd"));
}

/// An object linked with -ffast-math would turn denormals of the host to 0.
TEST(Package, loadingKeepsTheFloatMode) {
  unsigned before = _mm_getcsr();
  PackagePtr package = loadPackage(makePackage(makePlainManifest("fastmath"),
                                               readFile(STEPC_TEST_FASTMATH)));
  ASSERT_TRUE(package);
  EXPECT_EQ(before, _mm_getcsr());
}

} // namespace
