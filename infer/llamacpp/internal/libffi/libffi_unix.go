//go:build linux || darwin || freebsd

// Package libffi lets a program that can run llama.cpp start where libffi is
// missing. The package jupiterrider/ffi loads libffi when it is initialised and
// panics without it, before main, in commands that need no engine too.
//
// Go initialises packages in the order of their import paths, as far as their
// imports allow. This package's path comes before that of jupiterrider/ffi and it
// imports less, so that it is initialised first: it gives that package a handle
// that leads nowhere in the place of a libffi that cannot be loaded, until Missing
// is called. A test of the commands without libffi holds this.
package libffi

import (
	_ "unsafe" // for go:linkname

	_ "github.com/ebitengine/purego" // is initialised before
)

// What purego.Dlopen, Dlsym and Dlerror call.
//
//go:linkname dlopen github.com/ebitengine/purego.fnDlopen
var dlopen func(path string, mode int) uintptr

//go:linkname dlsym github.com/ebitengine/purego.fnDlsym
var dlsym func(handle uintptr, name string) uintptr

//go:linkname dlerror github.com/ebitengine/purego.fnDlerror
var dlerror func() string

var (
	open    func(path string, mode int) uintptr
	sym     func(handle uintptr, name string) uintptr
	missing error
)

// nowhere is neither a handle nor an address.
const nowhere = ^uintptr(0)

func init() {
	open, sym = dlopen, dlsym
	if open == nil || sym == nil || dlerror == nil {
		return
	}
	dlopen = func(path string, mode int) uintptr {
		h := open(path, mode)
		if h == 0 {
			h, missing = nowhere, reason(dlerror())
		}
		return h
	}
	dlsym = func(handle uintptr, name string) uintptr {
		if handle == nowhere {
			return nowhere
		}
		return sym(handle, name)
	}
}

type reason string

func (r reason) Error() string { return string(r) }

// Missing returns why libffi could not be loaded, and nil where it was. Nothing
// of jupiterrider/ffi may be called unless it is nil. It is to be called by a
// package that imports that one, when it is initialised.
func Missing() error {
	dlopen, dlsym = open, sym
	return missing
}
