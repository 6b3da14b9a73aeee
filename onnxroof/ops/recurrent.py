"""Recurrent operators: RNN, GRU, LSTM and their quantized and attending forms.

A cell is computed once per time step, sequence and direction; W and R are read once, since
compulsory traffic counts a tensor once however often it is used. With constant sequence_lens the
steps beyond a sequence's end cost nothing; lengths that only the run tells are charged as full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxroof.bounded import largest, smallest, upper
from onnxroof.ops.call import Impossible, OpCost, TensorInfo
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Gate matrices stacked in W and R."""

TRANSCENDENTAL_ACTIVATIONS = frozenset(
    {"tanh", "sigmoid", "scaledtanh", "elu", "softplus", "softmax"}
)
"""Activations of a recurrent cell that evaluate exp, tanh or log; the text ignores case."""

DEFAULT_ACTIVATIONS = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
"""Activations f, g, h when none are named."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Sizes of one recurrent operator: `cells` counts steps · sequences over all directions."""

    steps: int
    batch: int
    directions: int
    inputs: int
    hidden: int

    @property
    def dense(self) -> int:
        """Cells when every sequence has full length."""
        return self.directions * self.steps * self.batch


def cells_of(call: OpCall, gates: int, *, transposed: bool = False) -> Cells:
    """Sizes from X [T, B, I] (or [B, T, I]), W [D, gates·H, I] and R [D, gates·H, H].

    Raises:
        Impossible: W, R and X do not fit each other.
    """
    x, weight, recurrent = call.shape(0), call.shape(1), call.shape(2)
    if len(x) != 3 or len(weight) != 3 or len(recurrent) != 3:
        raise Impossible("X, W and R must have 3 dimensions")
    steps, batch = (x[1], x[0]) if call.attr("layout", 0) else (x[0], x[1])
    if transposed:
        weight, recurrent = (weight[0], weight[2], weight[1]), (
            recurrent[0], recurrent[2], recurrent[1],
        )  # fmt: skip
    hidden = recurrent[2]
    directions = 2 if call.attr("direction", "forward") == "bidirectional" else 1
    expected = (directions, gates * hidden)
    if weight[:2] != expected or recurrent[:2] != expected:
        raise Impossible(
            f"W and R must begin with {directions}×{gates * hidden} for {directions} direction(s)"
            f" and hidden size {hidden}, got {weight[0]}×{weight[1]} and"
            f" {recurrent[0]}×{recurrent[1]}"
        )
    return Cells(steps, batch, directions, weight[2], hidden)


