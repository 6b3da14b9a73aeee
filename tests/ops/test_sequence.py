from __future__ import annotations

import pytest

from onnxroof.bounded import ends, lower
from onnxroof.cost import Status
from onnxroof.graph.types import DType
from tests.builders import cost_of, costs, problem_of, shaped, shapes_of


def graph(inputs: str, body: str, constants: str = "") -> str:
    declared = f"<{constants}>" if constants else ""
    return f"agraph ({inputs}) => (y) {declared} {{ {body} }}"


def test_a_constant_index_finds_its_element() -> None:
    text = graph(
        "float[2,3] a, float[4] b, float[5,6,7] c",
        "s = SequenceConstruct(a, b, c) y = SequenceAt(s, i) z = SequenceAt(s, j)",
        "int64 i = {1}, int64 j = {-1}",
    )
    found = shapes_of(text)
    assert (found["y"], found["z"]) == ((4,), (5, 6, 7))


def test_an_unknown_index_gives_what_all_elements_have_in_common() -> None:
    text = graph(
        "float[2,3] a, float[4,3] b, int64 i", "s = SequenceConstruct(a, b) y = SequenceAt(s, i)"
    )
    shape = shapes_of(text)["y"]
    assert shape == (4, 3)
    assert lower(shape[0]) == 2


def test_an_unknown_element_of_mixed_ranks_is_unresolved() -> None:
    text = graph(
        "float[2,3] a, float[4] b, int64 i", "s = SequenceConstruct(a, b) y = SequenceAt(s, i)"
    )
    _, findings = shaped(text)
    assert "run time" in findings.unresolved[0].reason


def test_inserting_and_erasing_shift_elements() -> None:
    text = graph(
        "float[1] a, float[2] b, float[3] c",
        "s = SequenceConstruct(a, b) t = SequenceInsert(s, c, zero) u = SequenceErase(t, one) "
        "v = SequenceInsert(u, b) y = SequenceAt(v, zero) z = SequenceAt(v, one) "
        "w = SequenceAt(v, two)",
        "int64 zero = {0}, int64 one = {1}, int64 two = {2}",
    )
    # [a, b] → [c, a, b] → [c, b] → [c, b, b]
    found = shapes_of(text)
    assert (found["y"], found["z"], found["w"]) == ((3,), (2,), (2,))


def test_a_sequence_grown_from_nothing_knows_its_length() -> None:
    text = graph(
        "float[2,3] a",
        "e = SequenceEmpty() s = SequenceInsert(e, a) t = SequenceInsert(s, a) "
        "n = SequenceLength(t) m = Unsqueeze(n, z) y = ConstantOfShape(m)",
        "int64[1] z = {0}",
    )
    assert shapes_of(text)["y"] == (2,)


@pytest.mark.parametrize(
    ("attributes", "split", "pieces"),
    [
        ("<axis = 1>", ", c", [(2, 4), (2, 4), (2, 2)]),
        ("<axis = -1>", ", p", [(2, 3), (2, 7)]),
        ("<axis = 0>", "", [(1, 10), (1, 10)]),
        ("<axis = 0, keepdims = 0>", "", [(10,), (10,)]),
    ],
)
def test_splitting_gives_every_piece_its_size(
    attributes: str, split: str, pieces: list[tuple[int, ...]]
) -> None:
    text = graph(
        "float[2,10] x",
        f"y = SplitToSequence {attributes} (x{split})",
        "int64 c = {4}, int64[2] p = {3, 7}",
    )
    sequence = shaped(text)[0].tensors["y"]
    assert [item.shape for item in sequence.items or ()] == pieces
    assert sequence.dtype is DType.FLOAT


def test_pieces_taken_by_position_can_be_added() -> None:
    text = graph(
        "float[1,1,400] x",
        "s = SplitToSequence <axis = 2> (x, c) a = SequenceAt(s, i) b = SequenceAt(s, j) "
        "y = Add(a, b)",
        "int64 c = {100}, int64 i = {0}, int64 j = {1}",
    )
    assert shapes_of(text, opset=17)["y"] == (1, 1, 100)
    assert sum(node.flops for node in costs(text, opset=17).nodes) == 100


def test_pieces_that_do_not_add_up_are_a_problem() -> None:
    text = graph("float[2,10] x", "y = SplitToSequence <axis = 1> (x, p)", "int64[2] p = {3, 6}")
    assert "do not add up" in problem_of(text)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [("axis = 0", (4, 3)), ("axis = -1", (2, 6)), ("axis = 1, new_axis = 1", (2, 2, 3))],
)
def test_a_sequence_joins_along_an_axis_or_a_new_one(
    attributes: str, shape: tuple[int, ...]
) -> None:
    text = graph(
        "float[2,3] a, float[2,3] b",
        f"s = SequenceConstruct(a, b) y = ConcatFromSequence <{attributes}> (s)",
    )
    assert shapes_of(text)["y"] == shape


def test_a_list_of_tensors_moves_no_bytes_but_joining_does() -> None:
    text = graph(
        "float[2,3] a, float[2,3] b",
        "s = SequenceConstruct(a, b) y = ConcatFromSequence <axis = 0> (s)",
    )
    construct, join = costs(text).nodes
    assert construct.traffic_bytes == 0
    assert construct.status is Status.FREE
    assert join.traffic_bytes == 2 * 2 * 24


def test_an_index_out_of_range_is_a_problem() -> None:
    text = graph("float[2] a", "s = SequenceConstruct(a) y = SequenceAt(s, i)", "int64 i = {3}")
    assert "out of range" in problem_of(text)


