# SPDX-License-Identifier: MIT
# Packages of what is installed: `cpack` (or the target `package`) makes one archive, `cpack -G DEB` three Debian packages.
# ci/package makes the latter for Debian, checks and tries them.

# Debian wants a copyright and a changelog for each package, and pages in the manual's own format (Debian policy 12).
option(GPUIPC_DEBIAN_FILES "Install also what each Debian package has to contain" OFF)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libgpuipc${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libgpuipc-dev)
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME gpuipc-tools)

set(CPACK_GENERATOR TGZ)
if(WIN32)
  set(CPACK_GENERATOR ZIP)
endif()
set(CPACK_PACKAGE_NAME gpuipc)
set(CPACK_PACKAGE_VENDOR gpuipc)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
string(TOLOWER gpuipc-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR} CPACK_PACKAGE_FILE_NAME)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "GPU memory shared between processes")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

# ---- Debian -------------------------------------------------------------------------------------

set(CPACK_COMPONENTS_ALL runtime development tools)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The gpuipc authors <gpuipc@localhost>" CACHE STRING
    "Who answers for the Debian packages: name and address")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON) # as Debian policy 10.9 has it
# What programs that link the library depend on, made by dpkg-shlibdeps and in the manner of dpkg-gensymbols.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
if(CMAKE_CROSSCOMPILING)
  set(architecture_of_aarch64 arm64)
  set(architecture_of_s390x s390x)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${architecture_of_${CMAKE_SYSTEM_PROCESSOR}})
  # dpkg-shlibdeps knows the libraries of this machine alone. glibc's oldest version with all that is called is told.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= 2.34)")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libc6 (>= 2.34)")
else()
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
set(description
    "gpuipc lets a process use GPU memory of another process without a copy,\nfor programs that use NVIDIA GPUs through CUDA: by tickets of 64 bytes,\nby messages, and by channels of frames.\n\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "GPU memory shared between processes: the library\n${description}This package has the shared library.")
# What CPack's own scripts do a second time, since Debian's way is a trigger (policy 8.1.1).
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/debian/triggers)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "GPU memory shared between processes: headers and manual\n${description}This package has the headers, the static library, examples,\nand the manual.")
# The emulated driver, which the CMake package names, is with the tools.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} (= ${PROJECT_VERSION}), ${CPACK_DEBIAN_TOOLS_PACKAGE_NAME} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "GPU memory shared between processes: programs\n${description}This package has gpuipc-selftest, a hook for unmodified programs,\nand an emulated CUDA driver for machines without a GPU.")

# gpuipc_debian_files COMPONENT PACKAGE. Always the same bytes for the same version.
function(gpuipc_debian_files component package)
  set(folder ${PROJECT_BINARY_DIR}/install/debian/${package})
  file(WRITE ${folder}/changelog
       "gpuipc (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md in libgpuipc-dev.\n\n"
       " -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  Thu, 01 Jan 2026 00:00:00 +0000\n")
  find_program(GPUIPC_GZIP NAMES gzip REQUIRED)
  execute_process(COMMAND ${GPUIPC_GZIP} -9nf ${folder}/changelog COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${folder}/changelog.gz DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} COMPONENT ${component})
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/copyright
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} COMPONENT ${component})
  if(EXISTS ${PROJECT_SOURCE_DIR}/packaging/debian/${component}.lintian-overrides)
    install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/${component}.lintian-overrides
      DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/lintian/overrides RENAME ${package} COMPONENT ${component})
  endif()
endfunction()
if(GPUIPC_DEBIAN_FILES)
  gpuipc_debian_files(runtime ${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME})
  gpuipc_debian_files(development ${CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME})
  gpuipc_debian_files(tools ${CPACK_DEBIAN_TOOLS_PACKAGE_NAME})
endif()

include(CPack)
