"""Reading what runtimes measured: formats, runs, and files that are not what they should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from onnxroof.calibration.traces import MAX_BYTES, Trace, parse_trace, read_trace
from onnxroof.errors import MeasurementError

if TYPE_CHECKING:
    from pathlib import Path


def node(name: str, us: float, start: float = 0.0, op_type: str = "Conv", **args: object) -> dict:
    return {
        "cat": "Node", "ph": "X", "pid": 1, "tid": 1, "name": f"{name}_kernel_time", "dur": us,
        "ts": start, "args": {"op_name": op_type, **args},
    }  # fmt: skip


def run() -> dict:
    return {"cat": "Session", "ph": "X", "name": "model_run", "dur": 1, "ts": 0, "args": {}}


def parsed(events: object) -> Trace:
    return parse_trace(json.dumps(events).encode())


def times(trace: Trace) -> dict[str, float]:
    """Microseconds by name."""
    return {entry.name: pytest.approx(entry.seconds * 1e6) for entry in trace.entries}


# -- ONNX Runtime ----------------------------------------------------------------------------


def test_a_node_takes_the_median_of_its_runs_without_the_first() -> None:
    events = [run(), node("a", 900, 0), run(), node("a", 10, 1000), run(), node("a", 14, 2000),
              run(), node("a", 12, 3000)]  # fmt: skip
    trace = parsed(events)
    assert (trace.format, trace.runs) == ("onnxruntime", 4)
    assert times(trace) == {"a": 12}


def test_executions_in_a_loop_add_up_within_a_run() -> None:
    # two runs of three iterations: 1 + 2 + 3 and 5 + 6 + 7; the median of two is their mean
    events = [run(), run(), *(node("a", us, 100 * us) for us in (1, 2, 3, 5, 6, 7))]
    assert times(parsed(events)) == {"a": (6 + 18) / 2}


def test_executions_that_do_not_divide_are_averaged() -> None:
    events = [run(), run(), *(node("a", us, 100 * us) for us in (1, 2, 3))]
    assert times(parsed(events)) == {"a": 6 / 2}


def test_nodes_inside_control_flow_are_part_of_its_time() -> None:
    events = [run(), node("loop", 100, 0, "Loop"), node("inner", 30, 10), node("inner", 30, 50),
              node("after", 5, 100)]  # fmt: skip
    trace = parsed(events)
    assert times(trace) == {"loop": 100, "after": 5}
    assert "2 executions inside control flow" in trace.notes[0]


def test_nodes_of_another_thread_are_inside_of_nothing() -> None:
    other = {**node("b", 10, 10), "tid": 2}
    assert times(parsed([run(), node("a", 100, 0), other])) == {"a": 100, "b": 10}


def test_without_a_count_of_runs_most_nodes_tell() -> None:
    events = [node("a", 1, 0), node("b", 2, 10), node("a", 3, 20), node("b", 4, 30)]
    trace = parsed(events)
    assert trace.runs == 2
    assert times(trace) == {"a": 2, "b": 3}


def test_a_devices_kernels_replace_the_hosts_time() -> None:
    kernel = {
        "cat": "Kernel", "ph": "X", "name": "volta_sgemm", "dur": 40, "ts": 5,
        "args": {"parent_name": "a_kernel_time", "op_name": "Conv"},
    }  # fmt: skip
    trace = parsed([run(), node("a", 7), node("b", 9, 50), kernel, kernel])
    assert times(trace) == {"a": 80, "b": 9}
    assert any("device's kernels" in note for note in trace.notes)


def test_sizes_of_outputs_are_kept() -> None:
    trace = parsed([run(), node("a", 1, output_type_shape=[{"float": [2, 3, 4]}])])
    assert trace.entries[0].elements == 24


@pytest.mark.parametrize("shape", [None, [], [1], [{"float": "x"}], [{"float": [-1]}], [{}]])
def test_sizes_that_are_none_are_left_out(shape: object) -> None:
    assert parsed([run(), node("a", 1, output_type_shape=shape)]).entries[0].elements is None


def test_events_may_lie_in_a_chrome_trace() -> None:
    assert times(parsed({"traceEvents": [run(), node("a", 3)]})) == {"a": 3}


# -- TensorRT and tables ---------------------------------------------------------------------


def test_a_layer_of_tensorrt_takes_its_median() -> None:
    layers = [{"count": 50}, {"name": "conv1 + relu1", "timeMs": 10, "averageMs": 0.2,
                              "medianMs": 0.19, "percentage": 100}]  # fmt: skip
    trace = parsed(layers)
    assert (trace.format, trace.runs) == ("tensorrt", 50)
    assert times(trace) == {"conv1 + relu1": 190}


def test_without_an_average_the_time_of_all_runs_is_divided() -> None:
    assert times(parsed([{"count": 4}, {"name": "a", "timeMs": 2}])) == {"a": 500}


@pytest.mark.parametrize(
    "table",
    ["a,1.5\nb,2\n", "name,milliseconds\na,1.5\nb,2\n", "op_type,Name,MS\nConv,a,1.5\nAdd,b,2",
     "layer,us\r\na,1500\r\n\r\nb,2000\r\n", "node,seconds\n\"a\",0.0015\nb,2e-3"],
)  # fmt: skip
def test_a_table_of_name_and_time(table: str) -> None:
    trace = parse_trace(table.encode())
    assert trace.format == "csv"
    assert times(trace) == {"a": 1500, "b": 2000}


def test_a_table_may_name_operators() -> None:
    trace = parse_trace(b"name,ms,op_type\na,1,Conv\n")
    assert trace.entries[0].op_type == "Conv"


# -- files that are not what they should be --------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[{", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply|not valid JSON"),
        (b"[]", "neither a profile"),
        (b"{}", "a list of events"),
        (b"[1, 2]", "a list of events"),
        (b'[{"a": NaN}]', "NaN is no number"),
        (b'[{"name": "x"}]', "neither a profile"),
        (b'[{"count": 3}, {"name": "x", "averageMs": -1}]', "at least 0"),
        (b'[{"count": 3}, {"name": "x", "averageMs": "1"}]', "at least 0"),
        (b'[{"count": 3}, {"name": "x", "averageMs": 1e999}]', "at least 0"),
        (b'[{"count": 3}, {"name": "x", "averageMs": true}]', "at least 0"),
        (b'[{"count": 3}, {"name": 7, "averageMs": 1}]', "must be text"),
        (b'[{"count": 3}, {"averageMs": 1}]', "holds no measured kernel"),
        (b'[{"count": 3}, {"name": "x", "averageMs": 0}]', "every time in it is 0"),
        (b'[{"cat": "Node", "ph": "X", "name": "a_kernel_time", "ts": 0}]', "dur must be"),
        (b'[{"cat": "Session", "ph": "X", "name": "model_run"}]', "holds no measured kernel"),
        (b"name,milliseconds\na\n", "line 2"),
        (b"name,milliseconds\na,fast\n", "line 2"),
        (b"name,milliseconds\na,-1\n", "line 2"),
        (b"name,milliseconds\na,nan\n", "line 2"),
        (b"name,milliseconds\n", "holds no measured kernel"),
        (b"hello\nworld\n", "a table of name, milliseconds"),
        (b'name,ms\n"a,1\n', "comma-separated"),
    ],
)
def test_a_file_that_is_no_trace_is_an_error_that_says_why(content: bytes, said: str) -> None:
    with pytest.raises(MeasurementError, match=said):
        parse_trace(content)


def test_numbers_of_thousands_of_digits_are_refused() -> None:
    with pytest.raises(MeasurementError):
        parse_trace(b'[{"count": 1}, {"name": "x", "averageMs": ' + b"9" * 5000 + b"}]")


def test_a_file_that_is_too_large_is_refused() -> None:
    with pytest.raises(MeasurementError, match="larger than 256 MiB"):
        parse_trace(bytes(MAX_BYTES + 1))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_trace(str(tmp_path / "none.json"))