def test_an_optional_gives_back_what_it_holds() -> None:
    text = graph(
        "float[2,3] a", "o = Optional(a) h = OptionalHasElement(o) y = OptionalGetElement(o)"
    )
    tensors = shaped(text)[0].tensors
    assert tensors["y"].shape == (2, 3)
    assert tensors["h"].value is not None
    assert tensors["h"].value.tolist() is True


# -- text ------------------------------------------------------------------------------------


def test_joined_strings_broadcast_and_have_no_byte_size() -> None:
    text = graph("string[2,1] a, string[3] b", "y = StringConcat(a, b)")
    assert shapes_of(text)["y"] == (2, 3)
    assert cost_of(text).traffic_bytes is None
    assert cost_of(text).flops == 0


def test_a_bounded_split_bounds_its_pieces() -> None:
    text = graph("string[4] x", 'y, n = StringSplit <delimiter = ",", maxsplit = 2> (x)')
    shape = shapes_of(text)["y"]
    assert shape == (4, 3)
    assert lower(shape[1]) == 0


def test_an_unbounded_split_is_unresolved_but_its_counts_are_not() -> None:
    text = graph("string[4] x", "y, n = StringSplit(x)")
    found, findings = shaped(text)
    assert found.tensors["n"].shape == (4,)
    assert [item.tensor for item in findings.unresolved] == ["y"]


def test_stop_words_may_shorten_a_text() -> None:
    text = graph("string[4] x", 'y = StringNormalizer <stopwords = ["a"]> (x)')
    shape = shapes_of(text)["y"]
    assert shape == (4,)
    assert lower(shape[0]) == 1
    assert shapes_of(graph("string[4] x", "y = StringNormalizer(x)"))["y"] == (4,)


def test_a_vectorizer_has_one_column_per_index() -> None:
    text = graph(
        "int32[2,6] x",
        "y = TfIdfVectorizer <max_gram_length = 2, max_skip_count = 0, min_gram_length = 1, "
        'mode = "TF", ngram_counts = [0, 2], ngram_indexes = [0, 1, 4], pool_int64s = [2, 3, 5, 4]>'
        " (x)",
    )
    assert shapes_of(text)["y"] == (2, 5)


def test_optionals_of_equal_type_hold_values_of_their_own() -> None:
    text = graph(
        "float[1] x",
        """a = Constant <value_ints = [3]> () b = Constant <value_ints = [5]> ()
        o = Optional(a) p = Optional(b) n = OptionalGetElement(o) m = OptionalGetElement(p)
        z = ConstantOfShape(n) y = ConstantOfShape(m)""",
    )
    found = shapes_of(text)
    assert found["z"] in (None, (3,))
    assert found["y"] in (None, (5,))


COUNT = "nz = NonZero(x) s = Shape <start = 1>(nz)"
"""s is the number of non-zero elements of x."""


def test_chunks_of_a_size_known_by_its_bounds_are_of_unknown_number() -> None:
    # 12 in chunks of 2 to 4: 6 to 3 pieces of at most 4
    text = graph(
        "float[2] x, float[12] d, int64 i",
        f"{COUNT} t = Add(s, two) c = Squeeze(t) q = SplitToSequence(d, c) "
        "n = SequenceLength(q) y = SequenceAt(q, i)",
        "int64[1] two = {2}",
    )
    found, _ = shaped(text)
    assert found.tensors["n"].value is None
    assert ends(found.tensors["y"].dims[0]) == (1, 4)


def test_pieces_known_by_their_bounds_are_refused_only_where_they_cannot_add_up() -> None:
    # n and 12 − n with n ≤ 2: between 0 + 10 and 2 + 12; as pieces of 15 at least 1 is missing
    body = (
        f"{COUNT} r = Sub(twelve, s) p = Concat <axis = 0>(s, r) q = SplitToSequence(d, p) "
        "y = SequenceAt(q, zero)"
    )
    constants = "int64[1] twelve = {12}, int64 zero = {0}"
    fits = graph("float[2] x, float[12] d", body, constants)
    shape = shapes_of(fits)["y"]
    assert shape is not None
    assert ends(shape[0]) == (0, 2)
    assert "add up to 15" in problem_of(graph("float[2] x, float[15] d", body, constants))


def test_an_index_known_by_its_bounds_may_be_any() -> None:
    text = graph(
        "float[1] x, float[2] a, float[3] b",
        f"{COUNT} i = Squeeze(s) q = SequenceConstruct(a, b) y = SequenceAt(q, i)",
    )
    shape = shapes_of(text)["y"]
    assert shape is not None
    assert ends(shape[0]) == (2, 3)


def test_a_tensor_of_unknown_size_is_cut_into_a_sequence_of_unknown_elements() -> None:
    text = graph(
        "float[1] x",
        "e = Exp(x) k = Cast <to = 7>(e) v = ConstantOfShape(k) q = SplitToSequence(v, two) "
        "n = SequenceLength(q) y = ConcatFromSequence <axis = 0>(q)",
        "int64 two = {2}",
    )
    found, findings = shaped(text)
    assert findings.problems == ()
    assert found.tensors["q"].kind == "sequence"
    assert found.tensors["n"].shape == ()


def test_what_may_be_a_sequence_is_not_refused_as_one() -> None:
    text = graph("float[2] x", "q = some.Thing(x) y = SequenceLength(q)")
    _, findings = shaped(text, opsets={"some": 1})
    assert findings.problems == ()
    assert "not known" in findings.unresolved[-1].reason
