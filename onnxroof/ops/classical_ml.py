"""ai.onnx.ml: linear models, support vectors, encoders, scalers. Trees are in `trees`.

These models keep their coefficients in attributes, so what they multiply with shows in the counts
but not among the initializers. A look-up in a table of keys is no arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.bounded import largest, upper
from onnxroof.graph.types import Constant, DType
from onnxroof.ops.call import FREE, Impossible, OpCost, TensorInfo, Undetermined, no_work
from onnxroof.ops.registry import ML, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall

ENDINGS = {
    "strings": DType.STRING,
    "string": DType.STRING,
    "int64s": DType.INT64,
    "int64": DType.INT64,
    "ints": DType.INT64,
    "floats": DType.FLOAT,
    "float": DType.FLOAT,
}
"""What the end of an attribute's name says of the type of its values."""


def list_attribute(call: OpCall, name: str) -> tuple[object, ...]:
    """A list attribute, empty when not given."""
    value = call.attributes.get(name)
    return value if isinstance(value, tuple) else ()


def rows_and_features(call: OpCall) -> tuple[int, int]:
    """(N, F) of X [N, F]; a vector [F] is one row."""
    dims = call.shape(0)
    if len(dims) == 1:
        return 1, dims[0]
    if len(dims) != 2:
        raise Impossible(f"X must be [N, F] or [F], got {len(dims)} dimensions")
    return dims[0], dims[1]


def class_labels(call: OpCall, integer_name: str) -> tuple[DType, int]:
    """(type, number) of the class labels."""
    strings = list_attribute(call, "classlabels_strings")
    integers = list_attribute(call, integer_name)
    if strings:
        return DType.STRING, len(strings)
    return DType.INT64, len(integers)


def post_transform(call: OpCall, rows: int, scores: int) -> OpCost:
    """Work of `post_transform` on rows of scores.

    LOGISTIC and PROBIT evaluate one function per score; SOFTMAX and SOFTMAX_ZERO 5·n − 2 a row.
    """
    kind = call.attributes.get("post_transform", "NONE")
    if kind in ("LOGISTIC", "PROBIT", 2, 4):
        return OpCost(0, rows * scores, rows * scores)
    if kind in ("SOFTMAX", "SOFTMAX_ZERO", 1, 3):
        return OpCost(0, rows * largest(5 * scores - 2, 0), rows * scores)
    return FREE


# -- linear models ----------------------------------------------------------------------------


@shape_rule("LinearRegressor", domain=ML)
def linear_regressor_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, targets]."""
    return [TensorInfo(DType.FLOAT, (rows_and_features(call)[0], call.attr("targets", 1)))]


@cost_rule("LinearRegressor", domain=ML)
def linear_regressor_cost(call: OpCall) -> OpCost:
    """Y = X·coefficientsᵀ + intercepts.

    Formula
        macs = N · F · targets; flops = 2 · macs + N · targets (intercepts) + post_transform
    Source
        ONNX operator reference, ai.onnx.ml LinearRegressor.
    """
    rows, features = rows_and_features(call)
    targets = call.attr("targets", 1)
    return _linear(call, rows, features, targets) + post_transform(call, rows, targets)


def _linear(call: OpCall, rows: int, features: int, outputs: int) -> OpCost:
    macs = rows * features * outputs
    bias = rows * outputs if list_attribute(call, "intercepts") else 0
    return OpCost(macs, 2 * macs + bias)


@shape_rule("LinearClassifier", domain=ML)
def linear_classifier_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Labels [N] of the labels' type; scores [N, classes]."""
    rows, _ = rows_and_features(call)
    dtype, classes = class_labels(call, "classlabels_ints")
    classes = max(classes, len(list_attribute(call, "intercepts")), 1)
    return [TensorInfo(dtype, (rows,)), TensorInfo(DType.FLOAT, (rows, classes))]


