# `make check` is the gate by hand and as a commit hook. CI runs .ci/run.

LINT = go tool -modfile=tools/lint/go.mod golangci-lint
LINT_BENCH = go tool -modfile=../tools/lint/go.mod golangci-lint

.PHONY: check generate generated man lint format race test stress fuzz test-faults test-chaos bench bench-privacy size \
  image containers hook

check: generated lint race test

# Writes docs/swagger.yaml and openapi.yaml from the annotations of api and the explanations in docs/errors.md.
generate:
	go run ./docs/generate

# Generated files must be committed as generated.
generated:
	go mod tidy -diff
	go run ./docs/generate -check
	go mod tidy -C bench -diff

# The man page, from the guide of the command line.
man:
	go run -C tools/man . >lastseen.1

lint:
	$(LINT) run ./...
	cd bench && $(LINT_BENCH) run ./...

format:
	$(LINT) fmt ./...

# The packages with goroutines, with the race detector. It needs a C compiler.
race:
	CGO_ENABLED=1 go test -race -timeout 20m ./api/... ./store/... ./cmd/... ./e2e/scenarios

# All tests, in full. Without the variable, they show each promise once.
test:
	LASTSEEN_TEST_FULL=1 go test ./...
	go test -C bench ./...
	go test -C tools/man ./...

# Tests that sometimes fail: RUNS of them beside busy loops. Each that ever failed is named. STRESS='-run Tabs ./api'
# runs some.
RUNS = 5
STRESS = ./...
stress:
	tools/stress $(RUNS) $(STRESS)

# Every fuzz target for a while; what they find is kept under testdata.
FUZZTIME = 30s
fuzz:
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for target in $$(grep -ho '^func Fuzz[A-Za-z0-9]*' $$dir/*_test.go | cut -d' ' -f2); do \
	    echo "$$dir $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$dir || exit 1; \
	  done; \
	done

# What happens when something breaks, with real processes. FULL= repeats less, and FAULTS='-v -run Killed' runs some of
# it.
FULL = 1
FAULTS =
test-faults:
	LASTSEEN_TEST_FULL=$(FULL) go test -tags faults -count=1 -timeout 30m $(FAULTS) ./e2e/faults

# Random faults on three servers and a Redis with Sentinels, for CHAOS. SEED=42 repeats the faults of a run that logged
# this seed. With an odd seed, the servers have --redis-wait, and nothing acknowledged may be lost.
CHAOS = 1h
SEED =
test-chaos:
	LASTSEEN_TEST_CHAOS=$(CHAOS) LASTSEEN_TEST_SEED=$(SEED) \
	  go test -tags faults -count=1 -timeout 48h -v -run 'TestChaos$$' ./e2e/faults

# bench/README.md describes what is measured, and how. BENCH=-quick only checks that it works.
BENCH = -write RESULTS.md
bench:
	go run -C bench . $(BENCH)

# Whether times show what users hide: distributions within one run. It needs an otherwise idle machine.
bench-privacy:
	go test -count=1 -timeout 1h -run '^$$' -bench 'Invisible|Strangers|TimingNotices' -benchtime 1x ./e2e/privacy

# How large the code is: lengths, and the numbers that size_test.go lets only fall.
size:
	go run -C tools/size . -root ../..
	go test -count=1 -v -run 'TestSizeOnlyFalls$$' .

# The container image, with its version.
image:
	docker build -t lastseen --build-arg VERSION="$$(git describe --tags --always --dirty)" --build-arg REVISION="$$(git rev-parse HEAD)" .

# The image and compose.yaml, with real containers.
containers:
	deploy/test

hook:
	printf '#!/bin/sh\nexec make check\n' > .git/hooks/pre-push && chmod +x .git/hooks/pre-push
