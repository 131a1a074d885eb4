# SPDX-License-Identifier: MIT
# Toolchain: 64-bit Windows from Linux, with mingw-w64. Programs that a build or a test starts run
# under Wine where that is installed.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(_target x86_64-w64-mingw32)

# The compiler with Windows' own threads: with the other one every program needs libwinpthread-1.dll.
find_program(CMAKE_C_COMPILER NAMES ${_target}-gcc-win32 ${_target}-gcc REQUIRED)
set(CMAKE_RC_COMPILER ${_target}-windres)
# Else every program and DLL needs libgcc_s_seh-1.dll.
foreach(_kind EXE SHARED MODULE)
  set(CMAKE_${_kind}_LINKER_FLAGS_INIT -static-libgcc)
endforeach()

# GPUIPC_CRITERION_MINGW: where ci/build-criterion-mingw put Criterion, cJSON and Mini-XML.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GPUIPC_CRITERION_MINGW)
# What is looked for is looked for below these folders alone, so that nothing of the building system's is found;
# what CMAKE_PREFIX_PATH names was put there for Windows, such as an installed gpuipc.
list(APPEND CMAKE_FIND_ROOT_PATH /usr/${_target} ${GPUIPC_CRITERION_MINGW} ${CMAKE_PREFIX_PATH})
list(REMOVE_DUPLICATES CMAKE_FIND_ROOT_PATH) # CMake reads this file several times
if(GPUIPC_CRITERION_MINGW)
  set(ENV{PKG_CONFIG_LIBDIR} ${GPUIPC_CRITERION_MINGW}/lib/pkgconfig)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Debian's wine64 puts nothing into PATH.
find_program(GPUIPC_WINE NAMES wine64 wine64-stable PATHS /usr/lib/wine NO_CMAKE_FIND_ROOT_PATH)
if(GPUIPC_WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR
    ${CMAKE_CURRENT_LIST_DIR}/../tests/wine/run ${GPUIPC_WINE} ${CMAKE_BINARY_DIR}/wineprefix)
endif()
