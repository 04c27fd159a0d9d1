GO ?= go
FUZZTIME ?= 5s
SEED ?= 1
PLATFORMS := linux/amd64 linux/arm64 windows/amd64 windows/arm64 darwin/amd64 darwin/arm64
# Beside the machine's own platform: each system and each architecture at least once, since no file is for one pair alone.
VETTED := linux/arm64 windows/amd64 darwin/arm64

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: fmt vet cross unfused api ## formatting, vet, builds for every platform, fused arithmetic, exported names

.PHONY: fmt
fmt: ## fail if gofmt would change a file
	@files=$$(gofmt -l .) && if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## run go vet
	$(GO) vet ./...

.PHONY: api
api: ## count the exported names of each package; fail above the limit
	@$(GO) run ./internal/apicount

.PHONY: cross
cross: ## build for every platform without cgo; vet for each system and architecture
	@for p in $(VETTED); do \
		echo "CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet ./..."; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet ./... || exit 1; \
	done
	@for p in $(PLATFORMS); do \
		echo "CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build ./..."; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build ./... || exit 1; \
	done

# Packages whose results must have the same bits on every machine. On arm64 the compiler fuses
# x*y + z into one rounding. The first command checks that the pattern finds such instructions.
FUSED := FN?M(ADD|SUB)[SD]
EXACT := ./internal/portable ./internal/product ./internal/synth ./quant ./ref ./model ./model/sampling ./generate ./driver/emu/internal/alu
.PHONY: unfused
unfused: ## fail if the compiler fused a multiplication and an addition where bits matter
	@GOARCH=arm64 $(GO) build -gcflags=-S math 2>&1 | grep -qE '$(FUSED)' || { echo "the pattern for fused instructions finds none in package math"; exit 1; }
	@! GOARCH=arm64 $(GO) build -gcflags=-S $(EXACT) 2>&1 | grep -E '$(FUSED)' || { echo "fused: round the product, float64(x*y) + z"; exit 1; }

.PHONY: test
test: ## run all tests
	$(GO) test ./...

.PHONY: ptxas
ptxas: ## install ptxas, which the kernel tests use (Debian and derivatives)
	tools/get-ptxas

.PHONY: gpu
gpu: ## build the binaries that tools/gpu, tools/gpu-models and tools/gpu-serve run on a machine with a GPU
	mkdir -p bin/gpu
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o bin/gpu/lockstep ./tools/lockstep
	CGO_ENABLED=0 $(GO) test -c -trimpath -ldflags='-s -w' -o bin/gpu/cuda.test ./driver/cuda
	CGO_ENABLED=0 $(GO) test -c -trimpath -ldflags='-s -w' -o bin/gpu/conformance.test ./conformance
	CGO_ENABLED=0 $(GO) test -c -trimpath -ldflags='-s -w' -o bin/gpu/serve.test ./serve

.PHONY: golden
golden: ## compare the golden logits with the reference
	$(GO) run ./tools/lockstep golden

.PHONY: golden-update
golden-update: ## write the golden logits anew
	$(GO) run ./tools/lockstep golden --update

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (5s)
	@set -e; for pkg in $$($(GO) list ./...); do \
		targets=$$($(GO) test -list '^Fuzz' $$pkg); \
		for target in $$(echo "$$targets" | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg; \
		done; \
	done

.PHONY: mutants
mutants: ## change every place of the kernels; SEED selects the inputs (slow)
	$(GO) test ./conformance -v -timeout 4h -run 'TestMutants$$' -long -mutants 1000000 -seed $(SEED)

.PHONY: bench
bench: ## run all benchmarks (needs 2 GB of temporary space)
	$(GO) test -p 1 -run '^$$' -bench . -timeout 60m ./...
