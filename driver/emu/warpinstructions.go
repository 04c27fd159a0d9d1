package emu

import "maps"

// WarpInstructions returns how many instructions each kernel has executed since the last reset, by its name. Diverged lanes of
// a warp count separately.
func (d *Device) WarpInstructions() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.warpInstructions)
}

// ResetWarpInstructions sets all of them to 0.
func (d *Device) ResetWarpInstructions() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.warpInstructions)
}
