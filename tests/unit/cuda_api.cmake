# SPDX-License-Identifier: MIT
# unit.cuda_api: our declarations of the CUDA Driver API against the real cuda.h, where there is one.

# Every type, enumerator and flag that src/common/cuda/cuda_api.h declares, taken from its own lines, so
# that none can be forgotten. Members and signatures are listed in cuda_api_table.h.
set(_ours ${PROJECT_SOURCE_DIR}/src/common/cuda/cuda_api.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_ours})
file(STRINGS ${_ours} _lines REGEX "^    CU[A-Z0-9_a-z]+ = ")
string(REGEX MATCHALL "CU[A-Z0-9_a-z]+ = " _values "${_lines}")
list(TRANSFORM _values REPLACE " = " "")
file(STRINGS ${_ours} _lines REGEX "^#define CU_[A-Z0-9_]+ +0x[0-9]+$")
string(REGEX MATCHALL "CU_[A-Z0-9_]+" _flags "${_lines}")
list(APPEND _values ${_flags})
file(STRINGS ${_ours} _lines REGEX "^(typedef [^()]+|} )[A-Za-z0-9_]+;$")
string(REGEX MATCHALL "[A-Za-z0-9_]+\\\\?;" _types "${_lines};")
list(TRANSFORM _types REPLACE "[\\\\;]" "")
# The last of them came with CUDA 12.6, in room that was CUmemPoolProps.reserved before. That one is
# not compared: later versions make it smaller again, and the whole keeps its size.
set(_later_members "CUmemFabricHandle, data" "CUmemPoolProps, maxSize" "CUmemPoolProps, usage")

include(${PROJECT_SOURCE_DIR}/tests/cuda_toolkit.cmake)
set(_sources test_cuda_api.c cuda_api_ours.c)
if(GPUIPC_CUDA_INCLUDE_DIR AND EXISTS ${GPUIPC_CUDA_INCLUDE_DIR}/cuda.h)
  file(STRINGS ${GPUIPC_CUDA_INCLUDE_DIR}/cuda.h _version REGEX "^#define CUDA_VERSION [0-9]+")
  string(REGEX REPLACE "[^0-9]" "" _version "${_version}")
  message(STATUS "unit.cuda_api compares with ${GPUIPC_CUDA_INCLUDE_DIR}/cuda.h, CUDA ${_version}")
  # An older header lacks what came later; from 13.0 on all of it is there, and a name that is not is
  # a spelling mistake of ours, which then does not compile.
  if(_version LESS 13000)
    file(READ ${GPUIPC_CUDA_INCLUDE_DIR}/cuda.h _text)
    foreach(_value IN LISTS _values)
      if(NOT _text MATCHES "[^A-Za-z0-9_]${_value}[^A-Za-z0-9_]")
        message(STATUS "unit.cuda_api: this cuda.h does not have ${_value} yet")
        list(REMOVE_ITEM _values ${_value})
      endif()
    endforeach()
    foreach(_type IN LISTS _types)
      if(NOT _text MATCHES "[^A-Za-z0-9_]${_type}[^A-Za-z0-9_]")
        message(STATUS "unit.cuda_api: this cuda.h does not have ${_type} yet")
        list(REMOVE_ITEM _types ${_type})
      endif()
    endforeach()
    if(_version LESS 12060)
      message(STATUS "unit.cuda_api: this cuda.h does not have all of these yet: ${_later_members}")
      set(_later_members "")
    endif()
  endif()
  list(APPEND _sources cuda_api_theirs.c)
  # -isystem: NVIDIA's headers owe our warnings nothing.
  set_source_files_properties(cuda_api_theirs.c PROPERTIES
                              COMPILE_OPTIONS "-isystem;${GPUIPC_CUDA_INCLUDE_DIR}")
else()
  message(STATUS "unit.cuda_api skips: no cuda.h and cudaTypedefs.h found")
  list(APPEND _sources cuda_api_absent.c)
endif()

set(_names "/* Made by cuda_api.cmake from src/common/cuda/cuda_api.h. */\n#define CUDA_API_TYPES(X)")
foreach(_type IN LISTS _types)
  string(APPEND _names " \\\n    X(${_type})")
endforeach()
string(APPEND _names "\n#define CUDA_API_LATER_MEMBERS(X)")
foreach(_member IN LISTS _later_members)
  string(APPEND _names " \\\n    X(${_member})")
endforeach()
string(APPEND _names "\n#define CUDA_API_VALUES(X)")
foreach(_value IN LISTS _values)
  string(APPEND _names " \\\n    X(${_value})")
endforeach()
file(CONFIGURE OUTPUT cuda_api_names.h CONTENT "${_names}\n" @ONLY)

gpuipc_add_test(unit cuda_api SOURCES ${_sources})
target_include_directories(test_unit_cuda_api PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
