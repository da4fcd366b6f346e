// Package compute trains and runs graph neural networks: tensors in arenas, a
// tape that differentiates any composition of its ops, layers, models, losses,
// optimisers and their files. Arithmetic lives in compute/cpu; compute decides
// what to compute and where the results lie.
//
// # Model
//
// A Model is a Spec bound to a graph. Its parameters are one flat vector of
// float32 described by a Layout: tensors with PyG's names, sorted by name, one
// after the other. Gradients, optimiser moments, checkpoints and messages are
// vectors of the same layout, so adding or hashing them needs no structure.
//
// An Engine computes the gradient of one micro-batch. It owns an Arena and a
// Tape: everything between input and gradient lies in the arena and is given up
// at the start of the next micro-batch, so the garbage collector never sees it
// and steady state makes no allocation that grows with the batch.
//
// Model.Infer computes exact outputs layer by layer over the whole graph, or
// over the L-hop neighbourhood of some nodes.
//
// # Layers
//
// A Layer is written in the stages of NN-TGAR: Transform (per source node),
// Gather (per edge), Sum (per destination) and Apply (per destination); the
// Reduce stage, adding up parameter gradients, is the tape's. The same layer
// runs on sampled blocks, on subgraphs and on the whole graph.
//
// # Reproducibility
//
// Every result is a pure function of its inputs, the kernel set included, for
// any number of threads. A random choice is keyed by node and column, never by
// position in a batch.
//
// # NaN
//
// A NaN among a node's features makes NaN of the outputs of exactly those nodes
// that the model lets it reach, see compute/cpu; no layer hides one, and dropout
// only where it drops the value. Engine.Gradient refuses a loss that is NaN or
// infinite.
package compute
