package linear

import "golang.org/x/sys/cpu"

// kernelFMA is kernelGo with fused multiply-add over vectors of eight.
//
//go:noescape
func kernelFMA(depth int, a, b, c *float32, stride int)

func init() {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		kernel = func(depth int, a, b, c []float32, stride int) {
			// The kernel does not check bounds.
			_, _, _ = a[depth*panelA-1], b[depth*panelB-1], c[(panelA-1)*stride+panelB-1]
			kernelFMA(depth, &a[0], &b[0], &c[0], stride)
		}
	}
}
