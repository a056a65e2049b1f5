package report

import (
	"math"
	"regexp"
	"strconv"
	"testing"
)

// TestColoursDifferForEveryone: in both themes any two of the colours differ for those who
// see all colours, and for those who miss one kind of cones, as simulated by Machado,
// Oliveira and Fernandes (2009).
func TestColoursDifferForEveryone(t *testing.T) {
	const least = 30 // CIE76; 2 is just noticeable
	vision := map[string][3][3]float64{
		"all":          {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
		"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
		"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
		"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
	}
	found := regexp.MustCompile(`--s\d: #([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})`).FindAllStringSubmatch(figureCSS, -1)
	if len(found) != 2*hues {
		t.Fatalf("%d colours", len(found))
	}
	for name, m := range vision {
		var lab [2 * hues][3]float64
		for i, c := range found {
			var linear, seen [3]float64
			for k := range 3 {
				v, _ := strconv.ParseUint(c[k+1], 16, 8)
				linear[k] = math.Pow((float64(v)/255+0.055)/1.055, 2.4)
			}
			for k, row := range m {
				seen[k] = min(1, max(0, row[0]*linear[0]+row[1]*linear[1]+row[2]*linear[2]))
			}
			x := math.Cbrt((0.4124*seen[0] + 0.3576*seen[1] + 0.1805*seen[2]) / 0.9505)
			y := math.Cbrt(0.2126*seen[0] + 0.7152*seen[1] + 0.0722*seen[2])
			z := math.Cbrt((0.0193*seen[0] + 0.1192*seen[1] + 0.9505*seen[2]) / 1.089)
			lab[i] = [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
		}
		for i := range lab {
			for j := i + 1; j < (i/hues+1)*hues; j++ {
				d := math.Sqrt(math.Pow(lab[i][0]-lab[j][0], 2) + math.Pow(lab[i][1]-lab[j][1], 2) + math.Pow(lab[i][2]-lab[j][2], 2))
				if d < least {
					t.Errorf("%s: colours %d and %d differ by %.0f", name, i, j, d)
				}
			}
		}
	}
}
