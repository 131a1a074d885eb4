# SPDX-License-Identifier: MIT
"""A program that uses the package, run on the emulated driver that is in it."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class GpuipcTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain", "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if not can_run(self):
            return
        folder = self.dependencies["gpuipc"].package_folder
        emulated = (
            os.path.join(folder, "bin", "gpuipc", "gpuipc-emulated-cuda.dll")
            if self.settings.os == "Windows"
            else os.path.join(folder, "lib", "gpuipc", "libgpuipc-emulated-cuda.so")
        )
        program = os.path.join(self.cpp.build.bindir, "use_gpuipc")
        self.run(f'"{program}" "{emulated}"', env="conanrun")
