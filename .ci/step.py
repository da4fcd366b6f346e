#!/usr/bin/env python3
"""Training steps over the batches that GNNACTOR_EXPORT=DIR of BenchmarkBatches (runtime) wrote, with PyTorch and PyG.

python3 step.py DIR [cpu]: everything lies on the device before, sampling is left out, as there; a step is the input's rows, three
layers of GraphSAGE forward and backward, the cross-entropy and Adam. Says for each way to write it how many steps a second, and by
how much the losses of the first step on each batch differ. Without PyTorch it says so.
"""
import os
import sys
import time

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"pytorch: there is no PyTorch here: {missing}")
    sys.exit(0)
try:
    import torch_geometric
    from torch_geometric.nn import SAGEConv
except ImportError as missing:
    torch_geometric = None
    print(f"pytorch: there is no PyG here, so only PyTorch by itself: {missing}")

DIR = sys.argv[1]
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cuda"
if DEVICE == "cuda" and not torch.cuda.is_available():
    print(f"pytorch: PyTorch {torch.__version__} sees no device here")
    sys.exit(0)
PASSES = 25 if DEVICE == "cuda" else 1


def load(name):
    return torch.from_numpy(numpy.load(f"{DIR}/{name}.npy"))


class Batch:
    """Blocks as CSR (indptr and indices), and as PyG's edge_index: sources in row 0, destinations in row 1."""

    def __init__(self, i, layers):
        self.nodes = load(f"b{i}-nodes").long().to(DEVICE)
        self.labels = load(f"b{i}-labels").long().to(DEVICE)
        self.edges, self.csr, self.degrees = [], [], []
        sources = len(self.nodes)
        for l in range(layers):
            indptr, indices = load(f"b{i}-{l}-indptr"), load(f"b{i}-{l}-indices").long()
            n = len(indptr) - 1
            degrees = indptr[1:] - indptr[:-1]
            destinations = torch.repeat_interleave(torch.arange(n), degrees)
            self.edges.append(torch.stack([indices, destinations]).to(DEVICE))
            entries = torch.sparse_coo_tensor(torch.stack([destinations, indices]), torch.ones(len(indices)), (n, sources))
            self.csr.append(entries.coalesce().to_sparse_csr().to(DEVICE))
            self.degrees.append(degrees.clamp(min=1).float().unsqueeze(1).to(DEVICE))
            sources = n


class Mean(torch.nn.Module):
    """SAGEConv of PyTorch alone: lin_l of the neighbours' mean, and lin_r of the node itself."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin_l = torch.nn.Linear(inputs, outputs)
        self.lin_r = torch.nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, csr, degrees):
        return self.lin_l(torch.sparse.mm(csr, x) / degrees) + self.lin_r(x[: len(degrees)])


def model(layer):
    convs = torch.nn.ModuleList()
    state = {}
    for l in range(layers_of()):
        outputs, inputs = load(f"parameter-convs.{l}.lin_l.weight").shape
        convs.append(layer(inputs, outputs))
        for name in ("lin_l.weight", "lin_l.bias", "lin_r.weight"):
            state[f"{l}.{name}"] = load(f"parameter-convs.{l}.{name}")
    convs.load_state_dict(state)
    return convs.to(DEVICE)


def layers_of():
    return sum(os.path.exists(f"{DIR}/b0-{l}-indptr.npy") for l in range(100))


def measure(name, layer, call, features, batches, want):
    convs = model(layer)
    adam = torch.optim.Adam(convs.parameters(), lr=0.001, **({"fused": True} if DEVICE == "cuda" else {}))

    def step(b):
        x = features[b.nodes]
        for l, conv in enumerate(convs):
            x = call(conv, x, b, l)
            if l + 1 < len(convs):
                x = F.relu(x)
        loss = F.cross_entropy(x, b.labels)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        return loss.detach()

    def wait():
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    losses = torch.stack([step(b) for b in batches]).cpu()
    apart = ((losses - want).abs() / want).max().item()
    wait()
    began = time.perf_counter()
    for _ in range(PASSES):
        for b in batches:
            step(b)
    wait()
    rate = PASSES * len(batches) / (time.perf_counter() - began)
    print(f"pytorch: {name}: {rate:.4g} steps/s, losses within {apart:.2g} of gnnactor's", flush=True)


def main():
    want = load("losses")
    features = load("features").to(DEVICE)
    batches = [Batch(i, layers_of()) for i in range(len(want))]
    versions = f"PyTorch {torch.__version__}" + (f", PyG {torch_geometric.__version__}" if torch_geometric else "")
    print(f"pytorch: versions: {versions}, on {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'the processor'}")
    ways = [("PyTorch, sparse products", Mean, lambda conv, x, b, l: conv(x, b.csr[l], b.degrees[l]))]
    if torch_geometric:
        ways += [
            ("PyG, edge_index", SAGEConv, lambda conv, x, b, l: conv((x, x[: len(b.degrees[l])]), b.edges[l])),
            ("PyG, sparse tensor", SAGEConv, lambda conv, x, b, l: conv((x, x[: len(b.degrees[l])]), b.csr[l])),
        ]
    failed = 0
    for name, layer, call in ways:
        try:
            measure(name, layer, call, features, batches, want)
        except Exception as error:  # one way that a version lacks leaves the others
            failed += 1
            print(f"pytorch: {name}: failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", flush=True)
    sys.exit(failed == len(ways))


main()
