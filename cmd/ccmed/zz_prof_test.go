package main

import (
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

func TestZZProf(t *testing.T) {
	args := strings.Fields(os.Getenv("ZZ"))
	if len(args) == 0 {
		t.Skip()
	}
	done := make(chan bool)
	var peak uint64
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if m.HeapAlloc > peak+100<<20 {
				peak = m.HeapAlloc
				runtime.GC()
				f, _ := os.Create("/tmp/lead/heap.prof")
				pprof.WriteHeapProfile(f)
				f.Close()
			}
		}
	}()
	c, _ := os.Create("/tmp/lead/cpu.prof")
	pprof.StartCPUProfile(c)
	start := time.Now()
	code, _, errs := exits(map[string]string{}, args...)
	pprof.StopCPUProfile()
	c.Close()
	close(done)
	t.Logf("%d %s %.1fs peak %d MB", code, errs, time.Since(start).Seconds(), peak>>20)
}
