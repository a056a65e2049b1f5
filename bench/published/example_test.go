package published_test

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/published"
)

func ExampleTable() {
	t, _ := published.Table(published.Timing, map[string]published.Measured{
		published.TurnAcc: {Value: 0.31, Lo: 0.24, Hi: 0.38},
	}, published.Options{Models: []string{"gemma2:9b"}})
	for _, row := range t.Rows {
		fmt.Println(row)
	}
	// Output: [TurnAcc, six models 11.3 % to 35.8 % (section 4.1) range 31.0 % [24.0 %, 38.0 %] within the range]
}
