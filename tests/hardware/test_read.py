"""A gallery of broken profiles with the messages they must get."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxroof.errors import InvalidProfileError, UnknownProfileError
from onnxroof.fusion.runtimes import RUNTIMES
from onnxroof.hardware import read
from onnxroof.hardware.checks import cross_problems
from onnxroof.hardware.convert import to_profile
from onnxroof.hardware.schema import schema_problems
from onnxroof.hardware.strict_yaml import MAX_BYTES, parse
from onnxroof.latency.runtime_read import available_runtimes

GOOD = """\
schema_version: 1
name: dev
title: Device
vendor: Example
kind: cpu
runtime: onnxruntime
threads: 4
vector_engine:
  name: SIMD
  peak_tflops: {fp32: 2.5}
  sustained_tflops: {fp32: 2}
kernel_overhead_us: 1
memory:
  l2: {capacity_kib: 512, instances: 4}
  dram: {capacity_gb: 16, bandwidth_gb_per_s: 50, sustained_bandwidth_gb_per_s: 40}
sources:
  sheet:
    title: Data sheet
    basis: datasheet
    where: page 1
    covers: [vector_engine, kernel_overhead_us, memory]
"""


def problems_of(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "profile.yaml"
    path.write_text(text, encoding="utf-8")
    return [str(problem) for problem in read.check_profile(path)]


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_the_good_profile_is_good(tmp_path: Path) -> None:
    assert problems_of(GOOD, tmp_path) == []
    profile = read.load_profile(tmp_path / "profile.yaml")
    assert profile.ridge_point("fp32", "vector") == 2500 / 50
    assert profile.kernel_overhead_seconds == 1e-6
    assert [level.capacity_bytes for level in profile.memory] == [512 * 1024, 16 * 10**9]


BROKEN = {
    "a runtime that nobody knows": (
        changed("runtime: onnxruntime", "runtime: onnxruntim"),
        [
            "runtime: no runtime has this name; did you mean onnxruntime?; known: "
            + ", ".join(dict.fromkeys((*available_runtimes(), *RUNTIMES)))
            + " (line 6)"
        ],
    ),
    # 4 cores · 128 bits are 16 lanes of fp32: 2.5 TFLOP/s would be 156 GFLOP/s for each, at two
    # operations a cycle and two pipes a clock of 39 GHz
    "a peak that its lanes cannot do": (
        changed(
            "kernel_overhead_us: 1\n", "kernel_overhead_us: 1\ncores: 4\nvector_bits: 128\n"
        ).replace("kernel_overhead_us, memory]", "kernel_overhead_us, memory, cores, vector_bits]"),
        [
            "vector_engine.peak_tflops.fp32: 156 billion operations a second for each of the 16"
            " lanes that 4 cores of 128 bits have is implausible (expected 0.1 to 100): check the"
            " units (line 10)"
        ],
    ),
    "a misspelt key": (
        changed("bandwidth_gb_per_s: 50", "bandwidht_gb_per_s: 50"),
        [
            "memory.dram.bandwidht_gb_per_s: unknown key; did you mean bandwidth_gb_per_s?"
            " (line 15)",
            "memory.dram.bandwidth_gb_per_s: required: the last level is main memory",
        ],
    ),
    "a key twice": (
        changed("kind: cpu", "kind: cpu\nkind: gpu"),
        ["kind: the key stands twice (lines 5 and 6)"],
    ),
    "a missing key": (changed("vendor: Example\n", ""), ["vendor: required key is missing"]),
    "an exponent": (
        changed("{fp32: 2.5}", "{fp32: 2.5e0}"),
        [
            "vector_engine.peak_tflops.fp32: write plain decimals in the unit of the key,"
            " no exponent:"
            " 2.5e0 is 2.5 (line 10)",
        ],
    ),
    "an exponent that YAML reads as text": (
        changed("bandwidth_gb_per_s: 50", "bandwidth_gb_per_s: 312e12"),
        [
            "memory.dram.bandwidth_gb_per_s: write plain decimals in the unit of the key,"
            " no exponent:"
            " 312e12 is 312000000000000 (line 15)",
        ],
    ),
    "a unit in the value": (
        changed("bandwidth_gb_per_s: 50", "bandwidth_gb_per_s: 50 GB/s"),
        [
            "memory.dram.bandwidth_gb_per_s: a plain number is meant, not '50 GB/s': the unit"
            " stands in the key (line 15)",
        ],
    ),
    "a boolean for a number": (
        changed("kernel_overhead_us: 1", "kernel_overhead_us: true"),
        ["kernel_overhead_us: a number is meant, not true (line 12)"],
    ),
    "an empty value for a number": (
        changed("kernel_overhead_us: 1", "kernel_overhead_us:"),
        ["kernel_overhead_us: a number is meant, not an empty value (line 12)"],
    ),
    "infinity": (
        changed("kernel_overhead_us: 1", "kernel_overhead_us: .inf"),
        ["kernel_overhead_us: a plain decimal number is meant, not '.inf' (line 12)"],
    ),
    "a negative number": (
        changed("bandwidth_gb_per_s: 50", "bandwidth_gb_per_s: -50"),
        ["memory.dram.bandwidth_gb_per_s: must be above 0.0, is -50 (line 15)"],
    ),
    "half a thread": (
        changed("threads: 4", "threads: 4.5"),
        ["threads: a whole number is meant, not 4.5 (line 7)"],
    ),
    "no threads": (
        changed("threads: 4", "threads: 0"),
        ["threads: must be at least 1, is 0 (line 7)"],
    ),
    "a number for a text": (
        changed("vendor: Example", "vendor: 3"),
        ['vendor: text is meant; put quotes around it: "3" (line 4)'],
    ),
    "a list for a text": (
        changed("vendor: Example", "vendor: [Example]"),
        ["vendor: text is meant, not a list (line 4)"],
    ),
    "text for a mapping": (
        changed("{capacity_kib: 512, instances: 4}", "512 KiB"),
        ["memory.l2: a mapping (key: value) is meant (line 14)"],
    ),
    "text for a list": (
        changed("[vector_engine, kernel_overhead_us, memory]", "memory"),
        ["sources.sheet.covers: a list is meant (line 21)"],
    ),
    "an unknown kind of device": (
        changed("kind: cpu", "kind: tpu"),
        ["kind: must be cpu, gpu, npu or mcu (line 5)"],
    ),
    "an integer type among floating-point ones": (
        changed("peak_tflops: {fp32: 2.5}", "peak_tflops: {fp32: 2.5, int8: 10}"),
        [
            "vector_engine.peak_tflops.int8: not a type of peak_tflops, which takes fp64, fp32,"
            " tf32, bf16, fp16, fp8 or fp4; put it under peak_tops (line 10)",
        ],
    ),
    "another schema version": (
        changed("schema_version: 1", "schema_version: 2"),
        ["schema_version: must be 1 (line 1)"],
    ),
    "a name with blanks": (
        changed("name: dev", "name: My Device"),
        ["name: lower-case letters, digits, dots, dashes and underscores only (line 2)"],
    ),
    "a figure without a source": (
        changed("[vector_engine, kernel_overhead_us, memory]", "[vector_engine, memory.dram]"),
        [
            "kernel_overhead_us: no source: add this path to the covers of a source (line 12)",
            "memory.l2.capacity_kib: no source: add this path to the covers of a source (line 14)",
        ],
    ),
    "a source for nothing": (
        changed("kernel_overhead_us, memory]", "kernel_overhead_us, memory, vector_engin]"),
        [
            "sources.sheet.covers.3: no figure of this file lies at vector_engin; did you mean"
            " vector_engine? (line 21)",
        ],
    ),
    "a source nobody can look up": (
        changed("    where: page 1\n", ""),
        ["sources.sheet: needs url or where, so that others can look it up (line 18)"],
    ),
    "a day that does not exist": (
        changed("where: page 1", "where: page 1\n    read: 2026-02-30"),
        ["sources.sheet.read: there is no such day (line 21)"],
    ),
    "not a day": (
        changed("where: page 1", "where: page 1\n    read: yesterday"),
        ["sources.sheet.read: a date is meant, written as 2026-01-31 (line 21)"],
    ),
    "not an address": (
        changed("where: page 1", "url: www.example.com"),
        ["sources.sheet.url: an address is meant, beginning with http:// or https:// (line 20)"],
    ),
    "a wrong unit": (
        changed("{fp32: 2.5}", "{fp32: 2500}"),  # GFLOP/s under a key for TFLOP/s
        [
            "vector_engine.peak_tflops.fp32: ridge point 5e+04 FLOP/byte over 50 GB/s is"
            " implausible (expected 0.1 to 10000): check the units (line 10)",
        ],
    ),
    "a sustained peak above the vendor's": (
        changed("sustained_tflops: {fp32: 2}", "sustained_tflops: {fp32: 3}"),
        ["vector_engine.sustained_tflops.fp32: sustained 3 is above the peak of 2.5 (line 11)"],
    ),
    "a sustained bandwidth above the vendor's": (
        changed("sustained_bandwidth_gb_per_s: 40", "sustained_bandwidth_gb_per_s: 60"),
        [
            "memory.dram.sustained_bandwidth_gb_per_s: sustained 60 is above the vendor's 50"
            " (line 15)",
        ],
    ),
    "levels out of order": (
        changed("capacity_kib: 512", "capacity_gib: 20"),
        [
            "memory.dram.capacity_gb: not larger than l2: list levels from the nearest to main"
            " memory (line 15)",
        ],
    ),
    "two capacities": (
        changed("capacity_kib: 512", "capacity_kib: 512, capacity_mib: 1"),
        ["memory.l2: one capacity is enough, not 2 (line 14)"],
    ),
    "no memory": (
        GOOD[: GOOD.index("memory:")] + "memory: {}\n" + GOOD[GOOD.index("sources:") :],
        [
            "memory: must not be empty (line 13)",
        ],
    ),
    "a variant that inherits the wrong threads": (
        GOOD + "thread_variants:\n  4:\n    vector_engine: {name: S, peak_tflops: {fp32: 1}}\n",
        [
            "thread_variants.4.vector_engine.peak_tflops.fp32: no source: add this path to the"
            " covers of a source (line 24)",
            "thread_variants.4: the main part holds the figures for this many threads (line 24)",
        ],
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_profiles_get_told_what_is_wrong(what: str, tmp_path: Path) -> None:
    text, expected = BROKEN[what]
    assert sorted(problems_of(text, tmp_path)) == sorted(expected)


def test_a_file_with_four_mistakes_lists_all_four(tmp_path: Path) -> None:
    text = (
        GOOD.replace("vendor: Example", "vendr: Example")  # 1 unknown, and so 2 missing
        .replace("{fp32: 2.5}", "{fp32: 2.5e3}")  # 3 exponent
        .replace("kernel_overhead_us, memory]", "memory]")  # 4 no source
    )
    found = problems_of(text, tmp_path)
    for start in (
        "vendr: unknown key; did you mean vendor?",
        "vendor: required key is missing",
        "vector_engine.peak_tflops.fp32: write plain decimals",
        "kernel_overhead_us: no source",
    ):
        assert any(problem.startswith(start) for problem in found), (start, found)
    with pytest.raises(InvalidProfileError) as caught:
        read.load_profile(tmp_path / "profile.yaml")
    assert [str(problem) for problem in caught.value.problems] == found
    assert caught.value.exit_code == 5
    assert "vendr: unknown key" in str(caught.value)


def test_a_mistake_of_each_sort_is_reported_at_once(tmp_path: Path) -> None:
    text = (
        GOOD.replace("kind: cpu", "kind: cpu\nkind: cpu")  # duplicate key
        .replace("sustained_tflops: {fp32: 2}", "sustained_tflops: {fp32: 3}")  # above the peak
        .replace("instances: 4", "instances: true")  # not a number
        .replace("    where: page 1\n", "")  # nothing to look up
    )
    assert len(problems_of(text, tmp_path)) == 4


HOSTILE = {
    "empty": (b"", "the file is empty"),
    "only a comment": (b"# nothing\n", "the file is empty"),
    "a list": (b"- a\n- b\n", "this file holds a list"),
    "plain text": (b"hello", "this file holds plain text"),
    "two documents": (b"a: 1\n---\nb: 2\n", "more than one document"),
    "binary": (b"\x08\x07\x12\xff\xfe", "not UTF-8 text"),
    "control characters": (b"a: \x00\x01", "not valid YAML"),
    "an unclosed bracket": (b"a: [1, 2\n", "not valid YAML"),
    "a tab as indentation": (b"a:\n\tb: 1\n", "not valid YAML"),
    "an alias": (b"a: &x [1]\nb: *x\n", "b: aliases (*x) are refused; write the value out"),
    "a Python object": (b"a: !!python/object/apply:os.system [ls]\n", "tags"),
    "a list as key": (b"? [a]\n: 1\n", "keys are plain words"),
    "too large": (b"a: 1\n" * (MAX_BYTES // 5 + 1), "larger than 1 MiB"),
    "too many values": (b"- 1\n" * 10_000, "more than 5000 values"),
}


@pytest.mark.parametrize("loader", [None, yaml.BaseLoader], ids=["default", "python"])
@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_get_one_clear_line(what: str, loader: type | None) -> None:
    data, expected = HOSTILE[what]
    document = parse(data, loader)
    assert document.root is None
    assert len(document.problems) == 1
    assert expected in str(document.problems[0])


@pytest.mark.parametrize("loader", [None, yaml.BaseLoader], ids=["default", "python"])
def test_an_alias_bomb_is_refused_before_it_expands(loader: type | None) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    document = parse("\n".join(lines).encode(), loader)
    assert document.root is None
    assert "aliases (*a0) are refused" in str(document.problems[0])


@pytest.mark.parametrize("loader", [None, yaml.BaseLoader], ids=["default", "python"])
@pytest.mark.parametrize("data", [b"[" * 50_000, b"- " * 50_000, b"{a: " * 50_000])
def test_deep_nesting_is_refused_without_recursion(data: bytes, loader: type | None) -> None:
    document = parse(data, loader)
    assert document.root is None
    assert "nest" in str(document.problems[0])


def test_only_plain_decimals_and_true_false_null_have_a_type() -> None:
    text = (
        "a: 10\nb: 1.5\nc: no\nd: 0x10\ne: 1e3\nf: 1:30\ng: true\nh:\ni: '1'\nj: 2026-01-31\nk: 1_0"
    )
    assert parse(text.encode()).root == {
        "a": 10,
        "b": 1.5,
        "c": "no",
        "d": "0x10",
        "e": "1e3",
        "f": "1:30",
        "g": True,
        "h": None,
        "i": "1",
        "j": "2026-01-31",
        "k": "1_0",
    }


def test_both_parsers_read_the_shipped_profiles_alike() -> None:
    for name in read.available_profiles():
        data = (read.profile_directory() / f"{name}.yaml").read_bytes()
        assert parse(data) == parse(data, yaml.BaseLoader)


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    text = GOOD.replace("vendor: Example", '"ven\\e[31mdor": Example')
    assert all(problem.isprintable() for problem in problems_of(text, tmp_path))


def test_a_huge_number_is_no_crash(tmp_path: Path) -> None:
    text = changed("kernel_overhead_us: 1", f"kernel_overhead_us: {'9' * 5000}")
    found = problems_of(text, tmp_path)
    assert len(found) == 1
    assert "kernel_overhead_us: a plain decimal number is meant" in found[0]


def test_an_unknown_name_suggests_the_nearest_and_lists_all() -> None:
    with pytest.raises(UnknownProfileError) as caught:
        read.load_profile("v1000")
    assert caught.value.close_matches[0] == "v100"
    assert caught.value.available == read.available_profiles()
    with pytest.raises(UnknownProfileError, match="did you mean 'v100'"):
        read.load_profile("V100")
    with pytest.raises(UnknownProfileError):
        read.load_profile("")


def test_a_name_is_never_a_path() -> None:
    with pytest.raises(UnknownProfileError):
        read.load_profile("README")


@pytest.mark.parametrize("name", ["missing.yaml", "./missing", "missing.YML"])
def test_a_missing_file_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidProfileError, match="no such file"):
        read.load_profile(name)


def test_a_folder_is_not_a_profile(tmp_path: Path) -> None:
    with pytest.raises(InvalidProfileError, match="is a folder"):
        read.load_profile(tmp_path)


def test_a_path_no_system_can_open_is_an_error_of_ours() -> None:
    with pytest.raises(InvalidProfileError, match="cannot be read"):
        read.load_profile("a\0b.yaml")


def test_a_changed_shipped_file_is_checked_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in read.profile_directory().glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "v100.yaml").read_text(encoding="utf-8")
    (tmp_path / "v100.yaml").write_text(text.replace("kind: gpu", "knid: gpu"), encoding="utf-8")
    monkeypatch.setattr(read, "profile_directory", lambda: tmp_path)
    with pytest.raises(InvalidProfileError, match="knid: unknown key; did you mean kind"):
        read.load_profile("v100")
    (tmp_path / "checked.json").write_text("[not json", encoding="utf-8")
    assert read.load_profile("10980xe").name == "10980xe"


def loaded_modules(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return set(done.stdout.split())


def test_the_data_classes_import_neither_yaml_nor_pydantic() -> None:
    loaded = loaded_modules("import onnxroof.hardware.profile, onnxroof.hardware.show")
    assert not loaded & {"yaml", "pydantic", "tabulate", "onnx", "numpy"}


def test_reading_a_shipped_profile_does_not_import_pydantic() -> None:
    loaded = loaded_modules("from onnxroof.hardware.read import load_profile; load_profile('v100')")
    assert not loaded & {"pydantic", "tabulate", "onnx", "numpy"}


def test_profiles_are_found_inside_an_installed_package(tmp_path: Path) -> None:
    repository = Path(__file__).parents[2]
    shutil.copytree(repository / "onnxroof", tmp_path / "onnxroof")
    inside = tmp_path / "onnxroof" / "hardware_profiles"  # where the wheel puts the folder
    if not inside.exists():
        shutil.copytree(read.profile_directory(), inside)
    code = (
        "from onnxroof.hardware import read;"
        "print(read.profile_directory(), read.load_profile('v100').name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == [str(inside.resolve()), "v100"]


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("1e9")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_change_of_a_profile_crashes_the_check(data: st.DataObject) -> None:
    root = parse(GOOD.encode()).root
    assert root is not None
    where: dict[str, object] = root  # type: ignore[assignment]
    for _ in range(data.draw(st.integers(0, 3))):
        inner = [value for value in where.values() if isinstance(value, dict) and value]
        where = data.draw(st.sampled_from(inner)) if inner else where
    key = data.draw(st.sampled_from([*where, "new", "peak_tops", "thread_variants"]))
    where[key] = data.draw(VALUES)
    formal = schema_problems(root)
    joint = cross_problems(root, [problem.path for problem in formal])
    if not formal and not joint:
        profile = to_profile(root)
        assert profile.bandwidth_bytes_per_second() > 0


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text("abc:-[]{}&*!|>'\"\n #?,1.", max_size=60).map(str.encode))
def test_no_bytes_crash_the_parser(data: bytes) -> None:
    document = parse(data)
    assert (document.root is None) <= bool(document.problems)
