"""Key/value caches and memory levels."""

from __future__ import annotations

from dataclasses import dataclass

import onnxroof
from onnxroof.bounded import interval
from onnxroof.fusion.plan import plan_kernels
from onnxroof.memory import check_budgets, plan_memory
from onnxroof.memory.records import Budget
from tests.builders import model
from tests.fusion.plans import model_cost
from tests.memory.plans import memory


def test_a_decoder_keeps_keys_and_values_of_every_layer() -> None:
    cache = plan_memory(plan_kernels(model_cost("gpt2_decode_dynamic"))).kv_cache
    assert cache is not None
    # 12 layers, keys and values of 12 heads × 64 in fp32
    assert cache.bytes_per_token == 12 * 2 * 12 * 64 * 4
    assert dict(cache.layers) == {str(layer): 2 * 768 * 4 for layer in range(12)}
    # 8 tokens cached, one new
    assert cache.total_bytes == 9 * cache.bytes_per_token
    assert {tensor.tokens for tensor in cache.tensors} == {9}


def test_a_model_without_one_has_none() -> None:
    assert plan_memory(plan_kernels(model_cost("resnet50"))).kv_cache is None


APPEND = (
    "g (float[1,2,7,4] past, float[1,2,1,4] new) => (float present) "
    "{ present = Concat<axis = 2>(past, new) }"
)


def test_a_cache_grows_in_place() -> None:
    plan = memory(APPEND)
    assert plan.peak_activation_bytes == (7 + 1 + 8) * 8 * 4
    assert plan.in_place_peak.nbytes == (8 + 1) * 8 * 4
    assert plan.kv_cache is not None
    assert plan.kv_cache.bytes_per_token == 2 * 4 * 4


@dataclass
class Memory:
    level: str
    capacity_bytes: int | None
    instances: int = 1


def test_levels_are_budgets() -> None:
    plan = memory(
        "g (float[1,64] x) => (float y) <float[64,64] w> { a = MatMul(x, w)  y = Relu(a) }"
    )
    needed = 64 * 64 * 4 + 2 * 256
    main, small, unknown = Memory("dram", needed), Memory("sram", 100, 2), Memory("l1", None)
    verdicts = check_budgets(plan, [main, small, unknown])
    assert [(v.level, v.needed_bytes, v.fits) for v in verdicts] == [
        ("dram", needed, True), ("sram", 2 * 256, False),
    ]  # fmt: skip
    assert verdicts[0].cut == ""
    # two tensors of 64 floats, two instances of 100 bytes
    assert verdicts[1].excess_bytes == 2 * 256 - 2 * 100
    assert "at MatMul#0 the largest tensor is" in verdicts[1].cut
    assert [budget.is_lower_bound for budget in verdicts] == [False, False]
    (short,) = check_budgets(plan, [Memory("dram", needed - 1)])
    assert "the weights are the larger part" in short.cut


def test_a_level_that_holds_what_is_known_may_not_hold_the_rest() -> None:
    # x and y are 4·8 bytes each, the size of u between them is not known
    text = "agraph (float[8] x) => (float[8] y) { u = my.Foo(x) v = Relu(u) y = my.Bar(x, v) }"
    plan = onnxroof.analyze(model(text, opsets={"my": 1})).memory
    assert plan.is_lower_bound
    wide, narrow = Memory("dram", 1 << 30), Memory("dram", 1)
    assert [check_budgets(plan, [level])[0].fits for level in (wide, narrow)] == [None, False]


def test_a_level_between_the_bounds_of_what_is_needed_cannot_be_judged() -> None:
    # between 100 bytes and 300
    needed = interval(100, 300)
    levels = {99: False, 100: None, 299: None, 300: True}
    assert {size: Budget("l1", size, needed, "activations", "").fits for size in levels} == levels
