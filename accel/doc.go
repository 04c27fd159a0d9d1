// Package accel is the engine that keeps weights, KV cache and activations on an NVIDIA GPU.
//
// A forward pass is planned as a list of commands, each a kernel launch with its arguments.
// The same plan can be captured into a graph and replayed, or launched kernel by kernel, with
// a tap or a timer after each one. LaunchesFor lists it without a device. A pass computes
// a batch of tokens: one token of each of several sequences in a decode step, or a chunk of
// one prompt. Kernels compute tokens independently of each other, so a token has the same
// bits in any batch. Options describes how prompts are computed.
//
// The inputs of a pass lie in device memory: tokens, positions, lengths and page tables. So
// a graph stays valid for the life of the engine. The numbers of batch slots and of pages
// are rounded up to powers of two, and each combination has its own graph.
//
// All device memory is listed before any is allocated; PlanFor returns the sums. The KV cache
// is paged: sequences allocate pages as they grow, and share pages with snapshots.
//
// Sequences that ask for a step at the same time share it. Prompts alternate with steps,
// chunk by chunk.
package accel
