# Registers with ctest what lit runs, and the checks of the documents' and
# tests' own form that are scripts.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(LLVM_EXTERNAL_LIT lit HINTS ${PROJECT_SOURCE_DIR}/.venv/bin REQUIRED)
configure_file(lit.site.cfg.py.in lit.site.cfg.py @ONLY)

add_test(NAME lit COMMAND ${LLVM_EXTERNAL_LIT} -v ${CMAKE_CURRENT_BINARY_DIR})
