"""Faults on purpose, and what became of them: a table of tries and failures; exit code 1 if anything failed.

    python benchmarks/faults.py                              # everything, as docs/reliability.md reports it
    python benchmarks/faults.py --only kills,flips --tries 50
    python benchmarks/faults.py --only requests --seconds 10 --json

kills      SIGKILL at random moments in train, index, encode, on Ray; then the command again: equal bytes?
flips      one bit flipped in, or the end cut off, every kind of file that the program writes and reads again
requests   fuzzed requests to a service, then clients that hang up, dawdle and never finish
cluster    a node of a Ray cluster killed in the middle; one of two training processes killed
network    every verb without a network, in a network namespace of its own

Everything is drawn from --seed. Data and models are tiny and made on the spot, in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from benchmarks.fault_parts import cluster, flips, kills, network, requests
from benchmarks.fault_parts.common import Program, Report, Row, make_material

TRIES = {"kills": 200, "flips": 1_000, "requests": 10_000, "cluster": 3, "network": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TRIES), help="parts to run, comma-separated")
    parser.add_argument("--tries", type=int, help=f"of each part; by default {TRIES}")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the 300 clients in `requests`")
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--timeout", type=float, default=10.0, help="of the service in `requests`, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--true-processes", action="store_true", help="start Python for every command; slow")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := set(parts) - set(TRIES):
        parser.error(f"unknown part {sorted(unknown)[0]!r}; there are {', '.join(TRIES)}")
    began = time.perf_counter()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="twinpass-faults-") as work:
        program = Program(Path(work), true_processes=arguments.true_processes)
        material = make_material(program, arguments.seed)
        for part in parts:
            told = {"tries": arguments.tries or TRIES[part], "rng": random.Random(f"{part} {arguments.seed}")}
            told["say"] = lambda text: print(text, file=sys.stderr, flush=True)
            if part == "requests":
                told |= {"seconds": arguments.seconds, "clients": arguments.clients, "timeout": arguments.timeout}
            module = {"kills": kills, "flips": flips, "requests": requests, "cluster": cluster, "network": network}[
                part
            ]
            rows += module.run(program, material, **told)
    report = Report(rows, arguments.seed, time.perf_counter() - began)
    print(json.dumps(report.to_dict(), indent=2) if arguments.json else report)
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
