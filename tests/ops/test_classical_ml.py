from __future__ import annotations

import pytest

from onnxroof.bounded import BoundedInt, lower
from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of

LEARNED = {"ai.onnx.ml": 5}
ML = "ai.onnx.ml."


def graph(inputs: str, body: str, constants: str = "") -> str:
    declared = f"<{constants}>" if constants else ""
    return f"agraph ({inputs}) => (y) {declared} {{ {body} }}"


def floats(count: int) -> str:
    return "[" + ",".join(["1.0"] * count) + "]"


# -- linear models and support vectors -------------------------------------------------------


def test_a_linear_regressor_is_a_matrix_product() -> None:
    text = graph(
        "float[4,3] x",
        f"y = {ML}LinearRegressor <targets = 2, coefficients = {floats(6)}, "
        f"intercepts = {floats(2)}> (x)",
    )
    cost = cost_of(text, opsets=LEARNED)
    assert shapes_of(text, opsets=LEARNED)["y"] == (4, 2)
    assert cost.macs == 4 * 3 * 2
    assert cost.flops == 2 * 24 + 4 * 2


def test_a_classifier_of_two_classes_may_have_one_model() -> None:
    text = graph(
        "float[4,3] x",
        f'y, z = {ML}LinearClassifier <classlabels_strings = ["a", "b"], '
        f'coefficients = {floats(3)}, intercepts = {floats(1)}, post_transform = "LOGISTIC"> (x)',
    )
    found = shaped(text, opsets=LEARNED)[0].tensors
    cost = cost_of(text, opsets=LEARNED)
    assert (found["y"].shape, found["z"].shape) == ((4,), (4, 2))
    assert found["y"].dtype is DType.STRING
    # one model of 3 coefficients, its intercept, the choice, a sigmoid per score
    assert cost.macs == 4 * 3
    assert cost.flops == 2 * 12 + 4 + 4 + 8


@pytest.mark.parametrize(
    ("kernel", "per_pair", "transcendental"),
    [("LINEAR", 2 * 2, 0), ("POLY", 2 * 2 + 3, 1), ("SIGMOID", 2 * 2 + 3, 1),
     ("RBF", 2 * 2 + 2 + 2, 1)],
)  # fmt: skip
def test_support_vectors_meet_every_row_in_a_kernel(
    kernel: str, per_pair: int, transcendental: int
) -> None:
    text = graph(
        "float[4,2] x",
        f'y = {ML}SVMRegressor <kernel_type = "{kernel}", n_supports = 3, '
        f"support_vectors = {floats(6)}, coefficients = {floats(3)}, rho = [0.5]> (x)",
    )
    cost = cost_of(text, opsets=LEARNED)
    # 4 · 3 kernels, a weighted sum of 3 per row, rho
    assert shapes_of(text, opsets=LEARNED)["y"] == (4, 1)
    assert cost.macs == 12 * 2 + 12
    assert cost.flops == 12 * per_pair + 2 * 12 + 4
    assert cost.transcendentals == 12 * transcendental


def test_a_support_vector_classifier_has_a_score_per_pair_of_classes() -> None:
    text = graph(
        "float[4,2] x",
        f'y, z = {ML}SVMClassifier <kernel_type = "LINEAR", classlabels_ints = [0, 1, 2, 3], '
        f"vectors_per_class = [1, 1, 1, 1], support_vectors = {floats(8)}, "
        f"coefficients = {floats(12)}, rho = {floats(6)}> (x)",
    )
    found = shapes_of(text, opsets=LEARNED)
    assert (found["y"], found["z"]) == ((4,), (4, 6))
    # 4 kernels of 2 a row; each vector takes part in 3 machines
    assert cost_of(text, opsets=LEARNED).macs == 4 * 4 * 2 + 4 * 4 * 3


# -- trees -----------------------------------------------------------------------------------

STUMP = (
    "nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0], "
    'nodes_values = [0.5, 0.0, 0.0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], '
    "nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], "
)


def test_classes_are_as_many_as_labels() -> None:
    text = graph(
        "float[N,2] x",
        f"y, z = {ML}TreeEnsembleClassifier <{STUMP} class_treeids = [0, 0], "
        "class_nodeids = [1, 2], class_ids = [0, 2], class_weights = [1.0, 1.0], "
        "classlabels_int64s = [0, 1, 2]> (x)",
    )
    found = shapes_of(text, opsets=LEARNED, N=4)
    cost = cost_of(text, opsets=LEARNED, N=4)
    assert (found["y"], found["z"]) == ((4,), (4, 3))
    # one comparison down the stump, one vote, two comparisons for the class
    assert (cost.macs, cost.flops) == (0, 4 * (1 + 1 + 2))


def test_uneven_trees_bound_their_comparisons() -> None:
    # tree 0 has leaves at depth 1 and 2, tree 1 is a single leaf
    text = graph(
        "float[10,2] x",
        f"y = {ML}TreeEnsembleRegressor <nodes_treeids = [0, 0, 0, 0, 0, 1], "
        "nodes_nodeids = [0, 1, 2, 3, 4, 0], nodes_featureids = [0, 1, 0, 0, 0, 0], "
        "nodes_values = [0.5, 0.5, 0.0, 0.0, 0.0, 0.0], "
        'nodes_modes = ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "LEAF"], '
        "nodes_truenodeids = [1, 2, 0, 0, 0, 0], nodes_falsenodeids = [4, 3, 0, 0, 0, 0], "
        "target_treeids = [0, 0, 0, 1], target_nodeids = [2, 3, 4, 0], "
        "target_ids = [0, 0, 0, 0], target_weights = [1.0, 1.0, 1.0, 1.0], n_targets = 1, "
        "base_values = [0.5]> (x)",
    )
    flops = cost_of(text, opsets=LEARNED).flops
    assert shapes_of(text, opsets=LEARNED)["y"] == (10, 1)
    # 1 to 2 comparisons, 2 votes, 1 base value a row
    assert isinstance(flops, BoundedInt)
    assert (lower(flops), int(flops)) == (10 * (1 + 2 + 1), 10 * (2 + 2 + 1))


