package nvml

// Condition is the state of a GPU at one moment. A value that the GPU does not report is 0.
type Condition struct {
	SMClock     float64  // Hz
	MemoryClock float64  // Hz
	Watts       float64  // of the whole GPU; most GPUs since Ampere report an average over a second
	Celsius     float64  // of the chip
	Slowed      []string // reasons for reduced clocks; nil also if the GPU does not report them
}

// Values of nvmlClockType_t and nvmlTemperatureSensors_t from the NVML API reference, "Device Enums".
const (
	clockSM     = 1
	clockMemory = 2
	sensorGPU   = 0
)

// slowReason is a bit of nvmlClocksEventReasons.
type slowReason struct {
	bit  uint64
	text string
}

// slowReasons are the reasons from the NVML API reference, "NvmlClocksEventReasons", except an
// idle GPU.
var slowReasons = []slowReason{
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

// Condition reads the condition of the GPU.
func (m *Meter) Condition() (c Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return c
	}
	l := m.library
	read := func(unit float64, f func(n *uint32) Code) float64 {
		var n uint32
		if f(&n) != Success {
			return 0
		}
		return unit * float64(n)
	}
	c.SMClock = read(1e6, func(n *uint32) Code { return l.ClockInfo(m.handle, clockSM, n) })
	c.MemoryClock = read(1e6, func(n *uint32) Code { return l.ClockInfo(m.handle, clockMemory, n) })
	c.Watts = read(1e-3, func(n *uint32) Code { return l.PowerUsage(m.handle, n) })
	c.Celsius = read(1, func(n *uint32) Code { return l.Temperature(m.handle, sensorGPU, n) })
	var reasons uint64
	if l.EventReasons(m.handle, &reasons) == Success {
		for _, r := range slowReasons {
			if reasons&r.bit != 0 {
				c.Slowed = append(c.Slowed, r.text)
			}
		}
	}
	return c
}