@shape_rule("RNN", "GRU", "LSTM")
def recurrent_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [T, D, B, H], Y_h [D, B, H], for LSTM Y_c; layout 1: [B, T, D, H] and [B, D, H]."""
    cells = cells_of(call, GATES[call.op_type])
    if upper(call.shape(0)[2]) != upper(cells.inputs):
        raise Impossible(f"W takes {cells.inputs} inputs, X has {call.shape(0)[2]}")
    return recurrent_outputs(call, cells)


def recurrent_outputs(call: OpCall, cells: Cells) -> list[TensorInfo]:
    """The outputs of a recurrent operator: sequence, last hidden state, last cell state."""
    x = call.input(0)
    if call.attr("layout", 0):
        sequence = (cells.batch, cells.steps, cells.directions, cells.hidden)
        last = (cells.batch, cells.directions, cells.hidden)
    else:
        sequence = (cells.steps, cells.directions, cells.batch, cells.hidden)
        last = (cells.directions, cells.batch, cells.hidden)
    outputs = [x.like(sequence), x.like(last), x.like(last)]
    return outputs if call.op_type.endswith("LSTM") else outputs[:2]


declare("RNN", "GRU", "LSTM", control=(4,), states=(5, 6))


def cell_count(call: OpCall, cells: Cells) -> int:
    """Cells computed: Σ sequence_lens per direction when they are constants, else T · B."""
    lengths = call.value(4)
    if lengths is None or not call.has(4):
        return cells.dense
    used = sum(largest(smallest(length, cells.steps), 0) for length in lengths.ravel().tolist())
    return cells.directions * used


def length_note(call: OpCall) -> str:
    """What the count assumed about sequence lengths."""
    if not call.has(4):
        return ""
    if call.value(4) is None:
        return "sequence_lens is computed at run time: every sequence is charged at full length"
    return "counted up to each sequence's length in sequence_lens"


def gate_activations(call: OpCall, kind: str) -> tuple[str, ...]:
    """The activation names of the first direction, lower case."""
    names = call.attributes.get("activations") or DEFAULT_ACTIVATIONS[kind]
    if not isinstance(names, tuple) or len(names) < len(DEFAULT_ACTIVATIONS[kind]):
        raise Impossible(f"activations must name {len(DEFAULT_ACTIVATIONS[kind])} functions")
    return tuple(str(name).lower() for name in names)


def transcendental_evaluations(call: OpCall, kind: str, evaluations: tuple[int, ...]) -> int:
    """Transcendental activations per cell and direction-average · directions, over directions.

    `evaluations` says how often f, g, h are evaluated per cell. Directions may have their own
    functions; the result is the sum over directions.
    """
    names = gate_activations(call, kind)
    per_direction = len(evaluations)
    directions = 2 if call.attr("direction", "forward") == "bidirectional" else 1
    if len(names) < per_direction * directions:
        names = names[:per_direction] * directions
    return sum(
        evaluations[position % per_direction]
        for position, name in enumerate(names[: per_direction * directions])
        if name in TRANSCENDENTAL_ACTIVATIONS
    )


def cell_work(
    call: OpCall, kind: str, cells: Cells, macs: int, other: int, evaluations: tuple[int, ...]
) -> OpCost:
    """Work of all cells: `macs` and `other` per cell plus the activations f, g, h."""
    count = cell_count(call, cells)
    flops = 2 * macs + other + sum(evaluations)
    evaluated = transcendental_evaluations(call, kind, evaluations)
    return OpCost(
        count * macs,
        count * flops,
        count // cells.directions * evaluated,
        note=length_note(call),
    )


@cost_rule("RNN")
def rnn_cost(call: OpCall) -> OpCost:
    """Simple recurrent layer: h = f(x·Wᵀ + h·Rᵀ + Wb + Rb).

    Shapes
        X [T, B, I]    W [D, H, I]    R [D, H, H]    B [D, 2·H]    Y [T, D, B, H]
    Formula
        Per cell, of which there are D · T · B:
        macs = H · (I + H)
        flops = 2 · macs + 2·H (both biases) + H (clip, if given) + H (activation)
    Convention
        With constant sequence_lens there are D · Σ lengths cells. W and R are read once.
    Source
        ONNX operator reference, RNN.
    """
    cells = cells_of(call, 1)
    hidden = cells.hidden
    other = 2 * hidden * call.has(3) + hidden * _clips(call)
    return cell_work(call, "RNN", cells, hidden * (cells.inputs + hidden), other, (hidden,))


@cost_rule("GRU")
def gru_cost(call: OpCall) -> OpCost:
    """Gated recurrent unit, with the reset before or after the hidden product.

    Shapes
        X [T, B, I]    W [D, 3·H, I]    R [D, 3·H, H]    B [D, 6·H]    Y [T, D, B, H]
    Formula
        Per cell, of which there are D · T · B:
        macs = 3·H · (I + H)
        flops = 2 · macs + 6·H (biases) + 3·H (clip, if given) + 3·H (activations)
        + H (reset) + 4·H (h = (1 − z)·ĥ + z·h)
    Convention
        As RNN. linear_before_reset changes the order, not the count.
    Source
        ONNX operator reference, GRU.
    """
    cells = cells_of(call, 3)
    hidden = cells.hidden
    other = 6 * hidden * call.has(3) + 3 * hidden * _clips(call) + 5 * hidden
    macs = 3 * hidden * (cells.inputs + hidden)
    return cell_work(call, "GRU", cells, macs, other, (2 * hidden, hidden))


@cost_rule("LSTM")
def lstm_cost(call: OpCall) -> OpCost:
    """Long short-term memory, with or without peepholes.

    Shapes
        X [T, B, I]    W [D, 4·H, I]    R [D, 4·H, H]    B [D, 8·H]    P [D, 3·H]
        Y [T, D, B, H]    Y_h, Y_c [D, B, H]
    Formula
        Per cell, of which there are D · T · B:
        macs = 4·H · (I + H)
        flops = 2 · macs + 8·H (biases) + 6·H (peepholes: product and sum) + 5·H (clip, if given)
        + 5·H (activations: f of i, o, f; g; h) + 3·H (C = f·C + i·c) + H (h = o·h(C))
    Convention
        As RNN. With input_forget the forget gate is 1 − i: a subtraction in place of its
        activation; its matrix rows are stored and multiplied all the same.
    Source
        ONNX operator reference, LSTM.
    """
    cells = cells_of(call, 4)
    return _lstm_work(call, cells, cells.inputs)


def _lstm_work(call: OpCall, cells: Cells, inputs: int) -> OpCost:
    hidden = cells.hidden
    other = 4 * hidden + 8 * hidden * call.has(3) + 6 * hidden * call.has(7)
    other = other + 5 * hidden * _clips(call)
    gates = 3
    if call.attr("input_forget", 0):
        gates, other = 2, other + hidden
    macs = 4 * hidden * (inputs + hidden)
    return cell_work(call, "LSTM", cells, macs, other, (gates * hidden, hidden, hidden))


def _clips(call: OpCall) -> bool:
    return "clip" in call.attributes


# -- ONNX Runtime's forms ---------------------------------------------------------------------


@shape_rule("DynamicQuantizeLSTM", domain=MICROSOFT)
def quantized_lstm_shape(call: OpCall) -> Sequence[TensorInfo]:
    """As LSTM, with W [D, I, 4·H] and R [D, H, 4·H]."""
    cells = cells_of(call, 4, transposed=True)
    if upper(call.shape(0)[2]) != upper(cells.inputs):
        raise Impossible(f"W takes {cells.inputs} inputs, X has {call.shape(0)[2]}")
    return recurrent_outputs(call, cells)


@cost_rule("DynamicQuantizeLSTM", domain=MICROSOFT)
def quantized_lstm_cost(call: OpCall) -> OpCost:
    """LSTM with 8-bit weights; X and the hidden state are quantized as they come.

    Formula
        macs as LSTM
        flops as LSTM, plus per cell one per element quantized (I + H) and two per gate element
        (4·H) of each product: rescaling of x·W and of h·R
    Source
        ONNX Runtime contrib operators, DynamicQuantizeLSTM.
    """
    cells = cells_of(call, 4, transposed=True)
    cost = _lstm_work(call, cells, cells.inputs)
    extra = cells.inputs + cells.hidden + 8 * cells.hidden
    return replace(
        cost,
        flops=cost.flops + cell_count(call, cells) * extra,
        compute_dtype=call.input(1).dtype,
    )


declare(
    "DynamicQuantizeLSTM",
    domain=MICROSOFT,
    control=(4,),
    states=(5, 6),
    quantization=(8, 9, 10, 11),
)


@shape_rule("AttnLSTM", domain=MICROSOFT)
def attending_lstm_shape(call: OpCall) -> Sequence[TensorInfo]:
    """As LSTM; W takes the input and the attention state side by side."""
    return recurrent_outputs(call, cells_of(call, 4))


@cost_rule("AttnLSTM", domain=MICROSOFT)
def attending_lstm_cost(call: OpCall) -> OpCost:
    """LSTM whose every step attends to a memory (Bahdanau).

    Shapes
        W [D, 4·H, I + attention state]    QW [D, H, A]    MW [D, Dm, A]    V [D, A]
        M [B, Tm, Dm]    AW [D, Dm + H, Aw]
    Formula
        macs as LSTM, plus D · B · Tm · Dm · A (keys, once), plus per cell H·A (query)
        + Tm·A (score) + Tm·Dm (context) + (Dm + H)·Aw (layer)
        flops as LSTM, plus 2 per mac more, plus per cell Tm·A (sum) + Tm·A (tanh)
        + 5·Tm − 2 (softmax)
        transcendentals as LSTM, plus Tm·A + Tm per cell
    Source
        ONNX Runtime contrib operators, AttnLSTM.
    """
    cells = cells_of(call, 4)
    cost = _lstm_work(call, cells, cells.inputs)
    width = call.shape(8)[2]
    batch, memory_steps, depth = call.shape(11)
    layer = call.shape(13)[1] * call.shape(13)[2] if call.has(13) else 0
    keys = cells.directions * batch * memory_steps * depth * width
    macs = cells.hidden * width + memory_steps * (width + depth) + layer
    aligned = memory_steps * width
    flops = 2 * macs + 2 * aligned + largest(5 * memory_steps - 2, 0)
    count = cell_count(call, cells)
    return OpCost(
        cost.macs + keys + count * macs,
        cost.flops + 2 * keys + count * flops,
        cost.transcendentals + count * (aligned + memory_steps),
        note=cost.note,
    )


declare("AttnLSTM", domain=MICROSOFT, control=(4, 12))


@shape_rule("WordConvEmbedding", domain=MICROSOFT)
def word_embedding_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*, filters]: one vector per word of Sequence [*, characters]."""
    return [call.input(1).like((*call.shape(0)[:-1], call.shape(1)[0])).marked(constant=False)]


