# What is installed, and where: the folders of the Python package, which a wheel
# holds (pyproject.toml) and from which C++ programs may use the runtime.
#
#   stepc/bin/       the tools; commands of the same name start them
#   stepc/lib/       the runtime, and what it needs where nothing else has loaded it
#   stepc/include/   headers of the C interface
#   stepc/licenses/  of what the tools hold of others

set(package stepc)
set(products stepc_runtime)
if(TARGET stepc_mpi)
  list(APPEND products stepc_mpi)
endif()
install(TARGETS ${products} LIBRARY DESTINATION ${package}/lib)
install(DIRECTORY runtime/include/ DESTINATION ${package}/include)
if(TARGET stepc_walk)
  install(TARGETS stepc_walk LIBRARY DESTINATION ${package})
endif()

# In a process with torch the library of this name is torch's, else the system's; this
# one is for systems that have none.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.so.1
  OUTPUT_VARIABLE STEPC_GOMP OUTPUT_STRIP_TRAILING_WHITESPACE)
file(REAL_PATH ${STEPC_GOMP} STEPC_GOMP)
install(FILES ${STEPC_GOMP} DESTINATION ${package}/lib RENAME libgomp.so.1)

if(STEPC_BUILD_COMPILER)
  set(tools stepc stepc-opt stepc-run stepc-lsp-server)
  install(TARGETS ${tools} RUNTIME DESTINATION ${package}/bin)
  set_target_properties(${tools} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  # As RPATH, which also finds what the runtime needs.
  target_link_options(stepc-run PRIVATE -Wl,--disable-new-dtags)
endif()

install(FILES LICENSE DESTINATION ${package}/licenses RENAME stepc.txt)
foreach(part llvm-22:llvm.txt libzstd-dev:zstd.txt zlib1g-dev:zlib.txt libgomp1:gcc.txt)
  string(REPLACE ":" ";" part ${part})
  list(GET part 0 debian)
  list(GET part 1 name)
  install(FILES /usr/share/doc/${debian}/copyright
    DESTINATION ${package}/licenses RENAME ${name} OPTIONAL)
endforeach()
