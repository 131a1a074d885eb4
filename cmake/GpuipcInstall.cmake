# SPDX-License-Identifier: MIT
# What `cmake --install` puts where. Nothing installed names the build tree, and the whole prefix can
# be moved: whatever looks for the emulated driver looks beside itself first.
include(CMakePackageConfigHelpers)

set(targets gpuipc_static)
if(GPUIPC_BUILD_SHARED)
  list(APPEND targets gpuipc)
endif()
install(TARGETS ${targets} EXPORT gpuipcTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gpuipc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The emulated driver: in a folder of its own, because it is no library to link.
install(TARGETS gpuipc_emulated LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gpuipc)
if(NOT WIN32)
  # For programs that link the CUDA driver by name: LD_LIBRARY_PATH=<libdir>/gpuipc/emulated.
  install(FILES ${CMAKE_BINARY_DIR}/bin/emulated/libcuda.so.1 DESTINATION ${CMAKE_INSTALL_LIBDIR}/gpuipc/emulated)
endif()

if(TARGET gpuipc-selftest)
  # It contains the static library, so it needs no RPATH to find the shared one.
  install(TARGETS gpuipc-selftest RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# CMake: find_package(gpuipc)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpuipc)
install(EXPORT gpuipcTargets NAMESPACE gpuipc:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gpuipcConfig.cmake.in
  ${CMAKE_BINARY_DIR}/install/gpuipcConfig.cmake INSTALL_DESTINATION ${package_dir})
# While the major version is 0, another minor version is another interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/install/gpuipcConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/install/gpuipcConfig.cmake
  ${CMAKE_BINARY_DIR}/install/gpuipcConfigVersion.cmake DESTINATION ${package_dir})

# pkg-config: gpuipc, and gpuipc-static for a program that contains the library. The prefix is given
# relative to the .pc file, so that it moves along.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH GPUIPC_PC_TO_PREFIX ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" GPUIPC_PC_TO_PREFIX ${GPUIPC_PC_TO_PREFIX})
set(static_libs "-pthread")
if(CMAKE_DL_LIBS)
  string(APPEND static_libs " -l${CMAKE_DL_LIBS}")
endif()
set(GPUIPC_PC_LIBS_gpuipc-static "\${libdir}/libgpuipc.a ${static_libs}")
set(GPUIPC_PC_CFLAGS_gpuipc-static "-DGPUIPC_STATIC")
if(GPUIPC_BUILD_SHARED)
  set(GPUIPC_PC_LIBS_gpuipc "-L\${libdir} -lgpuipc")
  set(GPUIPC_PC_LIBS_PRIVATE_gpuipc "${static_libs}")
else()
  set(GPUIPC_PC_LIBS_gpuipc "${GPUIPC_PC_LIBS_gpuipc-static}")
  set(GPUIPC_PC_CFLAGS_gpuipc "${GPUIPC_PC_CFLAGS_gpuipc-static}")
endif()
foreach(name gpuipc gpuipc-static)
  set(GPUIPC_PC_NAME ${name})
  set(GPUIPC_PC_LIBS "${GPUIPC_PC_LIBS_${name}}")
  set(GPUIPC_PC_LIBS_PRIVATE "${GPUIPC_PC_LIBS_PRIVATE_${name}}")
  set(GPUIPC_PC_CFLAGS "${GPUIPC_PC_CFLAGS_${name}}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/gpuipc.pc.in ${CMAKE_BINARY_DIR}/install/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/install/${name}.pc DESTINATION ${pkgconfig_dir})
endforeach()
