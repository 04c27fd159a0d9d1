GO ?= go
FUZZTIME ?= 5s
PLATFORMS := linux/amd64 linux/arm64 windows/amd64 windows/arm64 darwin/amd64 darwin/arm64

.PHONY: help
help: ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: fmt vet cross unfused ## formatting, vet, builds for every platform, and no fused arithmetic

.PHONY: fmt
fmt: ## fail if gofmt would change a file
	@files=$$(gofmt -l .) && if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: cross
cross: ## build and vet for every platform, without cgo
	@for p in $(PLATFORMS); do \
		echo "CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet ./... && $(GO) build ./..."; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet ./... || exit 1; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build ./... || exit 1; \
	done

# The packages whose results must have the same bits on every machine. arm64 is where
# the compiler fuses x*y + z into one rounding; the first command shows that the
# pattern finds such instructions at all.
FUSED := FN?M(ADD|SUB)[SD]
EXACT := ./internal/portable ./internal/synth ./quant ./ref ./model ./driver/emu/internal/alu
.PHONY: unfused
unfused: ## fail if the compiler fused a multiplication and an addition where bits matter
	@GOARCH=arm64 $(GO) build -gcflags=-S math 2>&1 | grep -qE '$(FUSED)' || { echo "the pattern for fused instructions finds none in package math"; exit 1; }
	@! GOARCH=arm64 $(GO) build -gcflags=-S $(EXACT) 2>&1 | grep -E '$(FUSED)' || { echo "fused: round the product, float64(x*y) + z"; exit 1; }

.PHONY: test
test: ## all tests
	$(GO) test ./...

.PHONY: ptxas
ptxas: ## fetch the assembler that the tests of the kernels use (Debian and its like)
	tools/get-ptxas

.PHONY: gpu
gpu: ## build what a machine with a GPU needs to run tools/gpu, into bin/gpu
	mkdir -p bin/gpu
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o bin/gpu/lockstep ./tools/lockstep
	CGO_ENABLED=0 $(GO) test -c -trimpath -ldflags='-s -w' -o bin/gpu/cuda.test ./driver/cuda
	CGO_ENABLED=0 $(GO) test -c -trimpath -ldflags='-s -w' -o bin/gpu/conformance.test ./conformance

.PHONY: golden
golden: ## compute the golden logits again and compare them
	$(GO) run ./tools/lockstep golden

.PHONY: golden-update
golden-update: ## compute the golden logits again and write them
	$(GO) run ./tools/lockstep golden --update

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (5s)
	@set -e; for pkg in $$($(GO) list ./...); do \
		targets=$$($(GO) test -list '^Fuzz' $$pkg); \
		for target in $$(echo "$$targets" | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg; \
		done; \
	done

.PHONY: bench
bench: ## benchmarks, a 1B model's decode and prefill among them (needs 2 GB of temporary space)
	$(GO) test -p 1 -run '^$$' -bench . -timeout 60m ./...
