//===- File.cpp - a file that keeps states ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "store/File.h"

#include "core/Status.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace stepc;
using namespace stepc::store;

File::~File() = default;

PageMemory stepc::store::allocatePages(int64_t bytes) {
  PageMemory pages(static_cast<char *>(std::aligned_alloc(
                       size_t(kPage), size_t(roundUpToPage(bytes)))),
                   std::free);
  if (!pages)
    throw std::bad_alloc();
  return pages;
}

std::string stepc::store::describeError(int error) {
  std::array<char, 128> words;
  return strerror_r(error, words.data(), words.size());
}

/// Of the whole file.
static bool setLock(int descriptor, short kind) {
  struct flock whole = {};
  whole.l_type = kind;
  whole.l_whence = SEEK_SET;
  return fcntl(descriptor, F_OFD_SETLK, &whole) == 0;
}

namespace {

class Descriptor final : public File {
public:
  Descriptor(int descriptor, std::string name, bool direct)
      : descriptor(descriptor), name(std::move(name)), direct(direct) {}
  ~Descriptor() override { Descriptor::close(); }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;

  int64_t read(void *to, size_t bytes, int64_t offset) override {
    return pread(descriptor, to, bytes, offset);
  }
  int64_t write(const void *from, size_t bytes, int64_t offset) override {
    return pwrite(descriptor, from, bytes, offset);
  }
  int extend(int64_t begin, int64_t bytes) override {
    if (takeRoom(begin, bytes) == 0)
      return 0;
    // A file system without it: what has no room is found when it is written.
    return errno == EOPNOTSUPP ? ftruncate(descriptor, begin + bytes) : -1;
  }
  void discard(int64_t begin, int64_t bytes) override {
    (void)punch(begin, bytes);
  }
  int clear(int64_t begin, int64_t bytes) override {
    if (punch(begin, bytes) != 0)
      return errno == EOPNOTSUPP ? writeZeros(begin, bytes) : -1;
    // A hole reads as zeros, whether or not it gets its room at once.
    return takeRoom(begin, bytes) == 0 || errno == EOPNOTSUPP ? 0 : -1;
  }
  int sync() override { return fdatasync(descriptor); }
  void unlock() override {
    // Processes that were forked have the lock as well, and keep it while they
    // live: whose it is gives it up for all.
    if (descriptor >= 0 && getpid() == process)
      (void)setLock(descriptor, F_UNLCK);
  }
  bool lock() override { return setLock(descriptor, F_WRLCK); }
  void close() override {
    unlock();
    if (descriptor >= 0)
      ::close(descriptor);
    descriptor = -1;
  }
  int64_t getBytes() override {
    struct stat status;
    return fstat(descriptor, &status) == 0 ? int64_t(status.st_size) : -1;
  }
  std::string getName() const override { return name; }
  bool isDirect() const override { return direct; }
  void setDirect(bool own) { direct = own; }

private:
  int takeRoom(int64_t begin, int64_t bytes) {
    int result;
    do
      result = fallocate(descriptor, 0, begin, bytes);
    while (result != 0 && errno == EINTR);
    return result;
  }
  int punch(int64_t begin, int64_t bytes) {
    return fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     begin, bytes);
  }
  int writeZeros(int64_t begin, int64_t bytes) {
    constexpr int64_t kMost = 1 << 20;
    size_t size = size_t(std::min(bytes, kMost));
    PageMemory zeros = allocatePages(int64_t(size));
    std::memset(zeros.get(), 0, size);
    for (int64_t done = 0; done < bytes;) {
      int64_t written =
          pwrite(descriptor, zeros.get(), std::min(size, size_t(bytes - done)),
                 begin + done);
      if (written < 0 && errno == EINTR)
        continue;
      if (written <= 0)
        return -1;
      done += written;
    }
    return 0;
  }

  int descriptor;
  std::string name;
  bool direct;
  pid_t process = getpid();
};

} // namespace

/// A file without a name; where the file system has none of those, one whose
/// name is gone again.
static int openNameless(const std::string &directory) {
  int flags = O_RDWR | O_CLOEXEC;
  int descriptor = open(directory.c_str(), flags | O_TMPFILE, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
    return descriptor;
  std::string path = directory + "/stepc-states-XXXXXX";
  std::vector<char> name(path.c_str(), path.c_str() + path.size() + 1);
  descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor >= 0)
    unlink(name.data());
  return descriptor;
}

