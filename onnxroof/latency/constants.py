"""The free constants of the model: few, each with a meaning, the same for every device of a kind.

Nothing here is about one device (that is its profile) or one runtime (that is its own file). The
values were fitted on published tables; `docs/latency.md` says on which, and with what residual.
A function that takes a `Constants` can be fitted anew on measurements of one's own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constants:
    """Physics that no data sheet states.

    Shares are of the profile's sustained figure where it has one, else of the vendor's.

    Attributes:
        product_share: Share of the peak that large matrix products reach.
        convolution_share: The same for convolutions by the direct (or implicit GEMM) algorithm.
        winograd_share: The same for the multiplications of Winograd's algorithm.
        tile_prologue: Steps of K that starting and finishing a tile costs.
        convolution_prologue: The same for convolutions.
        operand_load: Cost of loading one row or column of a tile per step of K, in results
            computed; narrow tiles pay relatively more.
        depthwise_slots: Arithmetic slots per multiply-accumulate of a depthwise convolution.
        depthwise_index_slots: Integer slots per multiply-accumulate, for addresses.
        pooling_slots: Arithmetic slots per window element.
        pooling_index_slots: Integer slots per window element.
        exposed: Share of the smaller of compute and memory time that the larger does not hide.
        elementwise_share: Share of the bandwidth that elementwise kernels reach.
        batch_normalization_share: The same for batch normalization on its own.
        normalization_share: The same for normalization over rows.
        weight_share: The same for weights, which stream through once.
        softmax_share: The same for softmax.
        reduction_share: The same for other reductions.
        copy_share: The same for transposes, gathers and other movement.
        cache_share: Share of a cache that a kernel's tensors may fill and still be found there.
        transcendental_slots: Vector slots per exp, log, … where no special rate is known.
        row_block: Rows of a product that one parallel task takes (CPU).
        column_block: Columns of a product that one parallel task takes (CPU).
        serial_elements: Elements below which elementwise work stays on one core (CPU).
        serial_share: Share of one core that a serial, lowered convolution reaches (CPU).
        reorder_bytes_per_second: Rate at which weights are reordered, one core (CPU).
        activation_reorder_bytes_per_second: Rate at which activations are reordered, per core.
        reference_seconds: Time of an element in a reference (unvectorized) kernel (CPU).
        channel_seconds: Time that batch normalization spends on a channel besides its elements.
        parallel_loss: Work lost to sharing, per core beyond the first: n cores do the work of
            n / (1 + loss · (n − 1)) (CPU).
        transform_slots: Vector slots per element that Winograd's transforms touch (CPU).
    """

    product_share: float
    convolution_share: float
    winograd_share: float
    tile_prologue: float
    convolution_prologue: float
    operand_load: float
    depthwise_slots: float
    depthwise_index_slots: float
    pooling_slots: float
    pooling_index_slots: float
    exposed: float
    elementwise_share: float
    batch_normalization_share: float
    normalization_share: float
    softmax_share: float
    reduction_share: float
    copy_share: float
    weight_share: float = 1.0
    cache_share: float = 0.7
    transcendental_slots: float = 10.0
    row_block: int = 14
    column_block: int = 32
    serial_elements: int = 32_768
    serial_share: float = 0.2
    reorder_bytes_per_second: float = 2e9
    activation_reorder_bytes_per_second: float = 3e9
    reference_seconds: float = 40e-9
    channel_seconds: float = 1e-6
    parallel_loss: float = 0.08
    transform_slots: float = 2.0


ACCELERATOR = Constants(
    product_share=1.0, convolution_share=0.78, winograd_share=0.84, tile_prologue=27.0,
    convolution_prologue=28.0, operand_load=6.0, depthwise_slots=1.0, depthwise_index_slots=9.4,
    pooling_slots=17.0, pooling_index_slots=17.0, exposed=0.48, elementwise_share=1.0,
    batch_normalization_share=0.56, normalization_share=0.8, softmax_share=0.83,
    reduction_share=1.0, copy_share=0.84, parallel_loss=0.0,
)  # fmt: skip
"""GPUs, and other devices that run kernels from a queue."""

CPU = Constants(
    product_share=0.8, convolution_share=0.85, winograd_share=0.56, tile_prologue=62.0,
    convolution_prologue=26.0, operand_load=0.0, depthwise_slots=2.6, depthwise_index_slots=0.0,
    pooling_slots=9.8, pooling_index_slots=0.0, exposed=1.0, elementwise_share=1.0,
    batch_normalization_share=1.0, normalization_share=0.5, softmax_share=0.94,
    reduction_share=0.78, copy_share=0.59, weight_share=0.75, row_block=22, serial_share=0.39,
    reorder_bytes_per_second=2.5e9, activation_reorder_bytes_per_second=0.32e9,
    reference_seconds=50e-9, channel_seconds=1.25e-6, parallel_loss=0.1, transform_slots=29.0,
)  # fmt: skip
"""Processors: cores with vector units."""
