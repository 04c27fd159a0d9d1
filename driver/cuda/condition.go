package cuda

import "unsafe"

// Condition is what a GPU tells of itself at a moment. A number that it does not tell is 0.
type Condition struct {
	SMClock     float64  // Hz
	MemoryClock float64  // Hz
	Watts       float64  // of the whole GPU; NVML averages over a second on most GPUs since Ampere
	Celsius     float64  // of the chip
	Slowed      []string // what holds the clocks down, in words; nil too if the GPU does not tell
}

// The names that a library may lack, and what they take: nvmlClockType_t and
// nvmlTemperatureSensors_t of the NVML API's reference, "Device Enums".
const (
	nvmlClockInfo   = "nvmlDeviceGetClockInfo"
	nvmlPower       = "nvmlDeviceGetPowerUsage"
	nvmlTemperature = "nvmlDeviceGetTemperature"
	nvmlSlowed      = "nvmlDeviceGetCurrentClocksEventReasons"
	nvmlThrottled   = "nvmlDeviceGetCurrentClocksThrottleReasons" // the same, before driver 535

	nvmlSMClock     = 1
	nvmlMemoryClock = 2
	nvmlChip        = 0
)

// nvmlReason is a bit of what nvmlSlowed tells.
type nvmlReason struct {
	bit   uint64
	words string
}

// nvmlReasons are those that are not of an idle GPU, from the same reference,
// "NvmlClocksEventReasons".
var nvmlReasons = []nvmlReason{
	{0x2, "clocks set by the user"},
	{0x4, "power limit"},
	{0x8, "hardware slowdown"},
	{0x10, "sync boost"},
	{0x20, "temperature"},
	{0x40, "temperature, by hardware"},
	{0x80, "power brake"},
	{0x100, "clocks of a display"},
	{0x200, "limit of the board"},
	{0x400, "reliability"},
}

// Condition asks the GPU. What it does not tell is left out.
func (m *Meter) Condition() (c Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return c
	}
	l := m.library
	number := func(unit float64, ask func(n *uint32) nvmlCode) float64 {
		var n uint32
		if ask(&n) != nvmlSuccess {
			return 0
		}
		return unit * float64(n)
	}
	c.SMClock = number(1e6, func(n *uint32) nvmlCode { return l.clock(m.handle, nvmlSMClock, n) })
	c.MemoryClock = number(1e6, func(n *uint32) nvmlCode { return l.clock(m.handle, nvmlMemoryClock, n) })
	c.Watts = number(1e-3, func(n *uint32) nvmlCode { return l.power(m.handle, n) })
	c.Celsius = number(1, func(n *uint32) nvmlCode { return l.temperature(m.handle, nvmlChip, n) })
	var reasons uint64
	if l.slowed(m.handle, &reasons) == nvmlSuccess {
		for _, r := range nvmlReasons {
			if reasons&r.bit != 0 {
				c.Slowed = append(c.Slowed, r.words)
			}
		}
	}
	return c
}

// loadCondition looks for the functions that a library may lack.
func (f finder) loadCondition(library uintptr, l *nvml) {
	find := func(names ...string) uintptr {
		for _, name := range names {
			if at, err := f.symbol(library, name); err == nil && at != 0 {
				return at
			}
		}
		return 0
	}
	clock, power, temperature := find(nvmlClockInfo), find(nvmlPower), find(nvmlTemperature)
	slowed := find(nvmlSlowed, nvmlThrottled)
	l.clock = func(handle, domain uintptr, megahertz *uint32) nvmlCode {
		return nvmlCall(clock, handle, domain, uintptr(unsafe.Pointer(megahertz)))
	}
	l.power = func(handle uintptr, milliwatts *uint32) nvmlCode {
		return nvmlCall(power, handle, uintptr(unsafe.Pointer(milliwatts)))
	}
	l.temperature = func(handle, sensor uintptr, celsius *uint32) nvmlCode {
		return nvmlCall(temperature, handle, sensor, uintptr(unsafe.Pointer(celsius)))
	}
	l.slowed = func(handle uintptr, reasons *uint64) nvmlCode {
		return nvmlCall(slowed, handle, uintptr(unsafe.Pointer(reasons)))
	}
}