/// Whether the file can be written directly. Some file systems say so when it
/// is tried; what has content already is only read.
static bool makeDirect(int descriptor, bool hasContent = false) {
  int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0)
    return false;
  PageMemory page = allocatePages(kPage);
  std::memset(page.get(), 0, size_t(kPage));
  if ((hasContent ||
       pwrite(descriptor, page.get(), size_t(kPage), 0) == kPage) &&
      pread(descriptor, page.get(), size_t(kPage), 0) == kPage)
    return true;
  (void)fcntl(descriptor, F_SETFL, flags);
  return false;
}

std::unique_ptr<File> stepc::store::openFile(const std::string &directory,
                                             bool direct) {
  int descriptor = openNameless(directory);
  if (descriptor < 0) {
    int error = errno;
    fail(STEPC_STORE_ERROR, "no file for states can be made in '%s': %s",
         directory.c_str(), describeError(error).c_str());
  }
  direct = direct && makeDirect(descriptor);
  return std::make_unique<Descriptor>(
      descriptor, "the file of states in '" + directory + "'", direct);
}

/// Has the file's name be on the disk.
static void syncDirectory(const std::string &directory) {
  int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;
  (void)fsync(descriptor);
  close(descriptor);
}

std::unique_ptr<File> stepc::store::openNamed(const std::string &directory,
                                              const std::string &name,
                                              bool direct) {
  const std::string path = directory + "/" + name;
  int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0)
    fail(STEPC_STORE_ERROR, "the file of states '%s' cannot be opened: %s",
         path.c_str(), describeError(errno).c_str());
  auto file = std::make_unique<Descriptor>(
      descriptor, "the file of states '" + path + "'", false);
  // Whoever opens the file has it alone, until that is closed or the process
  // ends.
  if (!setLock(descriptor, F_WRLCK)) {
    int error = errno;
    fail(STEPC_STORE_ERROR, "%s %s", file->getName().c_str(),
         error == EAGAIN || error == EACCES
             ? "is open in another optimizer or process"
             : ("cannot be locked: " + describeError(error)).c_str());
  }
  const bool hasContent = file->getBytes() > 0;
  if (!hasContent)
    syncDirectory(directory);
  if (direct)
    file->setDirect(makeDirect(descriptor, hasContent));
  return file;
}

[[noreturn]] static void failTransfer(const File &file, const char *what,
                                      int64_t bytes, int64_t offset,
                                      const std::string &reason) {
  fail(STEPC_STORE_ERROR, "%s: %lld bytes at %lld cannot be %s: %s",
       file.getName().c_str(), static_cast<long long>(bytes),
       static_cast<long long>(offset), what, reason.c_str());
}

/// Direct transfers go on where a page begins.
template <typename Call>
static void transferAll(const File &file, const char *what, int64_t bytes,
                        int64_t offset, const char *ended, Call call) {
  int64_t done = 0;
  while (done < bytes) {
    int64_t result = call(done, bytes - done);
    if (result < 0 && errno == EINTR)
      continue;
    if (result < 0) {
      int error = errno;
      failTransfer(file, what, bytes - done, offset + done,
                   describeError(error));
    }
    int64_t moved = std::min(result, bytes - done);
    if (file.isDirect() && done + moved < bytes)
      moved = (done + moved) / kPage * kPage - done;
    if (moved <= 0)
      failTransfer(file, what, bytes - done, offset + done, ended);
    done += moved;
  }
}

void stepc::store::readAll(File &file, void *to, int64_t bytes,
                           int64_t offset) {
  transferAll(file, "read", bytes, offset, "the file has become shorter",
              [&](int64_t done, int64_t left) {
                return file.read(static_cast<char *>(to) + done, size_t(left),
                                 offset + done);
              });
}

void stepc::store::writeAll(File &file, const void *from, int64_t bytes,
                            int64_t offset) {
  transferAll(file, "written", bytes, offset, "nothing is written",
              [&](int64_t done, int64_t left) {
                return file.write(static_cast<const char *>(from) + done,
                                  size_t(left), offset + done);
              });
}

void stepc::store::syncAll(File &file) {
  if (file.sync() != 0)
    fail(STEPC_STORE_ERROR, "%s cannot be brought to the disk: %s",
         file.getName().c_str(), describeError(errno).c_str());
}
