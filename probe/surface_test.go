package probe

import (
	"testing"
)

// TestSurfaceKnowsTrainingWordsOnly: a word of held-out texts alone is no feature.
func TestSurfaceKnowsTrainingWordsOnly(t *testing.T) {
	texts := []string{"red apples", "red apples", "red apples", "blue plums", "blue plums", "blue plums"}
	turns := make([]int, len(texts))
	some, err := surface(texts, turns)([]int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	all, err := surface(texts, turns)([]int{0, 1, 2, 3, 4, 5})
	if err != nil {
		t.Fatal(err)
	}
	n, seen := some.Dims()
	if _, both := all.Dims(); n != len(texts) || both-seen != 3 { // blue, plums, "blue plums"
		t.Errorf("%d rows of %d features, %d with the vocabulary of all texts", n, seen, both)
	}
	if _, err := surface([]string{"one", "two", "three"}, turns[:3])([]int{0, 1}); err == nil {
		t.Error("texts that share no words have features")
	}
}
