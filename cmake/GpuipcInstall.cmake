# SPDX-License-Identifier: MIT
# What `cmake --install` puts where. Nothing installed names the build tree, and the whole prefix can
# be moved: whatever looks for the emulated driver looks beside itself first.
#
# Three parts, which are packages of their own on Debian: runtime (the shared library), development (what programs are
# built with), and tools (the programs, the hook, the emulated driver, the pages about them).
include(CMakePackageConfigHelpers)

set(targets gpuipc_static)
if(GPUIPC_BUILD_SHARED)
  list(APPEND targets gpuipc)
endif()
install(TARGETS ${targets} EXPORT gpuipcTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gpuipc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

# The pages lie beside each other as in the sources, so that the links between them hold; the headers are elsewhere.
file(RELATIVE_PATH doc_to_include ${CMAKE_INSTALL_FULL_DOCDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/README.md)
file(READ ${PROJECT_SOURCE_DIR}/README.md readme)
string(REPLACE "](include/" "](${doc_to_include}/" readme "${readme}")
file(WRITE ${PROJECT_BINARY_DIR}/install/README.md "${readme}")
install(FILES ${PROJECT_BINARY_DIR}/install/README.md
  ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md
  ${PROJECT_SOURCE_DIR}/SECURITY.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT development PATTERN man EXCLUDE)

# The emulated driver and NVML: in a folder of their own, because they are no libraries to link. On
# Windows below the folder of the DLLs and programs, which are carried about with what they load.
set(emulated_dir ${CMAKE_INSTALL_LIBDIR}/gpuipc)
if(WIN32)
  set(emulated_dir ${CMAKE_INSTALL_BINDIR}/gpuipc)
endif()
install(TARGETS gpuipc_emulated EXPORT gpuipcTargets LIBRARY DESTINATION ${emulated_dir} COMPONENT tools)
install(TARGETS gpuipc_emulated_nvml LIBRARY DESTINATION ${emulated_dir} COMPONENT tools)
if(NOT WIN32)
  # For programs that link the CUDA driver by name: LD_LIBRARY_PATH=<libdir>/gpuipc/emulated.
  install(FILES ${PROJECT_BINARY_DIR}/bin/emulated/libcuda.so.1 DESTINATION ${emulated_dir}/emulated COMPONENT tools)
  # For those that link the CUDA runtime as a shared library: <libdir>/gpuipc/emulated-runtime as well.
  install(TARGETS gpuipc_emulated_cudart12 gpuipc_emulated_cudart13 LIBRARY DESTINATION ${emulated_dir}/emulated-runtime
    COMPONENT tools)
endif()

if(TARGET gpuipc_preload)
  install(TARGETS gpuipc_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tools)
endif()
if(TARGET gpuipc-selftest)
  # It contains the static library, so it needs no RPATH to find the shared one.
  install(TARGETS gpuipc-selftest RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()

# CMake: find_package(gpuipc)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpuipc)
install(EXPORT gpuipcTargets NAMESPACE gpuipc:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gpuipcConfig.cmake.in
  ${PROJECT_BINARY_DIR}/install/gpuipcConfig.cmake INSTALL_DESTINATION ${package_dir})
# While the major version is 0, another minor version is another interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/install/gpuipcConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/install/gpuipcConfig.cmake
  ${PROJECT_BINARY_DIR}/install/gpuipcConfigVersion.cmake DESTINATION ${package_dir}
  COMPONENT development)

# pkg-config: gpuipc, and gpuipc-static for a program that contains the library. The prefix is given
# relative to the .pc file, so that it moves along.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH GPUIPC_PC_TO_PREFIX ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" GPUIPC_PC_TO_PREFIX ${GPUIPC_PC_TO_PREFIX})
set(static_libs "")
foreach(library IN LISTS os_libraries)
  if(library STREQUAL "Threads::Threads")
    list(APPEND static_libs -pthread)
  else()
    list(APPEND static_libs -l${library})
  endif()
endforeach()
list(JOIN static_libs " " static_libs)
get_target_property(static_name gpuipc_static OUTPUT_NAME)
if(NOT static_name)
  set(static_name gpuipc_static)
endif()
string(PREPEND static_name ${CMAKE_STATIC_LIBRARY_PREFIX})
string(APPEND static_name ${CMAKE_STATIC_LIBRARY_SUFFIX})
set(GPUIPC_PC_LIBS_gpuipc-static "\${libdir}/${static_name} ${static_libs}")
set(GPUIPC_PC_CFLAGS_gpuipc-static "-DGPUIPC_STATIC")
if(GPUIPC_BUILD_SHARED)
  set(GPUIPC_PC_LIBS_gpuipc "-L\${libdir} -lgpuipc")
  set(GPUIPC_PC_LIBS_PRIVATE_gpuipc "${static_libs}")
else()
  set(GPUIPC_PC_LIBS_gpuipc "${GPUIPC_PC_LIBS_gpuipc-static}")
  set(GPUIPC_PC_CFLAGS_gpuipc "${GPUIPC_PC_CFLAGS_gpuipc-static}")
endif()
set(GPUIPC_PC_EMULATED "emulated_driver=\${prefix}/${emulated_dir}/$<TARGET_FILE_NAME:gpuipc_emulated>")
if(NOT WIN32)
  string(APPEND GPUIPC_PC_EMULATED "\nemulated_libcuda_dir=\${prefix}/${emulated_dir}/emulated")
endif()
foreach(name gpuipc gpuipc-static)
  set(GPUIPC_PC_NAME ${name})
  set(GPUIPC_PC_LIBS "${GPUIPC_PC_LIBS_${name}}")
  set(GPUIPC_PC_LIBS_PRIVATE "${GPUIPC_PC_LIBS_PRIVATE_${name}}")
  set(GPUIPC_PC_CFLAGS "${GPUIPC_PC_CFLAGS_${name}}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/gpuipc.pc.in ${PROJECT_BINARY_DIR}/install/${name}.pc.in @ONLY)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/install/${name}.pc INPUT ${PROJECT_BINARY_DIR}/install/${name}.pc.in)
  install(FILES ${PROJECT_BINARY_DIR}/install/${name}.pc DESTINATION ${pkgconfig_dir} COMPONENT development)
endforeach()

# The manual's pages and the shells' completions.
include(GpuipcManual)

include(GpuipcPackages)
