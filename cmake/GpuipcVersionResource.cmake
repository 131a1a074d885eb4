# SPDX-License-Identifier: MIT
# gpuipc_version_resource(TARGET DESCRIPTION): on Windows, what the properties of the file show. The
# version is the project's, which is the header's.
if(WIN32)
  enable_language(RC)
endif()

function(gpuipc_version_resource target description)
  if(NOT WIN32)
    return()
  endif()
  get_target_property(name ${target} OUTPUT_NAME)
  if(NOT name)
    set(name ${target})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set(file ${name}.exe)
    set(file_type 1) # VFT_APP
  else()
    set(file ${name}.dll)
    set(file_type 2) # VFT_DLL
  endif()
  string(REPLACE "." "," numbers ${PROJECT_VERSION}.0)
  set(resource ${PROJECT_BINARY_DIR}/version/${name}.rc)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/version.rc.in ${resource} @ONLY)
  target_sources(${target} PRIVATE ${resource})
  # The options of the C compiler are none of the resource compiler's.
  set_source_files_properties(${resource} TARGET_DIRECTORY ${target} PROPERTIES LANGUAGE RC)
endfunction()