@cost_rule("WordConvEmbedding", domain=MICROSOFT)
def word_embedding_cost(call: OpCall) -> OpCost:
    """Character look-up, convolution over each word, tanh, and the largest of all positions.

    Shapes
        Sequence [*, L]    W [M, 1, K, E]    B [M]    C [characters, E]    Y [*, M]
    Formula
        With P = L − K + 1 positions a word: macs = words · P · M · K · E
        flops = 2 · macs + words · M · (2·P (bias, tanh) + P − 1 (maximum))
    Traffic
        of C the rows looked up, at most all
    Convention
        Words are charged at their padded length L. The kernel (tanh, maximum over positions) is
        that of ONNX Runtime.
    Source
        ONNX Runtime contrib operators, WordConvEmbedding.
    """
    words, filters = call.output().elements // max(call.shape(1)[0], 1), call.shape(1)[0]
    length, window = call.shape(0)[-1], call.shape(1)[2]
    positions = largest(length - window + 1, 0)
    macs = words * positions * filters * window * call.shape(1)[3]
    flops = 2 * macs + words * filters * largest(3 * positions - 1, 0)
    table = call.input(3)
    rows = smallest(call.input(0).elements, table.dims[0])
    return OpCost(
        macs,
        flops,
        words * filters * positions,
        reads={3: rows * ((table.nbytes or 0) // max(table.dims[0], 1))},
        compute_dtype=call.input(1).dtype,
    )
