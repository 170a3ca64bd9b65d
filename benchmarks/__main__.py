"""`make bench`: all timings, one line each."""

import torch

from benchmarks import dimension, step

print(f"torch {torch.__version__}, two threads; medians and quartiles over rounds that alternate between both sides\n")
for part in (step, dimension):
    for ratio in part.ratios():
        print(ratio.line(), flush=True)
