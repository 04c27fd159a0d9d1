// Package accel is the engine whose weights, cache and activations stay on a device.
//
// A pass over the model is a plan: steps as data, each a kernel with its arguments (see
// planner). The same plan is run eagerly, with a tap or a timer after each step, captured
// into a graph and replayed, or listed without a device (LaunchesFor). A pass has rows, and
// each row is a position of a sequence: n sequences that decode together are n rows, and
// so are 16 positions of one prompt. Kernels compute rows independently of each other, so
// a row has the same bits in any company. See [Options] for how prompts are computed.
//
// What a pass is about lies in device memory: tokens, positions, lengths and pages. So
// launches, and graphs of them, stay good for the life of the engine; there is one for
// each power of two of rows and of pages.
//
// All memory is listed in an inventory before any is taken; the plan is its sum (PlanFor).
// The cache is pages of 64 positions that sequences take as they grow (pool), and that
// snapshots share with them.
//
// Sequences that wait for a step at the same time step together (schedule); prompts take
// turns with them, a chunk at a time.
package accel
