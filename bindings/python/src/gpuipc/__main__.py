# SPDX-License-Identifier: MIT
"""python -m gpuipc: gpuipc-selftest, which shares memory between two processes and proves it."""

import os
import sys
from pathlib import Path

program = str(Path(__file__).parent / "bin" / "gpuipc-selftest")
os.execv(program, [program, *sys.argv[1:]])
