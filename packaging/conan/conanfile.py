# SPDX-License-Identifier: MIT
"""The library for Conan 2: `conan create packaging/conan`. The tools and the tests are not part of it."""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm, rmdir

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Gpuipc(ConanFile):
    name = "gpuipc"
    description = "GPU memory shared between processes"
    license = "MIT"
    topics = ("cuda", "gpu", "ipc", "shared-memory")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": False}

    def set_version(self):
        header = load(self, os.path.join(REPOSITORY, "include", "gpuipc", "gpuipc_version.h"))
        self.version = ".".join(re.findall(r"VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))

    def export_sources(self):
        for part in ("CMakeLists.txt", "LICENSE", "*.md", "cmake/*", "docs/*", "examples/*", "include/*", "packaging/*", "src/*"):
            copy(self, part, src=REPOSITORY, dst=self.export_sources_folder)

    def configure(self):
        # A C library: no C++ compiler's settings make another package of it.
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["GPUIPC_BUILD_SHARED"] = bool(self.options.shared)
        toolchain.cache_variables["GPUIPC_BUILD_SELFTEST"] = False
        toolchain.cache_variables["GPUIPC_BUILD_PRELOAD"] = False
        toolchain.cache_variables["BUILD_TESTING"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        # Conan writes what CMake finds it by; the pages are the repository's.
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        rmdir(self, os.path.join(self.package_folder, "share"))
        if self.options.shared:
            rm(self, "libgpuipc.a", os.path.join(self.package_folder, "lib"))
            rm(self, "*gpuipc_static.*", os.path.join(self.package_folder, "lib"))

    def package_info(self):
        windows = self.settings.os == "Windows"
        static = not self.options.shared
        self.cpp_info.libs = ["gpuipc_static" if windows and static else "gpuipc"]
        self.cpp_info.set_property("cmake_target_name", "gpuipc::gpuipc")
        self.cpp_info.set_property("pkg_config_name", "gpuipc")
        if static:
            self.cpp_info.defines = ["GPUIPC_STATIC"]
            self.cpp_info.system_libs = ["advapi32", "bcrypt", "ntdll"] if windows else ["pthread", "dl"]
