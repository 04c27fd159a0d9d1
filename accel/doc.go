// Package accel is the engine that keeps weights, KV cache and activations on an NVIDIA GPU.
//
// A forward pass is planned as a list of commands, each a kernel launch with its arguments. The
// list can be captured into a graph and replayed, or launched kernel by kernel, with a tap or a
// timer after each one. LaunchesFor lists it without a device. There are two kinds of forward
// passes: a decode step computes one token of each of several sequences, and a prompt chunk
// computes tokens of one or more prompts. Kernels compute tokens independently of each other, so a
// token has the same bits in any batch.
//
// The inputs of a forward pass lie in device memory at fixed addresses: tokens, positions, lengths
// and page tables. So a graph stays valid for the life of the engine. The number of batch slots is
// rounded up to a size class, and that of pages to a power of two, but at most the pages of the context. Each combination
// has two graphs: one that chooses the token with the largest logit, and one that samples. With RoPE factors for long contexts there is another pair.
// Engine.Prepare captures these; steps without logits are captured at first use. Prompt chunks are launched kernel by kernel.
//
// A decode step leaves the tokens that it chooses, and the next positions, where the next step
// reads them. So Engine.Step can queue a step before the host knows the tokens of the last. The
// parameters of sampling, and the tokens that penalties count, lie in device memory too.
//
// All device memory is listed before any is allocated; PlanMemory returns the sums. The KV cache is
// paged: sequences allocate pages as they grow, share pages with their forks, and can be moved to
// host memory.
package accel
