"""Networks a second in a search, and how two workers share them; ratios within one run.

python benchmarks/search.py
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from examples.spaces import CHOICES, nas_bench_201
from onnxroof import CostFunction


def cells(count: int, seed: int) -> list[tuple[str, ...]]:
    """Random cells, drawn independently."""
    source = random.Random(seed)
    return [tuple(source.choice(CHOICES) for _ in range(6)) for _ in range(count)]


def per_second(cost: CostFunction, drawn: list[tuple[str, ...]], *, proto: bool = False) -> float:
    """Networks built and priced in a second of this core."""
    models = [nas_bench_201(cell).to_onnx() for cell in drawn] if proto else []
    start = time.process_time()
    if proto:
        for model in models:
            cost(model)
    else:
        for cell in drawn:
            cost(nas_bench_201(cell))
    return len(drawn) / (time.process_time() - start)


def workers(cost: CostFunction, drawn: list[tuple[str, ...]], count: int) -> float:
    """Seconds to price candidates with some processes, warm."""
    graphs = [nas_bench_201(cell) for cell in drawn]
    with ProcessPoolExecutor(count) as pool:
        list(cost.many(graphs[: 64 * count], pool))
        start = time.perf_counter()
        list(cost.many(graphs, pool))
        return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=2000)
    count = parser.parse_args().networks
    nas_bench_201(cells(1, 0)[0])
    for device in ("mobile-arm", "v100"):
        cost = CostFunction(device)
        drawn = cells(count, 1)
        early = per_second(cost, drawn[: count // 2])
        late = per_second(cost, drawn[count // 2 :])
        again = per_second(cost, drawn)
        protos = per_second(CostFunction(device), drawn[:300], proto=True)
        print(f"{device}: GraphBuilder, the first {count // 2}    {early:6.0f} networks/s")
        print(f"{device}: GraphBuilder, {count // 2} more          {late:6.0f} networks/s")
        print(f"{device}: GraphBuilder, all of them again  {again:6.0f} networks/s")
        print(f"{device}: ModelProto, the first 300        {protos:6.0f} networks/s")
    cost = CostFunction("mobile-arm")
    drawn = cells(2 * count, 2)
    one, two = workers(cost, drawn, 1), workers(cost, drawn, 2)
    print(f"two workers against one: {one / two:.2f} ×")


if __name__ == "__main__":
    main()
