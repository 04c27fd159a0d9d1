module github.com/lockstep-go/lockstep/examples/embed

go 1.26.0

require github.com/lockstep-go/lockstep v0.0.0

require (
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/lockstep-go/lockstep => ../..
