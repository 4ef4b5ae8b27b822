# What lit runs, and the checks that are scripts.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(LLVM_EXTERNAL_LIT lit HINTS ${PROJECT_SOURCE_DIR}/.venv/bin REQUIRED)
configure_file(lit.site.cfg.py.in lit.site.cfg.py @ONLY)
add_test(NAME lit COMMAND ${LLVM_EXTERNAL_LIT} -v ${CMAKE_CURRENT_BINARY_DIR})

add_test(NAME every-message-is-tested
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/dialect/every_message_is_tested.py)

file(GLOB STEPC_ZOO CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/frontend/optimizers/*.mlir
  ${PROJECT_SOURCE_DIR}/frontend/optimizers/fragments/*.mlir)
add_test(NAME mutations
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/dialect/mutations.py
          $<TARGET_FILE:stepc-opt> ${STEPC_ZOO} --count 150)
# The longest come first, that none is left alone at the end: these, and others that say so.
set_tests_properties(lit mutations PROPERTIES COST 40)
