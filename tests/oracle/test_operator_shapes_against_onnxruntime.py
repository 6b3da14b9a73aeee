"""Shapes and types of small models against real runs of ONNX Runtime's CPU kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from onnxroof.graph.types import DTYPE_BY_CODE
from tests.builders import model, shaped

if TYPE_CHECKING:
    import onnx

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.oracle

OPSETS = {"com.microsoft": 1, "ai.onnx.ml": 3}
MS = "com.microsoft."
ML = "ai.onnx.ml."

CACHE = "float[1,2,12,16] pk, float[1,2,12,16] pv"
CASES = {
    # -- attention
    "attention_3d": (
        "float[2,5,24] q, float[2,7,24] k, float[2,7,30] v",
        'y, "", "", z = Attention <q_num_heads = 3, kv_num_heads = 3> (q, k, v)',
        "",
    ),
    "attention_cache": (
        f"float[1,8,4,16] q, float[1,2,4,16] k, float[1,2,4,16] v, {CACHE}",
        'y, z, u = Attention(q, k, v, "", pk, pv)',
        "",
    ),
    "rotary": (
        "float[2,4,6,8] x, float[50,2] c, float[50,2] s",
        "y = RotaryEmbedding <rotary_embedding_dim = 4> (x, c, s, p)",
        "int64[2,6] p = {0,1,2,3,4,5,0,1,2,3,4,5}",
    ),
    "ms_attention": (
        "float[2,5,12] x, float[12,48] w, float[48] b",
        f"y, z = {MS}Attention <num_heads = 4> (x, w, b)",
        "",
    ),
    "ms_attention_past": (
        "float[1,3,8] x, float[8,24] w, float[24] b, float[2,1,2,7,4] p",
        f'y, z = {MS}Attention <num_heads = 2, unidirectional = 1> (x, w, b, "", p)',
        "",
    ),
    "ms_attention_wide_values": (
        "float[2,5,12] x, float[12,40] w, float[40] b",
        f"y, z = {MS}Attention <num_heads = 2, qkv_hidden_sizes = [8, 8, 24]> (x, w, b)",
        "",
    ),
    "ms_qattention": (
        "uint8[1,5,8] x, int8[8,24] w, float[24] b",
        f'y = {MS}QAttention <num_heads = 2> (x, w, b, sx, sw, "", zx, zw)',
        "float sx = {0.1}, float sw = {0.1}, uint8 zx = {128}, int8 zw = {0}",
    ),
    "ms_multi_head": (
        "float[2,5,16] q, float[2,7,16] k, float[2,7,24] v",
        f"y = {MS}MultiHeadAttention <num_heads = 4> (q, k, v)",
        "",
    ),
    "ms_multi_head_cross": (
        "float[2,5,16] q, float[2,4,7,4] k, float[2,4,7,4] v",
        f"y = {MS}MultiHeadAttention <num_heads = 4> (q, k, v)",
        "",
    ),
    "ms_multi_head_past": (
        "float[1,1,8] q, float[1,1,8] k, float[1,1,8] v, float[1,2,9,4] pk, float[1,2,9,4] pv",
        f'y, z, u = {MS}MultiHeadAttention <num_heads = 2> (q, k, v, "", "", "", pk, pv)',
        "",
    ),
    "ms_multi_head_present_without_past": (
        "float[1,5,8] q, float[1,5,8] k, float[1,5,8] v",
        f"y, z, u = {MS}MultiHeadAttention <num_heads = 2> (q, k, v)",
        "",
    ),
    "ms_masked_multi_head_shared": (
        "float[1,1,8] q, float[1,1,8] k, float[1,1,8] v, float[1,2,32,4] pk, float[1,2,32,4] pv",
        f"y, z, u = {MS}DecoderMaskedMultiHeadAttention <num_heads = 2, "
        'past_present_share_buffer = 1> (q, k, v, "", "", pk, pv, n)',
        "int32[1] n = {5}",
    ),
    "ms_group_query_growing": (
        "float[1,1,32] q, float[1,1,16] k, float[1,1,16] v, float[1,2,12,8] pk, "
        "float[1,2,12,8] pv",
        f"y, z, u = {MS}GroupQueryAttention <num_heads = 4, kv_num_heads = 2> "
        "(q, k, v, pk, pv, s, t)",
        "int32[1] s = {12}, int32[1] t = {13}",
    ),
    "ms_group_query_roomy": (
        "float[1,1,32] q, float[1,1,16] k, float[1,1,16] v, float[1,2,64,8] pk, "
        "float[1,2,64,8] pv",
        f"y, z, u = {MS}GroupQueryAttention <num_heads = 4, kv_num_heads = 2> "
        "(q, k, v, pk, pv, s, t)",
        "int32[1] s = {12}, int32[1] t = {13}",
    ),
    "ms_group_query_packed_prompt": (
        "float[1,6,64] q",
        f"y, z, u = {MS}GroupQueryAttention <num_heads = 4, kv_num_heads = 2> "
        '(q, "", "", "", "", s, t)',
        "int32[1] s = {5}, int32[1] t = {6}",
    ),
    "ms_group_query_rotary": (
        "float[1,6,128] q, float[16,8] c, float[16,8] z0",
        f"y, z, u = {MS}GroupQueryAttention <num_heads = 4, kv_num_heads = 2, do_rotary = 1> "
        '(q, "", "", "", "", s, t, c, z0)',
        "int32[1] s = {5}, int32[1] t = {6}",
    ),
    "ms_rotary": (
        "float[2,6,32] x, float[9,4] c, float[9,4] s",
        f"y = {MS}RotaryEmbedding (x, p, c, s)",
        "int64[1] p = {0}",
    ),
    # -- recurrent
    "dynamic_quantize_lstm": (
        "float[3,2,4] x",
        f"y, z, u = {MS}DynamicQuantizeLSTM <hidden_size = 2> "
        '(x, w, r, "", "", "", "", "", a, b, c, d)',
        "int8[1,4,8] w = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}, "
        "int8[1,2,8] r = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}, "
        "float[1] a = {0.1}, int8[1] b = {0}, float[1] c = {0.1}, int8[1] d = {0}",
    ),
    "gru_bidirectional": (
        "float[4,2,3] x, float[2,15,3] w, float[2,15,5] r",
        'y, z = GRU <hidden_size = 5, direction = "bidirectional"> (x, w, r, "", l)',
        "int32[2] l = {4, 2}",
    ),
    "word_embedding": (
        "float[16,1,3,8] w, float[16] b, float[100,8] c",
        f"y = {MS}WordConvEmbedding(x, w, b, c)",
        "int32[2,4] x = {1,2,3,4,5,6,7,8}",
    ),
    # -- signal
    "inverse": ("float[7,3,3] x", f"y = {MS}Inverse(x)", ""),
    "dft_onesided": ("float[2,16,1] x", "y = DFT <onesided = 1> (x)", ""),
    # -- sequences
    "split_to_sequence": (
        "float[2,10] x",
        "s = SplitToSequence <axis = 1> (x, c) y = SequenceAt(s, i) z = SequenceLength(s)",
        "int64 c = {4}, int64 i = {-1}",
    ),
    "concat_from_sequence": (
        "float[2,3] a, float[2,3] b",
        "s = SequenceConstruct(a, b) y = ConcatFromSequence <axis = 1, new_axis = 1> (s)",
        "",
    ),
    # -- classical models
    "linear_regressor": (
        "float[4,3] x",
        f"y = {ML}LinearRegressor <targets = 2, coefficients = [1.0,1.0,1.0,1.0,1.0,1.0]> (x)",
        "",
    ),
    "linear_classifier_binary": (
        "float[4,3] x",
        f"y, z = {ML}LinearClassifier <classlabels_ints = [0, 1], "
        "coefficients = [1.0,1.0,1.0], intercepts = [0.5]> (x)",
        "",
    ),
    "linear_classifier_three": (
        "float[4,2] x",
        f"y, z = {ML}LinearClassifier <classlabels_ints = [4, 5, 6], "
        "coefficients = [1.0,1.0,1.0,1.0,1.0,1.0], intercepts = [0.5,0.5,0.5]> (x)",
        "",
    ),
    "svm_regressor": (
        "float[4,2] x",
        f'y = {ML}SVMRegressor <kernel_type = "RBF", kernel_params = [0.5, 0.0, 3.0], '
        "n_supports = 3, support_vectors = [1.0,1.0,2.0,2.0,3.0,3.0], "
        "coefficients = [1.0,1.0,1.0], rho = [0.5]> (x)",
        "",
    ),
    "svm_classifier_binary": (
        "float[4,2] x",
        f'y, z = {ML}SVMClassifier <kernel_type = "LINEAR", kernel_params = [0.5, 0.0, 3.0], '
        "classlabels_ints = [0, 1], vectors_per_class = [1, 1], "
        "support_vectors = [1.0,1.0,2.0,2.0], coefficients = [1.0,-1.0], rho = [0.5]> (x)",
        "",
    ),
    "svm_classifier_three": (
        "float[4,2] x",
        f'y, z = {ML}SVMClassifier <kernel_type = "LINEAR", kernel_params = [0.5, 0.0, 3.0], '
        "classlabels_ints = [0, 1, 2], vectors_per_class = [1, 1, 1], "
        "support_vectors = [1.0,1.0,2.0,2.0,3.0,3.0], "
        "coefficients = [1.0,-1.0,1.0,1.0,-1.0,1.0], rho = [0.5,0.5,0.5]> (x)",
        "",
    ),
    "svm_classifier_four": (
        "float[4,2] x",
        f'y, z = {ML}SVMClassifier <kernel_type = "LINEAR", kernel_params = [0.5, 0.0, 3.0], '
        "classlabels_ints = [0, 1, 2, 3], vectors_per_class = [1, 1, 1, 1], "
        "support_vectors = [1.0,1.0,2.0,2.0,3.0,3.0,4.0,4.0], "
        "coefficients = [1.0,-1.0,1.0,1.0,-1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0], "
        "rho = [0.5,0.5,0.5,0.5,0.5,0.5]> (x)",
        "",
    ),
    "svm_classifier_four_probabilities": (
        "float[4,2] x",
        f'y, z = {ML}SVMClassifier <kernel_type = "LINEAR", kernel_params = [0.5, 0.0, 3.0], '
        "classlabels_ints = [0, 1, 2, 3], vectors_per_class = [1, 1, 1, 1], "
        "support_vectors = [1.0,1.0,2.0,2.0,3.0,3.0,4.0,4.0], "
        "coefficients = [1.0,-1.0,1.0,1.0,-1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0], "
        "prob_a = [0.5,0.5,0.5,0.5,0.5,0.5], prob_b = [0.5,0.5,0.5,0.5,0.5,0.5], "
        "rho = [0.5,0.5,0.5,0.5,0.5,0.5]> (x)",
        "",
    ),
    "svm_classifier_linear": (
        "float[4,2] x",
        f'y, z = {ML}SVMClassifier <kernel_type = "LINEAR", kernel_params = [0.5, 0.0, 3.0], '
        "classlabels_ints = [0, 1, 2], coefficients = [1.0,-1.0,1.0,1.0,-1.0,1.0], "
        "rho = [0.5]> (x)",
        "",
    ),
    "scaler": ("float[4,2] x", f"y = {ML}Scaler <offset = [1.0], scale = [2.0]> (x)", ""),
    "normalizer": ("float[4,2] x", f'y = {ML}Normalizer <norm = "L2"> (x)', ""),
    "one_hot_encoder": (
        "int64[4] x", f"y = {ML}OneHotEncoder <cats_int64s = [0, 1, 2], zeros = 1> (x)", "",
    ),
    "one_hot_encoder_2d": (
        "int64[4,2] x", f"y = {ML}OneHotEncoder <cats_int64s = [0, 1, 2], zeros = 1> (x)", "",
    ),
    "feature_vectorizer": (
        "float[4,2] a, float[4,3] b",
        f"y = {ML}FeatureVectorizer <inputdimensions = [2, 3]> (a, b)",
        "",
    ),
    "array_feature_extractor": (
        "float[4,5] x", f"y = {ML}ArrayFeatureExtractor(x, i)", "int64[2] i = {0, 3}",
    ),
    "array_feature_extractor_vector": (
        "float[5] x", f"y = {ML}ArrayFeatureExtractor(x, i)", "int64[2] i = {0, 3}",
    ),
    "label_encoder": (
        "int64[4] x",
        f"y = {ML}LabelEncoder <keys_int64s = [0, 1], values_floats = [0.5, 0.6]> (x)",
        "",
    ),
    "tree_classifier": (
        "float[4,2] x",
        f"y, z = {ML}TreeEnsembleClassifier <nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], "
        "nodes_featureids = [0, 0, 0], nodes_values = [0.5, 0.0, 0.0], "
        'nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0], '
        "nodes_falsenodeids = [2, 0, 0], class_treeids = [0, 0], class_nodeids = [1, 2], "
        "class_ids = [0, 2], class_weights = [1.0, 1.0], classlabels_int64s = [0, 1, 2]> (x)",
        "",
    ),
    "tree_regressor": (
        "float[4,2] x",
        f"y = {ML}TreeEnsembleRegressor <nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], "
        "nodes_featureids = [0, 0, 0], nodes_values = [0.5, 0.0, 0.0], "
        'nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0], '
        "nodes_falsenodeids = [2, 0, 0], target_treeids = [0, 0], target_nodeids = [1, 2], "
        "target_ids = [0, 1], target_weights = [1.0, 1.0], n_targets = 2> (x)",
        "",
    ),
    # -- others
    "distances": ("float[2,3] a, float[4,3] b", f"y = {MS}CDist(a, b)", ""),
    "murmur": ("int32[3,4] x", f"y = {MS}MurmurHash3 <positive = 0> (x)", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_shapes_equal_those_of_a_real_run(name: str) -> None:
    proto = _model(*CASES[name])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {item.name: _data(item) for item in session.get_inputs()}
    results = session.run(None, feeds)
    tensors = shaped(proto)[0].tensors
    for output, result in zip(proto.graph.output, results, strict=True):
        info = tensors[output.name]
        code = helper.np_dtype_to_tensor_dtype(result.dtype)
        assert info.shape == result.shape, output.name
        assert info.dtype is DTYPE_BY_CODE[code], output.name


def _model(inputs: str, body: str, constants: str) -> onnx.ModelProto:
    declared = f"<{constants}>" if constants else ""
    proto = model(f"agraph ({inputs}) => (y) {declared} {{ {body} }}", opset=23, opsets=OPSETS)
    tensors = shaped(proto)[0].tensors
    del proto.graph.output[:]
    for name in ("y", "z", "u"):
        if name in tensors:
            dtype = tensors[name].dtype
            assert dtype is not None
            proto.graph.output.append(helper.make_tensor_value_info(name, dtype.code, None))
    return proto


def _data(item: onnxruntime.NodeArg) -> np.ndarray:
    kinds = {
        "tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
        "tensor(uint8)": np.uint8, "tensor(int8)": np.int8,
    }  # fmt: skip
    return np.random.default_rng(0).uniform(0, 2, item.shape).astype(kinds[item.type])
