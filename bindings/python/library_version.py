# SPDX-License-Identifier: MIT
"""The version is written down once, in the library's header; pyproject.toml has it from here."""

import re
from collections.abc import Mapping
from pathlib import Path


def dynamic_metadata(settings: Mapping[str, object], project: Mapping[str, object]) -> dict[str, str]:
    here = Path(__file__).parent
    library = here / "library" if (here / "library").exists() else here.parent.parent  # in an sdist or not
    header = (library / "include" / "gpuipc" / "gpuipc_version.h").read_text(encoding="utf-8")
    parts = [re.search(rf"define GPUIPC_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH")]
    return {"version": ".".join(part[1] for part in parts if part)}
