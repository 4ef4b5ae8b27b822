# Finds MLIR and LLVM, and sets the flags that code linked with them needs.
# Everything links the shared libMLIR and libLLVM; a static MLIR library beside
# them would bring a second copy of its globals.

find_package(MLIR 22.1 REQUIRED CONFIG
  HINTS /usr/lib/llvm-22/lib/cmake/mlir)
message(STATUS "MLIR ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")

list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
set(MLIR_BINARY_DIR ${PROJECT_BINARY_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

separate_arguments(STEPC_LLVM_DEFINITIONS NATIVE_COMMAND ${LLVM_DEFINITIONS})

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
