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

# The emulated driver and NVML: in a folder of their own, because they are no libraries to link. On
# Windows below the folder of the DLLs and programs, which are carried about with what they load.
if(WIN32)
  install(TARGETS gpuipc_emulated gpuipc_emulated_nvml LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR}/gpuipc)
else()
  install(TARGETS gpuipc_emulated gpuipc_emulated_nvml LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gpuipc)
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
foreach(name gpuipc gpuipc-static)
  set(GPUIPC_PC_NAME ${name})
  set(GPUIPC_PC_LIBS "${GPUIPC_PC_LIBS_${name}}")
  set(GPUIPC_PC_LIBS_PRIVATE "${GPUIPC_PC_LIBS_PRIVATE_${name}}")
  set(GPUIPC_PC_CFLAGS "${GPUIPC_PC_CFLAGS_${name}}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/gpuipc.pc.in ${CMAKE_BINARY_DIR}/install/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/install/${name}.pc DESTINATION ${pkgconfig_dir})
endforeach()

# One archive of all this: `cmake --build <build folder> --target package`.
set(CPACK_GENERATOR TGZ)
if(WIN32)
  set(CPACK_GENERATOR ZIP)
endif()
set(CPACK_PACKAGE_NAME gpuipc)
set(CPACK_PACKAGE_VENDOR gpuipc)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
string(TOLOWER gpuipc-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR} CPACK_PACKAGE_FILE_NAME)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
