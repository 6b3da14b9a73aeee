"""A Loop whose sizes depend on the trip is followed trip by trip."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxroof


def splitting_loop(trips: int) -> onnx.ModelProto:
    """The exporter's form of tensor_split: each trip cuts x[edge[i]:edge[i+1]] into a list."""
    edges = numpy_helper.from_array(np.array([0, 1, 4, 9], np.int64), "edges")
    one = numpy_helper.from_array(np.array(1, np.int64), "one")
    axis = numpy_helper.from_array(np.array([0], np.int64), "axis")
    piece = helper.make_tensor_sequence_value_info("pieces_in", TensorProto.FLOAT, None)
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["edges", "trip"], ["start"], axis=0),
            helper.make_node("Add", ["trip", "one"], ["next"]),
            helper.make_node("Gather", ["edges", "next"], ["end"], axis=0),
            helper.make_node("Unsqueeze", ["start", "axis"], ["starts"]),
            helper.make_node("Unsqueeze", ["end", "axis"], ["ends"]),
            helper.make_node("Slice", ["x", "starts", "ends", "axis"], ["cut"]),
            helper.make_node("SequenceInsert", ["pieces_in", "cut"], ["pieces_out"]),
            helper.make_node("Identity", ["going"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            piece,
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("pieces_out", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"], dtype=TensorProto.FLOAT),
        helper.make_node("Loop", ["trips", "yes", "none"], ["pieces"], body=body),
        helper.make_node("SequenceAt", ["pieces", "one"], ["second"]),
    ]
    constants = [
        edges,
        one,
        axis,
        numpy_helper.from_array(np.array(trips, np.int64), "trips"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    graph = helper.make_graph(
        nodes,
        "split",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [9, 2])],
        [helper.make_tensor_value_info("second", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_each_trip_knows_its_number() -> None:
    # Edges 0, 1, 4, 9: the second piece holds rows 1, 2 and 3.
    assert onnxroof.analyze(splitting_loop(3)).tensors["second"].shape == (3, 2)
