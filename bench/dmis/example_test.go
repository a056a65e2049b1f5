package dmis_test

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/dmis"
)

func Example() {
	pre := dmis.Distribution{0.1, 0.7, 0.2}     // mostly Defense
	post := dmis.Distribution{0, 0.2, 0.3, 0.5} // mostly Acceptance
	fmt.Printf("%v to %v: %+.1f\n", pre.Argmax(), post.Argmax(), dmis.SignedW1(pre, post, dmis.Paige))

	// The mediator speaks after turn 6 of 8; the speaker's stage follows.
	auc, err := dmis.StageAUC(dmis.Defense, 6, 8, []dmis.StageAt{{7, dmis.Adaptation}, {8, dmis.Integration}}, dmis.Paige)
	fmt.Println(auc, err)
	// Output:
	// Defense to Acceptance: +1.7
	// 4.25 <nil>
}
