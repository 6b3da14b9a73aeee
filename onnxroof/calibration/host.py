"""What the operating system says about the machine: processor, cores, caches, memory, load."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
"""Environment variables by which BLAS libraries are told how many threads to use."""

_KERNEL_VARIABLES = (
    "OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "BLIS_ARCH_TYPE",
    "NPY_DISABLE_CPU_FEATURES", "GLIBC_TUNABLES",
)  # fmt: skip
"""Environment variables that choose other kernels than the library would."""

_CPU = Path("/sys/devices/system/cpu")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of cache: bytes of an instance, and how many the usable cores have."""

    level: int
    nbytes: int
    instances: int


@dataclass(frozen=True, slots=True)
class Host:
    """The machine.

    Attributes:
        processor: Its name.
        vendor: Who made it.
        cores: Physical cores this process may run on.
        places: A hardware thread of each of them, where the system tells them apart.
        logical: Hardware threads it may run on.
        caches: Data caches, the nearest first; () where the system does not tell.
        memory_bytes: Main memory; None where the system does not tell.
        vector_bits: Width of its vector registers.
        flops_per_cycle: fp32 operations a core can start in a cycle, at most; None if unknown.
        clock_hertz: The highest clock the system names; None where it names none.
        load: Processes that were running or waiting when asked, over a minute; None if unknown.
        quota: Cores' worth of time the process may use, where a limit is set.
        environment: Variables that change which kernels a library runs.
    """

    processor: str
    vendor: str
    cores: int
    places: tuple[int, ...]
    logical: int
    caches: tuple[Cache, ...]
    memory_bytes: int | None
    vector_bits: int
    flops_per_cycle: int | None
    clock_hertz: float | None
    load: float | None
    quota: float | None
    environment: Mapping[str, str]


def inspect_host() -> Host:
    """Ask the operating system."""
    usable = _usable()
    facts = _cpuinfo()
    bits, per_cycle = _vectors(facts)
    places = _places(usable)
    name = facts.get("model name") or _sysctl("machdep.cpu.brand_string") or platform.processor()
    return Host(
        processor=name or platform.machine() or "unknown processor",
        vendor=_vendor(facts, name),
        cores=len(places) or _physical_of_mac() or len(usable),
        places=places,
        logical=len(usable),
        caches=tuple(_caches(usable)) or tuple(_mac_caches()),
        memory_bytes=_memory_bytes(),
        vector_bits=bits,
        flops_per_cycle=per_cycle,
        clock_hertz=_clock(facts),
        load=_load(),
        quota=_quota(),
        environment={name: os.environ[name] for name in _KERNEL_VARIABLES if name in os.environ},
    )


def _usable() -> list[int]:
    """Hardware threads this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _places(usable: list[int]) -> tuple[int, ...]:
    """The first usable hardware thread of each core; () where the system does not tell."""
    first: dict[str, int] = {}
    for cpu in usable:
        siblings = _read(_CPU / f"cpu{cpu}" / "topology" / "thread_siblings_list")
        if not siblings:
            return ()
        first.setdefault(siblings, cpu)
    return tuple(first.values())


def _physical_of_mac() -> int:
    told = _sysctl("hw.physicalcpu")
    return int(told) if told.isdecimal() else 0


def _cpuinfo() -> dict[str, str]:
    """The first processor of /proc/cpuinfo; clocks are the highest of all."""
    facts: dict[str, str] = {}
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if key == "cpu MHz" and value > facts.get(key, ""):
            facts[key] = value
        facts.setdefault(key, value)
    return facts


def _vendor(facts: Mapping[str, str], name: str) -> str:
    told = f"{facts.get('vendor_id', '')} {name}".lower()
    known = {"amd": "AMD", "intel": "Intel", "apple": "Apple"}
    found = next((vendor for part, vendor in known.items() if part in told), "")
    return found or facts.get("vendor_id") or "unknown"


_FAMILY_OF_ZEN_3_AND_4 = "25"
"""AMD family 19h executes 512-bit instructions in two passes over 256-bit units (AMD, Software
Optimization Guide for the Zen 4 Microarchitecture, 57647)."""


def _vectors(facts: Mapping[str, str]) -> tuple[int, int | None]:
    """(bits of a register, fp32 FLOPs a core starts in a cycle at most).

    Two fused multiply-add units of the register's width on x86, four of 128 bits on ARM: no core
    with these instruction sets has more.
    """
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    if "avx512f" in flags:
        halved = facts.get("cpu family") == _FAMILY_OF_ZEN_3_AND_4
        return 512, 32 if halved else 64
    if "fma" in flags:
        return 256, 32
    if "sse2" in flags:
        return (256, 16) if "avx" in flags else (128, 8)
    if "asimd" in flags or platform.machine().lower() in ("arm64", "aarch64"):
        return 128, 32
    return 128, None


def _clock(facts: Mapping[str, str]) -> float | None:
    """Hertz."""
    highest = _read(_CPU / "cpu0" / "cpufreq" / "cpuinfo_max_freq").strip()
    if highest.isdecimal():
        return int(highest) * 1e3
    shown = re.fullmatch(r"\d{1,5}(?:\.\d+)?", facts.get("cpu MHz", ""))
    return float(shown[0]) * 1e6 if shown else None


def _caches(usable: list[int]) -> Iterator[Cache]:
    """Data and unified caches of Linux."""
    sizes: dict[int, int] = {}
    sharers: dict[int, set[str]] = {}
    for cpu in usable:
        for index in sorted((_CPU / f"cpu{cpu}" / "cache").glob("index*")):
            level, size = _read(index / "level").strip(), _read(index / "size").strip()
            found = re.fullmatch(r"(\d{1,9})([KMG]?)", size)
            kind = _read(index / "type").strip()
            if kind not in ("Data", "Unified") or not level.isdecimal() or found is None:
                continue
            nbytes = int(found[1]) * _UNITS[found[2]]
            sizes[int(level)] = max(sizes.get(int(level), 0), nbytes)
            shared = _read(index / "shared_cpu_list").strip()
            sharers.setdefault(int(level), set()).add(shared)
    for number, nbytes in sorted(sizes.items()):
        if nbytes:
            yield Cache(number, nbytes, len(sharers[number]))


def _mac_caches() -> Iterator[Cache]:
    cores = _sysctl("hw.physicalcpu")
    for level, key in ((1, "hw.l1dcachesize"), (2, "hw.l2cachesize"), (3, "hw.l3cachesize")):
        size = _sysctl(key)
        if size.isdecimal() and int(size):
            yield Cache(level, int(size), int(cores) if level == 1 and cores.isdecimal() else 1)


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _quota() -> float | None:
    """Cores' worth of time by the control group's limit (version 2)."""
    found = re.fullmatch(r"(\d{1,15}) (\d{1,15})\n?", _read(Path("/sys/fs/cgroup/cpu.max")))
    return int(found[1]) / int(found[2]) if found and int(found[2]) else None


def _sysctl(name: str) -> str:
    """A kernel variable of macOS; "" elsewhere."""
    if platform.system() != "Darwin":
        return ""
    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
