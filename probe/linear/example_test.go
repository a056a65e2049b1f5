package linear_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ccmed/ccmed/probe/linear"
)

// Sixteen utterances of four scenarios, held out by scenario.
func Example() {
	var texts, scenarios []string
	var y []int
	for _, scenario := range []string{"wedding", "office", "school", "market"} {
		for i, mood := range []string{"we understand", "you never", "we understand", "they never"} {
			texts = append(texts, mood+" at the "+scenario)
			scenarios = append(scenarios, scenario)
			y = append(y, i%2)
		}
	}
	folds, err := linear.GroupKFold(y, scenarios, 4, 1)
	if err != nil {
		log.Fatal(err)
	}
	train, test := linear.Split(folds, 0)
	words, err := linear.FitVectorizer(linear.At(texts, train), linear.VectorizerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	x := words.Transform(texts)
	model, err := linear.Fit(context.Background(), x.Take(train), linear.At(y, train), 2, linear.Options{C: 10})
	if err != nil {
		log.Fatal(err)
	}
	p, err := model.Predict(x.Take(test))
	if err != nil {
		log.Fatal(err)
	}
	score, err := p.Score(linear.At(y, test))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("accuracy %.2f on %d held-out texts\n", score.Accuracy, score.N)
	// Output: accuracy 1.00 on 4 held-out texts
}
