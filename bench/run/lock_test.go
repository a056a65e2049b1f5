package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// A lock that is taken away under a running process lets no second one in, and the
// run stops with a sentence; so it does when its folder is moved, removed or
// replaced. No sample is written twice, and what is left can be resumed.
func TestLockTakenAway(t *testing.T) {
	for what, take := range map[string]func(t *testing.T, path string){
		"the lock is removed": func(t *testing.T, path string) {
			try(t, os.Remove(filepath.Join(path, lockFile)))
			var locked *LockedError
			if _, _, err := Resume(path, identity(), nil); !errors.As(err, &locked) {
				t.Errorf("a second writer came in: %v", err)
			}
			if _, held := Holder(path); !held {
				t.Error("the run does not count as held")
			}
		},
		"the lock is replaced": func(t *testing.T, path string) {
			try(t, os.Remove(filepath.Join(path, lockFile)))
			try(t, os.WriteFile(filepath.Join(path, lockFile), nil, 0o644))
		},
		"the folder is moved": func(t *testing.T, path string) { try(t, os.Rename(path, path+"-moved")) },
		"the folder is replaced": func(t *testing.T, path string) {
			try(t, os.Rename(path, path+"-moved"))
			if _, err := Execute(t.Context(), create(t, path), words(12), Options{Workers: (&echo{}).workers(1)}); err != nil {
				t.Error(err)
			}
		},
		"the folder is removed": func(t *testing.T, path string) { try(t, os.RemoveAll(path)) },
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			d, err := Create(path, identity(), nil)
			if err != nil {
				t.Fatal(err)
			}
			task := words(12)
			do := task.Steps[0].Do
			task.Steps[0].Do = func(ctx context.Context, b infer.Backend, u Unit[int], l Lookup) (Sample, error) {
				if u.Value == 5 {
					take(t, path)
				}
				return do(ctx, b, u, l)
			}
			_, err = Execute(t.Context(), d, task, Options{Workers: (&echo{}).workers(1), MaxFailures: 100})
			var lost *LostError
			if !errors.As(err, &lost) || strings.Count(err.Error(), "no longer this run's") != 1 {
				t.Fatalf("error %v", err)
			}
			left := path
			if _, err := os.Stat(path + "-moved"); err == nil {
				left += "-moved"
			}
			if what == "the folder is removed" {
				return
			}
			if n := len(content(t, left)); n != 5 {
				t.Errorf("%d samples are kept, want the 5 before", n)
			}
			if what == "the folder is replaced" {
				if err := Verify(path, VerifyOptions{}); err != nil {
					t.Errorf("the other run was touched: %v", err)
				}
			}
			if _, err := Execute(t.Context(), resume(t, left), words(12), Options{Workers: (&echo{}).workers(2)}); err != nil {
				t.Fatal(err)
			}
			if n := len(content(t, left)); n != 24 {
				t.Errorf("%d samples after resuming, want 24", n)
			}
		})
	}
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Looking who holds a run keeps no writer out.
func TestHolderKeepsNobodyOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	if err := create(t, path).Close(StatusInterrupted); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				Holder(path)
			}
		}
	}()
	for range 20 {
		if err := resume(t, path).Close(StatusInterrupted); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-looked
}
