"""Tests run in as many processes as there are cores: one thread each."""

import torch

torch.set_num_threads(1)
