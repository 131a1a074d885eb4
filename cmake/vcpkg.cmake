# SPDX-License-Identifier: MIT
# Toolchain: vcpkg's where VCPKG_ROOT names a copy of it; it then installs what vcpkg.json names.
if(NOT "$ENV{VCPKG_ROOT}" STREQUAL "")
  # Its DLLs belong beside the programs in a package as well.
  set(X_VCPKG_APPLOCAL_DEPS_INSTALL ON)
  file(TO_CMAKE_PATH "$ENV{VCPKG_ROOT}" _vcpkg_root)
  include(${_vcpkg_root}/scripts/buildsystems/vcpkg.cmake)
endif()