def test_the_newest_ensemble_numbers_leaves_apart() -> None:
    text = graph(
        "double[3,2] x",
        f"y = {ML}TreeEnsemble <n_targets = 2, tree_roots = [0], nodes_featureids = [0, 1], "
        "nodes_splits = double[2] {0.5, 0.5}, nodes_modes = uint8[2] {0, 0}, "
        "nodes_truenodeids = [1, 0], nodes_trueleafs = [0, 1], nodes_falsenodeids = [2, 1], "
        "nodes_falseleafs = [1, 1], leaf_targetids = [0, 1, 0], "
        "leaf_weights = double[3] {1.0, 1.0, 1.0}> (x)",
    )
    flops = cost_of(text, opsets=LEARNED).flops
    assert shapes_of(text, opsets=LEARNED)["y"] == (3, 2)
    assert (lower(flops), int(flops)) == (3 * (1 + 1), 3 * (2 + 1))


def test_a_circular_tree_is_not_walked_forever() -> None:
    text = graph(
        "float[3,2] x",
        f"y = {ML}TreeEnsembleRegressor <nodes_treeids = [0, 0], nodes_nodeids = [0, 1], "
        'nodes_modes = ["BRANCH_LEQ", "BRANCH_LEQ"], nodes_truenodeids = [1, 0], '
        "nodes_falsenodeids = [1, 0], n_targets = 1> (x)",
    )
    cost = cost_of(text, opsets=LEARNED)
    assert cost.flops is None
    assert "descendant" in cost.note


# -- encoders and scalers --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "call", "dtype", "shape", "flops"),
    [
        ("float[4,2] x", "Scaler <offset = [1.0], scale = [2.0]> (x)", DType.FLOAT, (4, 2), 16),
        ("int64[4,2] x", "Scaler <offset = [1.0], scale = [2.0]> (x)", DType.FLOAT, (4, 2), 16),
        ("float[4,2] x", "Binarizer <threshold = 0.5> (x)", DType.FLOAT, (4, 2), 8),
        ("int64[4,2] x", "Imputer <imputed_value_int64s = [1]> (x)", DType.INT64, (4, 2), 8),
        ("float[4,3] x", 'Normalizer <norm = "MAX"> (x)', DType.FLOAT, (4, 3), 4 * 5),
        ("float[4,3] x", 'Normalizer <norm = "L1"> (x)', DType.FLOAT, (4, 3), 4 * 8),
        ("float[4,3] x", 'Normalizer <norm = "L2"> (x)', DType.FLOAT, (4, 3), 4 * 11),
        ("int64[4] x", "OneHotEncoder <cats_int64s = [0, 1, 2]> (x)", DType.FLOAT, (4, 3), 0),
        ("float[4,2] x, float[4,3] z", "FeatureVectorizer(x, z)", DType.FLOAT, (4, 5), 0),
        ("float[4,5] x, int64[2] i", "ArrayFeatureExtractor(x, i)", DType.FLOAT, (4, 2), 0),
        ("string[4] x", 'CategoryMapper <cats_strings = ["a"]> (x)', DType.INT64, (4,), 0),
        ("int64[4] x", 'CategoryMapper <cats_strings = ["a"]> (x)', DType.STRING, (4,), 0),
    ],
)
def test_encoders_and_scalers(
    inputs: str, call: str, dtype: DType, shape: tuple[int, ...], flops: int
) -> None:
    text = graph(inputs, f"y = {ML}{call}")
    info = shaped(text, opsets=LEARNED)[0].tensors["y"]
    assert (info.dtype, info.shape) == (dtype, shape)
    assert cost_of(text, opsets=LEARNED).flops == flops


def test_labels_of_strings_have_the_type_of_the_values_and_no_byte_size() -> None:
    text = graph(
        "string[N] x",
        f'y = {ML}LabelEncoder <keys_strings = ["a", "b"], values_int64s = [0, 1]> (x)',
    )
    opsets = {"ai.onnx.ml": 2}
    info = shaped(text, opsets=opsets, N=3)[0].tensors["y"]
    cost = cost_of(text, opsets=opsets, N=3)
    assert (info.dtype, info.shape) == (DType.INT64, (3,))
    assert (cost.macs, cost.input_bytes, cost.output_bytes) == (0, None, 24)


def test_a_zip_map_is_a_sequence_of_one_map_per_row() -> None:
    text = graph("float[3,2] x", f"y = {ML}ZipMap <classlabels_int64s = [0, 1]> (x)")
    info = shaped(text, opsets=LEARNED)[0].tensors["y"]
    assert info.kind == "sequence"
    assert len(info.items or ()) == 3


def test_features_of_three_axes_are_a_problem() -> None:
    text = graph("float[4,3,2] x", f"y = {ML}LinearRegressor <coefficients = {floats(6)}> (x)")
    assert "[N, F]" in problem_of(text, opsets=LEARNED)
