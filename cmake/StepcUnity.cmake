# Libraries of the compiler, whose build takes a fifth less where they are not optimized as much: a
# compilation of a definition, most of which is LLVM's own code, takes 5 % more (docs/performance.md).
function(stepc_compiler_library target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  stepc_unity(${target})
endfunction()

# Sources of one folder are compiled together, eight at a time: most of a compilation
# is the headers. OFF for work on a few files.
option(STEPC_UNITY_BUILD "Compile several sources of a folder at once" ON)

# Has the sources of the target compiled so. What they declare for themselves has
# names that differ within a folder.
function(stepc_unity target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "folder_${folder}" group)
    if(source MATCHES "\\.cpp$")
      math(EXPR ${group} "${${group}} + 0")
      math(EXPR batch "${${group}} / 8")
      math(EXPR ${group} "${${group}} + 1")
      set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${group}_${batch})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${STEPC_UNITY_BUILD} UNITY_BUILD_MODE GROUP)
endfunction()