@cost_rule("LinearClassifier", domain=ML)
def linear_classifier_cost(call: OpCall) -> OpCost:
    """Linear scores and the class with the largest.

    Formula
        E = coefficients / F models (1 for two classes decided by sign):
        macs = N · F · E; flops = 2 · macs + N · E (intercepts) + N · max(E − 1, 1) (choice)
        + post_transform
    Source
        ONNX operator reference, ai.onnx.ml LinearClassifier.
    """
    rows, features = rows_and_features(call)
    coefficients = len(list_attribute(call, "coefficients"))
    models = coefficients // upper(features) if upper(features) else 0
    choice = OpCost(0, rows * max(models - 1, 1))
    scores = call.output(1).dims[1]
    return _linear(call, rows, features, models) + choice + post_transform(call, rows, scores)


# -- support vector machines ------------------------------------------------------------------


@shape_rule("SVMRegressor", domain=ML)
def svm_regressor_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, 1]."""
    return [TensorInfo(DType.FLOAT, (rows_and_features(call)[0], 1))]


@cost_rule("SVMRegressor", domain=ML)
def svm_regressor_cost(call: OpCall) -> OpCost:
    """Kernels with every support vector, weighted and summed.

    Shapes
        V support vectors (n_supports) of F features
    Formula
        macs = N · V · F (kernels) + N · V (weights); V = 0, a linear model: N · F
        flops = 2 · macs, plus per kernel 0 if LINEAR, 3 if POLY or SIGMOID, F + 2 if RBF, plus N
        additions (rho), N comparisons if one_class, and post_transform
        transcendentals: one per kernel unless LINEAR
    Source
        ONNX operator reference, ai.onnx.ml SVMRegressor.
    """
    rows, features = rows_and_features(call)
    vectors = call.attr("n_supports", 0)
    after = post_transform(call, rows, 1) + OpCost(0, rows * (1 + (call.attr("one_class", 0) != 0)))
    if not vectors:
        macs = rows * features
        return OpCost(macs, 2 * macs) + after
    macs = rows * vectors
    return kernel_work(call, rows * vectors, features) + OpCost(macs, 2 * macs) + after


def kernel_work(call: OpCall, pairs: int, features: int) -> OpCost:
    """Work of `pairs` kernels over F features.

    LINEAR: F macs. POLY (γ·x·v + c)^d: F macs, product, sum, power. SIGMOID tanh(γ·x·v + c): F
    macs, product, sum, tanh. RBF exp(−γ·|x − v|²): F differences, F macs, product, exponential.
    """
    kind = call.attr("kernel_type", "LINEAR")
    macs = pairs * features
    if kind == "RBF":
        return OpCost(macs, 2 * macs + pairs * (features + 2), pairs)
    if kind in ("POLY", "SIGMOID"):
        return OpCost(macs, 2 * macs + 3 * pairs, pairs)
    return OpCost(macs, 2 * macs)


@shape_rule("SVMClassifier", domain=ML)
def svm_classifier_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Labels [N]; scores [N, classes], or [N, pairs of classes] when no probabilities are asked."""
    rows, _ = rows_and_features(call)
    dtype, labels = class_labels(call, "classlabels_ints")
    scores = labels
    if list_attribute(call, "vectors_per_class") and not list_attribute(call, "prob_a"):
        classes = len(list_attribute(call, "vectors_per_class"))
        scores = max(classes * (classes - 1) // 2, 2 if classes == 2 else 1)
    return [TensorInfo(dtype, (rows,)), TensorInfo(DType.FLOAT, (rows, scores))]


@cost_rule("SVMClassifier", domain=ML)
def svm_classifier_cost(call: OpCall) -> OpCost:
    """One machine for every pair of classes, and a vote.

    Shapes
        C classes    V support vectors (sum of vectors_per_class) of F features
    Formula
        macs = N · V · F (kernels) + N · V · (C − 1) (every pair sums the vectors of its two
        classes); V = 0, C linear models: N · C · F
        flops = 2 · macs, plus per kernel 0 if LINEAR, 3 if POLY or SIGMOID, F + 2 if RBF, plus per
        pair and row an addition (rho), a comparison and, with prob_a, a sigmoid, plus N · (C − 1)
        comparisons for the choice, and post_transform
        transcendentals: one per kernel unless LINEAR, one per sigmoid
    Convention
        Coupling pair probabilities to class probabilities is iterative and not counted.
    Source
        ONNX operator reference, ai.onnx.ml SVMClassifier.
    """
    rows, features = rows_and_features(call)
    per_class = list_attribute(call, "vectors_per_class")
    classes = len(per_class) or class_labels(call, "classlabels_ints")[1]
    after = post_transform(call, rows, call.output(1).dims[1])
    choice = OpCost(0, rows * max(classes - 1, 1))
    if not per_class:
        macs = rows * classes * features
        return OpCost(macs, 2 * macs + rows * classes) + choice + after
    vectors = sum(count for count in per_class if isinstance(count, int))
    pairs = rows * (classes * (classes - 1) // 2)
    macs = rows * vectors * (classes - 1)
    sigmoids = pairs if list_attribute(call, "prob_a") else 0
    machines = OpCost(macs, 2 * macs + 2 * pairs + sigmoids, sigmoids)
    return kernel_work(call, rows * vectors, features) + machines + choice + after


# -- scalers ----------------------------------------------------------------------------------


@shape_rule("Scaler", "Normalizer", domain=ML)
def scaled_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Floats, shaped like X."""
    return [TensorInfo(DType.FLOAT, call.shape(0))]


@shape_rule("Binarizer", "Imputer", domain=ML)
def same_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Like X."""
    return [call.input(0).like()]


@cost_rule("Binarizer", "Imputer", domain=ML)
def comparison_cost(call: OpCall) -> OpCost:
    """Every element is compared with a threshold or with the value to replace.

    Formula
        flops = elements of Y
    Source
        ONNX operator reference, ai.onnx.ml Binarizer and Imputer.
    """
    return OpCost(0, call.output().elements)


@cost_rule("Scaler", domain=ML)
def scaler_cost(call: OpCall) -> OpCost:
    """(X − offset) · scale.

    Formula
        flops = 2 · elements of Y
    Source
        ONNX operator reference, ai.onnx.ml Scaler.
    """
    return OpCost(0, 2 * call.output().elements)


@cost_rule("Normalizer", domain=ML)
def normalizer_cost(call: OpCall) -> OpCost:
    """Each row divided by its norm.

    Formula
        Per row of n: MAX n−1 comparisons + n divisions; L1 n magnitudes, n−1 sums, n divisions;
        L2 n squares, n−1 sums, n divisions and n roots (transcendental), as the text has them.
    Source
        ONNX operator reference, ai.onnx.ml Normalizer.
    """
    rows, length = rows_and_features(call)
    kind = call.attr("norm", "MAX")
    per_row = {"MAX": 2 * length - 1, "L1": 3 * length - 1, "L2": 4 * length - 1}.get(kind)
    if per_row is None:
        raise Impossible(f"attribute norm is {kind}; MAX, L1 and L2 are known")
    return OpCost(0, rows * largest(per_row, 0), rows * length if kind == "L2" else 0)


declare("Scaler", "Binarizer", "Imputer", domain=ML, pointwise=True)


# -- encoders and extractors ------------------------------------------------------------------


@shape_rule("ArrayFeatureExtractor", domain=ML)
def array_feature_shape(call: OpCall) -> Sequence[TensorInfo]:
    """X [*, F] at the indices along the last axis; a vector gives [1, indices]."""
    x, count = call.input(0), call.input(1).elements
    lead = x.dims[:-1] if x.rank > 1 else (1,)
    return [x.like((*lead, count))]


@cost_rule("ArrayFeatureExtractor", domain=ML)
def array_feature_cost(call: OpCall) -> OpCost:
    """Free of arithmetic: elements are copied.

    Traffic
        of the data as many bytes as the output has; the indices
    """
    taken = call.output().nbytes
    return FREE if taken is None else OpCost(reads={0: taken})


@shape_rule("FeatureVectorizer", domain=ML)
def feature_vectorizer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Floats [N, ΣC]."""
    shapes = [info.dims for info in call.given()]
    if not shapes or any(len(dims) not in (1, 2) for dims in shapes):
        raise Impossible("every input must be [N, C] or [C]")
    rows = shapes[0][0] if len(shapes[0]) == 2 else 1
    widths = list_attribute(call, "inputdimensions")
    sizes = [dims[-1] for dims in shapes]
    if len(widths) == len(sizes):
        sizes = [width for width in widths if isinstance(width, int)]
    return [TensorInfo(DType.FLOAT, (rows, sum(sizes)))]


@shape_rule("OneHotEncoder", domain=ML)
def one_hot_encoder_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Floats [*, categories]."""
    names = ("cats_int64s", "cats_strings")
    categories = max(len(list_attribute(call, name)) for name in names)
    return [TensorInfo(DType.FLOAT, (*call.shape(0), categories))]


@shape_rule("LabelEncoder", domain=ML)
def label_encoder_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Like X, of the type of the values."""
    return [TensorInfo(_values_type(call), call.shape(0))]


def _values_type(call: OpCall) -> DType:
    if call.opset < 2:
        return DType.INT64 if call.input(0).dtype is DType.STRING else DType.STRING
    for name, value in call.attributes.items():
        if name == "values_tensor" and isinstance(value, Constant):
            return value.dtype
        if name.startswith("values_"):
            return ENDINGS[name.removeprefix("values_")]
    raise Impossible("one of the attributes values_* is required")


@shape_rule("CategoryMapper", domain=ML)
def category_mapper_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Like X: text becomes integers, integers become text."""
    x = call.input(0)
    return [x.like(dtype=DType.INT64 if x.dtype is DType.STRING else DType.STRING)]


@shape_rule("DictVectorizer", domain=ML)
def dict_vectorizer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """One value per entry of the vocabulary: [1, entries]."""
    names = ("string_vocabulary", "int64_vocabulary")
    entries = max(len(list_attribute(call, name)) for name in names)
    dtype = call.input(0).dtype
    return [TensorInfo(dtype, (1, entries))]


@shape_rule("CastMap", domain=ML)
def cast_map_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[1, max_map] when sparse; dense maps have as many values as the run says."""
    casts = {"TO_FLOAT": DType.FLOAT, "TO_STRING": DType.STRING, "TO_INT64": DType.INT64}
    dtype = casts.get(call.attr("cast_to", "TO_FLOAT"))
    if call.attr("map_form", "DENSE") != "SPARSE":
        raise Undetermined("how many entries the map has is known at run time only")
    return [TensorInfo(dtype, (1, call.attr("max_map", 1)))]


@shape_rule("ZipMap", domain=ML)
def zip_map_shape(call: OpCall) -> Sequence[TensorInfo]:
    """A sequence of N maps from label to value."""
    rows, _ = rows_and_features(call)
    dtype = call.input(0).dtype
    entry = TensorInfo(dtype, None, kind="map", element=TensorInfo(dtype, ()))
    items = (entry,) * rows if upper(rows) <= 1024 else None
    return [TensorInfo(dtype, None, kind="sequence", items=items, element=entry)]


_LOOKUP = "a look-up in a table of keys"
declare("ArrayFeatureExtractor", domain=ML, control=(), free="copies the elements taken")
declare("FeatureVectorizer", domain=ML, free="copies its inputs side by side")
declare("OneHotEncoder", "LabelEncoder", "CategoryMapper", domain=ML, free=_LOOKUP)
declare("DictVectorizer", "CastMap", "ZipMap", domain=ML, free="moves values of a map")
cost_rule(
    "FeatureVectorizer",
    "OneHotEncoder",
    "LabelEncoder",
    "CategoryMapper",
    "DictVectorizer",
    "CastMap",
    "ZipMap",
    domain=ML,
)(no_work)
