# make demo          build, fetch engine and model, run timing and mediation, print the tables, write a report
# make demo-ollama   the same through a real Ollama server
# make test          everything: format, vet, staticcheck, race tests, real engine, real server, browser, training, exports
# make dist          archives of the release for linux and macOS, amd64 and arm64, with checksums, in dist/
# make torture       kills, spoiled answers, damaged files, full disks, no network; seeded by TORTURE_SEED; 40 minutes
#
# Time budget of `make test` on two cores with an empty cache: 60 minutes in all.
#   modules, engine, model   2 min   once
#   ollama build             6 min   once, when no ollama is on the PATH
#   lint                     3 min
#   unit and race tests      9 min   the real engine and the real server included
#   torture, its short form  2 min
#   torch                    4 min   once, 3 GB
#   training scripts         3 min
#   the line of fine-tuning  5 min
#   states against torch     3 min
#   browser, pdflatex        4 min   2 of it once, when there are none
#   exports, ccmed_runs      3 min   1 of it once, 0.9 GB
#   an archive of make dist  1 min

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

RELEASE := $(shell awk '/^\#\# /{ if ($$2 ~ /^[0-9]/) { print $$2 suffix; exit } suffix = "+unreleased" }' CHANGELOG.md)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEMO_OUT ?= runs
# With it the torture sees whom the program contacts.
STRACE := command -v strace >/dev/null || { apt-get update && apt-get install -y strace; } >/dev/null || echo 'no strace, and none could be installed'

.PHONY: build dist demo demo-ollama test test-browser test-python torture lint bench clean

build:
	CGO_ENABLED=0 go build -ldflags "-X main.release=$(RELEASE)" -o bin/ccmed ./cmd/ccmed

dist:
	scripts/dist.sh $(RELEASE)

demo: build
	bin/ccmed engine install
	model=$$(scripts/get_smollm2.sh); scripts/demo.sh "$$model" --backend embedded

demo-ollama: build
	bin/ccmed engine install
	model=$$(scripts/get_smollm2.sh); ollama=$$(scripts/install_ollama.sh); \
	CCMED_OLLAMA_BIN="$$ollama" scripts/with_ollama.sh smollm2-demo "$$model" scripts/demo.sh smollm2-demo --backend ollama

lint:
	test -z "$$(gofmt -l bench cmd docs infer probe scripts sft)" || { gofmt -l bench cmd docs infer probe scripts sft; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	go mod tidy -diff
	for f in scripts/*.sh .ci/run; do bash -n "$$f"; done

# The Python side: what its packages check, the training scripts, the whole line of
# fine-tuning, hidden states against transformers, the package ccmed_runs as a wheel, and
# exports in the tools that they are made for.
test-python:
	python=$$(scripts/test_python.sh); model=$$(scripts/get_smollm2.sh); ollama=$$(scripts/install_ollama.sh); \
	"$$python" -m ruff check probe/linear/testdata bench/timing/testdata; \
	scripts/test_train.sh -q; \
	CCMED_REQUIRE=1 CCMED_REQUIRE_PYTHON=1 CCMED_TEST_PYTHON="$$python" CCMED_TEST_MODEL="$$model" CCMED_OLLAMA_BIN="$$ollama" \
	  go test -count=1 -timeout 30m -run 'TinyLine|SmolLM2Line' ./cmd/ccmed
	scripts/test_states.sh
	scripts/test_exports.sh

# Reports in a real browser, with axe-core for accessibility, and tables and figures in a
# paper that pdflatex sets. Its bars are of processor time, which -race would spoil.
test-browser:
	chromium=$$(scripts/install_chromium.sh); axe=$$(scripts/get_axe.sh); latex=$$(scripts/install_latex.sh); \
	CCMED_REQUIRE_BROWSER=1 CCMED_TEST_CHROMIUM="$$chromium" CCMED_TEST_AXE="$$axe" CCMED_TEST_LATEX="$$latex" \
	  go test -count=1 -timeout 15m -run '^Test(Browser|Paper)' ./cmd/ccmed

# CCMED_REQUIRE=1 turns "skipped: no engine, model or server" into a failure.
test: build lint
	bin/ccmed engine install
	model=$$(scripts/get_smollm2.sh); ollama=$$(scripts/install_ollama.sh); \
	export CCMED_REQUIRE=1 CCMED_TEST_MODEL="$$model" CCMED_OLLAMA_BIN="$$ollama"; \
	go test -race -timeout 40m ./... && go test -timeout 20m ./cmd/ccmed
	$(STRACE)
	model=$$(scripts/get_smollm2.sh); CCMED_REQUIRE=1 CCMED_TEST_MODEL="$$model" go test -count=1 -timeout 15m ./cmd/ccmed/torture
	$(MAKE) test-browser test-python
	scripts/test_dist.sh $(RELEASE)

# The whole of what `make test` does a short form of. TORTURE_RUN names some parts alone:
# Kills, Requests, Always, Files, Disk, Network, Security.
TORTURE_SEED ?= 1
TORTURE_RUN ?= .
torture: build
	bin/ccmed engine install
	$(STRACE)
	model=$$(scripts/get_smollm2.sh); \
	CCMED_TORTURE=1 CCMED_REQUIRE=1 TORTURE_SEED="$(TORTURE_SEED)" CCMED_TEST_MODEL="$$model" \
	  go test -count=1 -timeout 120m -v -run '$(TORTURE_RUN)' ./cmd/ccmed/torture | grep --line-buffered -v '^=== '

# BenchmarkStatesTransformers needs CCMED_BENCH_PYTHON, see scripts/test_python.sh.
bench:
	go test -run '^$$' -bench . -benchmem ./bench/run ./probe/linear ./probe/activation ./infer/llamacpp ./cmd/ccmed

clean:
	rm -rf bin dist
