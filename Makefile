# `make check` is the gate: by hand, as a commit hook and in CI.

LINT = go tool -modfile=tools/lint/go.mod golangci-lint
LINT_BENCH = go tool -modfile=../tools/lint/go.mod golangci-lint

.PHONY: check generate generated lint format race heavy test fuzz test-faults test-chaos bench size image containers hook

# What runs the tests: go test, or .ci/test, which prints the slowest ones, too.
GOTEST = go test

check: generated lint race heavy

# Writes docs/swagger.yaml, openapi.yaml and docs/errors.md from the annotations and error codes of api.
generate:
	go run ./docs/generate

# Generated files must be committed as generated.
generated:
	go mod tidy -diff
	go run ./docs/generate -check
	go mod tidy -C bench -diff

lint:
	$(LINT) run ./...
	cd bench && $(LINT_BENCH) run ./...

format:
	$(LINT) fmt ./...

# With -short, because the detector looks at goroutines: a fifth of the random walks of the model tests, and no suites
# on servers that differ only in how they were started.
race:
	$(GOTEST) -race -short -timeout 20m ./...

# Runs in full the tests that race runs in part or not at all.
heavy:
	$(GOTEST) -C bench -timeout 10m ./...
	tests=$$(.ci/heavy) && $(GOTEST) -timeout 10m -run "$$tests" ./...

# Everything at once, without the detector. The gate does not need it: race and heavy leave nothing out.
test:
	go test -timeout 10m ./...
	go test -C bench -timeout 10m ./...

# Every fuzz target for a while; what they find is kept under testdata.
FUZZTIME = 30s
fuzz:
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for target in $$(grep -ho '^func Fuzz[A-Za-z0-9]*' $$dir/*_test.go | cut -d' ' -f2); do \
	    echo "$$dir $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$dir || exit 1; \
	  done; \
	done

# What happens when something breaks, with real processes. FAULTS=-short repeats less, and FAULTS='-v -run Killed' runs
# some of it.
FAULTS =
test-faults:
	$(GOTEST) -tags faults -count=1 -timeout 30m $(FAULTS) ./cmd/lastseen/faults

# Random faults on three servers and a Redis with Sentinels, for CHAOS. SEED=42 repeats the faults of a run that logged
# this seed. With an odd seed, the servers have --redis-wait, and nothing acknowledged may be lost.
CHAOS = 1h
SEED =
test-chaos:
	LASTSEEN_TEST_CHAOS=$(CHAOS) LASTSEEN_TEST_SEED=$(SEED) \
	  $(GOTEST) -tags faults -count=1 -timeout 48h -v -run 'TestChaos$$' ./cmd/lastseen/faults

# bench/README.md describes what is measured, and how. BENCH=-quick only checks that it works.
BENCH = -write RESULTS.md
bench:
	go run -C bench . $(BENCH)

# How large the code is, and how long the tests of each package take.
size:
	go run -C tools/size . -root ../..
	go test -count=1 -timeout 10m ./...

# The container image, with its version.
image:
	docker build -t lastseen --build-arg VERSION="$$(git describe --tags --always --dirty)" --build-arg REVISION="$$(git rev-parse HEAD)" .

# The image and compose.yaml, with real containers.
containers:
	deploy/test

hook:
	printf '#!/bin/sh\nexec make check\n' > .git/hooks/pre-push && chmod +x .git/hooks/pre-push
