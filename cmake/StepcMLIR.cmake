# Finds MLIR and LLVM, and sets the flags that code linked with them needs.

# Ends with one line that says what is missing and how it is had.
function(stepc_missing what package)
  message(FATAL_ERROR "missing: ${what} (on Debian: apt install ${package}; "
    "tools/setup/packages.txt has all that a build needs)")
endfunction()

find_package(MLIR 22.1 QUIET CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
if(NOT MLIR_FOUND)
  stepc_missing("MLIR 22.1" "libmlir-22-dev mlir-22-tools")
endif()
message(STATUS "MLIR ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")
find_package(LLD QUIET CONFIG HINTS ${LLVM_DIR}/../lld)
if(NOT LLD_FOUND)
  stepc_missing("the libraries of lld 22" liblld-22-dev)
endif()
find_program(STEPC_LLD ld.lld HINTS ${LLVM_TOOLS_BINARY_DIR} NO_DEFAULT_PATH)
if(NOT STEPC_LLD)
  stepc_missing("lld 22" lld-22)
endif()

list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
set(MLIR_BINARY_DIR ${PROJECT_BINARY_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

separate_arguments(STEPC_LLVM_DEFINITIONS NATIVE_COMMAND ${LLVM_DEFINITIONS})

# What our libraries link of MLIR and LLVM: all static archives, of which the linker
# takes what is used. A tool runs where no LLVM is installed, starts sooner than with
# libMLIR and libLLVM, and holds one copy of MLIR. lld looks into archives in any
# order, and through all of them in a second.
add_library(StepcMLIR INTERFACE)
file(GLOB STEPC_LLVM_ARCHIVES
  ${LLVM_LIBRARY_DIR}/liblldELF.a ${LLVM_LIBRARY_DIR}/liblldCommon.a
  ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
find_library(STEPC_ZSTD libzstd.a)
find_library(STEPC_ZLIB libz.a)
if(NOT STEPC_ZSTD OR NOT STEPC_ZLIB)
  stepc_missing("libzstd.a or libz.a" "libzstd-dev zlib1g-dev")
endif()
add_library(stepc_arc4random STATIC ${CMAKE_CURRENT_LIST_DIR}/arc4random.c)
target_link_libraries(StepcMLIR INTERFACE ${STEPC_LLVM_ARCHIVES}
  ${STEPC_ZSTD} ${STEPC_ZLIB} stepc_arc4random pthread ${CMAKE_DL_LIBS})
target_link_options(StepcMLIR INTERFACE
  -fuse-ld=lld -B${LLVM_TOOLS_BINARY_DIR} -Wl,--gc-sections
  -static-libstdc++)

# For folders whose code includes MLIR's headers. The rest, the runtime and its
# tests, is compiled as it is without MLIR, with exceptions.
macro(stepc_use_mlir)
  # As LLVM was built: no exceptions, with RTTI.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>
                      -Wall -Wno-unused-parameter)
  include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  include_directories(${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  add_definitions(${STEPC_LLVM_DEFINITIONS})
endmacro()
