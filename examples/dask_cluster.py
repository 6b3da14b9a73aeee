"""Price candidates on a Dask cluster: here two local workers, elsewhere whichever you have.

python examples/dask_cluster.py --candidates 2000
"""

from __future__ import annotations

import argparse
import random
import time

from dask.distributed import Client, LocalCluster

from examples.spaces import CHOICES, nas_bench_201
from onnxroof import CostFunction


def price(candidates: int, workers: int = 2, seed: int = 0) -> list[float]:
    """Latencies of random cells on a phone, priced by the cluster, in order."""
    source = random.Random(seed)
    cells = [tuple(source.choice(CHOICES) for _ in range(6)) for _ in range(candidates)]
    cost = CostFunction("mobile-arm", "latency_seconds")
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        return list(cost.many(map(nas_bench_201, cells), client.get_executor(), chunk=64))


def main() -> None:
    """Price, and say how fast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=2000)
    candidates = parser.parse_args().candidates
    start = time.perf_counter()
    latencies = price(candidates)
    seconds = time.perf_counter() - start
    print(f"{candidates} networks in {seconds:.1f} s, the cluster's start included")
    print(f"fastest {min(latencies) * 1e3:.2f} ms, slowest {max(latencies) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
