//===- File.h - a file that keeps states --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_STORE_FILE_H
#define STEPC_STORE_FILE_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace stepc::store {

/// Where direct transfers begin and end, in the file and in memory.
inline constexpr int64_t kPage = 4096;

inline int64_t roundUpToPage(int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Calls of the system, as it has them: -1 and errno where they fail, and fewer
/// bytes than were asked for. Any thread may call them at any time. Tests have
/// files that fail.
class File {
public:
  virtual ~File();
  virtual int64_t read(void *to, size_t bytes, int64_t offset) = 0;
  virtual int64_t write(const void *from, size_t bytes, int64_t offset) = 0;
  /// Makes these bytes the file's, as zeros.
  virtual int extend(int64_t begin, int64_t bytes) = 0;
  /// Gives the room of bytes back to the disk, if that can be.
  virtual void discard(int64_t begin, int64_t bytes) = 0;
  /// Makes bytes that the file has zeros, with room on the disk.
  virtual int clear(int64_t begin, int64_t bytes) = 0;
  /// Has all that was written be on the disk itself.
  virtual int sync() = 0;
  /// Of the file; -1 where that is not known.
  virtual int64_t getBytes() = 0;
  /// Gives it back to the system: calls fail from now on, and others may open
  /// the file.
  virtual void close() = 0;
  /// Lets others open the file, and takes it for itself again: false where
  /// somebody has it. Of a file that has no name nothing is done.
  virtual void unlock() {}
  virtual bool lock() { return true; }
  /// As messages call it.
  virtual std::string getName() const = 0;
  /// Whether transfers pass the system's cache.
  virtual bool isDirect() const = 0;
};

/// A new file in the directory, which no name leads to, so that it goes with
/// the process. `direct`: transfers that pass the system's cache, where the
/// file system has them.
std::unique_ptr<File> openFile(const std::string &directory, bool direct);

/// The file `name` of the directory, which is made where it is not there and
/// stays. Nobody else can open it meanwhile.
std::unique_ptr<File> openNamed(const std::string &directory,
                                const std::string &name, bool direct);

/// Memory for pages, to be given to direct transfers.
using PageMemory = std::unique_ptr<char, void (*)(void *)>;
PageMemory allocatePages(int64_t bytes);

/// What an errno stands for.
std::string describeError(int error);

/// All bytes, whatever the number of calls that it takes; where one fails an
/// Error that names the file, the place and the reason.
void readAll(File &file, void *to, int64_t bytes, int64_t offset);
void writeAll(File &file, const void *from, int64_t bytes, int64_t offset);
void syncAll(File &file);

} // namespace stepc::store

#endif // STEPC_STORE_FILE_H
